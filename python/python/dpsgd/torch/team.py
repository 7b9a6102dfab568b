"""Pieces of a call on several threads.

PyTorch splits one operation among its threads, and the operations of a small batch are too short for that: the gradients
of 128 groups keep 1.2 cores of two busy. So a call is cut into pieces, and each thread computes a whole piece, with
operations that are not split.

Guarantee
    **Bits do not depend on the number of threads.** How a call is cut follows from its groups and from the chunk; every
    piece is computed by one thread with operations on one thread, and pieces are handed on in their order.
"""

from __future__ import annotations

import copy
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Barrier
from typing import Any, TypeVar

import torch
from torch import nn

Out = TypeVar("Out")
Job = Callable[[nn.Module], Out]

# More pieces than this are never under way, whatever the number of cores.
_MOST = 16
# A call of one piece is halved from so many samples on, so that a small batch has work for two.
_WORTH_HALVING = 16


def cores() -> int:
    """What this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pieces(groups: int, size: int, most: int) -> list[range]:
    """The pieces of a call: of nearly the same number of groups, at most ``most``."""
    count = -(-groups // most)
    if count == 1 and groups > 1 and groups * size >= _WORTH_HALVING:
        count = 2
    ends = [groups * number // count for number in range(count + 1)]
    return [range(*ends_of) for ends_of in itertools.pairwise(ends)]


@contextmanager
def unsplit() -> Iterator[None]:
    """Operations of this thread run on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _begin() -> None:
    torch.set_num_threads(1)
    # A thread that was not asked yet takes over what another has set, at its first operation that can be split.
    torch.get_num_threads()


class Team:
    """Threads, each with a replica of the module: ``functional_call`` puts weights into a module while it runs, so two
    threads cannot share one. Replicas share parameters and buffers with the module."""

    def __init__(self, model: nn.Module, threads: int) -> None:
        self.model = model
        self.threads = min(threads, _MOST)
        self._free: SimpleQueue[nn.Module] | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._process = 0

    def renew(self) -> None:
        """The module may have been changed: replicas are made again before they are used."""
        self._free = None

    def replicas(self) -> list[nn.Module]:
        """One for each thread."""
        shared: dict[int, Any] = {id(t): t for t in itertools.chain(self.model.parameters(), self.model.buffers())}
        return [copy.deepcopy(self.model, dict(shared)) for _ in range(self.threads)]

    def run(self, jobs: Iterable[Job[Out]], count: int) -> Iterator[Out]:
        """The results of so many jobs, in their order. Only a few jobs are begun before their turn, so that few results
        are in memory; whoever takes the results may work meanwhile.

        The first error in that order is raised, after all that was begun has ended.
        """
        if self.threads == 1 or count == 1:
            for job in jobs:
                with unsplit():
                    found = job(self.model)
                yield found
            return
        free = self._free
        if free is None:
            self._free = free = SimpleQueue()
            for replica in self.replicas():
                free.put(replica)

        def act(job: Job[Out]) -> Out:
            replica = free.get()
            try:
                return job(replica)
            finally:
                free.put(replica)

        executor = self._threads()
        waiting: deque[Future[Out]] = deque()
        try:
            for job in jobs:
                waiting.append(executor.submit(act, job))
                if len(waiting) >= 2 * self.threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
            for future in waiting:
                if not future.cancelled():
                    future.exception()

    def _threads(self) -> ThreadPoolExecutor:
        # Threads do not live on in a forked process.
        if self._executor is None or self._process != os.getpid():
            executor = ThreadPoolExecutor(self.threads, thread_name_prefix="dpsgd", initializer=_begin)
            # What a thread sets for itself is also what threads that begin later start with: all begin here, and then
            # it is what it was.
            began = Barrier(self.threads)
            with unsplit():
                for waited in [executor.submit(began.wait) for _ in range(self.threads)]:
                    waited.result()
            self._executor, self._process = executor, os.getpid()
        return self._executor
