"""Trains any PyTorch model with the production trainer of dpsgd.

>>> import torch, dpsgd, dpsgd.torch
>>> from torch.nn import functional as F
>>> x, y = torch.randn(1000, 20), torch.randint(2, (1000,))
>>> run = dpsgd.Mechanism.subsample(samples=1000, groups=50, epochs=2).calibrate(epsilon=3, delta=1e-5)
>>> model = torch.nn.Linear(20, 2)
>>> trainer = dpsgd.torch.Trainer(model, F.cross_entropy, x, y, mechanism=run, clip=1.0, lr=0.1,
...                               directory=directory, progress=False)
>>> result = trainer.fit()
>>> result.epsilon <= 3
True

PyTorch computes the gradient of every group; sampling, clipping, noise, ledger, budget, checkpoints and report are
those of the command.
"""

import os
import sys

# Threads of torch that spin while they wait starve the threads that clip and draw noise: set before torch starts.
if "torch" not in sys.modules:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from dpsgd.torch.callbacks import Callback, EarlyStopping
from dpsgd.torch.rows import Refused
from dpsgd.torch.trainer import Result, Trainer

__all__ = ["Callback", "EarlyStopping", "Refused", "Result", "Trainer"]
