"""A run of a PyTorch model from its first round to its report."""

from __future__ import annotations

import html
import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpsgd import _dpsgd
from dpsgd.bound import Bound
from dpsgd.mechanism import Adversary, Audit, Mechanism
from dpsgd.saved import SavedRun, load_run
from dpsgd.torch import distributed as shared
from dpsgd.torch.callbacks import Callback
from dpsgd.torch.data import Samples, digest, refuse_training_samples, samples
from dpsgd.torch.progress import Bar, progress_bar
from dpsgd.torch.rehearsal import rehearse
from dpsgd.torch.rows import Loss, Mode, Rows

Metric = Callable[[Any, Tensor], float]

# Groups of test samples whose gradients are looked at for the share that would be clipped.
_CLIPPED_ON = 128
_DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}


@dataclass(frozen=True)
class Result:
    """How a call of :meth:`Trainer.fit` ended."""

    directory: Path
    """Everything about the run: ledger, checkpoints, metrics, model, report."""
    finished: bool
    """Whether the run is closed; if not, it was stopped, and ``fit()`` continues it."""
    epsilon: Bound
    """What the charged rounds leak, against the adversary of the budget."""
    delta: float
    """At this δ."""
    statement: str = field(repr=False)
    """What the run guarantees and reached, for people; what ``print`` shows."""
    summary: dict[str, Any] | None = field(repr=False)
    """The same as data; None for a run that was stopped."""
    not_finite: int = field(repr=False)
    """Group results that were not finite and counted as zero: **private**, for the owner of the data only."""

    def __str__(self) -> str:
        return self.statement

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.statement)}</pre>"


class Trainer:
    """Trains a :class:`torch.nn.Module` with differential privacy.

    PyTorch computes the mean gradient of every group, Rust does everything the guarantee rests on: it draws the
    batches, takes the norms, clips, sums, adds exact noise, charges every round in a ledger before it happens, keeps
    to the budget, saves checkpoints and writes the report.

    Before the first round is charged, a dry run checks that the model can be differentiated group by group and that
    the gradient of a group depends on nothing but its samples; see :class:`Refused` for what is turned away.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        x: Any,
        y: Any = None,
        *,
        mechanism: Mechanism,
        clip: float,
        lr: float,
        clip_rule: str | None = None,
        lr_rule: str | None = None,
        inner: str | Sequence[str] | None = None,
        inner_step: float | None = None,
        inner_result: Literal["sum", "difference"] | None = None,
        outer: Literal["plain", "momentum", "adam"] = "momentum",
        momentum: float | None = None,
        weight_decay: float | None = None,
        average: str | None = None,
        choose: Literal["average", "last", "better"] | None = None,
        noise: Literal["exact", "fast"] = "exact",
        delta: float = 1e-5,
        adversary: Adversary | None = None,
        max_epsilon: float | None = None,
        test: tuple[Any, Any] | None = None,
        metric: Metric | Literal["accuracy"] | None = "accuracy",
        directory: str | PathLike[str] | None = None,
        name: str | None = None,
        data: str = "arrays",
        ledger: str | PathLike[str] | None = None,
        mode: Mode = "auto",
        chunk: int | None = None,
        randomness: Literal["error", "different"] = "error",
        distributed: bool = False,
        seed: int | None = None,
        threads: int | None = None,
        diagnostics: bool = False,
        progress: bool | None = None,
        callbacks: Iterable[Callback | Callable[[Trainer, dict[str, Any]], bool | None]] = (),
    ) -> None:
        """Describes the run; :meth:`fit` performs it.

        Args:
            model: the module; its weights are where training starts, and it has the trained ones afterwards.
            loss: ``loss(model(x), y)`` gives the mean over the samples of a group, like ``F.cross_entropy``.
            x: private samples: a tensor, array or data frame, a tuple of them, or a map-style dataset.
            y: their targets; none with a dataset, whose items end with the target.
            mechanism: the sampler, sizes, length and noise.
            clip: C, the norm to which the gradient of a group is clipped.
            lr: η, the step of w ← w − η·Ū/m (``--step`` of the command).
            clip_rule: how C changes: constant, inverse-root, step:FACTOR:EPOCHS, when-worse:FACTOR,
                follow-update:SHARE.
            lr_rule: how η changes: constant, inverse-root, step:FACTOR:EPOCHS, when-worse:FACTOR, linear:END,
                cosine:END, each after an optional warmup:SHARE+.
            inner: the algorithm inside a group, or several in turn: gradient, sgd, momentum, adam, adagrad, rmsprop.
            inner_step: η inside a group.
            inner_result: what a group hands over: the sum of its gradients or the model difference.
            outer: the optimizer that receives the noised updates.
            momentum: the coefficient of outer momentum; 0.9 unless said otherwise.
            weight_decay: λ of w ← (1 − ηλ)·w before each step; it costs no privacy.
            average: also keeps an average of w, which costs no privacy: ema:DECAY, or tail:SHARE of the rounds.
            choose: which of the two becomes the model: the average unless said otherwise; ``"better"`` compares them on
                the public test set.
            noise: exact, or fast.
            delta: δ at which ε is stated.
            adversary: against whom the budget holds.
            max_epsilon: stop before the round that would exceed this ε.
            test: **public** samples and targets, measured after every epoch without noise.
            metric: of all test outputs and targets at once: a function, or ``"accuracy"`` for classes.
            directory: of the run; ``runs/DATA-NAME-1`` or the next free number if none is given.
            name: of the model in reports.
            data: name of the data in reports, and in the shared ledger, which adds up what all runs on the same data have
                spent.
            ledger: the directory of the shared ledger, or ``"none"``; by default that of the command.
            mode: ``"vmap"``, ``"threads"`` (vmap over pieces of a batch, each on a thread of its own, with copies of the
                module), ``"loop"`` (one backward pass a group), or ``"auto"``: threads where vmap works and a round
                has work for them, the loop where that is faster. With a seed, name the mode and the chunk to get the
                same bits everywhere.
            chunk: groups differentiated at once; by the size of the model if not given.
            randomness: ``"different"`` allows layers that draw at random, like dropout. What they draw follows secret
                seeds of the run, not the state of PyTorch's generator, which others may know.
            distributed: share the work with the other processes of ``torch.distributed``; all of them make the same
                trainer, with the same data, and call ``fit``. The result does not depend on how many there are.
            seed: draws everything from this number: reproducible, and **not private**.
            threads: of the trainer, and of ``mode="threads"``; the result does not depend on it.
            diagnostics: also write training loss and clipping to diagnostics.jsonl; they are **not private**.
            progress: a progress bar (needs tqdm or rich); by default in a terminal or a notebook only.
            callbacks: :class:`Callback` objects, or functions called after every epoch.
        """
        if not isinstance(mechanism, Mechanism):
            raise TypeError(f"mechanism: must be a dpsgd.Mechanism, not {type(mechanism).__name__}")
        if mechanism.sigmas is None:
            raise ValueError(
                "mechanism: has no noise yet; give sigma or noise_multiplier, or call calibrate(epsilon=…, delta=…)"
            )
        self.model = model
        self.mechanism = mechanism
        self.delta = delta
        self.metric = metric
        self.name = name or type(model).__name__
        self.data = data
        self.directory: Path | None = None if directory is None else Path(directory)
        self.progress = progress
        self.callbacks = [callback if isinstance(callback, Callback) else _Function(callback) for callback in callbacks]
        self.history: list[dict[str, Any]] = []
        """The measurements so far."""
        self._settings = {
            **mechanism.settings, "data": data, "net": self.name, "clip": float(clip), "clip_rule": clip_rule,
            "step": float(lr), "step_rule": lr_rule or "constant",
            "inner": [inner] if isinstance(inner, str) else list(inner or []), "inner_step": inner_step,
            "inner_result": inner_result, "outer": outer, "momentum": momentum, "weight_decay": weight_decay,
            "average": average, "choose": choose, "noise": noise, "delta": delta, "adversary": adversary,
            "max_epsilon": max_epsilon, "ledger": None if ledger is None else fspath(ledger), "seed": seed,
            "threads": threads, "diagnostics": diagnostics or None,
        }
        given = samples(x, y)
        self._rows = Rows(model, loss, given, mode=mode, chunk=chunk, randomness=randomness, threads=threads)
        self.distributed = distributed
        if distributed:
            shared.is_leader()
            # About a unit of groups, so that every process has something to do.
            self._rows.alone = False
            self._rows.chunk = chunk or min(32, self._rows.chunk)
        self._test = None if test is None else samples(*test)
        if self._test is not None:
            refuse_training_samples(given, self._test)
        self._sizes = [
            # With the other samplers, groups is a divisor, and the number of groups of a round is private.
            (phase.get("groups") if phase["sampling"] in ("subsample", "shuffle") else None, phase.get("group_size", 1))
            for phase in mechanism.settings.get("phase", [mechanism.settings])
        ]
        self._running = Lock()
        self._begun = False
        self._rehearsed = False
        self._stop = False
        self._end = False

    @property
    def mode(self) -> Mode:
        """How gradients are computed; ``"auto"`` until the dry run has decided."""
        return self._rows.mode

    @property
    def chunk(self) -> int:
        """Groups differentiated at once."""
        return self._rows.chunk

    def rehearse(self) -> None:
        """The dry run that :meth:`fit` begins with: nothing is charged, nothing leaves.

        Raises:
            Refused: if the model cannot be trained with a guarantee.
        """
        self._rows.check_module()
        for groups, size in self._sizes:
            rehearse(self._rows, size, groups)
        self._rehearse_test()
        if self.distributed:
            shared.agree_on_mode(self._rows)
        self._rehearsed = True

    def fit(self, *, resume: bool = False) -> Result:
        """Trains to the end of the plan, or of the budget, and writes the results.

        Args:
            resume: continue the run that an interruption left in ``directory``; every charged round counts as spent.
                It goes on with the samples it was begun with, and is refused with others (not noticed for a ``Dataset``
                other than ``TensorDataset``).
                A trainer whose own ``fit`` was interrupted continues by itself.

        Raises:
            Refused: before anything is charged, if no guarantee would hold.
            RoundFailed: the model raised an exception, which is its cause. The round is spent, the weights are what
                they were, and another ``fit()`` continues.
            ValueError: with the command's text, if the settings do not fit together or the run cannot be resumed.
        """
        if not self._running.acquire(blocking=False):
            raise RuntimeError("fit() is already running in this trainer; wait until it has returned")
        try:
            if not self._rehearsed:
                self.rehearse()
            if self.distributed:
                return self._fit_together(resume or self._begun)
            return self._fit(resume or self._begun, self._rows)
        finally:
            self._running.release()

    def _fit_together(self, resume: bool) -> Result:
        said: list[Any] = [None]
        if shared.is_leader():
            leader = shared.Leader(self._rows, self._share())
            end: shared.End = "failed"
            try:
                result = self._fit(resume, leader, window=leader.window)
                end = "fine"
            except _dpsgd.RoundFailed:
                end = "round failed"
                raise
            finally:
                leader.end(end)
            said = [(result, self._rows.flat.copy(), self.history)]
            torch.distributed.broadcast_object_list(said, src=0)
            return result
        how = shared.follow(self._rows, self._share())
        if how == "round failed":
            raise _dpsgd.RoundFailed("a round failed in one of the processes; fit() in all of them continues")
        if how == "failed":
            raise RuntimeError("the leading process failed; its own output says why")
        torch.distributed.broadcast_object_list(said, src=0)
        told: Result = said[0][0]
        weights, self.history = said[0][1:]
        self._begun = not told.finished
        self._rows.store_in_model(weights)
        return told

    def _share(self) -> _dpsgd.Share:
        return _dpsgd.Share(
            self._rows, random=self._rows.randomness == "different", threads=self._settings["threads"]
        )

    def called(self, visit: _dpsgd.Visit, rounds: int, *, pace: float | None = None) -> Result:
        """Performs up to ``rounds`` rounds as a client of a federation (:mod:`dpsgd.flower`), and stops.

        The run begins with the first call and goes on with the next, also in another process. Its updates are in
        ``visit.updates()``.
        """
        if self.distributed or self.directory is None:
            raise ValueError("distributed, directory: a client of a federation is one process with a directory of its own")
        if not self._running.acquire(blocking=False):
            raise RuntimeError("fit() is already running in this trainer; wait until it has returned")
        try:
            if not self._rehearsed:
                self.rehearse()
            begun = (self.directory / "ledger").is_file()
            return self._fit(begun, self._rows, visit=(visit, rounds, pace))
        finally:
            self._running.release()

    def _fit(
        self,
        resume: bool,
        worker: Any,
        *,
        window: int | None = None,
        visit: tuple[_dpsgd.Visit, int, float | None] | None = None,
    ) -> Result:
        self._stop = self._end = False
        if self.directory is None:
            self.directory = _first_free(Path("runs"), f"{self.data}-{self.name}".lower())
        if not resume:
            self._rows.load_from_model()
        watcher = _Watcher(self)
        told = _dpsgd.train_model(
            self._settings,
            worker=worker,
            samples=len(self._rows.samples),
            chunk=self._rows.call,
            weights=self._rows.flat.copy(),
            tensors=self._tensors(),
            directory=self.directory,
            resume=resume,
            observer=watcher,
            test=watcher,
            test_samples=0 if self._test is None else len(self._test),
            baseline=self._baseline(),
            visit=visit,
            random=self._rows.randomness == "different",
            data=digest(self._rows.samples),
            window=window,
        )
        self._begun = not told["finished"]
        self._rows.flat[:] = told["weights"]
        self._rows.store_in_model(told["weights"])
        guarantees = told["guarantees"]
        against = self._settings["adversary"] or self.mechanism.adversary
        return Result(
            directory=Path(told["directory"]),
            finished=told["finished"],
            epsilon=Bound(*guarantees[against]),
            delta=self.delta,
            statement=told["statement"],
            summary=told["summary"],
            not_finite=told["not_finite"],
        )

    def stop(self) -> None:
        """Asks the run to stop after the current round; it saves its state, and ``fit()`` continues it."""
        self._stop = True

    def audit(self, *, seconds: float = 60.0, trials: int | None = None) -> Audit:
        """Attacks this run: production sampler, clip, noise and rounds with its plan, on two neighbouring data sets of
        worst-case gradients that PyTorch computes in the mode and the chunks of this trainer. The model itself goes
        through the dry run, which looks for state and cross-talk. Nothing is charged."""
        self.rehearse()
        chosen = self._rows

        def line(gradients: NDArray[np.float32]) -> Rows:
            return Rows(
                _Line(gradients.shape[1]), torch.mean, samples(gradients, None), mode=chosen.mode, chunk=chosen.chunk,
                randomness=chosen.randomness, threads=self._settings["threads"],
            )

        return Audit(
            *_dpsgd.audit(
                self._settings, seconds=seconds, trials=trials, subject=line, name=f"PyTorch (mode {chosen.mode})",
                chunk=chosen.call, random=chosen.randomness == "different",
            )
        )

    def load(self) -> SavedRun:
        """The run directory, read and verified."""
        if self.directory is None:
            raise ValueError("directory: the run has none yet; call fit() first")
        return load_run(self.directory)

    # Measuring

    def _evaluate(self, weights: NDArray[np.float32], clip: float) -> tuple[float, float | None, float]:
        self._rows.store_in_model(weights)
        if self._test is None:
            return float("nan"), None, float("nan")
        loss, score = self._measured(self._test, len(self._test), self.metric)
        return loss, score, self._clipped(weights, clip)

    def _rehearse_test(self) -> None:
        """What cannot be measured is noticed before anything is spent, not after the first epoch."""
        if self._test is None:
            return
        try:
            # Without a function of the user's, which may need all samples (a ranking, say).
            self._measured(self._test, min(2, len(self._test)), metric=None if callable(self.metric) else self.metric)
        except Exception as why:
            raise ValueError(f"test: the model cannot be measured on these samples: {why}") from why

    @torch.no_grad()
    def _measured(self, test: Samples, count: int, metric: Metric | str | None) -> tuple[float, float | None]:
        training = [module for module in self.model.modules() if module.training]
        self.model.eval()
        try:
            return self._measured_in_eval_mode(test, count, metric)
        finally:
            for module in training:
                module.training = True

    def _measured_in_eval_mode(self, test: Samples, count: int, metric: Metric | str | None) -> tuple[float, float | None]:
        total, scored, scores = 0.0, 0, 0.0
        outputs: list[Any] = []
        targets: list[Tensor] = []
        device = self._rows.device
        for numbers in torch.arange(count).split(512):
            inputs, target = test.batch(numbers)
            output = self.model(*(part.to(device) for part in inputs))
            target = None if target is None else target.to(device)
            loss = self._rows.loss(output) if target is None else self._rows.loss(output, target)
            total += float(loss) * len(numbers)
            if target is None:
                continue
            if callable(metric):
                outputs.append(output)
                targets.append(target)
            elif metric is not None and (score := _accuracy(output, target)) is not None:
                scores += score * len(numbers)
                scored += len(numbers)
        if callable(metric) and targets:
            # Of all at once: a ranking is no mean over batches.
            return total / count, float(metric(_joined(outputs), torch.cat(targets)))
        return total / count, scores / scored if scored else None

    def _clipped(self, weights: NDArray[np.float32], clip: float) -> float:
        """The share of groups of test samples whose gradient is longer than C."""
        assert self._test is not None
        size = self._sizes[0][1]
        groups = min(_CLIPPED_ON, self._rows.chunk, len(self._test) // size)
        if groups < 1:
            return float("nan")
        train, self._rows.samples = self._rows.samples, self._test
        try:
            self._rows.flat[:] = weights
            stretches, _ = self._rows.rows(np.arange(groups * size, dtype=np.uint32), size)
        finally:
            self._rows.samples = train
        squares = sum((part.astype(np.float64) ** 2).sum(axis=1) for part in stretches)
        return float(np.mean(~(np.sqrt(squares) <= clip)))

    def _baseline(self) -> tuple[float | None, float | None] | None:
        """What a model that ignores its inputs reaches: the share of the most common class."""
        target = getattr(self._test, "target", None)
        if self.metric != "accuracy" or target is None or target.is_floating_point() or target.ndim != 1:
            return None
        return float(torch.bincount(target.flatten() - target.min()).max()) / len(target), None

    def _tensors(self) -> list[tuple[str, str, list[int], int | None, bytes | None]]:
        """How the state dict is saved: trained parameters by their place in the weights, the rest as it is."""
        places = {id(parameter): self._rows.offsets[name] for name, parameter in self._rows.parameters.items()}
        found = []
        for name, value in self.model.state_dict(keep_vars=True).items():
            if value.dtype not in _DTYPES:
                raise ValueError(f"{name}: {value.dtype} cannot be saved")
            place = places.get(id(value))
            kept = None
            if place is None:
                kept = value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
            found.append((name, _DTYPES[value.dtype], list(value.shape), place, kept))
        return found


def _accuracy(output: Any, target: Tensor) -> float | None:
    classes = isinstance(output, Tensor) and output.ndim == 2 and output.shape[1] > 1 and target.ndim == 1
    if not classes or target.is_floating_point():
        return None
    return float((output.argmax(dim=1) == target).float().mean())


def _joined(outputs: list[Any]) -> Any:
    if isinstance(outputs[0], Tensor):
        return torch.cat(outputs)
    return tuple(_joined(list(parts)) for parts in zip(*outputs))


class _Line(nn.Module):
    """The gradient of the mean output is the mean of the inputs, whatever the weights."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(dimension))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weights


class _Function(Callback):
    def __init__(self, function: Callable[[Trainer, dict[str, Any]], bool | None]) -> None:
        self.function = function

    def on_epoch(self, trainer: Trainer, measured: dict[str, Any]) -> bool | None:
        return self.function(trainer, measured)


class _Watcher:
    """What the native run calls while it runs."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.bar: Bar | None = None

    def begins(self, outlook: dict[str, Any]) -> None:
        trainer = self.trainer
        trainer._begun = True
        shown = trainer.progress
        if shown is None:
            shown = sys.stderr.isatty() or "ipykernel" in sys.modules
        if shown:
            self.bar = progress_bar(trainer.name, outlook["next"], outlook["rounds"])
        for callback in trainer.callbacks:
            callback.on_begin(trainer, outlook)

    def round(self, done: int) -> None:
        trainer = self.trainer
        trainer._rows.check_module()
        if self.bar is not None:
            self.bar.round(done)
        for callback in trainer.callbacks:
            trainer._end |= bool(callback.on_round(trainer, done))

    def measured(self, measurement: dict[str, Any]) -> None:
        trainer = self.trainer
        trainer.history.append(measurement)
        if self.bar is not None:
            said = {"ε": f"{measurement['epsilon'] or float('inf'):.3f}"}
            if measurement["test_accuracy"] is not None:
                said["accuracy"] = f"{measurement['test_accuracy']:.2%}"
            elif measurement["test_loss"] is not None:
                said["loss"] = f"{measurement['test_loss']:.4f}"
            self.bar.say(said)
        for callback in trainer.callbacks:
            trainer._end |= bool(callback.on_epoch(trainer, measurement))

    def evaluate(self, weights: NDArray[np.float32], clip: float) -> tuple[float, float | None, float]:
        return self.trainer._evaluate(weights, clip)

    def stop(self) -> bool:
        return self.trainer._stop

    def end(self) -> bool:
        return self.trainer._end

    def ends(self) -> None:
        if self.bar is not None:
            self.bar.close()
        for callback in self.trainer.callbacks:
            callback.on_end(self.trainer)


def _first_free(directory: Path, name: str) -> Path:
    for number in itertools.count(1):
        path = directory / f"{name}-{number}"
        if not path.exists():
            return path
    raise AssertionError
