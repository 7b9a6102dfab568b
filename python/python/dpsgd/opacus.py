"""Opacus with the accountant of dpsgd: ``PrivacyEngine(accountant="dpsgd")``.

>>> import dpsgd.opacus
>>> from opacus.accountants.utils import get_noise_multiplier
>>> round(get_noise_multiplier(target_epsilon=3, target_delta=1e-5, sample_rate=0.01, steps=5000,
...                            accountant="dpsgd", epsilon_tolerance=1e-4), 3)
1.211

Importing this module registers the accountant. It answers for Poisson sampling, adding or removing one sample: what
Opacus' own accountants assume. Opacus tells an accountant nothing but the noise multiplier and the sampling rate, so
**no accountant can notice a data loader that does not sample that way** (``poisson_sampling=False``, a shuffling
``DataLoader``): its answer is then about a run that did not happen.
"""

from __future__ import annotations

import math
from typing import Any

from opacus.accountants.accountant import IAccountant
from opacus.accountants.registry import register_accountant

from dpsgd.bound import Bound
from dpsgd.mechanism import Mechanism

__all__ = ["DPSGDAccountant"]


class DPSGDAccountant(IAccountant):
    """Certified ε of Poisson-sampled Gaussian rounds; the value is the upper end of a proved interval."""

    def __init__(self) -> None:
        self.history: list[tuple[float, float, int]] = []

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """One optimization step."""
        if self.history and self.history[-1][:2] == (noise_multiplier, sample_rate):
            steps = self.history.pop()[2] + 1
        else:
            steps = 1
        self.history.append((noise_multiplier, sample_rate, steps))

    def mechanism_of_history(self) -> Mechanism:
        """What was done so far, for every other question (δ, β, µ, curves)."""
        if not self.history:
            raise ValueError("history: no step has been taken yet")
        together: dict[tuple[float, float], int] = {}
        for noise, rate, steps in self.history:
            together[noise, rate] = together.get((noise, rate), 0) + steps
        return Mechanism.phases(
            Mechanism.poisson(rate=rate, rounds=steps, noise_multiplier=noise)
            for (noise, rate), steps in together.items()
        )

    def get_epsilon(self, delta: float, **kwargs: Any) -> float:
        """ε spent so far at δ: at most this, certified."""
        if kwargs:
            raise TypeError(f"get_epsilon: unknown arguments {', '.join(kwargs)}; the answer needs no tolerance")
        if not self.history:
            return Bound(0.0, 0.0)
        if any(noise == 0 for noise, _, _ in self.history):
            return math.inf
        return self.mechanism_of_history().epsilon(delta)

    def __len__(self) -> int:
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """The name under which Opacus knows it."""
        return "dpsgd"


register_accountant("dpsgd", DPSGDAccountant, force=True)
