"""The accountant of dpsgd for Google's dp_accounting: composes the DpEvents it can prove, and refuses the rest.

>>> import dp_accounting
>>> from dpsgd.dp_accounting import DPSGDAccountant
>>> event = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0))
>>> DPSGDAccountant().compose(event, 1000).get_epsilon(1e-5)
1.8282366...

Supported: ``GaussianDpEvent``, ``PoissonSampledDpEvent`` of one, ``NoOpDpEvent``, ``NonPrivateDpEvent``, and
compositions of these; neighbours by ``ADD_OR_REMOVE_ONE`` or ``REPLACE_ONE``. Sampling without replacement is
refused: it is not settled which noise its Gaussian has there (relative to C or to 2C), and a guess could state half
of what leaks.
"""

from __future__ import annotations

import math
from typing import TypeAlias

from dp_accounting import dp_event
from dp_accounting.privacy_accountant import NeighboringRelation, PrivacyAccountant

from dpsgd.bound import Bound
from dpsgd.mechanism import Mechanism, Neighbours

__all__ = ["DPSGDAccountant"]

_RELATIONS: dict[NeighboringRelation, Neighbours] = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: "add-remove",
    NeighboringRelation.REPLACE_ONE: "substitute",
}
_Details: TypeAlias = PrivacyAccountant.CompositionErrorDetails


class DPSGDAccountant(PrivacyAccountant):
    """Certified ε and δ; the values are the upper ends of proved intervals."""

    def __init__(self, neighboring_relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE) -> None:
        if neighboring_relation not in _RELATIONS:
            raise ValueError(f"neighboring_relation = {neighboring_relation}: ADD_OR_REMOVE_ONE or REPLACE_ONE")
        super().__init__(neighboring_relation)
        self._rounds: dict[tuple[float, float], int] = {}
        self._bare = False

    def _maybe_compose(self, event: dp_event.DpEvent, count: int, do_compose: bool) -> _Details | None:
        if isinstance(event, dp_event.NoOpDpEvent):
            return None
        if isinstance(event, dp_event.NonPrivateDpEvent):
            self._bare |= do_compose and count > 0
            return None
        if isinstance(event, dp_event.SelfComposedDpEvent):
            return self._maybe_compose(event.event, event.count * count, do_compose)
        if isinstance(event, dp_event.ComposedDpEvent):
            for part in event.events:
                wrong = self._maybe_compose(part, count, do_compose)
                if wrong is not None:
                    return wrong
            return None
        if isinstance(event, dp_event.GaussianDpEvent):
            return self._gaussian(event, 1.0, count, do_compose)
        if isinstance(event, dp_event.PoissonSampledDpEvent):
            if isinstance(event.event, dp_event.GaussianDpEvent):
                return self._gaussian(event.event, event.sampling_probability, count, do_compose)
            return _Details(event, "only a GaussianDpEvent can be Poisson-sampled here")
        if isinstance(event, dp_event.SampledWithoutReplacementDpEvent):
            return _Details(
                event,
                "it is not settled whether the noise of a Gaussian sampled without replacement is relative to C or 2C; "
                "use dpsgd.Mechanism.subsample, which says which",
            )
        return _Details(event, "not supported by dpsgd")

    def _gaussian(
        self, event: dp_event.GaussianDpEvent, rate: float, count: int, do_compose: bool
    ) -> _Details | None:
        noise = event.noise_multiplier
        if noise == 0 and rate > 0:
            self._bare |= do_compose and count > 0
            return None
        try:
            if rate > 0:
                self._phase(rate, noise, 1)
        except ValueError as why:
            return _Details(event, str(why))
        if do_compose and count > 0 and rate > 0:
            self._rounds[rate, noise] = self._rounds.get((rate, noise), 0) + count
        return None

    def _phase(self, rate: float, noise: float, count: int) -> Mechanism:
        neighbours = _RELATIONS[self._neighboring_relation]
        return Mechanism.poisson(rate=rate, rounds=count, noise_multiplier=noise, neighbours=neighbours)

    @property
    def mechanism(self) -> Mechanism | None:
        """What was composed so far, for every other question (β, µ, curves); None if nothing was."""
        if not self._rounds:
            return None
        return Mechanism.phases(self._phase(rate, noise, count) for (rate, noise), count in self._rounds.items())

    def get_epsilon(self, target_delta: float) -> float:
        """ε at δ: at most this, certified."""
        if self._bare:
            return math.inf
        mechanism = self.mechanism
        return Bound(0.0, 0.0) if mechanism is None else mechanism.epsilon(target_delta)

    def get_delta(self, target_epsilon: float) -> float:
        """δ at ε: at most this, certified."""
        if self._bare:
            return 1.0
        mechanism = self.mechanism
        return Bound(0.0, 0.0) if mechanism is None else mechanism.delta(target_epsilon)
