#!/usr/bin/env python3
"""The Python package beside its peers in one run; `bench/python` sets everything up and runs this.

Accounting: ε(δ) fresh and warm beside dp_accounting's PLD and prv_accountant, and a curve of 200 points. Training at
batch 512: our trainer over PyTorch beside Opacus, batch clipping beside plain PyTorch, the native engine through Python
beside the command. Medians of turns: compare ratios of one run, never figures of different runs.
"""

import argparse
import gzip
import json
import statistics
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")

import dpsgd
import dpsgd.torch
import numpy as np
import torch
from dpsgd.torch import Callback, Trainer
from torch.nn import functional as F

import train_peers

BATCH, SAMPLES = 512, 8192
ACCOUNTS = [(0.01, 1000, 1.0), (0.004, 5000, 0.8), (0.02, 3000, 1.2), (0.001, 10_000, 0.8)]


def timed(act):
    """Milliseconds of CPU, which other load on the machine does not change."""
    began = time.process_time()
    act()
    return 1e3 * (time.process_time() - began)


def now():
    return np.array([time.perf_counter(), time.process_time()])


def accounting(rounds):
    import dp_accounting as dp
    from dp_accounting.pld import PLDAccountant
    from prv_accountant import PRVAccountant, PoissonSubsampledGaussianMechanism

    def ours(rate, steps, noise):
        return dpsgd.Mechanism.poisson(rate=rate, rounds=steps, noise_multiplier=noise)

    def pld(rate, steps, noise):
        event = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise)), steps)
        return PLDAccountant().compose(event).get_epsilon(1e-5)

    def prv(rate, steps, noise):
        round = PoissonSubsampledGaussianMechanism(noise_multiplier=noise, sampling_probability=rate)
        accountant = PRVAccountant(prvs=round, max_self_compositions=steps, eps_error=0.01, delta_error=1e-8)
        return accountant.compute_epsilon(delta=1e-5, num_self_compositions=steps)

    print("\nε(1e-5) of Poisson sampling, milliseconds of CPU")
    print("| rate, rounds, z | fresh | warm | curve of 200 | PLD | prv | fresh faster than the faster peer |")
    print("|---|---|---|---|---|---|---|")
    for setting in ACCOUNTS:
        found = {name: [] for name in ("fresh", "warm", "curve", "pld", "prv")}
        for _ in range(rounds):
            found["fresh"].append(timed(lambda: ours(*setting).epsilon(1e-5)))
            run = ours(*setting)
            run.epsilon(1e-5)
            found["warm"].append(timed(lambda: [run.epsilon(1e-5) for _ in range(100)]) / 100)
            found["curve"].append(timed(lambda: ours(*setting).beta(np.linspace(0, 1, 200))))
            found["pld"].append(timed(lambda: pld(*setting)))
            found["prv"].append(timed(lambda: prv(*setting)))
        m = {name: statistics.median(values) for name, values in found.items()}
        print(
            f"| {', '.join(map(str, setting))} | {m['fresh']:.2f} | {m['warm']:.3f} | {m['curve']:.1f} | {m['pld']:.0f} | "
            f"{m['prv']:.0f} | {min(m['pld'], m['prv']) / m['fresh']:.0f} |",
            flush=True,
        )


class Clock(Callback):
    def __init__(self):
        self.at = []

    def on_round(self, trainer, done):
        self.at.append(now())


def ours_over_torch(net, threads, rounds, groups, size, **more):
    """Samples a second, and a second of CPU, of the median round of a run with ledger and exact noise.

    The median, because the rounds that end an epoch also save and state what was spent so far, and the epochs here are of 16
    rounds: the peers do neither.
    """
    torch.manual_seed(0)
    model, shape = train_peers.NETS[net]()
    x, y = torch.randn(SAMPLES, *shape), torch.randint(0, 10, (SAMPLES,))
    run = dpsgd.Mechanism.subsample(samples=SAMPLES, groups=groups, group_size=size, rounds=rounds + 1, sigma=1.0)
    clock = Clock()
    with tempfile.TemporaryDirectory() as place:
        Trainer(
            model, F.cross_entropy, x, y, mechanism=run, clip=1.0, lr=0.05, outer="plain", threads=threads, progress=False,
            directory=Path(place, "run"), callbacks=[clock], **more,
        ).fit()
    return groups * size / np.median(np.diff(clock.at, axis=0), axis=0)


def peer(method, net, slice):
    torch.manual_seed(0)
    model, shape = train_peers.NETS[net]()
    step = train_peers.METHODS[method](model, torch.randn(BATCH, *shape), torch.randint(0, 10, (BATCH,)))
    step()
    began, steps = now(), 0
    while now()[0] - began[0] < slice or steps < 3:
        step()
        steps += 1
    return steps * BATCH / (now() - began)


def training(rounds, threads):
    torch.set_num_threads(threads)
    print(f"\nTraining at batch {BATCH}, {threads} threads, samples; ours with ledger and exact noise")
    print("| net | ours | Opacus hooks | ew | ghost | ours / Opacus' best | ours, batch clipping | plain torch | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for net in train_peers.NETS:
        found = {name: [] for name in ("ours", "opacus_hooks", "opacus_ew", "opacus_ghost", "batch", "plain")}
        turns = 12 if net == "lenet5" else 4
        for _ in range(rounds):
            found["ours"].append(ours_over_torch(net, threads, turns, BATCH, 1))
            for method in ("opacus_hooks", "opacus_ew", "opacus_ghost"):
                found[method].append(peer(method, net, 1.0))
            found["batch"].append(ours_over_torch(net, threads, 3 * turns, 1, BATCH))
            found["plain"].append(peer("plain", net, 1.0))
        for unit, name in enumerate(("s", "CPU s")):
            m = {name: statistics.median(value[unit] for value in values) for name, values in found.items()}
            best = max(m["opacus_hooks"], m["opacus_ew"], m["opacus_ghost"])
            print(
                f"| {net}, per {name} | {m['ours']:.0f} | {m['opacus_hooks']:.0f} | {m['opacus_ew']:.0f} | "
                f"{m['opacus_ghost']:.0f} | {m['ours'] / best:.2f} | {m['batch']:.0f} | {m['plain']:.0f} | "
                f"{m['batch'] / m['plain']:.2f} |",
                flush=True,
            )


def images(path, header):
    return np.frombuffer(gzip.decompress(path.read_bytes())[header:], dtype=np.uint8)


def native(command, rounds, threads):
    """LeNet-5 on MNIST: one epoch of the same settings through Python and through the command."""
    data = Path(__file__).parent.parent / "data" / "mnist"
    x = images(next(data.glob("train-images*.gz")), 16).reshape(-1, 28, 28).astype(np.float32) / 255
    y = images(next(data.glob("train-labels*.gz")), 8).astype(np.int64)
    found = {"python": [], "command": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as place:
            run = dpsgd.Mechanism.subsample(samples=60_000, groups=BATCH, epochs=1, sigma=1.0)
            model = dpsgd.train(
                x, y, net="lenet5", classes=10, mechanism=run, clip=0.1, lr=3.0, threads=threads, directory=Path(place, "a")
            )
            found["python"].append(model.summary["samples_per_s"])
            subprocess.run(
                [command, "train", "--net", "lenet5", "--groups", str(BATCH), "--epochs", "1", "--sigma", "1", "--clip", "0.1",
                 "--step", "3", "--threads", str(threads), "--out", str(Path(place, "b"))],
                check=True, capture_output=True,
            )
            found["command"].append(json.loads(Path(place, "b", "summary.json").read_text())["samples_per_s"])
    m = {name: statistics.median(values) for name, values in found.items()}
    print("\nNative engine, LeNet-5 on MNIST, samples/s")
    print("| through Python | the command | ratio |")
    print("|---|---|---|")
    print(f"| {m['python']:.0f} | {m['command']:.0f} | {m['python'] / m['command']:.2f} |", flush=True)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--command", required=True)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--only", choices=["accounting", "training", "native"])
    given = options.parse_args()
    if given.only in (None, "accounting"):
        accounting(given.rounds)
    if given.only in (None, "training"):
        training(given.rounds, given.threads)
    if given.only in (None, "native"):
        native(given.command, given.rounds, given.threads)


if __name__ == "__main__":
    main()
