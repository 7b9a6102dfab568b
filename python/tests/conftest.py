"""Everything here runs against the installed package, from outside its source."""

import os
import tempfile

# Runs of these tests are not the user's: they are remembered in a ledger of their own.
os.environ["DPSGD_LEDGER"] = tempfile.mkdtemp()
# Threads that spin while they wait starve each other on busy machines.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest


@pytest.fixture
def directory(tmp_path):
    """The directory of a run that does not exist yet."""
    return tmp_path / "run"
