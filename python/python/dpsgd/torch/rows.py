"""The mean gradient of every group, and the proof that it depends on nothing else.

The guarantee of a run rests on one thing that PyTorch does: the row of a group must be a function of the weights
and of the samples of that group. What can be checked about it is checked before the first round is charged.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from dpsgd.torch.data import Samples
from dpsgd.torch.team import Job, Team, cores, pieces, unsplit

Mode = Literal["auto", "threads", "vmap", "loop"]
Loss = Callable[..., Tensor]
# One k × d_p array for each parameter, and k losses.
Block = tuple[list[NDArray[np.float32]], NDArray[np.float32]]

# Rows may differ by the rounding of kernels that depend on the number of rows, relative to their norm.
_ROUNDING = 1e-3
# At most this many bytes of rows at once.
_MOST_BYTES = 1 << 30
_MOST_ROWS = 128
# The rows of a piece that one thread computes, unless a chunk is given: what a call of so many samples needs stays in
# the cache, and in memory that is used again. Of the two sizes the faster one is taken.
_PIECES = (32, 64)
# The pieces of a call. Not by the number of threads: how a batch is cut into calls must not depend on it.
_CALL = 16
# The rows of a dry run.
_PROBED = 16
# Seconds for these rows, up to which a dry run also tries pieces.
_SHORT = 0.2


class Refused(ValueError):
    """The model cannot be trained with a guarantee; the message says why and what to do."""


class Rows:
    """Computes rows at given weights; what the native trainer calls a worker."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        samples: Samples,
        *,
        mode: Mode,
        chunk: int | None,
        randomness: Literal["error", "different"],
        threads: int | None = None,
    ) -> None:
        self.model = model
        self.loss = loss
        self.samples = samples
        self.randomness: Literal["error", "different"] = randomness
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        _check_parameters(self.parameters)
        _check_layers(model, randomness)
        self.device = next(iter(self.parameters.values())).device
        self.offsets: dict[str, int] = {}
        total = 0
        for name, parameter in self.parameters.items():
            self.offsets[name] = total
            total += parameter.numel()
        self.flat: NDArray[np.float32] = np.zeros(total, dtype=np.float32)
        self.load_from_model()
        most = 1 << max(0, int(math.log2(max(1, _MOST_BYTES // (4 * total)))))
        self._given = chunk
        self._most = most
        self.alone = True
        """Whether this process computes all rows of a round."""
        self.chunk = chunk or min(_MOST_ROWS, most)
        self.mode: Mode = mode
        self.team = Team(model, min(threads or cores(), max(1, most // _PIECES[0])))
        self._types = {name: (p.dtype, p.shape) for name, p in self.parameters.items()}

    # Weights

    def load_from_model(self) -> None:
        """Takes the weights of the module."""
        for name, parameter in self.parameters.items():
            start = self.offsets[name]
            self.flat[start : start + parameter.numel()] = parameter.detach().cpu().numpy().ravel()

    def store_in_model(self, weights: NDArray[np.float32]) -> None:
        """Gives the module these weights."""
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                start = self.offsets[name]
                mine = torch.from_numpy(weights[start : start + parameter.numel()].copy())
                parameter.copy_(mine.view(parameter.shape))

    def _views(self) -> dict[str, Tensor]:
        flat = torch.from_numpy(self.flat).to(self.device)
        return {
            name: flat[self.offsets[name] : self.offsets[name] + shape.numel()].view(shape)
            for name, (_, shape) in self._types.items()
        }

    # Rows

    @property
    def call(self) -> int:
        """The groups of one call by the native trainer."""
        return _CALL * self.chunk if self.mode == "threads" else self.chunk

    def rows(self, numbers: NDArray[np.uint32], size: int, seed: int | None = None) -> Block:
        """One k × d_p array for each parameter and k losses, for k groups of ``size`` samples each."""
        blocks = list(self.blocks(numbers, size, seed))
        if len(blocks) == 1:
            return blocks[0]
        stretches, losses = zip(*blocks)
        return [np.concatenate(parts) for parts in zip(*stretches)], np.concatenate(losses)

    def blocks(self, numbers: NDArray[np.uint32], size: int, seed: int | None = None) -> Iterator[Block]:
        """The same in one or several blocks, in the order of the groups; what the model draws follows the seed, if
        there is one."""
        if self.mode == "threads" and len(numbers) > size:
            yield from self._by_threads(numbers, size)
        elif seed is None:
            yield self._block(self.model, *self._grouped(numbers, size))
        else:
            devices = [self.device] if self.device.type == "cuda" else []
            with torch.random.fork_rng(devices=devices):
                torch.manual_seed(seed)
                found = self._block(self.model, *self._grouped(numbers, size))
            yield found

    def _grouped(self, numbers: NDArray[np.uint32], size: int) -> tuple[tuple[Tensor, ...], Tensor | None]:
        inputs, target = self.samples.batch(torch.from_numpy(numbers.astype(np.int64)))

        def grouped(values: Tensor) -> Tensor:
            return values.to(self.device).view(len(numbers) // size, size, *values.shape[1:])

        return tuple(map(grouped, inputs)), None if target is None else grouped(target)

    def _block(self, model: nn.Module, inputs: tuple[Tensor, ...], target: Tensor | None) -> Block:
        groups = len(inputs[0])
        before = _buffers(model)
        grads, losses = (self._by_loop if self.mode == "loop" else self._by_vmap)(model, inputs, target, groups)
        _check_buffers(before, model)
        # The one copy from the device of the model to the memory that is clipped.
        stretches = [grad.reshape(groups, -1).contiguous().cpu().numpy() for grad in grads]
        return stretches, losses.reshape(groups).to(torch.float32).cpu().numpy()

    def _by_threads(self, numbers: NDArray[np.uint32], size: int) -> Iterator[Block]:
        parts = pieces(len(numbers) // size, size, self.chunk if self._given else max(1, self.chunk // size))

        def job(part: range) -> Job[Block]:
            # Samples are read by this thread alone: not every dataset can be read by several.
            inputs, target = self._grouped(numbers[part.start * size : part.stop * size], size)
            return lambda model: self._block(model, inputs, target)

        return self.team.run(map(job, parts), len(parts))

    def _loss_of(
        self, model: nn.Module, parameters: dict[str, Tensor], inputs: tuple[Tensor, ...], target: Tensor | None
    ) -> Tensor:
        output = functional_call(model, parameters, inputs)
        found = self.loss(output) if target is None else self.loss(output, target)
        if found.ndim != 0:
            raise Refused(f"loss: gave a tensor of shape {tuple(found.shape)}; it must give the mean over its samples")
        return found

    def _by_vmap(
        self, model: nn.Module, inputs: tuple[Tensor, ...], target: Tensor | None, groups: int
    ) -> tuple[list[Tensor], Tensor]:
        each = vmap(
            grad_and_value(partial(self._loss_of, model)), in_dims=(None, 0, None if target is None else 0),
            randomness=self.randomness,
        )
        grads, losses = each(self._views(), inputs, target)
        return [grads[name].detach() for name in self.parameters], losses.detach()

    def _by_loop(
        self, model: nn.Module, inputs: tuple[Tensor, ...], target: Tensor | None, groups: int
    ) -> tuple[list[Tensor], Tensor]:
        views = {name: view.detach().requires_grad_() for name, view in self._views().items()}
        leaves = list(views.values())
        if groups == 1:
            loss = self._loss_of(model, views, tuple(part[0] for part in inputs), None if target is None else target[0])
            grads = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
            return [grad.detach() for grad in grads], loss.detach()
        rows = [torch.empty((groups, *leaf.shape), device=self.device) for leaf in leaves]
        losses = torch.empty(groups, device=self.device)
        for group in range(groups):
            loss = self._loss_of(
                model, views, tuple(part[group] for part in inputs), None if target is None else target[group]
            )
            grads = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
            for row, grad in zip(rows, grads):
                row[group] = grad
            losses[group] = loss.detach()
        return rows, losses

    # Checks

    def check_module(self) -> None:
        """Refuses a module that is no longer the one that is trained."""
        now = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        for name, (dtype, shape) in self._types.items():
            if name not in now or (now[name].dtype, now[name].shape) != (dtype, shape):
                raise Refused(
                    f"parameter {name}: was changed after training began (a .double() or .half()?); the trained "
                    "weights are float32 and would no longer reach the module"
                )
        _check_layers(self.model, self.randomness)
        self.team.renew()

    def rehearse(self, size: int, groups: int | None) -> None:
        """The dry run: finds a way to compute rows, and looks for state and cross-talk. Nothing is charged yet,
        and nothing of what is computed leaves."""
        count = min(_PROBED, self.chunk, len(self.samples) // size)
        if count < 1:
            raise Refused(f"group_size = {size}: the data has only {len(self.samples)} samples")
        numbers = np.arange(count * size, dtype=np.uint32)
        if self.mode == "auto":
            self._choose(numbers, size, groups)
        elif self.mode == "threads":
            self._share_out(self._tried("vmap", numbers, size)[1], numbers, size)
        else:
            self._tried(self.mode, numbers, size)
        with _without_dropout(self.model, self.randomness):
            self._probe(numbers, size)

    def _tried(self, mode: Mode, numbers: NDArray[np.uint32], size: int) -> tuple[float, list[Any]]:
        self.mode = mode
        try:
            self.rows(numbers, size)
            began = time.perf_counter()
            stretches, _ = self.rows(numbers, size)
            return time.perf_counter() - began, stretches
        except Refused:
            raise
        except Exception as why:
            raise Refused(f"the model cannot be differentiated group by group (mode {mode}): {why}") from why

    def _choose(self, numbers: NDArray[np.uint32], size: int, groups: int | None) -> None:
        """Loop for a single group a round; elsewhere vmap where it works, on threads where there is work for them, or
        the loop where that is faster."""
        if groups == 1:
            self._tried("loop", numbers, size)
            return
        try:
            with_vmap = self._tried("vmap", numbers, size)
        except Refused as why:
            try:
                self._tried("loop", numbers, size)
            except Refused as other:
                raise other from why
            return
        with_loop = self._tried("loop", numbers, size)
        if self.randomness == "error":
            self._compare(with_vmap[1], with_loop[1], "vmap and a plain backward pass")
        self.mode = "vmap" if with_vmap[0] <= with_loop[0] else "loop"
        if self.mode == "loop" or not self._is_worth_sharing(size, groups):
            return
        try:
            self._share_out(with_vmap[1], numbers, size)
        except Refused:
            self.mode = "vmap"
            return
        if self._given is None and with_vmap[0] < _SHORT:
            self._choose_piece(size)

    def _is_worth_sharing(self, size: int, groups: int | None) -> bool:
        """Whether a round has a piece for every thread; not with several processes, which share a round already."""
        if not self.alone or self.randomness != "error" or self.device.type != "cpu" or self._most < _PIECES[0]:
            return False
        most = self._given or max(1, _PIECES[0] // size)
        return groups is None or len(pieces(groups, size, most)) >= self.team.threads

    def _share_out(self, expected: list[Any], numbers: NDArray[np.uint32], size: int) -> None:
        """Goes over to threads, if replicas of the module give the rows of the module itself."""
        if self.randomness != "error" or self.device.type != "cpu":
            raise Refused('mode = threads: for modules on the CPU that do not draw at random; use "vmap"')
        self.mode = "threads"
        try:
            replicas = self.team.replicas()
        except Exception as why:
            raise Refused(f'mode = threads: the module cannot be copied ({why}); use "vmap"') from why
        given = self._grouped(numbers, size)
        for replica in replicas:
            self._compare(expected, self._block(replica, *given)[0], "the module and its copy")
        if self._given is None:
            self.chunk = min(_PIECES[0], self._most)

    def _choose_piece(self, size: int) -> None:
        """The piece with the least work for each group, whatever else the machine does."""
        most = min(max(_PIECES), self._most, len(self.samples) // size)
        times: dict[int, float] = {}
        with unsplit():
            for piece in (piece for piece in _PIECES if piece <= most):
                given = [
                    self._grouped(np.arange(first * size, (first + piece) * size, dtype=np.uint32), size)
                    for first in range(0, most - piece + 1, piece)
                ]
                for _ in range(2):
                    began = time.thread_time()
                    for inputs, target in given:
                        self._block(self.model, inputs, target)
                    spent = (time.thread_time() - began) / (len(given) * piece)
                    times[piece] = min(spent, times.get(piece, spent))
        if times:
            self.chunk = min(times, key=times.__getitem__)

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

    def _probe(self, numbers: NDArray[np.uint32], size: int) -> None:
        first, _ = self.rows(numbers, size)
        again, _ = self.rows(numbers, size)
        self._compare(first, again, "two calls")
        alone, _ = self.rows(numbers[:size], size)
        self._compare([part[:1] for part in first], alone, "a call with other groups and one without them")
        if len(numbers) > size:
            # The same first group in other company: everything else in reverse.
            others = numbers[size:].reshape(-1, size)[::-1].ravel()
            swapped, _ = self.rows(np.concatenate([numbers[:size], others]), size)
            self._compare([part[:1] for part in first], [part[:1] for part in swapped], "calls with other groups")


def _buffers(model: nn.Module) -> list[tuple[str, int, int]]:
    return [(name, id(buffer), buffer._version) for name, buffer in model.named_buffers()]


def _check_buffers(before: list[tuple[str, int, int]], model: nn.Module) -> None:
    for (name, *was), (_, *now) in zip(before, _buffers(model)):
        if was != now:
            raise Refused(
                f"buffer {name}: the forward pass changed it. It would carry what it saw from one sample to the "
                "next, which no noise covers; put the layer into eval mode, or replace it"
            )


def _check_parameters(parameters: dict[str, nn.Parameter]) -> None:
    if not parameters:
        raise Refused("model: has no parameter that requires a gradient")
    for name, parameter in parameters.items():
        if parameter.dtype != torch.float32:
            raise Refused(
                f"parameter {name}: is {str(parameter.dtype).removeprefix('torch.')}; only float32 can be trained (the "
                "bound on what rounding adds to the sensitivity is proved for it): call model.float()"
            )


def _check_layers(model: nn.Module, randomness: str) -> None:
    for name, layer in model.named_modules():
        if not layer.training:
            continue
        if isinstance(layer, nn.modules.batchnorm._NormBase) and getattr(layer, "running_mean", None) is not None:
            raise Refused(
                f"layer {name} ({type(layer).__name__}): in train mode its running statistics mix samples, which no "
                "noise covers; use GroupNorm or LayerNorm, or freeze it with .eval()"
            )
        if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0 and randomness == "error":
            raise Refused(
                f"layer {name} ({type(layer).__name__}): draws at random in every call; allow it with "
                'randomness="different", or switch it off with .eval()'
            )


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
