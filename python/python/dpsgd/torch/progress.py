"""A progress bar by whichever library is installed: tqdm, or rich."""

from __future__ import annotations

from typing import Any, Protocol


class Bar(Protocol):
    """A bar that is shown."""

    def round(self, done: int) -> None:
        """So many rounds are done."""

    def say(self, said: dict[str, str]) -> None:
        """Shows what was measured."""

    def close(self) -> None:
        """Training has ended or stopped."""


class _Tqdm:
    def __init__(self, name: str, done: int, rounds: int) -> None:
        from tqdm.auto import tqdm

        self.bar: Any = tqdm(total=rounds, initial=done, unit="round", desc=name)

    def round(self, done: int) -> None:
        self.bar.update(done - self.bar.n)

    def say(self, said: dict[str, str]) -> None:
        self.bar.set_postfix(said)

    def close(self) -> None:
        self.bar.close()


class _Rich:
    def __init__(self, name: str, done: int, rounds: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.bar: Any = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
            TextColumn("{task.fields[said]}"),
        )
        self.task = self.bar.add_task(name, completed=done, total=rounds, said="")
        self.bar.start()

    def round(self, done: int) -> None:
        self.bar.update(self.task, completed=done)

    def say(self, said: dict[str, str]) -> None:
        self.bar.update(self.task, said=", ".join(f"{name} {value}" for name, value in said.items()))

    def close(self) -> None:
        self.bar.stop()


def progress_bar(name: str, done: int, rounds: int) -> Bar | None:
    """A bar for a run of which some rounds are done; nothing where no library draws one."""
    for kind in (_Tqdm, _Rich):
        try:
            return kind(name, done, rounds)
        except ImportError:
            continue
    return None
