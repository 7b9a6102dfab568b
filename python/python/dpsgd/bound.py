"""A certified number: a float that is the guaranteed end of an interval."""

from __future__ import annotations

import math
from typing import Literal


class Bound(float):
    """A float with certified ends ``lower`` and ``upper``.

    Its value is the end that is guaranteed: the upper one for ε, δ and µ (the run leaks at most this), the
    lower one for the miss rate β of attacks (every attack misses at least this often). So it can be used
    like any float, and what is computed with it errs on the safe side.

    >>> from dpsgd import Mechanism
    >>> epsilon = Mechanism.poisson(rate=0.01, rounds=1000, noise_multiplier=1.0).epsilon(1e-5)
    >>> epsilon == epsilon.upper and epsilon.upper - epsilon.lower < 1e-8
    True
    """

    __slots__ = ("lower", "upper")
    lower: float
    upper: float

    def __new__(cls, lower: float, upper: float, guaranteed: Literal["lower", "upper"] = "upper") -> Bound:
        """A number between ``lower`` and ``upper`` whose value is the end named by ``guaranteed``."""
        bound = super().__new__(cls, upper if guaranteed == "upper" else lower)
        bound.lower = lower
        bound.upper = upper
        return bound

    def __reduce__(self) -> tuple[type[Bound], tuple[float, float, str]]:
        guaranteed = "upper" if float(self) == self.upper else "lower"
        return (Bound, (self.lower, self.upper, guaranteed))


def rounded_up(value: float, digits: int = 6) -> str:
    """As text, rounded so that a bound is never shown smaller than it is.

    >>> rounded_up(1.8282361), rounded_up(0.5)
    ('1.82824', '0.5')
    """
    text = f"{value:.{digits}g}"
    if float(text) < value:
        step = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
        text = f"{float(text) + step:.{digits}g}"
    return text
