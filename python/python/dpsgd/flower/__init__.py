"""Federated training over Flower: clients with a guarantee of their own, and a server that waits for nobody.

A client app is a function that makes the site's trainer::

    def trainer(context):
        x, y = load_private_samples(context.node_config["partition-id"])
        run = dpsgd.Mechanism.subsample(samples=len(y), groups=64, epochs=5).calibrate(epsilon=3, delta=1e-5)
        return dpsgd.torch.Trainer(Net(), F.cross_entropy, x, y, mechanism=run, clip=1.0, lr=0.1, outer="plain",
                                   directory=context.node_config["directory"])

    app = dpsgd.flower.ClientApp(trainer)

Each message asks for many rounds of Algorithm 1. The site charges them to its own ledger in its own run directory, and
what leaves are noised updates: the guarantee is the site's, whoever runs the server. A server app is a function that
makes a :class:`Federation`::

    app = dpsgd.flower.ServerApp(lambda context: Federation(terms, Net(), directory="server"))

It sends each site the newest model as soon as that site has answered. Every update is checked before it is folded: one
that is not finite, of another shape, repeated or too long changes nothing and is counted, with its reason.
"""

from dpsgd.flower.client import ClientApp
from dpsgd.flower.server import Federation, ServerApp, flat, load_into

__all__ = ["ClientApp", "Federation", "ServerApp", "flat", "load_into"]
