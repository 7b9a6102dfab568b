"""What a run of differentially private SGD leaks."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsgd import _dpsgd
from dpsgd.bound import Bound, rounded_up

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Adversary = Literal["A0", "A1"]
Neighbours = Literal["substitute", "add-remove"]

# What describes a stretch of rounds; the rest belongs to the whole run.
_OF_A_PHASE = (
    "sampling", "samples", "groups", "group_size", "epochs", "rounds", "sigma", "noise_multiplier", "rate",
    "rounds_per_epoch", "filter",
)
_OF_THE_RUN = ("neighbours", "differing", "release_mu", "phase")


class Mechanism:
    """A run of Algorithm 1, checked once: what is accounted for is what is trained.

    Made by :meth:`subsample`, :meth:`shuffle`, :meth:`poisson`, :meth:`random_allocation` or :meth:`phases`.
    The settings have the names and meanings of the command's flags; what is not allowed raises a
    ``ValueError`` with the command's text.

    Two adversaries are known. A0 sees the updates of all rounds; A1 also knows which samples each round used.
    A method without ``adversary`` answers for A0 where a theorem covers the sampler, and for A1 elsewhere
    (:attr:`adversary`).

    >>> run = Mechanism.subsample(samples=60_000, groups=64, epochs=100, sigma=2.0)
    >>> round(run.epsilon(1e-5), 3), round(run.epsilon(1e-5, adversary="A1"), 2)
    (0.745, 35.01)
    >>> Mechanism.subsample(samples=60_000, groups=64, epochs=100, sigma=0.001)
    Traceback (most recent call last):
    ValueError: sigma = 0.001: between 0.05 and 100000 (less noise hides nothing, more leaves nothing to learn; \
the noise is N(0, (2Cσ)²))
    """

    __slots__ = ("_native", "_settings")

    def __init__(self, **settings: Any) -> None:
        """From settings with the names of the command's flags; the named constructors are easier to read."""
        unknown = set(settings) - set(_OF_A_PHASE) - set(_OF_THE_RUN)
        if unknown:
            raise TypeError(f"Mechanism: unknown settings {', '.join(sorted(unknown))}")
        given = {name: value for name, value in settings.items() if value is not None}
        # "arrays" is no data set the command knows, so nothing about the data is filled in.
        self._native = _dpsgd.Mechanism({"data": "arrays", **given})
        self._settings = given

    @classmethod
    def subsample(
        cls,
        *,
        samples: int,
        groups: int,
        group_size: int = 1,
        epochs: int | None = None,
        rounds: int | None = None,
        sigma: float | None = None,
        noise_multiplier: float | None = None,
        filter: bool = False,
        neighbours: Neighbours | None = None,
        differing: int = 1,
        releases: Sequence[float] = (),
    ) -> Mechanism:
        """Every round draws ``groups`` groups of ``group_size`` from all ``samples``.

        >>> run = Mechanism.subsample(samples=60_000, groups=64, epochs=100, sigma=2.0)
        >>> run.rounds, round(run.epsilon(1e-5), 3)
        (93700, 0.745)

        Args:
            samples: N, the size of the data set.
            groups: m, groups a round.
            group_size: s, samples a group; 1 is individual clipping.
            epochs: E, epochs of N/(m·s) rounds, rounded down; or
            rounds: T.
            sigma: σ: the noise on every coordinate is N(0, (2Cσ)²); or
            noise_multiplier: z = 2σ. Without either, :meth:`calibrate` chooses it.
            filter: keep every group with probability ½ only.
            neighbours: ``"substitute"`` unless said otherwise.
            differing: g, the number of samples in which neighbours differ.
            releases: µ of other Gaussian releases on the same data, each for one differing sample.
        """
        return cls(
            sampling="subsample", samples=samples, groups=groups, group_size=group_size, epochs=epochs,
            rounds=rounds, sigma=sigma, noise_multiplier=noise_multiplier, filter=filter or None,
            neighbours=neighbours, differing=differing, release_mu=_list(releases),
        )

    @classmethod
    def shuffle(
        cls,
        *,
        samples: int,
        groups: int,
        group_size: int = 1,
        epochs: int | None = None,
        rounds: int | None = None,
        sigma: float | None = None,
        noise_multiplier: float | None = None,
        filter: bool = False,
        neighbours: Neighbours | None = None,
        differing: int = 1,
        releases: Sequence[float] = (),
    ) -> Mechanism:
        """Every epoch is a permutation of the data, cut into rounds. Arguments as for :meth:`subsample`.

        Nothing useful is proved about A0 here, so the answers are those for A1.

        >>> Mechanism.shuffle(samples=60_000, groups=1, group_size=64, epochs=50, sigma=4).adversary
        'A1'
        """
        return cls(
            sampling="shuffle", samples=samples, groups=groups, group_size=group_size, epochs=epochs,
            rounds=rounds, sigma=sigma, noise_multiplier=noise_multiplier, filter=filter or None,
            neighbours=neighbours, differing=differing, release_mu=_list(releases),
        )

    @classmethod
    def poisson(
        cls,
        *,
        rate: float,
        rounds: int | None = None,
        epochs: int | None = None,
        groups: int | None = None,
        sigma: float | None = None,
        noise_multiplier: float | None = None,
        neighbours: Neighbours | None = None,
        differing: int = 1,
        releases: Sequence[float] = (),
    ) -> Mechanism:
        """Every round keeps each sample with probability ``rate``, as Opacus and dp_accounting assume.

        The size of the data is private here, so ``rate`` and ``groups`` must be public constants.

        >>> run = Mechanism.poisson(rate=0.01, epochs=10, noise_multiplier=1.0)
        >>> run.rounds, round(run.epsilon(1e-5), 3)
        (1000, 1.828)

        Args:
            rate: p.
            rounds: T; or
            epochs: E, epochs of 1/p rounds.
            groups: m, what the noised sum is divided by, about p times the size of the data; training needs it.
            sigma: σ: the noise on every coordinate is N(0, (2Cσ)²); or
            noise_multiplier: z = 2σ.
            neighbours: ``"add-remove"`` unless said otherwise.
            differing: g, the number of samples in which neighbours differ.
            releases: µ of other Gaussian releases on the same data, each for one differing sample.
        """
        return cls(
            sampling="poisson", rate=rate, rounds=rounds, epochs=epochs, groups=groups, sigma=sigma,
            noise_multiplier=noise_multiplier, neighbours=neighbours, differing=differing,
            release_mu=_list(releases),
        )

    @classmethod
    def random_allocation(
        cls,
        *,
        rounds_per_epoch: int,
        epochs: int | None = None,
        rounds: int | None = None,
        groups: int | None = None,
        group_size: int = 1,
        sigma: float | None = None,
        noise_multiplier: float | None = None,
        neighbours: Neighbours | None = None,
        differing: int = 1,
        releases: Sequence[float] = (),
    ) -> Mechanism:
        """In every epoch each sample draws one of ``rounds_per_epoch`` rounds (``--sampling allocate``).

        Every sample is used exactly once an epoch, and the privacy is close to Poisson sampling's. The size of
        the data is private, so ``rounds_per_epoch`` and ``groups`` (m, what the noised sum is divided by, about
        the size of the data divided by ``rounds_per_epoch``) must be public constants.

        With ``group_size`` s above 1 each sample draws one of the B·m cells of an epoch, and a cell is a group: it holds
        about s samples, and its mean gradient is clipped.

        >>> run = Mechanism.random_allocation(rounds_per_epoch=234, epochs=100, noise_multiplier=1.0)
        >>> round(run.epsilon(1e-5), 3)
        3.688
        """
        if group_size < 1:
            raise ValueError(f"group-size = {group_size}: at least 1")
        return cls(
            sampling="allocate", rounds_per_epoch=rounds_per_epoch, epochs=epochs, rounds=rounds, groups=groups,
            group_size=None if group_size == 1 else group_size, sigma=sigma, noise_multiplier=noise_multiplier, neighbours=neighbours, differing=differing,
            release_mu=_list(releases),
        )

    @classmethod
    def phases(
        cls,
        phases: Iterable[Mechanism],
        *,
        neighbours: Neighbours | None = None,
        differing: int | None = None,
        releases: Sequence[float] = (),
    ) -> Mechanism:
        """One run after the other on the same data, accounted for as one.

        Neighbours and differing samples must be the same in all of them; releases add up.

        >>> warm = Mechanism.subsample(samples=60_000, groups=64, epochs=10, sigma=2.0)
        >>> late = warm.replace(groups=256, epochs=5, sigma=1.5)
        >>> both = Mechanism.phases([warm, late])
        >>> both.epsilon(1e-5) > max(warm.epsilon(1e-5), late.epsilon(1e-5))
        True
        """
        parts: list[dict[str, Any]] = []
        common: dict[str, Any] = {"neighbours": neighbours, "differing": differing}
        released: list[float] = []
        for phase in phases:
            own = dict(phase._settings)
            parts.extend(own.pop("phase", [{name: own[name] for name in _OF_A_PHASE if name in own}]))
            for name in ("neighbours", "differing"):
                value = own.get(name)
                if name == "differing":
                    value = value or 1
                if common[name] is None:
                    common[name] = value
                elif value is not None and value != common[name]:
                    raise ValueError(
                        f"{name}: the phases say {common[name]} and {value}; it belongs to the whole run"
                    )
            released.extend(own.get("release_mu", []))
        released.extend(releases)
        return cls(phase=parts, release_mu=_list(released), **common)

    def then(self, after: Mechanism) -> Mechanism:
        """This run and then another one on the same data.

        >>> one = Mechanism.poisson(rate=0.01, rounds=1000, noise_multiplier=1.0)
        >>> round(one.then(one.replace(noise_multiplier=0.9)).epsilon(1e-5), 3)
        2.932
        """
        return Mechanism.phases([self, after])

    def replace(self, **changes: Any) -> Mechanism:
        """The same run with some settings changed; ``None`` takes a setting away.

        Of settings that say the same thing (epochs and rounds; sigma and noise_multiplier) a new one replaces
        the old one.

        >>> run = Mechanism.poisson(rate=0.01, rounds=1000, noise_multiplier=1.0)
        >>> run.replace(sigma=1.0).noise_multiplier
        2.0
        >>> run.replace(differing=2).epsilon(1e-5) > run.epsilon(1e-5)
        True
        """
        if "releases" in changes:
            changes["release_mu"] = _list(changes.pop("releases"))
        settings = dict(self._settings)
        for pair in (("epochs", "rounds"), ("sigma", "noise_multiplier")):
            if any(changes.get(name) is not None for name in pair):
                for name in pair:
                    settings.pop(name, None)
                    for phase in settings.get("phase", []):
                        if any(name in changes for name in pair):
                            raise ValueError(f"{pair[0]}: change it in the phases, and put them together again")
        settings.update(changes)
        return Mechanism(**settings)

    # Answers

    @property
    def adversary(self) -> Adversary:
        """The adversary that is meant when none is named."""
        return self._native.usual_adversary

    @property
    def rounds(self) -> int:
        """T, the rounds of the whole run."""
        return self._native.rounds

    @property
    def sigma(self) -> float | None:
        """σ, relative to 2C; None before :meth:`calibrate`. Phases that differ have :attr:`sigmas`."""
        found = self._native.sigmas
        if found is None:
            return None
        if len(set(found)) == 1:
            return found[0]
        raise ValueError("sigma: the phases differ; ask for sigmas")

    @property
    def sigmas(self) -> list[float] | None:
        """σ of every phase."""
        return self._native.sigmas

    @property
    def noise_multiplier(self) -> float | None:
        """z = 2σ, relative to C, as in Opacus and dp_accounting."""
        sigma = self.sigma
        return None if sigma is None else 2.0 * sigma

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings, by the names of the command's flags."""
        return dict(self._settings)

    def epsilon(self, delta: float = 1e-5, *, adversary: Adversary | None = None) -> Bound:
        """The smallest ε such that the run is (ε, δ)-DP: certified, the value is the upper end.

        >>> Mechanism.poisson(rate=0.01, rounds=1000, noise_multiplier=1.0).epsilon(1e-5).upper
        1.8282366...
        """
        return Bound(*self._native.epsilon(delta, adversary))

    def delta(self, epsilon: float, *, adversary: Adversary | None = None) -> Bound:
        """The smallest δ such that the run is (ε, δ)-DP: certified, the value is the upper end.

        >>> f"{Mechanism.poisson(rate=0.01, rounds=1000, noise_multiplier=1.0).delta(2.0):.2e}"
        '2.67e-06'
        """
        return Bound(*self._native.delta(epsilon, adversary))

    @overload
    def beta(self, alpha: float, *, adversary: Adversary | None = None) -> Bound: ...
    @overload
    def beta(self, alpha: ArrayLike, *, adversary: Adversary | None = None) -> NDArray[np.float64]: ...
    def beta(self, alpha: Any, *, adversary: Adversary | None = None) -> Any:
        """The miss rate of the best attack with false-alarm rate α: certified, the value is the lower end.

        A number gives a :class:`Bound`; an array gives an array of lower ends, which is fast: see
        :meth:`beta_interval` for both ends.

        >>> run = Mechanism.subsample(samples=60_000, groups=64, epochs=100, sigma=2.0)
        >>> run.beta(0.01) > 0.983
        True
        >>> run.beta([0.01, 0.5]).shape
        (2,)
        """
        if np.ndim(alpha) == 0:
            return Bound(*self._native.beta(float(alpha), adversary), guaranteed="lower")
        return self.beta_interval(alpha, adversary=adversary)[0]

    def beta_interval(
        self, alpha: ArrayLike, *, adversary: Adversary | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Certified lower and upper ends of the miss rate at many α.

        >>> run = Mechanism.poisson(rate=0.01, rounds=1000, noise_multiplier=1.0)
        >>> lower, upper = run.beta_interval([0.01, 0.1])
        >>> bool((lower <= upper).all() and (upper - lower < 1e-4).all())
        True
        """
        alphas = np.asarray(alpha, dtype=np.float64)
        lower, upper = self._native.betas(alphas.ravel().tolist(), adversary)
        return np.array(lower).reshape(alphas.shape), np.array(upper).reshape(alphas.shape)

    def mu(self, *, adversary: Adversary | None = None) -> Bound:
        """The smallest µ such that the run is µ-GDP for error rates of at least 1e-6: the value is the upper end.

        >>> round(Mechanism.subsample(samples=60_000, groups=64, epochs=100, sigma=2.0).mu(), 3)
        0.205
        """
        lower, upper, _ = self._native.mu(adversary)
        return Bound(lower, upper)

    def renyi(self, order: float, *, adversary: Adversary | None = None) -> Bound:
        """τ such that the run is (order, τ)-RDP: the value is the upper end. Converting back to ε loses information.

        >>> round(Mechanism.poisson(rate=0.01, rounds=1000, noise_multiplier=1.0).renyi(8), 3)
        0.894
        """
        return Bound(*self._native.renyi(order, adversary))

    def calibrate(
        self,
        *,
        epsilon: float | None = None,
        delta: float = 1e-5,
        mu: float | None = None,
        solve: Literal["sigma", "epochs", "groups"] = "sigma",
        adversary: Adversary | None = None,
    ) -> Mechanism:
        """The same run with the smallest σ (or the most epochs, or groups) that meets a target.

        >>> run = Mechanism.subsample(samples=60_000, groups=1024, epochs=15).calibrate(epsilon=3, delta=1e-5)
        >>> run.sigma
        1.11079635
        >>> run.epsilon(1e-5) <= 3
        True
        """
        target = {"epsilon": epsilon, "delta": delta} if epsilon is not None else {}
        value = self._native.solve(solve, adversary, mu=mu, **target)
        if solve == "sigma" and "phase" in self._settings:
            parts = [
                {name: set_to for name, set_to in phase.items() if name not in ("sigma", "noise_multiplier")}
                | {"sigma": value}
                for phase in self._settings["phase"]
            ]
            return Mechanism(**{**self._settings, "phase": parts})
        return self.replace(**{solve: value})

    def statement(
        self, delta: float | None = None, *, epsilon: float | None = None, alphas: Sequence[float] | None = None
    ) -> str:
        """Everything that can be said about the run, for people: what ``dpsgd account`` prints.

        Args:
            delta: δ at which ε is stated; 1e-5 if neither is given.
            epsilon: ε at which δ is stated instead.
            alphas: false-alarm rates at which the best attack is stated; 0.01, 0.05 and 0.5 if not given.

        >>> print(Mechanism.poisson(rate=0.01, rounds=1000, noise_multiplier=1.0).statement(1e-5))
        THE RUN
        ...
        """
        return self._native.statement(delta, epsilon, None if alphas is None else list(alphas))

    def account(
        self, delta: float | None = None, *, epsilon: float | None = None, alphas: Sequence[float] | None = None
    ) -> dict[str, Any]:
        """The same as data: the JSON of ``dpsgd account --json``.

        >>> run = Mechanism.poisson(rate=0.01, rounds=1000, noise_multiplier=1.0)
        >>> [one["adversary"] for one in run.account(1e-5)["guarantees"]]
        ['A1', 'A0']
        """
        found: dict[str, Any] = json.loads(self._native.json(delta, epsilon, None if alphas is None else list(alphas)))
        return found

    def audit(self, *, seconds: float = 60.0, trials: int | None = None, clip: float = 1.0) -> Audit:
        """Attacks the production sampler, clip, noise and rounds on worst-case data, each phase as a run of its own;
        ``dpsgd audit mechanism``.

        A correct implementation is contradicted with probability at most 1e-6 for each phase.

        >>> bool(Mechanism.subsample(samples=1000, groups=10, epochs=1, sigma=1.0).audit(trials=100))
        True
        """
        settings = {"data": "arrays", **self._settings, "clip": clip, "step": 1.0, "outer": "plain"}
        return Audit(*_dpsgd.audit(settings, seconds=seconds, trials=trials))

    # Manners

    def plot(self, ax: Axes | None = None, *, points: int = 200, log: bool = False) -> Axes:
        """Draws the trade-off function against both adversaries; needs matplotlib.

        Args:
            ax: where to draw; a new figure if there is none.
            points: how many.
            log: detection rate over false-alarm rate on logarithmic axes, for attacks with few false alarms.

        Returns:
            The axes; ``.figure.savefig("curve.png")`` keeps the figure.
        """
        import matplotlib.pyplot as plt

        if ax is None:
            ax = plt.figure(figsize=(5, 5)).add_subplot()
        alphas = np.geomspace(1e-5, 1, points) if log else np.linspace(0, 1, points)
        ax.plot(alphas, alphas if log else 1 - alphas, "--", color="grey", lw=1, label="random guess")
        names: tuple[Adversary, ...] = ("A1", "A0")
        for name, label in zip(names, ("A₁ knows every batch", "A₀ sees the updates only")):
            try:
                beta = self.beta(alphas, adversary=name)
            except ValueError:
                continue
            ax.plot(alphas, 1 - beta if log else beta, label=label)
        if log:
            ax.loglog()
            ax.set(xlabel="false-alarm rate α", ylabel="detection rate 1 − β, at most")
        else:
            ax.set(xlabel="false-alarm rate α of the attack", ylabel="miss rate β, at least", aspect="equal")
        ax.legend()
        return ax

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self._settings.items())
        return f"Mechanism({given})"

    def _repr_html_(self) -> str:
        """For notebooks: the run and what it leaks."""
        rows = _described(self._native.described())
        if self.sigmas is None:
            unknown = "not chosen yet: calibrate(epsilon=…, delta=…) finds the smallest that meets a target"
            rows = [(name, unknown if name == "Noise" else text) for name, text in rows]
        else:
            names: tuple[tuple[Adversary, str], ...] = (("A1", "A₁ knows every batch"), ("A0", "A₀ sees the updates only"))
            for name, label in names:
                try:
                    leaks = f"ε ≤ {rounded_up(self.epsilon(1e-5, adversary=name))} at δ = 1e-5"
                except ValueError as why:
                    leaks = f"nothing is claimed: {why}"
                rows.append((label, leaks))
        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
            for name, text in rows
        )
        return f"<table>{cells}</table>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mechanism) and self._settings == other._settings

    def __hash__(self) -> int:
        return hash(json.dumps(self._settings, sort_keys=True, default=str))

    def __reduce__(self) -> tuple[Any, tuple[dict[str, Any]]]:
        return (_made, (self._settings,))


@dataclass(frozen=True)
class Audit:
    """What an audit found."""

    statement: str = field(repr=False)
    """For people; what ``print`` shows."""
    json: str = field(repr=False)
    """As data."""
    html: str = field(repr=False)
    """As a page."""
    contradictions: list[str]
    """What contradicts the claim; empty if nothing does."""

    def __str__(self) -> str:
        return self.statement

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.statement)}</pre>"

    def __bool__(self) -> bool:
        """True if nothing contradicts the claim."""
        return not self.contradictions


def _made(settings: dict[str, Any]) -> Mechanism:
    return Mechanism(**settings)


def _list(values: Iterable[float]) -> list[float] | None:
    return [float(value) for value in values] or None


def _described(text: str) -> list[tuple[str, str]]:
    """Name and text of each line; a line without a name goes on with the one before it."""
    rows: list[tuple[str, str]] = []
    for line in filter(str.strip, text.splitlines()):
        name, said = line[:13].strip(), line[13:].strip()
        if line.lstrip().startswith("Phase "):
            rows.append((line.strip(), ""))
        elif name:
            rows.append((name, said))
        else:
            before, begun = rows.pop()
            rows.append((before, f"{begun} {said}"))
    return rows
