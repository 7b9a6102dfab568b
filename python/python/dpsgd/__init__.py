"""Train models with differential privacy, and know exactly what the training leaks.

What would a run leak, and how much noise does it need?

>>> import dpsgd
>>> run = dpsgd.Mechanism.poisson(rate=0.01, rounds=1000, noise_multiplier=1.0)
>>> run.epsilon(delta=1e-5)
1.8282366...
>>> run = dpsgd.Mechanism.subsample(samples=60_000, groups=256, epochs=2)
>>> run.calibrate(epsilon=3, delta=1e-5).sigma
0.6177684...

============================  ================================================================
:class:`Mechanism`            what a run leaks
:func:`load_run`              a run directory, read and verified
:class:`dpsgd.torch.Trainer`  trains any PyTorch model (``import dpsgd.torch``)
:func:`train`                 trains a network of the native engine on arrays
:class:`DPClassifier`         the same with scikit-learn's manners
:mod:`dpsgd.opacus`           ``PrivacyEngine(accountant="dpsgd")``
:mod:`dpsgd.dp_accounting`    a ``PrivacyAccountant`` for DpEvents
:mod:`dpsgd.flower`           several sites train one model, over Flower
:mod:`dpsgd.federated`        the same over a transport of your own
============================  ================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsgd._dpsgd import RoundFailed, __version__
from dpsgd.bound import Bound
from dpsgd.mechanism import Audit, Mechanism
from dpsgd.saved import DamagedRun, SavedRun, load_run

if TYPE_CHECKING:
    from dpsgd.classifier import DPClassifier, DPRegressor
    from dpsgd.native import Trained, train

__all__ = [
    "Bound",
    "Audit",
    "DPClassifier",
    "DPRegressor",
    "DamagedRun",
    "Mechanism",
    "RoundFailed",
    "SavedRun",
    "Trained",
    "__version__",
    "load_run",
    "train",
]

# These need more than numpy, or are needed by few: `import dpsgd` stays fast.
_LATER = {
    "DPClassifier": "dpsgd.classifier",
    "DPRegressor": "dpsgd.classifier",
    "Trained": "dpsgd.native",
    "train": "dpsgd.native",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        import importlib

        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'dpsgd' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
