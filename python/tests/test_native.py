"""The native engine on arrays, and with scikit-learn's manners."""

import json
import os
import pickle
import subprocess
import warnings

import numpy as np
import pytest

import dpsgd
from dpsgd import Mechanism
from dpsgd.native import UncoveredWarning


def data(n=2000, seed=0):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(n, 5)).astype(np.float32)
    return x, (x[:, 0] + 0.5 * x[:, 1] > 0).astype(int)


def test_train_meets_its_target_and_learns(tmp_path):
    x, y = data()
    seen = []
    model = dpsgd.train(
        x, y, classes=[0, 1], epsilon=2, test=data(300, 1), directory=tmp_path / "run", callback=lambda m: seen.append(m)
    )
    assert 1.99 < model.epsilon <= 2 and model.finished and len(seen) == 30
    assert (model.predict(x) == y).mean() > 0.85 and seen[-1]["test_accuracy"] > 0.85
    saved = model.load()
    assert saved.private and saved.epsilon() == model.epsilon
    probabilities = model.predict_proba(x[:7])
    assert probabilities.shape == (7, 2) and np.allclose(probabilities.sum(axis=1), 1, atol=1e-5)


def test_a_temporary_run_predicts_after_pickling():
    x, y = data()
    model = dpsgd.train(x, y, net="logistic", classes=2, seed=1)
    again = pickle.loads(pickle.dumps(model))
    assert model.directory is None and np.array_equal(model.predict(x), again.predict(x))
    with pytest.raises(ValueError, match="temporary"):
        model.load()


def test_labels_of_any_kind_and_classes_that_do_not_occur():
    x, y = data(500)
    names = np.array(["no", "yes", "never"])
    model = dpsgd.train(x, names[y], classes=list(names), net="logistic", seed=1)
    assert set(model.predict(x)) <= set(names) and model.predict_proba(x).shape == (500, 3)
    with pytest.raises(ValueError, match="not in classes"):
        dpsgd.train(x, y, classes=[1, 2])


def test_classes_from_the_data_are_said_to_be_uncovered(tmp_path):
    x, y = data(500)
    with pytest.warns(UncoveredWarning):
        dpsgd.train(x, y, net="logistic", directory=tmp_path / "run")
    saved = dpsgd.load_run(tmp_path / "run")
    assert not saved.private and "taken from the private data" in saved.note


def test_regression_ranges_and_private_normalisation(tmp_path):
    x, _ = data()
    y = 0.5 * x[:, 0]
    model = dpsgd.train(
        x, y, task="regression", net="mlp", ranges=(-4, 4), normalise="private", epsilon=3, lr=0.05, seed=1,
        directory=tmp_path / "run",
    )
    assert model.epsilon <= 3 and model.predict(x).shape == (2000,)
    assert np.corrcoef(model.predict(x), y)[0, 1] > 0.8
    assert "normalis" in (tmp_path / "run" / "report.html").read_text().lower()
    with pytest.raises(ValueError, match="public ranges"):
        dpsgd.train(x, y, task="regression", normalise="private")
    with pytest.raises(ValueError, match="predict_proba"):
        model.predict_proba(x)


def test_images_and_layers(tmp_path):
    draw = np.random.default_rng(0)
    x = draw.random((200, 8, 8), dtype=np.float32)
    y = (x[:, :4].mean(axis=(1, 2)) > 0.5).astype(int)
    layers = [
        {"kind": "conv2d", "channels": 2, "kernel": 3},
        {"kind": "tanh"},
        {"kind": "flatten"},
        {"kind": "linear", "features": 2},
    ]
    model = dpsgd.train(x, y, net=layers, classes=2, seed=1)
    assert model.predict(x).shape == (200,)
    with pytest.raises(ValueError, match="trained on"):
        model.predict(x[:, :4])
    with pytest.raises(ValueError, match="net"):
        dpsgd.train(x, y, net="nothing", classes=2, seed=1)


def test_every_sampler_and_resume(tmp_path):
    x, y = data(500)
    for number, run in enumerate(
        (
            Mechanism.shuffle(samples=500, groups=50, epochs=2, sigma=1.0),
            Mechanism.poisson(rate=0.1, rounds=60, groups=50, sigma=1.0),
            Mechanism.random_allocation(rounds_per_epoch=10, epochs=1, groups=50, sigma=1.0),
        )
    ):
        directory = tmp_path / str(number)
        model = dpsgd.train(x, y, net="logistic", classes=2, mechanism=run, directory=directory, adversary="A1")
        assert model.epsilon == run.epsilon(1e-5, adversary="A1")
    with pytest.raises(ValueError):
        dpsgd.train(x, y, net="logistic", classes=2, mechanism=run, directory=directory, resume=True)
    with pytest.raises(ValueError, match="the data has 500"):
        dpsgd.train(x, y, classes=2, mechanism=Mechanism.shuffle(samples=400, groups=50, epochs=2, sigma=1.0))


def test_the_training_set_is_no_test_set():
    x, y = data(500)
    with pytest.raises(ValueError, match="same samples"):
        dpsgd.train(x, y, classes=2, test=(x, y))


def test_a_test_sample_that_was_trained_on_is_named():
    x, y = data()
    test = np.concatenate([x[:1], -100 - x[:20]]), np.concatenate([y[:1], y[:20]])
    with pytest.warns(UserWarning, match="1 of 21 test samples also occur"):
        dpsgd.train(x, y, net="logistic", classes=[0, 1], epochs=1, test=test, seed=1)


def test_a_seed_repeats_a_run_whatever_the_threads(tmp_path):
    x, y = data(300)
    a = dpsgd.train(x, y, net="logistic", classes=2, seed=3, threads=1, directory=tmp_path / "a")
    b = dpsgd.train(x, y, net="logistic", classes=2, seed=3, threads=2, directory=tmp_path / "b")
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (tmp_path / "b" / "model.safetensors").read_bytes()
    assert a.epsilon == b.epsilon


@pytest.mark.parametrize(
    ("run", "flags"),
    [
        (Mechanism.subsample(samples=300, groups=40, rounds=20, sigma=1.0), "--groups 40 --rounds 20"),
        (
            Mechanism.shuffle(samples=300, groups=10, group_size=4, epochs=2, sigma=1.0),
            "--sampling shuffle --groups 10 --group-size 4 --epochs 2",
        ),
        (
            Mechanism.poisson(rate=0.2, rounds=15, groups=60, sigma=1.0),
            "--sampling poisson --neighbours add-remove --rate 0.2 --rounds 15 --groups 60",
        ),
        (
            Mechanism.shuffle(samples=300, groups=20, epochs=2, sigma=1.0, filter=True),
            "--sampling shuffle --groups 20 --epochs 2 --filter",
        ),
        (
            Mechanism.random_allocation(rounds_per_epoch=8, epochs=2, groups=40, sigma=1.0),
            "--sampling allocate --neighbours add-remove --rounds-per-epoch 8 --epochs 2 --groups 40",
        ),
        (
            Mechanism.random_allocation(rounds_per_epoch=5, epochs=2, groups=20, group_size=3, sigma=1.0),
            "--sampling allocate --neighbours add-remove --rounds-per-epoch 5 --epochs 2 --groups 20 --group-size 3",
        ),
        (
            Mechanism.subsample(samples=300, groups=30, rounds=20, sigma=1.0).then(
                Mechanism.shuffle(samples=300, groups=20, group_size=3, epochs=1, sigma=1.0)
            ),
            "--config {tmp_path}/phases.toml",
        ),
    ],
    ids=["subsample", "shuffle", "poisson", "filter", "allocate", "cells", "phases"],
)
def test_the_command_trains_the_same_model_to_the_bit(tmp_path, run, flags):
    """``DPSGD_COMMAND`` is the command that ``python/test`` has built from the same sources."""
    (tmp_path / "phases.toml").write_text(
        "[[phase]]\ngroups = 30\nrounds = 20\n[[phase]]\nsampling = \"shuffle\"\ngroups = 20\ngroup-size = 3\nepochs = 1\n"
    )
    same_as_the_command(tmp_path, run, flags.format(tmp_path=tmp_path))


@pytest.mark.parametrize(
    ("more", "flags"),
    [
        (
            dict(weight_decay=0.01, average="tail:0.5", lr_rule="warmup:0.1+cosine:0.1", clip_rule="inverse-root"),
            "--weight-decay 0.01 --average tail:0.5 --step-rule warmup:0.1+cosine:0.1 --clip-rule inverse-root",
        ),
        (
            dict(label_smoothing=0.1, augment=["flip", "shift:2"], views=2, outer="adam"),
            "--label-smoothing 0.1 --augment flip,shift:2 --views 2 --outer adam",
        ),
        (
            dict(inner=["sgd", "adam"], inner_step=0.02, inner_result="difference", average="ema:0.9", choose="last"),
            "--inner sgd,adam --inner-step 0.02 --inner-result difference --average ema:0.9 --choose last",
        ),
    ],
    ids=["schedules", "views", "inner"],
)
def test_every_setting_is_the_one_of_the_command(tmp_path, more, flags):
    run = Mechanism.shuffle(samples=300, groups=25, epochs=2, sigma=1.0)
    same_as_the_command(tmp_path, run, f"--sampling shuffle --groups 25 --epochs 2 {flags}", **more)


def same_as_the_command(tmp_path, run, flags, **more):
    safetensors = pytest.importorskip("safetensors.numpy")
    draw = np.random.default_rng(3)
    x = draw.random((300, 28, 28), dtype=np.float32)
    y = draw.integers(0, 10, 300)
    np.savez(tmp_path / "train.npz", x=x, y=y)
    model = dpsgd.train(
        x, y, net="lenet5", classes=10, mechanism=run, clip=0.2, lr=0.7, seed=4, threads=2, adversary="A1",
        directory=tmp_path / "python", **more,
    )
    asked = (
        f"{os.environ['DPSGD_COMMAND']} train --data {tmp_path}/train.npz --classes 10 --value-range 0,1 --net lenet5 --sigma 1 "
        f"--clip 0.2 --step 0.7 --seed 4 --threads 1 --adversary A1 --ledger none --quiet --out {tmp_path}/command {flags}"
    )
    done = subprocess.run(asked.split(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ours, theirs = (safetensors.load_file(tmp_path / name / "model.safetensors") for name in ("python", "command"))
    assert ours.keys() == theirs.keys() and len(ours) >= 10
    for name, value in ours.items():
        assert value.tobytes() == theirs[name].tobytes(), name
    guarantees = [
        json.loads((tmp_path / name / "summary.json").read_text())["guarantees"] for name in ("python", "command")
    ]
    assert guarantees[0] == guarantees[1] and model.finished


def test_frames_of_numbers_and_truth_values():
    pandas = pytest.importorskip("pandas")
    x, y = data(500)
    frame = pandas.DataFrame(x, columns=list("abcde"))
    frame["f"] = frame["a"] > 0
    options = dict(classes=[0, 1], net="logistic", seed=1, epochs=5)
    same = dpsgd.train(frame.to_numpy(dtype=np.float32), y, **options), dpsgd.train(frame, pandas.Series(y), **options)
    assert np.array_equal(*(model.predict_proba(frame) for model in same))
    with pytest.raises(ValueError, match="x: holds values that are not numbers .str."):
        dpsgd.train(frame.assign(g="1.5"), y, **options)


def test_the_shared_ledger_adds_up_runs_on_the_same_data(tmp_path):
    x, y = data(500)
    options = dict(classes=[0, 1], net="logistic", epochs=5, data="people", ledger=tmp_path / "shared")
    first, second = (dpsgd.train(x, y, directory=tmp_path / name, **options) for name in "ab")
    said = subprocess.run(
        [os.environ["DPSGD_COMMAND"], "ledger", "people", "--ledger", str(tmp_path / "shared")], capture_output=True, text=True
    )
    assert said.returncode == 0 and str(tmp_path / "a") in said.stdout and str(tmp_path / "b") in said.stdout, said
    dpsgd.train(x, y, directory=tmp_path / "c", **options | dict(ledger="none"))
    assert dpsgd.load_run(tmp_path / "c").finished


def checks():
    sklearn = pytest.importorskip("sklearn.utils.estimator_checks")
    from dpsgd import DPClassifier, DPRegressor

    found = []
    for estimator in (DPClassifier("logistic", random_state=0), DPRegressor("logistic", random_state=0)):
        for one, check in sklearn.estimator_checks_generator(estimator):
            found.append(pytest.param(one, check, id=f"{type(estimator).__name__}-{check.func.__name__}"))
    return found


@pytest.mark.parametrize(("estimator", "check"), checks())
def test_estimator_checks_of_scikit_learn(estimator, check):
    from sklearn.exceptions import SkipTestWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncoveredWarning)
        warnings.simplefilter("ignore", SkipTestWarning)
        check(estimator)


def test_clone_pipeline_and_grid_search():
    pytest.importorskip("sklearn")
    from sklearn.base import clone
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    from dpsgd import DPClassifier

    x, y = data(600)
    model = DPClassifier("logistic", classes=[0, 1], random_state=0)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    pipeline = make_pipeline(FunctionTransformer(lambda x: x / 4), model).fit(x, y)
    assert pipeline.score(x, y) > 0.7 and model.epsilon_ <= 3
    search = GridSearchCV(copy, {"lr": [0.1, 0.5]}, cv=2).fit(x, y)
    assert search.best_params_["lr"] in (0.1, 0.5)
    assert pickle.loads(pickle.dumps(model)).predict(x[:3]).shape == (3,)
