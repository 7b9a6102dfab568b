"""The native part of dpsgd."""

from collections.abc import Callable
from os import PathLike
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

__version__: str

__all__ = [
    "Coordinator", "Mechanism", "RoundFailed", "SavedRun", "Share", "Terms", "Visit", "__version__", "audit",
    "initial_weights", "predict", "train_model", "train_native",
]

_Adversary = Literal["A0", "A1"]
_Labelled = tuple[NDArray[np.float32], NDArray[np.float32]]

class RoundFailed(RuntimeError): ...

@final
class Mechanism:
    def __new__(cls, settings: dict[str, Any]) -> Mechanism: ...
    @property
    def rounds(self) -> int: ...
    @property
    def sigmas(self) -> list[float] | None: ...
    @property
    def usual_adversary(self) -> _Adversary: ...
    @property
    def neighbours(self) -> str: ...
    def epsilon(self, delta: float, adversary: str | None) -> tuple[float, float]: ...
    def delta(self, epsilon: float, adversary: str | None) -> tuple[float, float]: ...
    def beta(self, alpha: float, adversary: str | None) -> tuple[float, float]: ...
    def betas(self, alphas: list[float], adversary: str | None) -> tuple[list[float], list[float]]: ...
    def mu(self, adversary: str | None) -> tuple[float, float, float]: ...
    def renyi(self, order: float, adversary: str | None) -> tuple[float, float]: ...
    def solve(
        self,
        solve: str,
        adversary: str | None,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
    ) -> Any: ...
    def statement(
        self, delta: float | None = None, epsilon: float | None = None, alphas: list[float] | None = None
    ) -> str: ...
    def json(self, delta: float | None = None, epsilon: float | None = None, alphas: list[float] | None = None) -> str: ...
    def described(self) -> str: ...

@final
class SavedRun:
    def __new__(cls, path: str | PathLike[str]) -> SavedRun: ...
    def verify(self) -> dict[str, Any]: ...
    def config(self) -> str: ...
    def write_report(self) -> str: ...

_Block = tuple[NDArray[np.uint32], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64], bool]

@final
class Share:
    def __new__(cls, worker: Any, *, random: bool, threads: int | None) -> Share: ...
    def sum(
        self, weights: NDArray[np.float32], bound: float, chunk: int, block: _Block
    ) -> tuple[NDArray[np.float32], NDArray[np.uint64], NDArray[np.float32]]: ...

@final
class Terms:
    def __new__(cls, text: str) -> Terms: ...
    @staticmethod
    def of(
        given: dict[str, Any],
        *,
        name: str,
        dimension: int,
        clients: int,
        rounds: int | None,
        noise_range: float,
        max_staleness: int,
        rule: str,
        staleness_power: float | None,
        outer: str,
    ) -> Terms: ...
    @property
    def run(self) -> str: ...
    @property
    def dimension(self) -> int: ...
    @property
    def clients(self) -> int: ...
    @property
    def rounds(self) -> int: ...
    def json(self) -> str: ...
    def update(self, client: int, round: int, base: int, values: NDArray[np.float32]) -> bytes: ...
    def model(self, frame: bytes) -> tuple[int, int, NDArray[np.float32]]: ...

@final
class Coordinator:
    def __new__(cls, terms: Terms, weights: NDArray[np.float32]) -> Coordinator: ...
    @staticmethod
    def restore(terms: Terms, saved: bytes) -> Coordinator: ...
    @property
    def version(self) -> int: ...
    def snapshot(self) -> bytes: ...
    def apply(self, sender: int, frame: bytes) -> tuple[str | None, tuple[int, int, bool] | None]: ...
    def model(self) -> bytes: ...
    def weights(self) -> NDArray[np.float32]: ...
    def summary(self) -> str: ...

@final
class Visit:
    def __new__(cls, terms: Terms, client: int, frame: bytes, directory: str | PathLike[str]) -> Visit: ...
    def ended(self) -> bool: ...
    def acknowledged(self, rounds: list[int]) -> None: ...
    def updates(self) -> list[tuple[int, bytes]]: ...

def train_model(
    given: dict[str, Any],
    *,
    worker: Any,
    samples: int,
    chunk: int,
    weights: NDArray[np.float32],
    tensors: list[tuple[str, str, list[int], int | None, bytes | None]],
    directory: str | PathLike[str],
    resume: bool,
    observer: Any,
    test: Any,
    test_samples: int,
    baseline: tuple[float | None, float | None] | None = None,
    visit: tuple[Visit, int, float | None] | None = None,
    random: bool = False,
    data: bytes | None = None,
    window: int | None = None,
) -> dict[str, Any]: ...
def train_native(
    given: dict[str, Any],
    *,
    train: _Labelled,
    test: _Labelled | None,
    classes: int | None,
    uncovered: list[str],
    directory: str | PathLike[str],
    resume: bool,
    observer: Any,
) -> dict[str, Any]: ...
def initial_weights(
    given: dict[str, Any], *, train: _Labelled, classes: int | None, seed: int
) -> bytes: ...
def predict(
    directory: str | PathLike[str], x: NDArray[np.float32], classes: int | None, threads: int = 1
) -> tuple[int, NDArray[np.float32]]: ...
def audit(
    given: dict[str, Any],
    *,
    seconds: float,
    trials: int | None,
    subject: Callable[[NDArray[np.float32]], Any] | None = None,
    name: str = "Python",
    chunk: int = 1,
    random: bool = False,
) -> tuple[str, str, str, list[str]]: ...
