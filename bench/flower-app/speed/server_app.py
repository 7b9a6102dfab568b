"""The server of dpsgd.flower; notes when each answer was folded and saved."""

import time
from pathlib import Path

import dpsgd.flower
import numpy as np
from flwr.app import Context

from speed import terms


def federation(context: Context) -> dpsgd.flower.Federation:
    given = context.run_config
    dimension, sites = int(given["dimension"]), int(given["sites"])
    return dpsgd.flower.Federation(
        terms(dimension, sites), np.zeros(dimension, dtype=np.float32), directory=Path(str(given["home"]), "server"),
        rounds=int(given["rounds"]), seconds=float(given["seconds"]), ttl=60.0,
        evaluate=lambda weights: {"at": time.monotonic()}, every=1,
    )


app = dpsgd.flower.ServerApp(federation)
