"""A site: its own data, its own noise, its own ledger."""

from pathlib import Path

import dpsgd.flower
import dpsgd.torch
from flwr.app import Context
from torch.nn import functional as F

from sites.task import CLIP, DELTA, LR, mechanism, net, samples


def trainer(context: Context) -> dpsgd.torch.Trainer:
    site = int(context.node_config["partition-id"])
    x, y = samples(seed=1 + site, count=3000 + 500 * site)
    home = context.node_config.get("directory", Path(str(context.run_config["home"]), f"site-{site}"))
    return dpsgd.torch.Trainer(
        net(), F.cross_entropy, x, y, mechanism=mechanism(len(y)), clip=CLIP, lr=LR, outer="plain", delta=DELTA,
        directory=str(home), name="two layers", data=f"site {site}", progress=False,
    )


app = dpsgd.flower.ClientApp(trainer)
