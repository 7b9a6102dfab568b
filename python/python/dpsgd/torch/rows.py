"""The mean gradient of every group.

The guarantee of a run rests on one thing that PyTorch does: the row of a group must be a function of the weights
and of the samples of that group. What can be checked about it is checked before the first round is charged, here and in
:mod:`dpsgd.torch.rehearsal`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from dpsgd.torch.data import Samples
from dpsgd.torch.team import Job, Team, cores, pieces

Mode = Literal["auto", "threads", "vmap", "loop"]
Loss = Callable[..., Tensor]
# One k × d_p array for each parameter, and k losses.
Block = tuple[list[NDArray[np.float32]], NDArray[np.float32]]

# At most this many bytes of rows at once.
_MOST_BYTES = 1 << 30
_MOST_ROWS = 128
# The rows of the smallest piece; each thread has two in memory.
SMALLEST = 32
# The pieces of a call. Not by the number of threads: how a batch is cut into calls must not depend on it.
_CALL = 16


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
        self.given = chunk
        self.most = most
        self.alone = True
        """Whether this process computes all rows of a round."""
        self.chunk = chunk or min(_MOST_ROWS, most)
        self.mode: Mode = mode
        self.team = Team(model, min(threads or cores(), max(1, most // (2 * SMALLEST))))
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
            yield self.block(self.model, *self.grouped(numbers, size))
        else:
            devices = [self.device] if self.device.type == "cuda" else []
            with torch.random.fork_rng(devices=devices):
                torch.manual_seed(seed)
                found = self.block(self.model, *self.grouped(numbers, size))
            yield found

    def grouped(self, numbers: NDArray[np.uint32], size: int) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """The inputs and the targets of groups."""
        inputs, target = self.samples.batch(torch.from_numpy(numbers.astype(np.int64)))

        def grouped(values: Tensor) -> Tensor:
            return values.to(self.device).view(len(numbers) // size, size, *values.shape[1:])

        return tuple(map(grouped, inputs)), None if target is None else grouped(target)

    def block(self, model: nn.Module, inputs: tuple[Tensor, ...], target: Tensor | None) -> Block:
        """The rows of groups by the module or a copy of it, in one call of PyTorch."""
        groups = len(inputs[0])
        before = _buffers(model)
        grads, losses = (self._by_loop if self.mode == "loop" else self._by_vmap)(model, inputs, target, groups)
        _check_buffers(before, model)
        # The one copy from the device of the model to the memory that is clipped.
        stretches = [grad.reshape(groups, -1).contiguous().cpu().numpy() for grad in grads]
        return stretches, losses.reshape(groups).to(torch.float32).cpu().numpy()

    def _by_threads(self, numbers: NDArray[np.uint32], size: int) -> Iterator[Block]:
        parts = pieces(len(numbers) // size, size, self.chunk if self.given else max(1, self.chunk // size))

        def job(part: range) -> Job[Block]:
            # Samples are read by this thread alone: not every dataset can be read by several.
            inputs, target = self.grouped(numbers[part.start * size : part.stop * size], size)
            return lambda model: self.block(model, inputs, target)

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
