"""The rows of a round from several processes (``torch.distributed``).

The first process leads: it runs the trainer, with its ledger and its noise. For every call it hands out the weights
and the numbers of the samples; each process computes the rows of its slices and sends them back. Slices do not depend
on how many processes there are, and rows are clipped and summed in their order by the leader, so neither does the
update, to the bit.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from dpsgd.torch.rows import Mode, Rows

# What the leader asks for.
_ROWS, _END = 1, 0
# Slices of one call, so that several processes have something to do.
SLICES = 4


def is_leader() -> bool:
    """Whether this process leads."""
    if not dist.is_initialized():
        raise ValueError("distributed: call torch.distributed.init_process_group first, or start with torchrun")
    return dist.get_rank() == 0


def agree_on_mode(rows: Rows) -> None:
    """Everybody computes rows in the leader's way: another way rounds differently."""
    said: list[Mode] = [rows.mode]
    dist.broadcast_object_list(said, src=0)
    rows.mode = said[0]


class Leader:
    """What the native trainer calls a worker: rows from all processes."""

    def __init__(self, rows: Rows) -> None:
        self.own = rows
        self.flat = rows.flat
        self.world = dist.get_world_size()

    def rows(
        self, numbers: NDArray[np.uint32], size: int, seed: int | None = None
    ) -> tuple[list[NDArray[np.float32]], NDArray[np.float32]]:
        """The rows of all slices, in their order."""
        slices = _slices(len(numbers) // size, self.own.chunk)
        asked = torch.from_numpy(numbers.astype(np.int64))
        for rank in range(1, self.world):
            dist.send(torch.tensor([_ROWS, len(numbers), size, -1 if seed is None else seed]), rank)
            dist.send(torch.from_numpy(self.own.flat), rank)
            dist.send(asked, rank)
        found: list[Any] = [None] * len(slices)
        failed: Exception | None = None
        for place in range(0, len(slices), self.world):
            try:
                found[place] = self.own.rows(_part(numbers, slices[place], size), size, _seed(seed, place))
            except Exception as why:
                # The others are computing: what they send is received first, so that they stay in step.
                failed = failed or why
        shapes = [(shape, shape.numel()) for _, shape in self.own._types.values()]
        width = sum(numel for _, numel in shapes)
        for place, (start, end) in enumerate(slices):
            rank = place % self.world
            if rank == 0:
                continue
            fine = torch.empty(1, dtype=torch.int64)
            dist.recv(fine, rank)
            if not fine.item():
                failed = failed or RuntimeError(f"process {rank} could not compute its rows; its own output says why")
                continue
            block = torch.empty((end - start, width + 1))
            dist.recv(block, rank)
            found[place] = _unpacked(block.numpy(), [numel for _, numel in shapes])
        if failed is not None:
            raise failed
        stretches = [np.concatenate([slice[0][p] for slice in found]) for p in range(len(shapes))]
        return stretches, np.concatenate([slice[1] for slice in found])

    def end(self) -> None:
        """Lets the others go; one that has died is not waited for."""
        for rank in range(1, self.world):
            try:
                dist.send(torch.tensor([_END, 0, 0, -1]), rank)
            except RuntimeError:
                pass


def follow(rows: Rows) -> None:
    """Computes what the leader asks for, until it ends."""
    rank, world = dist.get_rank(), dist.get_world_size()
    while True:
        asked = torch.empty(4, dtype=torch.int64)
        dist.recv(asked, 0)
        what, count, size, drawn = asked.tolist()
        if what == _END:
            return
        dist.recv(torch.from_numpy(rows.flat), 0)
        names = torch.empty(count, dtype=torch.int64)
        dist.recv(names, 0)
        numbers = names.numpy().astype(np.uint32)
        slices = _slices(count // size, rows.chunk)
        failed: Exception | None = None
        for place in range(rank, len(slices), world):
            try:
                seed = _seed(None if drawn < 0 else drawn, place)
                block = None if failed else _packed(*rows.rows(_part(numbers, slices[place], size), size, seed))
            except Exception as why:
                failed, block = why, None
            dist.send(torch.tensor([int(block is not None)]), 0)
            if block is not None:
                dist.send(block, 0)
        if failed is not None:
            import warnings

            warnings.warn(f"process {rank}: {type(failed).__name__}: {failed}", RuntimeWarning, stacklevel=2)


def _seed(seed: int | None, place: int) -> int | None:
    """The seed of a slice, from that of the call: the same whoever computes it."""
    if seed is None:
        return None
    digest = hashlib.blake2b(seed.to_bytes(8, "little") + place.to_bytes(8, "little"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _slices(groups: int, chunk: int) -> list[tuple[int, int]]:
    return [(start, min(start + chunk, groups)) for start in range(0, groups, chunk)]


def _part(numbers: NDArray[np.uint32], slice: tuple[int, int], size: int) -> NDArray[np.uint32]:
    return numbers[slice[0] * size : slice[1] * size]


def _packed(stretches: list[NDArray[np.float32]], losses: NDArray[np.float32]) -> Tensor:
    return torch.from_numpy(np.concatenate([*stretches, losses[:, None]], axis=1))


def _unpacked(
    block: NDArray[np.float32], widths: list[int]
) -> tuple[list[NDArray[np.float32]], NDArray[np.float32]]:
    ends = np.cumsum(widths)
    stretches = [np.ascontiguousarray(block[:, end - width : end]) for end, width in zip(ends, widths)]
    return stretches, np.ascontiguousarray(block[:, -1])
