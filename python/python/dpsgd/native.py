"""The native engine on arrays: networks that dpsgd trains without PyTorch."""

from __future__ import annotations

import html
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsgd import _dpsgd
from dpsgd.arrays import as_numbers
from dpsgd.bound import Bound, rounded_up
from dpsgd.mechanism import Adversary, Mechanism
from dpsgd.saved import SavedRun, load_run


class UncoveredWarning(UserWarning):
    """A constant of the run was taken from the private data, which no guarantee covers."""


class Trained:
    """A model that the native engine trained."""

    def __init__(
        self,
        told: dict[str, Any],
        *,
        classes: NDArray[Any] | None,
        ranges: tuple[NDArray[np.float32], NDArray[np.float32]] | None,
        shape: tuple[int, ...],
        adversary: Adversary,
        delta: float,
        temporary: bool,
    ) -> None:
        """Made by :func:`train`."""
        directory = Path(told["directory"])
        self.classes = classes
        """The labels, in the order of :meth:`predict_proba`; None for regression."""
        self.delta = delta
        """δ at which ε is stated."""
        self.epsilon = Bound(*told["guarantees"][adversary])
        """What the charged rounds leak."""
        self.statement: str = told["statement"]
        """What the run guarantees and reached, for people."""
        self.summary: dict[str, Any] | None = told["summary"]
        """The same as data."""
        self.finished: bool = told["finished"]
        """Whether the run is closed."""
        self.directory: Path | None = None if temporary else directory
        """The run directory; None if it was temporary."""
        self._ranges = ranges
        self._shape = shape
        self._files: dict[str, bytes] = {}
        if temporary:
            self._files = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}

    def predict_proba(self, x: ArrayLike) -> NDArray[np.float32]:
        """A row of class probabilities for each sample. Predicting costs no privacy of the training data."""
        if self.classes is None:
            raise ValueError("predict_proba: the model predicts values, not classes; call predict")
        return self._scores(x)

    def predict(self, x: ArrayLike) -> NDArray[Any]:
        """The most probable class, or the value, of each sample."""
        scores = self._scores(x)
        return scores[:, 0] if self.classes is None else self.classes[scores.argmax(axis=1)]

    def _scores(self, x: ArrayLike) -> NDArray[np.float32]:
        given = _scaled(_array(x), self._ranges)
        if given.shape[1:] != self._shape:
            raise ValueError(f"x: samples of shape {given.shape[1:]}; the model was trained on {self._shape}")
        classes = None if self.classes is None else len(self.classes)
        if self.directory is not None:
            width, scores = _dpsgd.predict(self.directory, given, classes)
        else:
            with tempfile.TemporaryDirectory(prefix="dpsgd-") as place:
                for name, content in self._files.items():
                    Path(place, name).write_bytes(content)
                width, scores = _dpsgd.predict(place, given, classes)
        found = scores.reshape(-1, width)
        if classes == 2 and width == 1:
            found = np.concatenate([1 - found, found], axis=1)
        return found

    def load(self) -> SavedRun:
        """The run directory, read and verified."""
        if self.directory is None:
            raise ValueError("directory: the run had a temporary one; give directory= to keep it")
        return load_run(self.directory)

    def __repr__(self) -> str:
        return f"<trained with ε ≤ {rounded_up(self.epsilon)} at δ = {self.delta:g}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.statement)}</pre>"


def train(
    x: ArrayLike,
    y: ArrayLike,
    *,
    net: str | Sequence[Mapping[str, Any]] = "mlp",
    mechanism: Mechanism | None = None,
    epsilon: float = 3.0,
    delta: float = 1e-5,
    groups: int | None = None,
    epochs: int = 30,
    clip: float = 1.0,
    lr: float = 0.5,
    lr_rule: str | None = None,
    clip_rule: str | None = None,
    inner: str | Sequence[str] | None = None,
    inner_step: float | None = None,
    inner_result: Literal["sum", "difference"] | None = None,
    outer: Literal["plain", "momentum", "adam"] = "momentum",
    momentum: float | None = None,
    weight_decay: float | None = None,
    average: str | None = None,
    choose: Literal["average", "last", "better"] | None = None,
    label_smoothing: float | None = None,
    augment: Sequence[str] = (),
    views: int | None = None,
    noise: Literal["exact", "fast"] = "exact",
    adversary: Adversary | None = None,
    max_epsilon: float | None = None,
    classes: Sequence[Any] | int | None = None,
    task: Literal["classification", "regression"] = "classification",
    ranges: tuple[ArrayLike, ArrayLike] | None = None,
    normalise: Literal["none", "private"] | None = None,
    normalise_mu: float | None = None,
    test: tuple[ArrayLike, ArrayLike] | None = None,
    directory: str | os.PathLike[str] | None = None,
    data: str = "arrays",
    ledger: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    threads: int | None = None,
    diagnostics: bool = False,
    resume: bool = False,
    callback: Callable[[dict[str, Any]], bool | None] | None = None,
) -> Trained:
    """Trains a network of the native engine on arrays, with a certified guarantee.

    >>> import numpy as np, dpsgd
    >>> draw = np.random.default_rng(1)
    >>> x = draw.normal(size=(2000, 5)).astype("float32"); y = (x[:, 0] > 0).astype(int)
    >>> model = dpsgd.train(x, y, net="logistic", classes=[0, 1], epsilon=3, delta=1e-5, seed=1)
    >>> bool(model.epsilon <= 3 and (model.predict(x) == y).mean() > 0.8)
    True

    Args:
        x: private samples: rows of features, or images (height × width, or height × width × channels).
        y: their classes, or values with ``task="regression"``.
        net: lenet5, paper-cnn, mlp, logistic, a TOML file, or a list of layers as such a file holds them.
        mechanism: sampler, sizes, length and noise. Without it, batches of ``groups`` are subsampled for ``epochs``
            epochs, with the smallest noise that meets ``epsilon`` at ``delta``.
        epsilon: the target, where there is no mechanism.
        delta: δ at which ε is stated.
        groups: m, groups a round; an eighth of the data and at most 2048 if not given.
        epochs: E.
        clip, lr, lr_rule, clip_rule, inner, inner_step, inner_result, outer, momentum, weight_decay, average, choose,
            noise, adversary, max_epsilon: as for :class:`dpsgd.torch.Trainer`.
        label_smoothing: α: the target of the class is 1 − α + α/K, that of each other class α/K.
        augment: random views of each image, whose mean gradient is clipped, so that they cost no privacy: ``"flip"``,
            ``"shift:PIXELS"``, or both.
        views: how many of a sample; a round takes as many times longer.
        classes: the labels there can be, or their number: a public fact. Without it they are taken from ``y``, and
            the run says that no guarantee covers them.
        task: what ``y`` is.
        ranges: public lower and upper ends of the features; values are clipped to them and scaled to 0…1.
        normalise: ``"private"`` brings features to mean 0 and variance 1 by noised constants, which the guarantee
            includes; needs values between 0 and 1 (``ranges``).
        normalise_mu: µ of that release.
        test: **public** samples and targets, measured after every epoch without noise.
        directory: keeps ledger, checkpoints, model and report; without it they are temporary.
        data: the name of the data in reports, and in the shared ledger, which adds up what all runs on the same data have
            spent.
        ledger: the directory of the shared ledger, or ``"none"``; by default that of the command.
        seed: draws everything from this number: reproducible, and **not private**.
        threads: the result does not depend on it.
        diagnostics: also write training loss and clipping to diagnostics.jsonl; they are **not private**.
        resume: continue the run in ``directory``.
        callback: called with the measurement of every epoch; True ends the run early.
    """
    limits = None if ranges is None else _limits(ranges)
    inputs = _scaled(_array(x), limits)
    labels, targets, uncovered = _targets(y, classes, task)
    if normalise == "private" and limits is None:
        raise ValueError("normalise = private: needs public ranges of the features; give ranges=(low, high)")
    if mechanism is None:
        groups = groups or max(1, min(2048, len(inputs) // 8))
        mechanism = Mechanism.subsample(samples=len(inputs), groups=groups, epochs=epochs)
        released = (normalise_mu or 0.1,) if normalise == "private" else ()
        mechanism = mechanism.replace(releases=released).calibrate(epsilon=epsilon, delta=delta, adversary=adversary)
        mechanism = mechanism.replace(releases=())
    elif mechanism.sigmas is None:
        raise ValueError("mechanism: has no noise yet; call calibrate(epsilon=…, delta=…)")
    settings = {
        **mechanism.settings, "data": data, "clip": float(clip), "clip_rule": clip_rule, "step": float(lr),
        "step_rule": lr_rule or "constant", "inner": [inner] if isinstance(inner, str) else list(inner or []),
        "inner_step": inner_step, "inner_result": inner_result, "outer": outer, "momentum": momentum,
        "weight_decay": weight_decay, "average": average, "choose": choose, "label_smoothing": label_smoothing,
        "augment": list(augment), "views": views, "ledger": None if ledger is None else os.fspath(ledger), "noise": noise,
        "delta": delta, "adversary": adversary, "max_epsilon": max_epsilon, "seed": seed, "threads": threads,
        "diagnostics": diagnostics or None, "normalise": normalise, "normalise_mu": normalise_mu,
        **_network(net, inputs.shape[1:], task),
    }
    tested = None
    if test is not None:
        tested = (_scaled(_array(test[0]), limits), _encoded(test[1], labels))
    with tempfile.TemporaryDirectory(prefix="dpsgd-") as place:
        told = _dpsgd.train_native(
            settings,
            train=(inputs, targets),
            test=tested,
            classes=None if labels is None else len(labels),
            uncovered=uncovered,
            directory=Path(place, "run") if directory is None else directory,
            resume=resume,
            observer=_Watcher(callback),
        )
        return Trained(
            told, classes=labels, ranges=limits, shape=inputs.shape[1:], adversary=adversary or mechanism.adversary,
            delta=delta, temporary=directory is None,
        )


def _array(x: ArrayLike) -> NDArray[np.float32]:
    array = as_numbers(x.to_numpy() if hasattr(x, "to_numpy") else np.asarray(x), "x")
    return np.ascontiguousarray(array, dtype=np.float32)


def _limits(ranges: tuple[ArrayLike, ArrayLike]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    low, high = (np.asarray(end, dtype=np.float32) for end in ranges)
    if not np.all(low < high):
        raise ValueError("ranges: every lower end must be below its upper end")
    return low, high


def _scaled(
    x: NDArray[np.float32], limits: tuple[NDArray[np.float32], NDArray[np.float32]] | None
) -> NDArray[np.float32]:
    if limits is None:
        return x
    low, high = limits
    return np.ascontiguousarray((np.clip(x, low, high) - low) / (high - low), dtype=np.float32)


def _targets(
    y: ArrayLike, classes: Sequence[Any] | int | None, task: str
) -> tuple[NDArray[Any] | None, NDArray[np.float32], list[str]]:
    """The labels there are, the targets as numbers, and what no guarantee covers."""
    given = np.asarray(y)
    uncovered: list[str] = []
    if given.ndim != 1:
        raise ValueError(f"y: has {given.ndim} dimensions; it must have one value for each sample")
    if task == "regression":
        return None, np.ascontiguousarray(given, dtype=np.float32), []
    if isinstance(classes, (int, np.integer)):
        labels = np.arange(classes)
    elif classes is not None:
        labels = np.asarray(list(classes))
    else:
        warnings.warn(
            "classes: they are taken from the private data, which no guarantee covers; give them as a public list",
            UncoveredWarning,
            stacklevel=3,
        )
        labels, uncovered = np.unique(given), ["y"]
    return labels, _encoded(given, labels), uncovered


def _encoded(y: ArrayLike, labels: NDArray[Any] | None) -> NDArray[np.float32]:
    given = np.asarray(y)
    if labels is None:
        return np.ascontiguousarray(given, dtype=np.float32)
    order = np.argsort(labels)
    place = np.searchsorted(labels, given, sorter=order).clip(max=len(labels) - 1)
    found = order[place]
    if not np.all(labels[found] == given):
        raise ValueError("y: holds a label that is not in classes")
    encoded: NDArray[np.float32] = found.astype(np.float32)
    return encoded


def _network(net: str | Sequence[Mapping[str, Any]], shape: tuple[int, ...], task: str) -> dict[str, Any]:
    if isinstance(net, str):
        return {"net": net}
    image = {1: (1, 1, *shape), 2: (*shape, 1), 3: shape}.get(len(shape), shape)
    loss = "squared" if task == "regression" else "softmax-cross-entropy"
    return {"net": "network", "network": {"input": list(image), "loss": loss, "layer": [dict(layer) for layer in net]}}


class _Watcher:
    """What the native run calls while it runs."""

    def __init__(self, callback: Callable[[dict[str, Any]], bool | None] | None) -> None:
        self.callback = callback
        self.ended = False

    def begins(self, outlook: dict[str, Any]) -> None: ...

    def round(self, done: int) -> None: ...

    def measured(self, measurement: dict[str, Any]) -> None:
        if self.callback is not None:
            self.ended |= bool(self.callback(measurement))

    def stop(self) -> bool:
        return False

    def end(self) -> bool:
        return self.ended

    def ends(self) -> None: ...
