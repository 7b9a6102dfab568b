"""Run directories: read, verified, understood without their data."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from dpsgd import _dpsgd
from dpsgd.bound import Bound


class DamagedRun(ValueError):
    """The files of a run do not agree with its ledger and the accountant; ``findings`` says where."""

    def __init__(self, path: Path, findings: list[str]) -> None:
        super().__init__(f"{path}: {'; '.join(findings)}")
        self.findings = findings


class SavedRun:
    """A run directory that was read and verified; made by :func:`load_run`.

    What it says is what its ledger charged and what the accountant says about that now. It needs no data.
    """

    def __init__(self, path: Path, native: _dpsgd.SavedRun, found: dict[str, Any]) -> None:
        """Use :func:`load_run`."""
        self._native = native
        self._found = found
        self.path: Path = path
        """The directory."""
        self.findings: list[str] = found["findings"]
        """What does not agree; empty unless the run was loaded with ``verify=False``."""

    @property
    def finished(self) -> bool:
        """Whether the run has its results."""
        return bool(self._found["finished"])

    @property
    def rounds_charged(self) -> int:
        """The rounds that may have left."""
        return int(self._found["charged"])

    @property
    def rounds(self) -> int:
        """T, the rounds of the whole run."""
        return int(self._found["rounds"])

    @property
    def resumes(self) -> int:
        """How often the run was resumed."""
        return int(self._found["resumes"])

    @property
    def delta(self) -> float:
        """δ at which ε is stated."""
        return float(self._found["delta"])

    @property
    def private(self) -> bool:
        """Whether the guarantee holds: false for a run with a seed."""
        return self._found["note"] is None

    @property
    def note(self) -> str | None:
        """Why the guarantee does not hold, if so."""
        note: str | None = self._found["note"]
        return note

    def epsilon(self, *, adversary: str | None = None) -> Bound:
        """What the charged rounds leak at :attr:`delta`: certified, the value is the upper end."""
        wanted = adversary or self._found["adversary"]
        for name, lower, upper in self._found["guarantees"]:
            if name == wanted:
                return Bound(lower, upper)
        raise ValueError(f"adversary = {wanted}: nothing is claimed about it for this run")

    def statement(self) -> str:
        """The run and its guarantee, for people."""
        statement: str = self._found["statement"]
        return statement

    def account(self) -> dict[str, Any]:
        """What the charged rounds leak, as data."""
        account: dict[str, Any] = json.loads(self._found["account"])
        return account

    def config(self) -> str:
        """The settings, as TOML."""
        return self._native.config()

    def metrics(self) -> list[dict[str, Any]]:
        """What the run said about itself after every epoch."""
        lines = (self.path / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def summary(self) -> dict[str, Any]:
        """The summary of a finished run."""
        summary: dict[str, Any] = json.loads((self.path / "summary.json").read_text())
        return summary

    def state_dict(self) -> dict[str, Any]:
        """The weights of a finished run as torch tensors, for ``load_state_dict``; needs safetensors and torch."""
        from safetensors.torch import load_file

        found: dict[str, Any] = load_file(self.path / "model.safetensors")
        return found

    def write_report(self) -> Path:
        """Writes ``report.html`` again."""
        return Path(self._native.write_report())

    def __repr__(self) -> str:
        state = "finished" if self.finished else "not finished"
        return f"<run {self.path}: {state}, {self.rounds_charged} of {self.rounds} rounds charged>"

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(self.statement())}</pre>"


def load_run(path: str | os.PathLike[str], *, verify: bool = True) -> SavedRun:
    """Reads a run directory and verifies it: the ledger's chain of digests is whole, and every guarantee in its
    files is what the accountant says, now, about the rounds that were charged.

    Raises:
        DamagedRun: if something does not agree; with ``verify=False`` it is listed in ``findings`` instead.
        ValueError: if the directory cannot be believed at all, or is no run.

    >>> import numpy as np, tempfile, dpsgd
    >>> x = np.random.default_rng(0).normal(size=(500, 4))
    >>> with tempfile.TemporaryDirectory() as place:
    ...     model = dpsgd.train(x, x[:, 0] > 0, net="logistic", classes=[False, True], directory=place + "/run")
    ...     run = dpsgd.load_run(place + "/run")
    >>> run.finished, run.rounds_charged, run.epsilon() == model.epsilon
    (True, 240, True)
    """
    native = _dpsgd.SavedRun(os.fspath(path))
    found = native.verify()
    if verify and found["findings"]:
        raise DamagedRun(Path(path), found["findings"])
    return SavedRun(Path(path), native, found)
