"""The groups of a round from several processes (``torch.distributed``).

The first process leads: it runs the trainer, with its ledger and its noise. For every round it hands out the weights
and blocks of whole units, the about 32 groups that are summed together in single precision. Each process differentiates
the groups of its blocks, clips them and sums them by unit, in Rust; the leader adds the units up in double precision.

Guarantee
    **The update is the same to the bit, however many processes there are.** Which groups make a unit, which units a
    block, and which groups are differentiated in one call follows from the batch and the chunk alone. The sum of a
    unit travels as the single-precision numbers that it is, and the leader adds the units in their order, as it does
    with those that it sums itself. Nothing is added in the order of arrival.

    **Every process must be the data owner's own**, with the same code and data. The leader refuses a sum that is not
    finite, counts other groups than it asked for, or is longer than its groups could be once clipped to C: then the
    round is spent, and nothing of it leaves. That limits what damaged bits can do. It cannot prove that another
    process clipped what it summed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from dpsgd._dpsgd import Share
from dpsgd.torch.rows import Block as RowBlock
from dpsgd.torch.rows import Mode, Rows

# Samples; the size of all groups, or of each; the groups of each unit; seeds; whether each group has its own size.
Block = tuple[NDArray[np.uint32], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64], bool]
# The sums of the units of a block, their counts (groups, clipped, not finite), and their losses.
Sums = tuple[NDArray[np.float32], NDArray[np.uint64], NDArray[np.float32]]

# The blocks that each process is given at once.
_EACH = 2
# How a run can end, as the leader tells the others in place of a number of blocks.
End = Literal["fine", "round failed", "failed"]
_ENDS: dict[int, End] = {0: "fine", -1: "round failed", -2: "failed"}


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
    """What the native trainer calls a worker: the sums of units from all processes."""

    def __init__(self, rows: Rows, share: Share) -> None:
        self.own = rows
        self.share = share
        self.flat = rows.flat
        self.world = dist.get_world_size()
        self.window = _EACH * self.world
        """The blocks of a call."""
        # Weights are sent when they are new: the last ones, their number, and which ones each process has.
        self._last = np.zeros(0, dtype=np.uint32)
        self._number = 0
        self._has = [0] * self.world

    def blocks(self, numbers: NDArray[np.uint32], size: int, seed: int | None = None) -> Iterator[RowBlock]:
        """One step of an algorithm that walks through its group: the leader's work alone."""
        return self.own.blocks(numbers, size, seed)

    def units(self, blocks: list[Block], bound: float, chunk: int) -> list[Sums]:
        """The sums of the units of all blocks, in their order."""
        if not np.array_equal(self._last, self.flat.view(np.uint32)):
            self._last = self.flat.view(np.uint32).copy()
            self._number += 1
        found: list[Any] = [None] * len(blocks)
        failed: BaseException | None = None
        asked = []
        for rank in range(1, min(self.world, len(blocks))):
            fresh = self._has[rank] != self._number
            try:
                _ask(rank, blocks[rank :: self.world], bound, chunk, self.flat if fresh else None)
            except RuntimeError as why:
                failed = failed or why
            else:
                self._has[rank] = self._number
                asked.append(rank)
        try:
            for place in range(0, len(blocks), self.world):
                found[place] = self.share.sum(self.flat, bound, chunk, blocks[place])
        except BaseException as why:
            # The others are computing: what they send is received first, so that they stay in step.
            failed = failed or why
        for place, rank in ((place, place % self.world) for place in range(len(blocks))):
            if rank not in asked:
                continue
            try:
                found[place] = _answer(rank)
            except RuntimeError as why:
                failed = failed or why
        if failed is not None:
            raise failed
        return found

    def end(self, how: End) -> None:
        """Lets the others go; one that has died is not waited for."""
        said = next(number for number, end in _ENDS.items() if end == how)
        for rank in range(1, self.world):
            try:
                dist.send(torch.tensor([said, 0]), rank)
            except RuntimeError:
                pass


def follow(rows: Rows, share: Share) -> End:
    """Computes what the leader asks for, until it ends."""
    weights = np.zeros_like(rows.flat)
    while True:
        head = torch.empty(2, dtype=torch.int64)
        dist.recv(head, 0)
        count, fresh = head.tolist()
        if count <= 0:
            return _ENDS[count]
        blocks, bound, chunk = _asked(count)
        if fresh:
            dist.recv(torch.from_numpy(weights), 0)
        # All of them before anything is sent: the leader receives when it has done its own.
        found: list[Sums | None] = []
        for block in blocks:
            try:
                found.append(share.sum(weights, bound, chunk, block))
            except Exception as why:
                warnings.warn(f"process {dist.get_rank()}: {type(why).__name__}: {why}", RuntimeWarning, stacklevel=2)
                found.append(None)
        for sums in found:
            _reply(sums)


def _ask(rank: int, blocks: list[Block], bound: float, chunk: int, weights: NDArray[np.float32] | None) -> None:
    # Numbers, seeds and the bits of C travel as whole numbers, which nothing rounds.
    lengths, parts = [], [np.array([chunk], dtype=np.int64), np.array([bound]).view(np.int64)]
    for samples, sizes, units, seeds, cells in blocks:
        lengths.append([len(samples), len(sizes), len(units), len(seeds), cells])
        parts += [samples.astype(np.int64), *(part.view(np.int64) for part in (sizes, units, seeds))]
    dist.send(torch.tensor([len(blocks), int(weights is not None)]), rank)
    dist.send(torch.tensor(lengths, dtype=torch.int64), rank)
    dist.send(torch.from_numpy(np.concatenate(parts)), rank)
    if weights is not None:
        dist.send(torch.from_numpy(weights), rank)


def _asked(count: int) -> tuple[list[Block], float, int]:
    lengths = torch.empty((count, 5), dtype=torch.int64)
    dist.recv(lengths, 0)
    body = torch.empty(2 + int(lengths[:, :4].sum()), dtype=torch.int64)
    dist.recv(body, 0)
    (chunk, limit), rest = body[:2].tolist(), body[2:].numpy()
    blocks: list[Block] = []
    for *several, cells in lengths.tolist():
        samples, sizes, units, seeds, rest = np.split(rest, np.cumsum(several))
        counts = (part.view(np.uint64) for part in (sizes, units, seeds))
        blocks.append((samples.astype(np.uint32), next(counts), next(counts), next(counts), bool(cells)))
    return blocks, float(np.array([limit]).view(np.float64)[0]), chunk


def _reply(found: Sums | None) -> None:
    if found is None:
        dist.send(torch.tensor([-1, 0]), 0)
        return
    sums, counts, losses = found
    dist.send(torch.tensor(sums.shape), 0)
    dist.send(torch.from_numpy(sums), 0)
    dist.send(torch.from_numpy(counts.view(np.int64)), 0)
    dist.send(torch.from_numpy(losses), 0)


def _answer(rank: int) -> Sums:
    shape = torch.empty(2, dtype=torch.int64)
    dist.recv(shape, rank)
    units, dimension = shape.tolist()
    if units < 0:
        raise RuntimeError(f"process {rank} could not compute its share; its own output says why")
    sums, losses = torch.empty((units, dimension)), torch.empty(units)
    counts = torch.empty((units, 3), dtype=torch.int64)
    for part in (sums, counts, losses):
        dist.recv(part, rank)
    return sums.numpy(), counts.numpy().view(np.uint64), losses.numpy()
