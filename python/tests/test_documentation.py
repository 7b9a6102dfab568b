"""The examples of the documentation run, and the types are complete."""

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
import textwrap

import pytest

import dpsgd

CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mypy.ini")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def modules():
    names = ["dpsgd"] + [found.name for found in pkgutil.walk_packages(dpsgd.__path__, "dpsgd.")]
    return [name for name in names if not name.endswith("_dpsgd")]


@pytest.mark.parametrize("name", modules())
def test_doctests(name, tmp_path):
    try:
        module = importlib.import_module(name)
    except ImportError as missing:
        pytest.skip(str(missing))
    found = doctest.testmod(module, extraglobs={"directory": tmp_path / "run"}, optionflags=FLAGS)
    assert found.failed == 0


def test_everything_public_is_documented():
    import inspect

    for name in modules():
        module = importlib.import_module(name)
        assert module.__doc__, name
        for what, value in vars(module).items():
            if what.startswith("_") or getattr(value, "__module__", None) != name or not callable(value):
                continue
            assert getattr(value, "__doc__", None) or not inspect.isclass(value), f"{name}.{what}"
            if inspect.isclass(value):
                for method, body in vars(value).items():
                    if inspect.isfunction(body) and not method.startswith("_"):
                        assert inspect.getdoc(getattr(value, method)), f"{name}.{what}.{method}"


def test_types_are_complete(tmp_path):
    pytest.importorskip("mypy")
    program = tmp_path / "use.py"
    program.write_text(
        "import dpsgd\n"
        "m = dpsgd.Mechanism.poisson(rate=0.01, rounds=10, sigma=1.0)\n"
        "e: float = m.epsilon(1e-5).upper\n"
        "m.beta([0.1, 0.2]).sum()\n"
        "reveal_type(m.beta(0.1))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", CONFIG, str(program)], capture_output=True, text=True, cwd=tmp_path
    )
    assert "dpsgd.bound.Bound" in done.stdout and "Success" in done.stdout, done.stdout


def test_the_stubs_are_those_of_the_native_part(tmp_path):
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy.stubtest", "--mypy-config-file", CONFIG, "--concise", "dpsgd._dpsgd"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_reference_is_what_the_docstrings_say():
    pytest.importorskip("flwr")
    here = os.path.dirname(os.path.abspath(__file__))
    made = subprocess.run(
        [sys.executable, os.path.join(here, "..", "reference.py")], capture_output=True, text=True, check=True
    ).stdout
    with open(os.path.join(here, "..", "python-reference.md"), encoding="utf-8") as kept:
        assert kept.read() == made, "write docs/python-reference.md again: see python/reference.py"


def blocks(section):
    """The programs of a section of the guide."""
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "..", "python.md"), encoding="utf-8") as file:
        text = file.read().split(f"\n## {section}\n")[1].split("\n## ")[0]
    found = re.findall(r"(?:^|\n)((?:    [^\n]*\n)+(?:\n?(?:    [^\n]*\n)+)*)", text)
    return [textwrap.dedent(block) for block in found]


def test_the_programs_of_the_guide_run(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    known = {}
    leaks, changed = blocks("What a run leaks")
    exec(leaks, known)
    assert known["m"].epsilon(1e-5) == pytest.approx(1.82823667, abs=1e-8) and "1.82823667" in leaks
    run = dpsgd.Mechanism.subsample(samples=1000, groups=100, epochs=1, sigma=1.0)
    exec(changed.replace("seconds=60", "trials=100"), known | dict.fromkeys(("first", "second", "a", "b", "c"), run))
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(1200, 6, generator=draw)
    y = (x[:, 0] > 0).long()
    split = dict(x=x[:1000], y=y[:1000], x_public=x[1000:], y_public=y[1000:], model=torch.nn.Linear(6, 2))
    (trained,) = blocks("Train a PyTorch model")
    again = trained.index("trainer.fit(resume=True)")
    exec(trained[:again], known | split)
    (read,) = blocks("Read a run")
    exec(read, known)
    arrays = dict(x=x.numpy(), y=["yes" if one else "no" for one in y], low=-5, high=5, x_new=x[:3].numpy())
    exec(blocks("Train on arrays")[0], known | arrays)
    exec(
        blocks("Inside Opacus and dp_accounting")[0] + blocks("Inside Opacus and dp_accounting")[1],
        known | peers(),
    )


def peers():
    opacus, dp = pytest.importorskip("opacus"), pytest.importorskip("dp_accounting")
    return {"PrivacyEngine": opacus.PrivacyEngine, "dp_event": dp.GaussianDpEvent(1.0)}


def test_every_question_about_a_run_has_an_example():
    from dpsgd.mechanism import Mechanism

    for name, member in vars(Mechanism).items():
        called = getattr(member, "__func__", member)
        if not name.startswith("_") and callable(called) and name != "plot":
            assert ">>> " in (called.__doc__ or ""), name
