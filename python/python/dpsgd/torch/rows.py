"""The mean gradient of every group, and the proof that it depends on nothing else.

The guarantee of a run rests on one thing that PyTorch does: the row of a group must be a function of the weights
and of the samples of that group. What can be checked about it is checked before the first round is charged.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from dpsgd.torch.data import Samples

Mode = Literal["auto", "vmap", "loop"]
Loss = Callable[..., Tensor]

# Rows may differ by the rounding of kernels that depend on the number of rows, relative to their norm.
_ROUNDING = 1e-3
# At most this many bytes of rows at once.
_MOST_BYTES = 1 << 30
_MOST_ROWS = 128
# The rows of a dry run.
_PROBED = 16


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
        self.chunk = chunk or min(_MOST_ROWS, most)
        self.mode: Mode = mode
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

    def rows(
        self, numbers: NDArray[np.uint32], size: int, seed: int | None = None
    ) -> tuple[list[NDArray[np.float32]], NDArray[np.float32]]:
        """One k × d_p array for each parameter and k losses, for k groups of ``size`` samples each; what the model
        draws follows the seed, if there is one."""
        if seed is None:
            return self._rows(numbers, size)
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            return self._rows(numbers, size)

    def _rows(self, numbers: NDArray[np.uint32], size: int) -> tuple[list[NDArray[np.float32]], NDArray[np.float32]]:
        inputs, target = self.samples.batch(torch.from_numpy(numbers.astype(np.int64)))
        groups = len(numbers) // size

        def grouped(values: Tensor) -> Tensor:
            return values.to(self.device).view(groups, size, *values.shape[1:])

        inputs = tuple(map(grouped, inputs))
        target = None if target is None else grouped(target)
        before = self._buffers()
        grads, losses = (self._by_vmap if self.mode == "vmap" else self._by_loop)(inputs, target, groups)
        self._check_buffers(before)
        # The one copy from the device of the model to the memory that is clipped.
        stretches = [grad.reshape(groups, -1).contiguous().cpu().numpy() for grad in grads]
        return stretches, losses.reshape(groups).to(torch.float32).cpu().numpy()

    def _loss_of(self, parameters: dict[str, Tensor], inputs: tuple[Tensor, ...], target: Tensor | None) -> Tensor:
        output = functional_call(self.model, parameters, inputs)
        found = self.loss(output) if target is None else self.loss(output, target)
        if found.ndim != 0:
            raise Refused(f"loss: gave a tensor of shape {tuple(found.shape)}; it must give the mean over its samples")
        return found

    def _by_vmap(self, inputs: tuple[Tensor, ...], target: Tensor | None, groups: int) -> tuple[list[Tensor], Tensor]:
        each = vmap(
            grad_and_value(self._loss_of), in_dims=(None, 0, None if target is None else 0), randomness=self.randomness
        )
        grads, losses = each(self._views(), inputs, target)
        return [grads[name].detach() for name in self.parameters], losses.detach()

    def _by_loop(self, inputs: tuple[Tensor, ...], target: Tensor | None, groups: int) -> tuple[list[Tensor], Tensor]:
        views = {name: view.detach().requires_grad_() for name, view in self._views().items()}
        leaves = list(views.values())
        if groups == 1:
            loss = self._loss_of(views, tuple(part[0] for part in inputs), None if target is None else target[0])
            grads = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
            return [grad.detach() for grad in grads], loss.detach()
        rows = [torch.empty((groups, *leaf.shape), device=self.device) for leaf in leaves]
        losses = torch.empty(groups, device=self.device)
        for group in range(groups):
            loss = self._loss_of(
                views, tuple(part[group] for part in inputs), None if target is None else target[group]
            )
            grads = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
            for row, grad in zip(rows, grads):
                row[group] = grad
            losses[group] = loss.detach()
        return rows, losses

    # Checks

    def _buffers(self) -> list[tuple[str, int, int]]:
        return [(name, id(buffer), buffer._version) for name, buffer in self.model.named_buffers()]

    def _check_buffers(self, before: list[tuple[str, int, int]]) -> None:
        for (name, *was), (_, *now) in zip(before, self._buffers()):
            if was != now:
                raise Refused(
                    f"buffer {name}: the forward pass changed it. It would carry what it saw from one sample to the "
                    "next, which no noise covers; put the layer into eval mode, or replace it"
                )

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

    def rehearse(self, size: int, groups: int | None) -> None:
        """The dry run: finds a way to compute rows, and looks for state and cross-talk. Nothing is charged yet,
        and nothing of what is computed leaves."""
        count = min(_PROBED, self.chunk, len(self.samples) // size)
        if count < 1:
            raise Refused(f"group_size = {size}: the data has only {len(self.samples)} samples")
        numbers = np.arange(count * size, dtype=np.uint32)
        if self.mode == "auto":
            self._choose(numbers, size, groups)
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
        """Loop for a single group a round; elsewhere vmap where it works, or the loop where that is faster."""
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
