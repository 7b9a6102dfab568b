"""What the command says, word for word and number for number.

``DPSGD_COMMAND`` is the command that ``python/test`` has built from the same sources.
"""

import json
import os
import subprocess

import pytest

from dpsgd import Mechanism

# The same run by keyword arguments and by flags.
RUNS = {
    "subsample": (
        Mechanism.subsample(samples=60_000, groups=64, epochs=100, sigma=2.0),
        "--samples 60000 --groups 64 --epochs 100 --sigma 2",
    ),
    "groups": (
        Mechanism.subsample(samples=60_000, groups=16, group_size=4, rounds=500, sigma=1.0, differing=3),
        "--samples 60000 --groups 16 --group-size 4 --rounds 500 --sigma 1 --differing 3",
    ),
    "shuffle": (
        Mechanism.shuffle(samples=60_000, groups=1, group_size=64, epochs=3, noise_multiplier=3.0, filter=True),
        "--sampling shuffle --samples 60000 --groups 1 --group-size 64 --epochs 3 --noise-multiplier 3 --filter",
    ),
    "poisson": (
        Mechanism.poisson(rate=0.01, rounds=1000, noise_multiplier=1.0, groups=600, releases=[0.1, 0.2]),
        "--sampling poisson --rate 0.01 --rounds 1000 --noise-multiplier 1 --groups 600 --release-mu 0.1 --release-mu 0.2",
    ),
    "substitute": (
        Mechanism.poisson(rate=0.01, rounds=1000, noise_multiplier=1.0, groups=600, neighbours="substitute"),
        "--sampling poisson --rate 0.01 --rounds 1000 --noise-multiplier 1 --groups 600 --neighbours substitute",
    ),
    "allocate": (
        Mechanism.random_allocation(rounds_per_epoch=234, epochs=10, noise_multiplier=1.0, groups=256),
        "--sampling allocate --rounds-per-epoch 234 --epochs 10 --noise-multiplier 1 --groups 256",
    ),
    "cells": (
        Mechanism.random_allocation(rounds_per_epoch=20, epochs=2, groups=8, group_size=4, sigma=1.0),
        "--sampling allocate --rounds-per-epoch 20 --epochs 2 --groups 8 --group-size 4 --sigma 1",
    ),
}


def command(*given):
    """Exit code, output and error."""
    done = subprocess.run([os.environ["DPSGD_COMMAND"], *given], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", RUNS)
def test_statement_and_json_are_those_of_the_command(name):
    run, flags = RUNS[name]
    code, said, why = command("account", *flags.split(), "--delta", "1e-6", "--alpha", "0.02,0.3")
    assert code == 0, why
    assert run.statement(1e-6, alphas=[0.02, 0.3]) == said
    _, said, _ = command("account", *flags.split())
    assert run.statement() == said
    _, said, _ = command("account", *flags.split(), "--epsilon", "1.5", "--json")
    assert run.account(epsilon=1.5) == json.loads(said)


@pytest.mark.parametrize(
    ("make", "flags"),
    [
        (lambda: Mechanism.poisson(rate=1.5, rounds=10, sigma=1), "--sampling poisson --rate 1.5 --rounds 10 --sigma 1"),
        (
            lambda: Mechanism.poisson(rate=0.1, rounds=10, sigma=1e-3),
            "--sampling poisson --rate 0.1 --rounds 10 --sigma 0.001",
        ),
        (
            lambda: Mechanism.poisson(rate=0.1, rounds=10, epochs=1, sigma=1),
            "--sampling poisson --rate 0.1 --rounds 10 --epochs 1 --sigma 1",
        ),
        (
            lambda: Mechanism.poisson(rate=0.1, rounds=10, sigma=1, noise_multiplier=1),
            "--sampling poisson --rate 0.1 --rounds 10 --sigma 1 --noise-multiplier 1",
        ),
        (
            lambda: Mechanism.subsample(samples=10, groups=20, epochs=1, sigma=1),
            "--samples 10 --groups 20 --epochs 1 --sigma 1",
        ),
        (
            lambda: Mechanism.subsample(samples=60_000, groups=64, epochs=0, sigma=1),
            "--samples 60000 --groups 64 --epochs 0 --sigma 1",
        ),
        (
            lambda: Mechanism.shuffle(samples=60_000, groups=64, epochs=1, sigma=1, neighbours="add-remove"),
            "--sampling shuffle --samples 60000 --groups 64 --epochs 1 --sigma 1 --neighbours add-remove",
        ),
        (
            lambda: Mechanism.random_allocation(rounds_per_epoch=0, epochs=1, groups=3, sigma=1),
            "--sampling allocate --rounds-per-epoch 0 --epochs 1 --groups 3 --sigma 1",
        ),
        (
            lambda: Mechanism.subsample(samples=100, groups=2, epochs=1, sigma=1, differing=70_000),
            "--samples 100 --groups 2 --epochs 1 --sigma 1 --differing 70000",
        ),
        (
            lambda: Mechanism.subsample(samples=100, groups=2, epochs=1, sigma=1, releases=[-1.0]),
            "--samples 100 --groups 2 --epochs 1 --sigma 1 --release-mu -1",
        ),
        (lambda: RUNS["poisson"][0].statement(0.0), RUNS["poisson"][1] + " --delta 0"),
        (lambda: RUNS["poisson"][0].delta(-1.0), RUNS["poisson"][1] + " --epsilon -1"),
        (lambda: RUNS["poisson"][0].statement(alphas=[2.0]), RUNS["poisson"][1] + " --alpha 2"),
    ],
)
def test_an_error_has_the_text_of_the_command(make, flags):
    with pytest.raises(ValueError) as caught:
        make()
    code, _, why = command("account", *flags.split())
    # There is no command line here.
    why = why.replace("both given on the command line", "both given in one place")
    assert (code, why) == (2, f"error: {' '.join(str(caught.value).split())}\n")


def test_sigma_is_that_of_the_command():
    run = Mechanism.subsample(samples=60_000, groups=1024, epochs=15).calibrate(epsilon=2, delta=1e-6)
    flags = "calibrate --solve sigma --samples 60000 --groups 1024 --epochs 15 --target-epsilon 2 --delta 1e-6"
    code, said, why = command(*flags.split(), "--json")
    assert code == 0 and json.loads(said)["sigma"] == run.sigma, (said, why)
