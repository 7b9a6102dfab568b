"""The server: no private data, and nothing to hide."""

from pathlib import Path

import dpsgd.flower
import numpy as np
import torch
from dpsgd.federated import Terms
from flwr.app import Context

from sites.task import CLIP, LR, mechanism, net, samples


def federation(context: Context) -> dpsgd.flower.Federation:
    model, sites = net(), int(context.run_config["sites"])
    x, y = samples(seed=0, count=2000)

    def accuracy(weights: np.ndarray) -> dict[str, float]:
        """On public samples."""
        dpsgd.flower.load_into(model, weights)
        with torch.no_grad():
            return {"test_accuracy": float((model(x).argmax(dim=1) == y).float().mean())}

    terms = Terms.of(
        mechanism(3000), dimension=len(dpsgd.flower.flat(model)), clients=10 * sites, clip=CLIP, lr=LR
    )
    return dpsgd.flower.Federation(
        terms, model, directory=Path(str(context.run_config["home"]), "server"), sites=sites,
        rounds=int(context.run_config["rounds"]), evaluate=accuracy,
    )


app = dpsgd.flower.ServerApp(federation)
