"""How many updates a second Flower carries: sites that answer at once, and the server of dpsgd.flower."""

import dpsgd
from dpsgd.federated import Terms

# C = 1, σ = 1, m = 64, as in the benchmark over NATS.
RUN = dpsgd.Mechanism.subsample(samples=60_000, groups=64, rounds=1_000_000, sigma=1.0)
DEVIATION = 2 / 64


def terms(dimension: int, sites: int) -> Terms:
    return Terms.of(RUN, dimension=dimension, clients=sites, clip=1.0, lr=0.1)
