"""What server and sites have in common: the model, its constants, and where the samples come from. All of it is public."""

import dpsgd
import torch
from torch import nn

CLIP, LR, ROUNDS = 1.0, 0.2, 120
# Each site's own target; a site may choose a smaller one.
EPSILON, DELTA = 3.0, 1e-5


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 2))


def mechanism(samples: int) -> dpsgd.Mechanism:
    """What a site with this many samples runs; the noise is calibrated for it."""
    run = dpsgd.Mechanism.subsample(samples=samples, groups=100, rounds=ROUNDS)
    return run.calibrate(epsilon=EPSILON, delta=DELTA)


def samples(seed: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers that look like measurements. Replace this by your own: read the private samples of the site here."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 20, generator=draw)
    return x, (x[:, :5].sum(dim=1) + 0.5 * x[:, 5] * x[:, 6] > 0).long()
