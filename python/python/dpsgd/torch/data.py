"""Samples by number, from whatever people keep them in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

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
        parts = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        return (parts[:-1], parts[-1]) if len(parts) > 1 else (parts, None)


def tensor(values: Any, what: str) -> Tensor:
    """A tensor of samples: floating-point values become float32, whole numbers int64."""
    if isinstance(values, Tensor):
        found = values
    else:
        # A pandas frame or series, a list, an array.
        array = values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)
        if array.dtype == object:
            raise ValueError(f"{what}: holds values that are not numbers; encode them first")
        if hasattr(values, "columns"):
            array = array.astype(np.float32)
        found = torch.from_numpy(np.ascontiguousarray(array))
    if found.is_floating_point():
        return found.to(torch.float32)
    return found if found.dtype in (torch.uint8, torch.bool) else found.to(torch.int64)


def samples(x: Any, y: Any) -> Samples:
    """Samples from tensors, arrays, frames, several of them, or a dataset."""
    if isinstance(x, Dataset):
        if y is not None:
            raise ValueError("y: a dataset holds its own targets; leave y out")
        return Items(x, True)
    several = x if isinstance(x, (tuple, list)) and x and not np.isscalar(x[0]) and _is_table(x[0]) else (x,)
    inputs: Sequence[Tensor] = [tensor(part, "x") for part in several]
    return Arrays(tuple(inputs), None if y is None else tensor(y, "y"))


def same(one: Samples, other: Samples) -> bool:
    """Whether two sets hold the same samples, as far as it can be seen without reading a dataset."""
    if isinstance(one, Items) and isinstance(other, Items):
        return one.dataset is other.dataset
    if not isinstance(one, Arrays) or not isinstance(other, Arrays) or len(one) != len(other):
        return False
    pairs = zip(one.inputs, other.inputs)
    return all(a.shape == b.shape and torch.equal(a.cpu(), b.cpu()) for a, b in pairs)


def _is_table(value: Any) -> bool:
    return hasattr(value, "shape") and len(value.shape) > 0
