"""Training PyTorch models: data, modes, budget, resume, report, parity between ways of computing the same."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import dpsgd
from dpsgd import Mechanism
from dpsgd.torch import Callback, EarlyStopping, Refused, Trainer
from dpsgd.torch.data import samples
from torch import nn
from torch.nn import functional as F

N = 96


def data(n=N, seed=0):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=draw)
    return x, (x[:, 0] - x[:, 1] > 0).long()


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))


def flat(model):
    return np.concatenate([p.detach().numpy().ravel() for p in model.parameters() if p.requires_grad])


def samplers(n=N):
    return {
        "subsample": Mechanism.subsample(samples=n, groups=8, rounds=60, sigma=1.0),
        "groups": Mechanism.subsample(samples=n, groups=4, group_size=3, rounds=60, sigma=1.0),
        "batch": Mechanism.shuffle(samples=n, groups=1, group_size=24, epochs=2, sigma=1.0),
        "shuffle": Mechanism.shuffle(samples=n, groups=8, epochs=1, sigma=1.0),
        "filtered": Mechanism.shuffle(samples=n, groups=8, epochs=1, sigma=1.0, filter=True),
        "poisson": Mechanism.poisson(rate=0.1, rounds=60, groups=10, sigma=1.0),
        "allocate": Mechanism.random_allocation(rounds_per_epoch=12, epochs=1, groups=8, sigma=1.0),
        "cells": Mechanism.random_allocation(rounds_per_epoch=6, epochs=2, groups=4, group_size=4, sigma=1.0),
        "phases": Mechanism.subsample(samples=n, groups=8, rounds=60, sigma=1.0).then(
            Mechanism.subsample(samples=n, groups=16, rounds=20, sigma=2.0)
        ),
    }


def train(directory, model=None, run=None, x=None, y=None, **more):
    model = model or mlp()
    if x is None:
        x, y = data()
    # The first few rounds of a subsampled run take seconds to account for against A0.
    options = dict(clip=0.5, lr=0.3, seed=5, progress=False, outer="plain", adversary="A1") | more
    trainer = Trainer(model, F.cross_entropy, x, y, mechanism=run or samplers()["subsample"], directory=directory, **options)
    return model, trainer, trainer.fit()


@pytest.mark.parametrize("name", samplers())
def test_modes_chunks_and_threads_give_the_same_run(tmp_path, name):
    run = samplers()[name]
    reference, _, result = train(tmp_path / "a", run=run, mode="vmap", chunk=64, threads=1)
    assert result.finished and dpsgd.load_run(result.directory).findings == []
    two, _, _ = train(tmp_path / "b", run=run, mode="vmap", chunk=64, threads=2)
    assert np.array_equal(flat(reference), flat(two))
    pieces = {}
    for threads in (1, 2, 3):
        options = dict(mode="threads", chunk=3, threads=threads)
        pieces[threads] = flat(train(tmp_path / str(options), run=run, **options)[0])
    assert np.array_equal(pieces[1], pieces[2]) and np.array_equal(pieces[1], pieces[3])
    assert np.max(np.abs(flat(reference) - pieces[1])) < 2e-6
    for options in (dict(mode="loop"), dict(mode="vmap", chunk=3)):
        other, _, _ = train(tmp_path / str(options), run=run, **options)
        assert np.max(np.abs(flat(reference) - flat(other))) < 2e-6


class Columns(nn.Module):
    """The network of ``mlp`` with its parameters in the order of the native engine, which keeps matrices by input."""

    def __init__(self, state):
        super().__init__()
        for name, value in state.items():
            value = torch.from_numpy(value.copy())
            self.register_parameter(name.replace(".", "_"), nn.Parameter(value.T.contiguous() if value.ndim == 2 else value))

    def forward(self, x):
        first, last = getattr(self, "0_weight"), getattr(self, "2_weight")
        return torch.tanh(x @ first + getattr(self, "0_bias")) @ last + getattr(self, "2_bias")


@pytest.mark.parametrize("name", samplers())
def test_parity_with_the_native_engine(tmp_path, name):
    """The same seed draws the same batches and the same noise in both engines, from the same initial weights."""
    from dpsgd import _dpsgd
    from safetensors.numpy import load
    from safetensors.torch import load_file

    run = samplers()[name]
    x, y = data()
    layers = [{"kind": "linear", "features": 8}, {"kind": "tanh"}, {"kind": "linear", "features": 2}]
    arrays = (x.numpy(), y.numpy().astype(np.float32))
    spec = {"net": "network", "network": {"input": [1, 1, 6], "loss": "softmax-cross-entropy", "layer": layers}}
    settings = {**run.settings, "data": "arrays", **spec}
    first = load(_dpsgd.initial_weights(settings, train=arrays, classes=2, seed=5))
    model = Columns({key: first[key] for key in ("0.weight", "0.bias", "2.weight", "2.bias")})
    native = dpsgd.train(
        *arrays, net=layers, mechanism=run, clip=0.5, lr=0.3, outer="plain", seed=5, classes=2, adversary="A1",
        directory=tmp_path / "n",
    )
    _, _, result = train(tmp_path / "t", model=model, run=run)
    ours = load_file(tmp_path / "n" / "model.safetensors")
    assert native.epsilon == result.epsilon
    # Sums are rounded to a grid of at most 2C/2¹²/√d. Where the last bits of two engines fall on both sides of a
    # middle, a coordinate moves by a whole step of it; that it does so more than once must stay rare.
    size = sum(start.size for start in first.values())
    grid = 0.3 / run.settings.get("groups", 1) * 2 * 0.5 / 2**12 / size**0.5
    moved = 0
    for key, start in first.items():
        value = model.get_parameter(key.replace(".", "_")).detach()
        value = value.T if value.ndim == 2 else value
        assert not torch.equal(value, torch.from_numpy(start))
        apart = torch.abs(value - ours[key])
        assert torch.max(apart) < 1e-6 + 2 * grid, key
        moved += int((apart >= 2e-6).sum())
    assert moved <= 3


def test_inner_algorithms_schedules_and_outer_optimizers(tmp_path):
    run = samplers()["groups"]
    for number, options in enumerate(
        (
            dict(inner="sgd", inner_step=0.1, outer="adam", lr=0.05),
            dict(inner=["adam", "sgd"], inner_result="difference", outer="momentum", momentum=0.8),
            dict(lr_rule="step:0.5:1", clip_rule="inverse-root"),
            dict(noise="fast", clip_rule="follow-update:0.5"),
            dict(lr_rule="warmup:0.1+cosine:0.1", weight_decay=0.1, average="tail:0.5"),
        )
    ):
        model, _, result = train(tmp_path / str(number), run=run, **options)
        assert result.finished and np.isfinite(flat(model)).all() and not np.array_equal(flat(model), flat(mlp()))
    with pytest.raises(ValueError, match="inner-step: only with an --inner algorithm"):
        train(tmp_path / "x", run=run, inner_step=0.1)
    with pytest.raises(ValueError, match="lr_rule|step-rule = falling"):
        train(tmp_path / "y", run=run, lr_rule="falling")


def test_tensors_arrays_frames_and_datasets_are_the_same_data(tmp_path):
    pandas = pytest.importorskip("pandas")
    x, y = data()
    frame = pandas.DataFrame(x.numpy(), columns=list("abcdef"))
    both = {
        "tensors": (x, y),
        "arrays": (x.numpy().astype(np.float64), y.numpy().astype(np.int32)),
        "frames": (frame, pandas.Series(y.numpy())),
        "dataset": (torch.utils.data.TensorDataset(x, y), None),
        "lists": (x.tolist(), y.tolist()),
        "truth values": (x, pandas.Series(y.numpy() == 1)),
        "bytes": (x, y.numpy().astype(np.uint8)),
    }
    found = {name: flat(train(tmp_path / name, x=x, y=y, mode="vmap")[0]) for name, (x, y) in both.items()}
    assert all(np.array_equal(weights, found["tensors"]) for weights in found.values())
    with pytest.raises(ValueError, match="not numbers"):
        train(tmp_path / "object", x=pandas.DataFrame({"a": ["x"] * N}), y=y)
    with pytest.raises(ValueError, match="numbers of samples differ"):
        train(tmp_path / "short", x=x, y=y[:-1])


def test_frames_of_mixed_columns_and_arrays_of_any_memory():
    pandas = pytest.importorskip("pandas")
    x, y = data()
    frame = pandas.DataFrame(x.numpy(), columns=list("abcdef"))
    frame["g"] = frame["a"] > 0
    numbers = frame.to_numpy(dtype=np.float32)
    numbers.flags.writeable = False
    both = {"mixed": frame, "frozen": numbers, "big-endian": numbers.astype(">f4"), "columns": np.asfortranarray(numbers)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, given in both.items():
            assert samples(given, y).batch(torch.arange(N))[0][0].dtype == torch.float32
            assert np.array_equal(samples(given, y).batch(torch.arange(N))[0][0].numpy(), numbers), name
    for wrong, text in [
        (frame.assign(h="1.5"), "not numbers \\(str\\)"),
        (np.array(["1.5"] * N), "not numbers"),
        (np.ones(N, dtype=complex), "complex128"),
        (frame.assign(h=[None] * N), "NoneType"),
    ]:
        with pytest.raises(ValueError, match=text):
            samples(wrong, y)


def test_datasets_of_all_kinds(tmp_path):
    x, y = data()
    expected = flat(train(tmp_path / "tensors", x=x, y=y, mode="vmap")[0])

    class Wide(torch.utils.data.Dataset):
        """Double precision, whole numbers of Python: what people's datasets give."""

        def __len__(self):
            return N

        def __getitem__(self, number):
            return x[number].numpy().astype(np.float64), int(y[number])

    class Named(Wide):
        def __getitem__(self, number):
            return {"pixels": x[number], "label": y[number]}

    class Endless(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter([])

    subset = torch.utils.data.Subset(torch.utils.data.TensorDataset(torch.cat([x, x]), torch.cat([y, y])), range(N))
    for name, dataset in {"wide": Wide(), "subset": subset}.items():
        assert np.array_equal(flat(train(tmp_path / name, x=dataset, y=None, mode="vmap")[0]), expected)
    loader = torch.utils.data.DataLoader(subset, batch_size=8)
    for wrong, text in [(Named(), "dictionaries \\(pixels, label\\)"), (Endless(), "iterable"), (loader, "give its dataset")]:
        with pytest.raises(ValueError, match=text):
            train(tmp_path / "wrong", x=wrong, y=None)
    with pytest.raises(ValueError, match="leave y out"):
        train(tmp_path / "wrong", x=subset, y=y)
    assert not (tmp_path / "wrong").exists()


def test_several_inputs_and_no_target(tmp_path):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 2), nn.Linear(3, 2)

        def forward(self, x, z):
            return self.a(x) + self.b(z)

    x, y = data()
    train(tmp_path / "two", model=Two(), x=(x, x[:, :3]), y=y)
    run = samplers()["shuffle"]
    model = nn.Linear(6, 1)
    result = Trainer(
        model, lambda out: (out**2).mean(), x, mechanism=run, clip=1.0, lr=0.1, directory=tmp_path / "one", seed=1,
        progress=False,
    ).fit()
    assert result.finished


def test_test_sets_metrics_history_and_report(directory):
    x, y = data(400)
    test = data(100, seed=1)
    model = mlp()
    run = Mechanism.shuffle(samples=400, groups=40, epochs=3, sigma=0.5)
    trainer = Trainer(
        model, F.cross_entropy, x, y, mechanism=run, clip=1.0, lr=1.0, test=test, directory=directory, seed=2,
        progress=False, name="little", data="numbers",
    )
    result = trainer.fit()
    assert [line["epoch"] for line in trainer.history] == [1.0, 2.0, 3.0]
    last = trainer.history[-1]
    with torch.no_grad():
        assert np.isclose(last["test_loss"], float(F.cross_entropy(model(test[0]), test[1])), atol=1e-5)
        assert np.isclose(last["test_accuracy"], float((model(test[0]).argmax(1) == test[1]).float().mean()))
    assert 0 <= last["test_clipping_fraction"] <= 1
    page = (directory / "report.html").read_text()
    assert "little" in page and "numbers" in page
    saved = dpsgd.load_run(directory)
    assert saved.epsilon() == result.epsilon and not saved.private and "not private" in saved.note
    assert saved.summary()["private"] is False
    assert json.loads(json.dumps(saved.account()))["guarantees"]
    assert (saved.write_report()).read_text() == page
    assert "THE RUN" in saved.statement() and "clip = 1.0" in saved.config()


def test_without_a_seed_two_runs_differ_and_are_private(tmp_path):
    a, _, result = train(tmp_path / "a", seed=None)
    b, _, _ = train(tmp_path / "b", seed=None)
    assert not np.array_equal(flat(a), flat(b)) and dpsgd.load_run(result.directory).private


def test_the_budget_ends_the_run(directory):
    run = Mechanism.poisson(rate=0.01, rounds=1000, groups=1, noise_multiplier=1.0)
    _, _, result = train(directory, run=run, max_epsilon=1.0, adversary=None)
    assert result.finished and result.epsilon <= 1.0
    charged = dpsgd.load_run(directory).rounds_charged
    assert 100 < charged < 1000 and run.replace(rounds=charged + 1).epsilon(1e-5) > 1.0


def test_early_stopping_closes_the_run_and_states_less(directory):
    x, y = data(200)
    run = Mechanism.shuffle(samples=200, groups=20, epochs=30, sigma=1.0)
    trainer = Trainer(
        mlp(), F.cross_entropy, x, y, mechanism=run, clip=1.0, lr=0.0001, test=data(50, seed=1), directory=directory,
        seed=1, progress=False, callbacks=[EarlyStopping(2, metric="test_accuracy", larger_is_better=True)],
    )
    result = trainer.fit()
    assert result.finished and len(trainer.history) < 30
    saved = dpsgd.load_run(directory)
    assert saved.findings == [] and saved.rounds_charged < run.rounds
    assert result.epsilon < run.epsilon(1e-5) and saved.epsilon() == result.epsilon
    with pytest.raises(ValueError):
        trainer.fit(resume=True)


def test_early_stopping_on_a_noised_value(directory):
    """The last update is noised, so what a callback does with it costs nothing more."""

    class Small(Callback):
        def __init__(self):
            self.before, self.steps = None, []

        def on_epoch(self, trainer, measured):
            now = np.concatenate([p.detach().numpy().ravel() for p in trainer.model.parameters()])
            if self.before is not None:
                self.steps.append(float(np.linalg.norm(now - self.before)))
            self.before = now
            return len(self.steps) >= 2 and self.steps[-1] < 2 * self.steps[0]

    small = Small()
    run = Mechanism.shuffle(samples=N, groups=8, epochs=20, sigma=1.0)
    _, _, result = train(directory, run=run, callbacks=[small])
    assert result.finished and len(small.steps) < 19 and result.epsilon < run.epsilon(1e-5)
    assert dpsgd.load_run(directory).rounds_charged < run.rounds


def test_an_average_of_the_weights_is_kept_beside_them(tmp_path):
    test = data(60, seed=1)
    run = Mechanism.shuffle(samples=N, groups=8, epochs=2, sigma=1.0)
    last = flat(train(tmp_path / "plain", run=run, test=test)[0])
    found = {}
    for choose in ("last", "average", "better"):
        model, trainer, result = train(tmp_path / choose, run=run, test=test, average="tail:0.5", choose=choose)
        assert result.finished and trainer.history[-1]["iterates"]["chosen"] in ("last", "average")
        found[choose] = flat(model)
        saved = dpsgd.load_run(tmp_path / choose)
        state = saved.state_dict()
        assert saved.epsilon() == result.epsilon
        assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert np.array_equal(found["last"], last) and not np.array_equal(found["average"], last)
    with pytest.raises(ValueError, match="choose: only with --average"):
        train(tmp_path / "wrong", choose="last")


def test_what_cannot_be_measured_is_noticed_before_anything_is_spent(directory):
    x, y = data(50, seed=1)
    for wrong in [(x[:, :5], y), (x, y.float().reshape(-1, 1))]:
        with pytest.raises(ValueError, match="test: the model cannot be measured"):
            train(directory, test=wrong)
    assert not directory.exists()


def test_a_metric_sees_all_test_samples_at_once(directory):
    sizes = []

    def metric(output, target):
        sizes.append((len(output), len(target)))
        return 0.25

    _, trainer, _ = train(directory, test=data(700, seed=1), metric=metric)
    assert set(sizes) == {(700, 700)} and trainer.history[-1]["test_accuracy"] == 0.25


def test_results_are_shown_as_their_statements(directory):
    _, _, result = train(directory)
    assert str(result) == result.statement and "THE RUN" in result.statement
    assert result._repr_html_().startswith("<pre>") and "THE RUN" not in repr(result)
    assert "ε" in dpsgd.load_run(directory)._repr_html_()


def test_stop_and_resume_in_this_process_and_in_another_trainer(directory):
    def stop(trainer, measured):
        if measured["epoch"] == 1.0:
            trainer.stop()

    run = Mechanism.shuffle(samples=N, groups=8, epochs=3, sigma=1.0)
    _, trainer, result = train(directory, run=run, callbacks=[stop])
    assert not result.finished and result.summary is None
    x, y = data()
    other = Trainer(
        mlp(), F.cross_entropy, x, y, mechanism=run, clip=0.5, lr=0.3, seed=5, progress=False, outer="plain", directory=directory,
        adversary="A1",
    )
    with pytest.raises(ValueError, match="directory|exists|empty|resume"):
        other.fit()
    different = Trainer(
        mlp(), F.cross_entropy, x, y, mechanism=run, clip=0.5, lr=0.4, seed=5, progress=False, outer="plain", directory=directory,
        adversary="A1",
    )
    with pytest.raises(ValueError, match="begun with other settings"):
        different.fit(resume=True)
    assert other.fit(resume=True).finished
    saved = dpsgd.load_run(directory)
    assert saved.resumes == 1 and saved.rounds_charged == run.rounds


def test_weights_go_out_and_come_back_in(tmp_path):
    """``state_dict``, ``model.safetensors`` and the module hold the same, and another run begins with them."""
    from safetensors.torch import load_file

    first, _, result = train(tmp_path / "first")
    saved, state = load_file(result.directory / "model.safetensors"), dpsgd.load_run(result.directory).state_dict()
    assert set(saved) == set(state) == set(first.state_dict())
    assert all(torch.equal(saved[name], value) and torch.equal(state[name], value) for name, value in first.state_dict().items())

    class Seen(Callback):
        def __init__(self):
            self.calls, self.begun = [], None

        def on_begin(self, trainer, outlook):
            self.calls.append("begin")
            self.begun = flat(trainer.model)

        def on_round(self, trainer, done):
            self.calls.append(done)

        def on_epoch(self, trainer, measured):
            self.calls.append("epoch")

        def on_end(self, trainer):
            self.calls.append("end")

    for number, weights in enumerate((saved, state)):
        torch.manual_seed(1 + number)
        model, seen = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)), Seen()
        model.load_state_dict(weights, strict=True)
        train(tmp_path / str(number), model=model, run=samplers()["shuffle"], callbacks=[seen])
        assert np.array_equal(seen.begun, flat(first)) and not np.array_equal(flat(model), flat(first))
        assert seen.calls == ["begin", *range(1, 13), "epoch", "end"]


KILLED = """
    import pathlib, signal, sys, torch, dpsgd
    from dpsgd.torch import Callback, Trainer
    from torch.nn import functional as F
    torch.manual_seed(0)
    x = torch.randn(96, 6); y = (x[:, 0] > 0).long()
    run = dpsgd.Mechanism.shuffle(samples=96, groups=8, epochs=5, sigma=1.0)
    class Wait(Callback):
        def on_round(self, trainer, done):
            if done == 7:
                pathlib.Path(sys.argv[2]).touch()
                signal.pause()
    torch.manual_seed(1)
    t = Trainer(torch.nn.Linear(6, 2), F.cross_entropy, x, y, mechanism=run, clip=1.0, lr=0.1, directory=sys.argv[1],
                progress=False, mode="vmap", callbacks=[Wait()] if len(sys.argv) > 2 else [])
    result = t.fit(resume=len(sys.argv) == 2)
    print(result.finished)
"""


def test_kill_nine_and_resume(directory):
    program = [sys.executable, "-c", textwrap.dedent(KILLED), str(directory)]
    there = directory.with_name("seven-rounds")
    process = subprocess.Popen([*program, str(there)], cwd=directory.parent)
    try:
        while not there.exists():
            assert process.poll() is None
            time.sleep(0.1)
    finally:
        process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    charged = dpsgd.load_run(directory).rounds_charged
    assert 7 <= charged < 60
    done = subprocess.run(program, capture_output=True, text=True, cwd=directory.parent)
    assert done.stdout.strip() == "True", done.stderr
    saved = dpsgd.load_run(directory)
    assert saved.rounds_charged == 60 and saved.resumes == 1 and saved.private
    # Rounds that the kill lost stay spent.
    assert saved.metrics()[-1]["updates"] < 60


def test_damage_is_found(directory):
    _, _, result = train(directory)
    summary = directory / "summary.json"
    summary.write_text(summary.read_text().replace('"rounds_charged": 60', '"rounds_charged": 59'))
    with pytest.raises(dpsgd.DamagedRun, match="rounds_charged") as caught:
        dpsgd.load_run(directory)
    assert caught.value.findings and dpsgd.load_run(directory, verify=False).findings
    ledger = directory / "ledger"
    ledger.write_bytes(ledger.read_bytes()[:-20])
    with pytest.raises(ValueError):
        dpsgd.load_run(directory)
    with pytest.raises((ValueError, OSError)):
        dpsgd.load_run(directory / "nowhere")


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        a = torch.relu(self.norm(self.first(x.view(-1, 1, 2, 3))))
        return self.out((a + self.second(a)).mean(dim=(2, 3)))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(2, 4, batch_first=True)
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        return self.out(self.rnn(x.view(-1, 3, 2))[0][:, -1])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(2, 1, 4, dropout=0.0, batch_first=True)
        self.out = nn.Linear(2, 2)

    def forward(self, x):
        return self.out(self.layer(x.view(-1, 3, 2)).mean(dim=1))


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        return self.out(self.embed(x).mean(dim=1))


@pytest.mark.parametrize("model", [Residual, Recurrent, Attention, Tokens])
def test_models_that_the_native_engine_does_not_know(directory, model):
    x, y = data()
    if model is Tokens:
        x = torch.randint(10, (N, 5), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    _, trainer, result = train(directory, model=model(), x=x, y=y)
    assert result.finished and trainer.mode in ("threads", "vmap", "loop")
    if model is Recurrent:
        assert trainer.mode == "loop"


@pytest.mark.parametrize("missing", [[], ["tqdm"], ["tqdm", "rich"]])
def test_progress_by_whichever_library_is_there(directory, capfd, monkeypatch, missing):
    pytest.importorskip("rich")
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.setitem(sys.modules, f"{name}.auto", None)
        monkeypatch.setitem(sys.modules, f"{name}.progress", None)
    _, trainer, result = train(directory, test=data(40, seed=1), progress=True)
    said = "".join(capfd.readouterr())
    assert result.finished and ("60/60" in said) == (len(missing) < 2), said
    assert ("accuracy" in said) == (len(missing) < 2)


@pytest.mark.parametrize("mode", ["vmap", "threads", "loop"])
def test_audit_of_a_trainer(directory, mode):
    x, y = data()
    trainer = Trainer(
        mlp(), F.cross_entropy, x, y, mechanism=samplers()["groups"], clip=1.0, lr=0.1, directory=directory, progress=False,
        mode=mode, chunk=2, threads=2, seed=1,
    )
    found = trainer.audit(trials=200)
    assert found and found.contradictions == [] and f"PyTorch (mode {mode}) computes the gradients" in " ".join(str(found).split())
    assert "<html" in found.html and "statement=" not in repr(found)
    assert not directory.exists()


def test_the_audit_finds_rows_that_mix_groups(directory, monkeypatch):
    """As hooks do where a layer uses the mean of the batch."""
    from dpsgd.torch.rows import Rows

    x, y = data()
    trainer = Trainer(
        mlp(), F.cross_entropy, x, y, mechanism=samplers()["subsample"], clip=1.0, lr=0.1, directory=directory, progress=False,
        mode="vmap", seed=1,
    )
    trainer.rehearse()
    block = Rows.block

    def leaking(self, model, inputs, target):
        stretches, losses = block(self, model, inputs, target)
        return [part + 0.1 * np.roll(part, 1, axis=0) for part in stretches], losses

    monkeypatch.setattr(Rows, "block", leaking)
    monkeypatch.setattr(trainer, "rehearse", lambda: None)
    found = trainer.audit(trials=400)
    assert not found and any("A1" in what or "A₁" in what for what in found.contradictions), found.contradictions


def test_ctrl_c_ends_an_audit(directory, monkeypatch):
    from dpsgd.torch.rows import Rows

    x, y = data()
    trainer = Trainer(
        mlp(), F.cross_entropy, x, y, mechanism=samplers()["subsample"], clip=1.0, lr=0.1, directory=directory, progress=False
    )
    trainer.rehearse()
    block = Rows.block

    def pressed(self, *given):
        signal.raise_signal(signal.SIGINT)
        return block(self, *given)

    monkeypatch.setattr(Rows, "block", pressed)
    monkeypatch.setattr(trainer, "rehearse", lambda: None)
    with pytest.raises(KeyboardInterrupt):
        trainer.audit(trials=200)


def test_a_run_finds_its_own_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, _, first = train(None, data="numbers", name="net")
    _, _, second = train(None, data="numbers", name="net")
    assert [str(first.directory), str(second.directory)] == ["runs/numbers-net-1", "runs/numbers-net-2"]
    assert os.path.exists("runs/numbers-net-2/report.html")
