"""Writes blocks, huber, absolute and hinge.safetensors: see README.md. Needs torch, numpy and safetensors."""
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

HERE = Path(__file__).parent
torch.manual_seed(1)


class Residual(nn.Module):
    def __init__(self, *layers, skip=None):
        super().__init__()
        self.body, self.skip = nn.Sequential(*layers), skip or nn.Identity()

    def forward(self, x):
        return self.body(x) + self.skip(x)


class Attention(nn.MultiheadAttention):
    def forward(self, x):
        y = x.flatten(2).transpose(1, 2)
        return super().forward(y, y, y)[0].transpose(1, 2).reshape(x.shape)


class Embedding(nn.Module):
    def __init__(self, columns, features):
        super().__init__()
        self.columns = columns
        self.tables = nn.ModuleDict({str(i): nn.Embedding(n, features) for i, n in enumerate(columns) if n > 1})

    def forward(self, x):
        parts = []
        for i, part in enumerate(x.split(self.columns, 1)):
            # The category itself, not its one-hot form.
            parts.append(part if part.shape[1] == 1 else self.tables[str(i)](part.argmax(1)))
        return torch.cat(parts, 1)


def blocks():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.GELU(approximate="tanh"),
        Residual(nn.GroupNorm(2, 4), nn.SiLU(), nn.Conv2d(4, 4, 3, padding=1)),
        Residual(
            nn.Conv2d(4, 6, 3, padding=1, stride=2), nn.ELU(0.7), nn.Dropout(0.5), nn.Conv2d(6, 6, 3, padding=1),
            skip=nn.Conv2d(4, 6, 1, stride=2, bias=False),
        ),
        nn.LeakyReLU(0.1),
        Attention(6, 2, batch_first=True),
        Residual(Attention(6, 3, batch_first=True)),
        nn.Flatten(),
        nn.Linear(72, 5),
    )


def row():
    return nn.Sequential(
        Embedding([1, 3, 1, 4], 3),
        Residual(nn.Linear(8, 10), nn.SiLU(), nn.Dropout(0.2), nn.Linear(10, 8)),
        Residual(nn.Linear(8, 6), nn.ELU(), skip=nn.Linear(8, 6, bias=False)),
        nn.Linear(6, 3),
    )


def write(name, net, x, y, values, loss):
    # Zero biases and unit weights would hide mistakes.
    for parameter in net.parameters():
        parameter.data = (parameter.data + 0.1 * torch.randn_like(parameter)).float().double()
    net.double().eval()
    x = x.float().double()
    out = {f"param/{k}": v.detach().float() for k, v in net.state_dict().items()}
    logits = net(x)
    losses = loss(logits, y, values)
    out |= {"x": x.float(), "y": y, "values": values, "logits": logits.detach().float()}
    out["loss_per_sample"] = losses.detach().float()
    for kind, size in [("individual", 1), ("mixed", 2), ("batch", 8)]:
        norms, total = [], None
        for group in torch.arange(8).split(size):
            mean = loss(net(x), y, values)[group].mean()
            gradient = torch.autograd.grad(mean, list(net.parameters()))
            norm = torch.sqrt(sum((g * g).sum() for g in gradient))
            clipped = [g / max(1.0, norm.item()) for g in gradient]
            total = clipped if total is None else [a + b for a, b in zip(total, clipped)]
            norms.append(norm)
        out[f"{kind}/norms"] = torch.stack(norms).float()
        for (key, _), g in zip(net.named_parameters(), total):
            out[f"{kind}/clipped_sum/{key}"] = g.float()
    save_file({k: v.contiguous() for k, v in out.items()}, HERE / f"{name}.safetensors")


def entropy(logits, y, _):
    return nn.functional.cross_entropy(logits, y, reduction="none")


def huber(logits, _, values):
    return nn.functional.huber_loss(logits, values.double(), delta=0.5, reduction="none").mean(1)


def absolute(logits, _, values):
    return nn.functional.l1_loss(logits, values.double(), reduction="none").mean(1)


def hinge(logits, y, _):
    return nn.functional.multi_margin_loss(logits, y, reduction="none")


write("blocks", blocks(), torch.randn(8, 2, 6, 7), torch.randint(5, (8,)), torch.zeros(8, 5), entropy)
for name, loss in [("huber", huber), ("absolute", absolute), ("hinge", hinge)]:
    one, other = (nn.functional.one_hot(torch.randint(n, (8,)), n) for n in (3, 4))
    x = torch.cat([torch.randn(8, 1), one, torch.randn(8, 1), other], 1)
    write(name, row(), x, torch.randint(3, (8,)), torch.randn(8, 3), loss)
