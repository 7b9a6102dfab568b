"""Federations: what their members agree on, and the coordinator that folds updates into the global model.

Every client runs Algorithm 1 on its own data, with its own ledger and its own guarantee, and sends noised updates. The
coordinator trusts nobody: it checks every update and counts what it rejects, with the reason. :mod:`dpsgd.flower`
carries both over Flower; ``dpsgd serve`` and ``dpsgd join`` are the same over NATS.

>>> import numpy as np
>>> from dpsgd import Mechanism
>>> run = Mechanism.subsample(samples=600, groups=20, epochs=1, sigma=1.0)
>>> terms = Terms.of(run, dimension=10_000, clients=2, clip=1.0, lr=0.1)
>>> server = Coordinator(terms, np.zeros(10_000, dtype=np.float32))
>>> noise = np.random.default_rng(0).normal(scale=2 * 1.0 * 1.0 / 20, size=10_000).astype(np.float32)
>>> server.apply(1, terms.update(client=1, round=0, base=0, values=noise)).accepted
True
>>> server.apply(1, terms.update(client=1, round=0, base=0, values=noise)).reason
'replayed'
>>> server.apply(2, terms.update(client=2, round=0, base=0, values=noise * np.nan)).reason
'not-finite'
>>> server.version, server.summary()["updates_rejected"]
(1, {'not-finite': 1, 'replayed': 1})
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsgd import _dpsgd
from dpsgd.mechanism import Mechanism

__all__ = ["Coordinator", "Outcome", "Terms"]


class Terms:
    """What everybody in a federation agrees on; all of it is public. Made by :meth:`of`, or read from JSON."""

    __slots__ = ("_native",)

    def __init__(self, text: str) -> None:
        """Reads the JSON of :meth:`json`, and checks it."""
        self._native = _dpsgd.Terms(text)

    @classmethod
    def of(
        cls,
        mechanism: Mechanism,
        *,
        dimension: int,
        clients: int,
        clip: float,
        lr: float,
        lr_rule: Literal["constant", "inverse-root"] = "constant",
        rounds: int | None = None,
        noise_range: float = 2.0,
        max_staleness: int | None = None,
        rule: str = "each",
        staleness_power: float | None = None,
        outer: Literal["plain", "momentum", "adam"] = "plain",
        momentum: float = 0.9,
        name: str = "federation",
    ) -> Terms:
        """The terms of a federation whose typical client has this mechanism, C and η.

        Args:
            mechanism: of a typical client, with its noise. It is not sent: the terms hold the range of the noise only.
            dimension: d, the trained parameters of the model.
            clients: the most clients; they are numbered from 1.
            clip: C of a typical client.
            lr: η, the same for all clients.
            lr_rule: how η falls with a client's rounds.
            rounds: the most rounds of a client; those of the mechanism unless given.
            noise_range: a client may have this many times more or less noise than the typical one.
            max_staleness: an update from a model that is more versions old is rejected; none is unless given. Its client
                has paid for it all the same: weight it down by ``staleness_power`` instead.
            rule: how updates become steps: ``each``, ``buffer:K``, ``trimmed:K:TRIM`` or ``median:K``.
            staleness_power: weight an update that is τ versions old by (1 + τ)^−p.
            outer: the server's optimizer.
            momentum: its coefficient.
            name: for people; something random is added, so that no two federations are the same run.
        """
        optimizers: dict[str, dict[str, Any]] = {
            "plain": {},
            "momentum": {"momentum": momentum, "nesterov": False},
            "adam": {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
        }
        if outer not in optimizers:
            raise ValueError(f"outer = {outer}: plain, momentum or adam")
        settings = {
            "data": "arrays", **mechanism.settings, "clip": float(clip), "step": float(lr), "step_rule": lr_rule,
            "outer": "plain",
        }
        longest = min(clients * (rounds or mechanism.rounds), 1 << 20)
        made = cls.__new__(cls)
        made._native = _dpsgd.Terms.of(
            settings,
            name=f"{name} {secrets.token_hex(8)}",
            dimension=dimension,
            clients=clients,
            rounds=rounds,
            noise_range=noise_range,
            max_staleness=longest if max_staleness is None else max_staleness,
            rule=rule,
            staleness_power=staleness_power,
            outer=json.dumps({"kind": outer, **optimizers[outer]}),
        )
        return made

    @property
    def run(self) -> str:
        """The name of the run, which is the digest of the terms: who holds other terms is in another run."""
        return self._native.run

    @property
    def dimension(self) -> int:
        """d."""
        return self._native.dimension

    @property
    def clients(self) -> int:
        """The clients are numbered 1 to this."""
        return self._native.clients

    @property
    def rounds(self) -> int:
        """The most rounds of a client."""
        return self._native.rounds

    def json(self) -> str:
        """The terms, to be sent or kept."""
        return self._native.json()

    def update(self, *, client: int, round: int, base: int, values: ArrayLike) -> bytes:
        """The frame of an update, as clients send it; `docs/protocol.md` specifies it."""
        array = np.ascontiguousarray(values, dtype=np.float32)
        return self._native.update(client, round, base, array)

    def model(self, frame: bytes) -> tuple[int, NDArray[np.float32]]:
        """Version and weights of the frame of a model."""
        version, _, weights = self._native.model(frame)
        return version, weights

    def same_but_for_the_name(self, other: Terms) -> bool:
        """Whether two federations would agree on the same."""

        def nameless(terms: Terms) -> dict[str, Any]:
            return {key: value for key, value in json.loads(terms.json()).items() if key != "name"}

        return nameless(self) == nameless(other)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Terms) and self.run == other.run

    def __hash__(self) -> int:
        return hash(self.run)

    def __reduce__(self) -> tuple[type[Terms], tuple[str]]:
        return (Terms, (self.json(),))

    def __repr__(self) -> str:
        return f"Terms({self.json()!r})"


@dataclass(frozen=True)
class Outcome:
    """What became of an update."""

    accepted: bool
    """Whether it was folded."""
    reason: str | None = None
    """Why not: format, checksum, run, sender, step, dimension, not-finite, norm, coordinate, replayed, beyond-plan,
    from-future or stale."""
    round: int | None = None
    """Its round."""
    staleness: int | None = None
    """How many versions old the model was that it started from."""
    stepped: bool = False
    """Whether it completed a step of the global model."""


class Coordinator:
    """Folds updates into the global model: the same updates in the same order give the same model, bit for bit.

    Whatever a client sends, the weights stay finite, and each round of a client is folded at most once.
    """

    def __init__(self, terms: Terms, weights: ArrayLike) -> None:
        """Before the first update, with these weights as version 0 of the model."""
        self._native = _dpsgd.Coordinator(terms._native, np.ascontiguousarray(weights, dtype=np.float32))
        self.terms = terms

    @classmethod
    def restore(cls, terms: Terms, saved: bytes) -> Coordinator:
        """From what :meth:`snapshot` returned."""
        made = cls.__new__(cls)
        made._native = _dpsgd.Coordinator.restore(terms._native, saved)
        made.terms = terms
        return made

    def snapshot(self) -> bytes:
        """Everything, to be saved."""
        return self._native.snapshot()

    def apply(self, sender: int, frame: bytes) -> Outcome:
        """Reads what a client sent. ``sender`` is the number of the client that the transport vouches for, never what
        the bytes say."""
        reason, folded = self._native.apply(sender, frame)
        if folded is None:
            return Outcome(False, reason)
        round, staleness, stepped = folded
        return Outcome(True, None, round, staleness, stepped)

    def model(self) -> bytes:
        """The frame of the global model, as clients receive it."""
        return self._native.model()

    def weights(self) -> NDArray[np.float32]:
        """The global model."""
        return self._native.weights()

    @property
    def version(self) -> int:
        """The steps that the global model has made."""
        return self._native.version

    def summary(self) -> dict[str, Any]:
        """Accepted and rejected updates, by client and by reason, and their staleness."""
        found: dict[str, Any] = json.loads(self._native.summary())
        return found
