"""Everything here runs against the installed package, from outside its source."""

import os
import signal
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


@pytest.fixture(autouse=True)
def ctrl_c():
    """A program that a shell starts in the background ignores Ctrl-C, and Python leaves it at that; tests send it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
