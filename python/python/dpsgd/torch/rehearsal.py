"""The dry run before the first round is charged: how rows are computed, and whether they are rows of their groups alone.

Nothing is charged yet, and nothing of what is computed leaves.
"""

from __future__ import annotations

import inspect
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from numbers import Number
from types import BuiltinFunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from dpsgd.torch.rows import SMALLEST, Mode, Refused, Rows
from dpsgd.torch.team import pieces, unsplit

# Rows may differ by the rounding of kernels that depend on the number of rows, relative to their norm.
_ROUNDING = 1e-3
# The rows of a piece that one thread computes, unless a chunk is given. Small pieces stay in the cache and in memory that
# is used again, large ones have less overhead: the dry run takes the cheapest.
_PIECES = (SMALLEST, 64, 128)
# The rows of a dry run.
_PROBED = 16
# Seconds for these rows, up to which a dry run also tries pieces.
_SHORT = 0.2


def rehearse(rows: Rows, size: int, groups: int | None) -> None:
    """The dry run for rounds of groups of this size; how many there are in a round, where that is public.

    Raises:
        Refused: if the model cannot be trained with a guarantee.
    """
    count = min(_PROBED, rows.chunk, len(rows.samples) // size)
    if count < 1:
        raise Refused(f"group_size = {size}: the data has only {len(rows.samples)} samples")
    _Rehearsal(rows, size, groups, count).run()


class _Rehearsal:
    def __init__(self, rows: Rows, size: int, groups: int | None, count: int) -> None:
        self.rows = rows
        self.size = size
        self.groups = groups
        self.numbers = np.arange(count * size, dtype=np.uint32)
        # What may draw at random draws the same in every call of the probe.
        self.seed = None if rows.randomness == "error" else 0

    def run(self) -> None:
        """Finds a way, and looks for state and cross-talk."""
        rows = self.rows
        self._check_samples()
        if rows.mode == "auto":
            self._choose()
        elif rows.mode == "threads":
            self._share_out(self._tried("vmap")[1])
        else:
            self._tried(rows.mode)
        with _without_dropout(rows.model, rows.randomness):
            self._probe()

    def _check_samples(self) -> None:
        """Refuses a dataset that gives other values for the same number."""
        numbers = torch.from_numpy(self.numbers.astype(np.int64))
        same = all(
            torch.equal(one.nan_to_num(), two.nan_to_num()) for one, two in zip(self._read(numbers), self._read(numbers))
        )
        if not same:
            allowed = (
                'if it draws at random by PyTorch\'s generator, allow that with randomness="different"'
                if self.rows.randomness == "error"
                else "it may draw from PyTorch's generator only, which follows secret seeds of the run here, and must keep "
                "no state"
            )
            raise Refused(f"x: the dataset gave other values for the same numbers when it was read again; {allowed}")

    def _read(self, numbers: torch.Tensor) -> list[torch.Tensor]:
        with torch.random.fork_rng(devices=[], enabled=self.seed is not None):
            if self.seed is not None:
                torch.manual_seed(self.seed)
            inputs, target = self.rows.samples.batch(numbers)
        return [*inputs, *([] if target is None else [target])]

    def _tried(self, mode: Mode) -> tuple[float, list[Any]]:
        self.rows.mode = mode
        try:
            act = partial(self.rows.rows, self.numbers, self.size, self.seed)
            stretches, _ = act()
            with unsplit():
                return min(self._seconds(act) for _ in range(2)), stretches
        except Refused:
            raise
        except Exception as why:
            raise Refused(f"the model cannot be differentiated group by group (mode {mode}): {why}") from why

    def _seconds(self, act: Callable[[], Any]) -> float:
        """The work of a call; on the CPU other load on the machine does not count."""
        clock = time.thread_time if self.rows.device.type == "cpu" else time.perf_counter
        began = clock()
        act()
        return clock() - began

    def _choose(self) -> None:
        """Loop for a single group a round; elsewhere vmap where it works, on threads where there is work for them, or
        the loop where that is faster."""
        if self.groups == 1:
            self._tried("loop")
            return
        try:
            with_vmap = self._tried("vmap")
        except Refused as why:
            try:
                self._tried("loop")
            except Refused as other:
                raise other from why
            return
        with_loop = self._tried("loop")
        if self.rows.randomness == "error":
            self._compare(with_vmap[1], with_loop[1], "vmap and a plain backward pass")
        shared = self._is_worth_sharing()
        # More threads than this hardly help: the interpreter is one.
        gain = min(self.rows.team.threads, 4) if shared else 1
        self.rows.mode = "vmap" if with_vmap[0] <= gain * with_loop[0] else "loop"
        if self.rows.mode == "loop" or not shared:
            return
        try:
            self._share_out(with_vmap[1])
        except Refused:
            self.rows.mode = "vmap" if with_vmap[0] <= with_loop[0] else "loop"
            return
        if self.rows.given is None and with_vmap[0] < _SHORT:
            self._choose_piece()

    def _is_worth_sharing(self) -> bool:
        """Whether a round has a piece for every thread; not with several processes, which share a round already."""
        rows = self.rows
        if not rows.alone or rows.randomness != "error" or rows.device.type != "cpu" or rows.most < 2 * SMALLEST:
            return False
        if may_meet(rows.model, rows.loss):
            return False
        most = rows.given or max(1, SMALLEST // self.size)
        return self.groups is None or len(pieces(self.groups, self.size, most)) >= self.rows.team.threads

    def _share_out(self, expected: list[Any]) -> None:
        """Goes over to threads, if replicas of the module give the rows of the module itself."""
        if self.rows.randomness != "error" or self.rows.device.type != "cpu":
            raise Refused('mode = threads: for modules on the CPU that do not draw at random; use "vmap"')
        self.rows.mode = "threads"
        try:
            replicas = self.rows.team.replicas()
        except Exception as why:
            raise Refused(f'mode = threads: the module cannot be copied ({why}); use "vmap"') from why
        given = self.rows.grouped(self.numbers, self.size)
        for replica in replicas:
            self._compare(expected, self.rows.block(replica, *given)[0], "the module and its copy")
        if self.rows.given is None:
            self.rows.chunk = min(SMALLEST, self.rows.most)

    def _choose_piece(self) -> None:
        """The piece with the least work for each group, of those that leave every thread two."""
        least = 2 * self.rows.team.threads
        most = min(self.rows.most // least, len(self.rows.samples) // self.size)
        several = [
            piece
            for piece in _PIECES
            if piece <= most and (self.groups is None or len(pieces(self.groups, self.size, piece)) >= least)
        ]
        costs: dict[int, float] = {}
        for _ in range(3 if len(several) > 1 else 0):
            for piece in several:
                given = self.rows.grouped(np.arange(piece * self.size, dtype=np.uint32), self.size)
                with unsplit():
                    spent = self._seconds(partial(self.rows.block, self.rows.model, *given)) / piece
                costs[piece] = min(spent, costs.get(piece, spent))
        if costs:
            self.rows.chunk = min(costs, key=costs.__getitem__)

    def _compare(self, one: list[Any], other: list[Any], what: str) -> None:
        norm, apart = 0.0, 0.0
        for a, b in zip(one, other):
            a, b = a.reshape(len(a), -1).astype(np.float64), b.reshape(len(b), -1).astype(np.float64)
            if a.shape != b.shape:
                raise Refused(f"{what} disagree about the shape of a gradient: the model keeps state between calls")
            both = np.isfinite(a) & np.isfinite(b)
            if np.any(np.isfinite(a) != np.isfinite(b)):
                raise Refused(f"{what} disagree about which gradients are finite: the model keeps state between calls")
            norm = norm + (np.where(both, a, 0) ** 2).sum(axis=1)
            apart = apart + (np.where(both, a - b, 0) ** 2).sum(axis=1)
        # Below the square root of the smallest float, rounding is all there is.
        if np.any(np.sqrt(apart) > _ROUNDING * np.sqrt(norm) + 1e-12):
            worst = float(np.max(np.sqrt(apart / np.maximum(norm, 1e-30))))
            raise Refused(
                f"{what} disagree about the gradient of the same samples (by {worst:.2g} of its norm): the model keeps "
                "state between calls, or mixes samples of different groups, and no guarantee would hold"
            )

    def _probe(self) -> None:
        first, _ = self.rows.rows(self.numbers, self.size, self.seed)
        again, _ = self.rows.rows(self.numbers, self.size, self.seed)
        self._compare(first, again, "two calls")
        alone, _ = self.rows.rows(self.numbers[:self.size], self.size, self.seed)
        self._compare([part[:1] for part in first], alone, "a call with other groups and one without them")
        if len(self.numbers) > self.size:
            # The same first group in other company: everything else in reverse.
            others = self.numbers[self.size:].reshape(-1, self.size)[::-1].ravel()
            company = np.concatenate([self.numbers[:self.size], others])
            swapped, _ = self.rows.rows(company, self.size, self.seed)
            self._compare([part[:1] for part in first], [part[:1] for part in swapped], "calls with other groups")


def may_meet(model: nn.Module, loss: Callable[..., Any]) -> bool:
    """Whether threads could meet in an object that the loss or a hook changes.

    Threads have copies of the module, but the loss and the functions of hooks are not copied, nor is what they refer to.
    Where a hook keeps an activation in a dictionary and the loss takes it from there, one thread may take what another
    has kept: the row of a group would depend on samples of another group, and only sometimes, so that a dry run need not
    find it.
    """
    hooks = itertools.chain.from_iterable(
        [*module._forward_hooks.values(), *module._forward_pre_hooks.values()] for module in model.modules()
    )
    seen: set[int] = set()
    # Hooks that are not functions are copied with their module.
    return _may_change(loss, seen) or any(_may_change(hook, seen) for hook in hooks if inspect.isfunction(hook))


def _may_change(it: Any, seen: set[int]) -> bool:
    """Whether something may be changed by a function that refers to it; a function, by what it refers to itself."""
    if id(it) in seen:
        return False
    seen.add(id(it))
    if it is None or isinstance(it, (ModuleType, type, Number, str, bytes, torch.Tensor)):
        return False
    if isinstance(it, BuiltinFunctionType):
        # A method belongs to an object, a function to a module or a class.
        return _may_change(it.__self__, seen)
    if isinstance(it, (torch.dtype, torch.device)) or type(it).__module__ == "torch.nn.modules.loss":
        return False
    if isinstance(it, tuple):
        return any(_may_change(part, seen) for part in it)
    if isinstance(it, partial):
        return any(_may_change(part, seen) for part in (it.func, *it.args, *it.keywords.values()))
    if not inspect.isfunction(it):
        return True
    if (it.__module__ or "").split(".")[0] == "torch":
        return False
    try:
        names = inspect.getclosurevars(it)
    except ValueError:
        return True
    referred = (*names.nonlocals.values(), *names.globals.values(), *(it.__defaults__ or ()))
    return any(_may_change(other, seen) for other in referred)


@contextmanager
def _without_dropout(model: nn.Module, randomness: str) -> Iterator[None]:
    """Dropout makes two calls differ; everything else is probed without it."""
    dropped = [layer for layer in model.modules() if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.training]
    if randomness == "error":
        dropped = []
    for layer in dropped:
        layer.eval()
    try:
        yield
    finally:
        for layer in dropped:
            layer.train()
