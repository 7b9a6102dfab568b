"""Samples by number, from whatever people keep them in."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from dpsgd.arrays import as_numbers

Batch = tuple[tuple[Tensor, ...], "Tensor | None"]


class Samples(Protocol):
    """Numbered samples."""

    def __len__(self) -> int: ...

    def batch(self, numbers: Tensor) -> Batch:
        """The inputs and the targets of some samples, stacked."""
        ...


class Arrays:
    """Samples as rows of tensors."""

    def __init__(self, inputs: tuple[Tensor, ...], target: Tensor | None) -> None:
        sizes = {len(tensor) for tensor in (*inputs, *([] if target is None else [target]))}
        if len(sizes) != 1:
            raise ValueError(f"x and y: the numbers of samples differ: {', '.join(map(str, sorted(sizes)))}")
        self.inputs = inputs
        self.target = target

    def __len__(self) -> int:
        return len(self.inputs[0])

    def batch(self, numbers: Tensor) -> Batch:
        """The inputs and the targets of some samples, stacked."""

        def rows(tensor: Tensor) -> Tensor:
            return tensor.index_select(0, numbers.to(tensor.device))

        return tuple(map(rows, self.inputs)), None if self.target is None else rows(self.target)


class Items:
    """Samples of a map-style :class:`torch.utils.data.Dataset`; the last part of an item is the target."""

    def __init__(self, dataset: Dataset[Any], targets: bool) -> None:
        if not hasattr(dataset, "__len__"):
            raise ValueError("x: an iterable dataset has no numbered samples; give a map-style dataset or tensors")
        self.dataset = dataset
        self.targets = targets

    def __len__(self) -> int:
        return len(self.dataset)

    def batch(self, numbers: Tensor) -> Batch:
        """The inputs and the targets of some samples, stacked."""
        found = default_collate([self.dataset[int(number)] for number in numbers])
        if isinstance(found, dict):
            raise ValueError(
                f"x: items of the dataset are dictionaries ({', '.join(map(str, found))}); wrap it so that an item is a "
                "tuple of inputs that ends with the target"
            )
        several = found if isinstance(found, (tuple, list)) else (found,)
        inputs = several if len(several) == 1 else several[:-1]
        target = None if len(several) == 1 else target_tensor(several[-1])
        return tuple(tensor(part, "x, an item of the dataset") for part in inputs), target


def tensor(values: Any, what: str) -> Tensor:
    """A tensor of samples: floating-point values become float32, whole numbers int64."""
    if isinstance(values, DataLoader):
        raise ValueError(
            f"{what}: a DataLoader draws batches of its own, and what is accounted for is what is drawn here; give its "
            "dataset"
        )
    if isinstance(values, Tensor):
        found = values
    else:
        # A pandas frame or series, a list, an array.
        array = as_numbers(values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values), what)
        if hasattr(values, "columns"):
            array = array.astype(np.float32)
        array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
        with warnings.catch_warnings():
            # That the memory must not be written to: nobody does, and a mapped file is not copied.
            warnings.simplefilter("ignore", UserWarning)
            found = torch.from_numpy(array)
    if found.is_floating_point():
        return found.to(torch.float32)
    return found if found.dtype in (torch.uint8, torch.bool) else found.to(torch.int64)


def target_tensor(values: Any) -> Tensor:
    """The same for targets: truth values and small numbers are classes, too."""
    found = tensor(values, "y")
    return found if found.is_floating_point() else found.to(torch.int64)


def samples(x: Any, y: Any) -> Samples:
    """Samples from tensors, arrays, frames, several of them, or a dataset."""
    if isinstance(x, Dataset):
        if y is not None:
            raise ValueError("y: a dataset holds its own targets; leave y out")
        return Items(x, True)
    several = x if isinstance(x, (tuple, list)) and x and not np.isscalar(x[0]) and _is_table(x[0]) else (x,)
    inputs: Sequence[Tensor] = [tensor(part, "x") for part in several]
    return Arrays(tuple(inputs), None if y is None else target_tensor(y))


# The most test samples that may occur in training beyond what chance explains, as a share of all.
_MOST_REPEATED = 0.25


def refuse_training_samples(train: Samples, test: Samples) -> None:
    """Refuses a public test set of which a large share occurs in training, in whatever order, and warns if any does.

    What is measured on the test set is written down without noise. The rule is that of the command; samples of a
    dataset other than ``TensorDataset`` are not read.
    """
    if isinstance(train, Items) and isinstance(test, Items) and train.dataset is test.dataset:
        raise ValueError(_SAME.format("all"))
    known, asked = _rows(train), _rows(test)
    if known is None or asked is None:
        return
    counts = Counter(known)
    found = sum(row in counts for row in asked)
    # Test samples that occur in training by chance, if they are other people of the same population.
    by_chance = sum(count for count in counts.values() if count > 1) / len(known)
    if counts == Counter(asked) or found / len(asked) - by_chance > _MOST_REPEATED:
        raise ValueError(_SAME.format(f"{found} of {len(asked)}"))
    if found:
        warnings.warn(
            f"{found} of {len(asked)} test samples also occur in the training data; what is measured on the test set is "
            "published without noise, so make sure that these are not private (this number is a function of the private "
            "data: it is for you, not for publishing)",
            stacklevel=3,
        )


_SAME = (
    "test: holds the same samples as the training set ({} occur there). What is measured on the test set is written down "
    "without noise, so it must be public: give samples that nobody has to protect"
)


def digest(given: Samples) -> bytes | None:
    """What tells these samples from others, in their order; nothing for a dataset that only its own code can read."""
    tensors = _tensors(given)
    if tensors is None:
        return None
    found = hashlib.sha256()
    for part in tensors:
        found.update(f"{part.dtype} {tuple(part.shape)}\n".encode())
        found.update(_bytes(part).data)
    return found.digest()


def _tensors(given: Samples) -> tuple[Tensor, ...] | None:
    if isinstance(given, Arrays):
        return given.inputs if given.target is None else (*given.inputs, given.target)
    # Not one that is derived from it, whose items may be others.
    if isinstance(given, Items) and type(given.dataset) is TensorDataset:
        return tuple(given.dataset.tensors)
    return None


def _bytes(part: Tensor) -> NDArray[np.uint8]:
    """A row of bytes for each sample."""
    rows = part.detach().cpu().contiguous().reshape(len(part), -1)
    if rows.shape[1] == 0:
        return np.zeros((len(part), 0), dtype=np.uint8)
    return rows.view(torch.uint8).numpy()


def _rows(given: Samples) -> list[bytes] | None:
    """The digest of each sample, input and target."""
    tensors = _tensors(given)
    if tensors is None:
        return None
    parts = [_bytes(part) for part in tensors]
    return [hashlib.blake2b(b"".join(part[i].tobytes() for part in parts), digest_size=16).digest() for i in range(len(given))]


def _is_table(value: Any) -> bool:
    return hasattr(value, "shape") and len(value.shape) > 0
