"""Nothing stands in the way of a GPU: rows are computed where the model lives, and copied once.

There is none here, so tensors are fake ones of PyTorch, and the device is "meta": they have a shape and no values, and an
operation on tensors of two devices fails as on a machine with a GPU. (Fake tensors on "cuda" have no backward pass without
one.)
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dpsgd.torch.data import samples
from dpsgd.torch.rows import Rows
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

N = 24


class Model(nn.Module):
    """With a buffer and a frozen parameter, which live where the others do."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.norm = nn.LayerNorm(8)
        self.out = nn.Linear(8, 2)
        self.register_buffer("scale", torch.full((6,), 0.5))

    def forward(self, x):
        return self.out(self.norm(self.frozen(torch.tanh(self.first(x * self.scale)))))


@pytest.fixture
def elsewhere(monkeypatch):
    """Rows of a model on another device, and the devices of all tensors that became arrays."""
    copied, numpy = [], torch.Tensor.numpy

    def recorded(tensor):
        if not isinstance(tensor, torch._subclasses.FakeTensor):
            return numpy(tensor)
        copied.append(tensor.device.type)
        return np.zeros(tuple(tensor.shape), dtype=np.float32)

    monkeypatch.setattr(torch.Tensor, "numpy", recorded)

    def make(mode, where="cpu", loss=F.cross_entropy):
        model = Model()
        x, y = torch.randn(N, 6), torch.arange(N) % 2
        if where == "meta":
            x, y = x.to("meta"), y.to("meta")
        rows = Rows(model, loss, samples(x, y), mode=mode, chunk=8, randomness="error", threads=1)
        for module in model.modules():
            for name, value in [*module._parameters.items()]:
                if value is not None:
                    module._parameters[name] = nn.Parameter(value.to("meta"), requires_grad=value.requires_grad)
            for name, value in [*module._buffers.items()]:
                module._buffers[name] = value.to("meta")
        rows.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        rows.device = torch.device("meta")
        return rows, copied

    return make


@pytest.mark.parametrize("where", ["cpu", "meta"])
@pytest.mark.parametrize("mode", ["vmap", "loop"])
def test_rows_are_computed_on_the_device_of_the_model(elsewhere, mode, where):
    with FakeTensorMode(allow_non_fake_inputs=True):
        rows, copied = elsewhere(mode, where)
        for size in (1, 2):
            copied.clear()
            stretches, losses = rows.rows(np.arange(8, dtype=np.uint32), size)
            # One copy for each parameter and one for the losses, to the memory that is clipped.
            assert copied == ["cpu"] * (len(rows.parameters) + 1)
            assert [part.shape for part in stretches] == [(8 // size, p.numel()) for p in rows.parameters.values()]
            assert losses.shape == (8 // size,)
        copied.clear()
        rows.load_from_model()
        assert copied == ["cpu"] * len(rows.parameters)
        rows.store_in_model(rows.flat)
        assert all(p.device.type == "meta" for p in rows.parameters.values())


def test_an_operation_between_two_devices_fails_here_too(elsewhere):
    """What the tests above rest on."""
    here = torch.ones(2)
    with FakeTensorMode(allow_non_fake_inputs=True):
        rows, _ = elsewhere("vmap", loss=lambda out, y: F.cross_entropy(out * here, y))
        with pytest.raises(RuntimeError, match="device"):
            rows.rows(np.arange(8, dtype=np.uint32), 1)
