"""What a program may do while a run trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpsgd.torch.trainer import Trainer


class Callback:
    """Override what you need. Everything a callback is given is public: it comes from noised updates and from the
    public test set. To end the run early, return True from :meth:`on_epoch` or :meth:`on_round`."""

    def on_begin(self, trainer: Trainer, outlook: dict[str, Any]) -> None:
        """Training begins or resumes."""

    def on_round(self, trainer: Trainer, done: int) -> bool | None:
        """The rounds before ``done`` are done."""

    def on_epoch(self, trainer: Trainer, measured: dict[str, Any]) -> bool | None:
        """An epoch was measured: a line of ``metrics.jsonl``. The module has the weights of this moment."""

    def on_end(self, trainer: Trainer) -> None:
        """Training has ended or stopped."""


class EarlyStopping(Callback):
    """Ends the run when the test loss (or another value of the measurement) has not improved for some epochs.

    The test set is public, so its loss costs no privacy. The run states what its charged rounds leak, which is
    less than what was planned.
    """

    def __init__(self, patience: int = 3, *, metric: str = "test_loss", larger_is_better: bool = False) -> None:
        self.patience = patience
        self.metric = metric
        self.sign = -1.0 if larger_is_better else 1.0
        self.best = float("inf")
        self.waited = 0

    def on_epoch(self, trainer: Trainer, measured: dict[str, Any]) -> bool | None:
        """Counts the epochs without improvement."""
        if measured.get(self.metric) is None:
            raise ValueError(f"metric = {self.metric}: the run does not measure it; give test=(x, y)")
        now = self.sign * float(measured[self.metric])
        if now < self.best:
            self.best, self.waited = now, 0
        else:
            self.waited += 1
        return self.waited >= self.patience
