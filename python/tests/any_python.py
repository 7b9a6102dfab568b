"""What needs numpy and nothing else, under any Python: accounting, a run with its ledger, a coordinator."""

import doctest
import importlib
import os
import sys
import tempfile

import numpy as np

with tempfile.TemporaryDirectory() as place:
    os.environ["DPSGD_LEDGER"] = os.path.join(place, "ledger")
    import dpsgd

    for name in ("dpsgd", "dpsgd.bound", "dpsgd.federated", "dpsgd.mechanism", "dpsgd.saved"):
        found = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        assert found.failed == 0, name
    x = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32)
    model = dpsgd.train(x, x[:, 0] > 0, net="logistic", classes=[False, True], directory=os.path.join(place, "run"))
    saved = dpsgd.load_run(os.path.join(place, "run"))
    assert saved.finished and saved.epsilon() == model.epsilon <= 3 and model.predict(x).dtype == bool
print(f"Python {sys.version.split()[0]}, numpy {np.__version__}: fine")
