"""Several processes compute one run: the same update to the bit, and a process that dies costs a round."""

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import dpsgd

PROGRAM = """
    import os, sys, torch, torch.distributed as dist
    torch.set_num_threads(1)
    import dpsgd, dpsgd.torch
    from dpsgd.torch import distributed as shared
    from torch.nn import functional as F
    directory, case, resume = sys.argv[1], sys.argv[2], sys.argv[3] == "resume"
    if len(sys.argv) == 4:
        # torchrun says where the processes meet, and who is who.
        dist.init_process_group("gloo")
    else:
        # A file where the processes meet: no port that another test could have.
        dist.init_process_group("gloo", init_method=sys.argv[4], rank=int(sys.argv[5]), world_size=int(sys.argv[6]))
    rank = dist.get_rank()
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(400, 6, generator=draw); y = (x[:, 0] > 0).long()
    x[7] = float("nan")
    steps = 0

    def loss(out, target):
        global steps
        steps += 1
        if rank == 1 and case == "dies" and steps > 12:
            os._exit(9)
        if rank == 1 and case == "raises" and steps == 12:
            raise ValueError("the second process cannot")
        return F.cross_entropy(out, target)

    def trainer(run, directory, distributed=True, dropout=0.0, **how):
        torch.manual_seed(0)
        layers = torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Dropout(dropout), torch.nn.Linear(8, 2)
        how = {"mode": "vmap", "chunk": 7, "threads": 1, **how}
        return dpsgd.torch.Trainer(
            torch.nn.Sequential(*layers), loss, x, y, mechanism=run, clip=0.5, lr=0.3, seed=3, directory=directory,
            # The first few rounds of a subsampled run take seconds to account for against A0.
            adversary="A1", distributed=distributed, randomness="different" if dropout else "error", progress=False, **how)

    def weights(trainer):
        return torch.cat([p.detach().ravel() for p in trainer.model.parameters()])

    M = dpsgd.Mechanism
    # Four units a round. The ledger charges the first sixteen rounds at once: a run that dies must be longer.
    epochs = 10 if case in ("dies", "continued") else 3
    shuffle = M.shuffle(samples=400, groups=100, epochs=epochs, sigma=1.0)
    # Short runs without shuffling take long to account for.
    samplers = {
        "subsample": M.subsample(samples=400, groups=40, rounds=60, sigma=1.0),
        "groups": M.shuffle(samples=400, groups=60, group_size=3, epochs=3, sigma=1.0),
        "shuffle": shuffle,
        "poisson": M.poisson(rate=0.1, rounds=60, groups=40, sigma=1.0),
        "allocate": M.random_allocation(rounds_per_epoch=8, epochs=1, groups=50, sigma=1.0),
        "cells": M.random_allocation(rounds_per_epoch=3, epochs=2, groups=50, group_size=3, sigma=1.0),
    }
    if case in ("oracle", "alone"):
        # One process computes these without any of the machinery for several: with one backward pass a group, no
        # row rounds by what else is in a call.
        for name, run in samplers.items():
            trainer(run, f"{directory}-{name}", distributed=case == "oracle", mode="loop").fit()
        trainer(shuffle, f"{directory}-sgd", distributed=case == "oracle", mode="loop", inner="sgd", inner_step=0.1).fit()
    if case == "samplers":
        for name, run in samplers.items():
            trainer(run, f"{directory}-{name}").fit()
        trainer(shuffle, f"{directory}-threads", threads=2, chunk=64).fit()
        trainer(shuffle, f"{directory}-dropout", dropout=0.5).fit()
    if case == "lies":
        answer, answers = shared._reply, 0
        def worse(sums):
            global answers
            answers += 1
            if rank == 1 and answers == 3:
                sums = sums[0] * float(os.environ["LIE"]), *sums[1:]
            answer(sums)
        shared._reply = worse
    run = trainer(shuffle, directory, distributed=case != "alone")
    failures = 0
    while True:
        try:
            result = run.fit(resume=resume)
            break
        except dpsgd.RoundFailed as failed:
            failures += 1
            print("failed", type(failed.__cause__).__name__, failed.__cause__ or failed, flush=True)
            if case == "dies":
                # Nobody is left to continue with: whoever waits for this process learns that it ended.
                os._exit(3)
            assert failures < 3
    flat = weights(run)
    everywhere = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(everywhere, flat)
    assert all(torch.equal(flat, other) for other in everywhere)
    if rank == 0:
        print("finished", float(result.epsilon))
    # Whoever ends without this is torn down in the middle of what gloo's threads still hold, and may abort. The end
    # of the interpreter itself still aborts now and then (PyTorch 2.15), after all the work is done.
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)
"""


# Only for a test that hangs: no process of these takes a minute, however busy the machine.
HANGS = 600


def together(processes, directory, case="run", resume="start", **variables):
    home = directory.parent
    program = home / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    meeting = Path(tempfile.mkdtemp(dir=home)) / "meeting"
    started = []
    try:
        for rank in range(processes):
            asked = [directory, case, resume, meeting.as_uri(), rank, processes]
            started.append(
                subprocess.Popen(
                    [sys.executable, str(program), *map(str, asked)],
                    env=dict(os.environ, OMP_NUM_THREADS="1", **variables), cwd=home, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, text=True,
                )
            )
        return [(*process.communicate(timeout=HANGS), process.returncode) for process in started]
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.communicate()


def models(home, processes, case):
    """What the processes trained, by the name of the run."""
    home.mkdir()
    said = together(processes, home / "run", case)
    assert all(code == 0 for *_, code in said), said
    assert said[0][0].startswith("finished")
    return {path.parent.name: path.read_bytes() for path in home.glob("run*/model.safetensors")}


def test_one_two_and_four_processes_give_the_same_update_with_every_sampler(tmp_path):
    one, two, four = (models(tmp_path / str(processes), processes, "samplers") for processes in (1, 2, 4))
    assert len(one) == 9 and len(set(one.values())) >= 7
    assert one == two == four


def test_several_processes_give_the_bits_of_the_trainer_of_one(tmp_path):
    """The trainer of one process, which knows nothing of others, is the oracle."""
    alone, three = models(tmp_path / "alone", 1, "alone"), models(tmp_path / "three", 3, "oracle")
    assert len(alone) == 8
    # The last run is of rows of several groups at once, which PyTorch may round differently.
    assert alone.pop("run") and three.pop("run")
    assert alone == three


def test_torchrun_starts_them_too(tmp_path):
    assert together(1, tmp_path / "alone")[0][2] == 0
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launch, str(tmp_path / "program.py"), str(tmp_path / "run"), "run", "start"], capture_output=True, text=True,
        env=dict(os.environ, OMP_NUM_THREADS="1"), cwd=tmp_path, timeout=HANGS,
    )
    assert done.returncode == 0 and "finished" in done.stdout, done.stderr
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (tmp_path / "alone" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("processes", [2, 4])
def test_a_process_that_dies_costs_a_round_and_not_the_run(tmp_path, processes):
    directory = tmp_path / "run"
    found = together(processes, directory, "dies")
    assert found[1][2] == 9 and found[0][0].startswith("failed"), found
    saved = dpsgd.load_run(directory)
    assert 0 < saved.rounds_charged < 40 and not saved.finished
    again = together(processes // 2, directory, "continued", "resume")
    assert again[0][0].startswith("finished"), again
    saved = dpsgd.load_run(directory)
    assert saved.resumes == 1 and 20 < saved.metrics()[-1]["updates"] < 40
    assert np.isfinite(saved.state_dict()["0.weight"].numpy()).all()


def test_an_exception_in_one_process_is_a_failed_round_in_all_and_they_continue(tmp_path):
    directory = tmp_path / "run"
    found = together(3, directory, "raises")
    for out, err, code in found:
        assert code == 0 and out.startswith("failed"), (out, err)
    assert "process 1 could not compute" in found[0][0] and "finished" in found[0][0]
    assert "the second process cannot" in found[1][1]
    assert dpsgd.load_run(directory).metrics()[-1]["updates"] < 12


@pytest.mark.parametrize(("lie", "says"), [("1e4", "cannot add up"), ("nan", "norm NaN")])
def test_a_sum_that_cannot_be_is_refused_and_the_round_is_spent(tmp_path, lie, says):
    directory = tmp_path / "run"
    found = together(2, directory, "lies", LIE=lie)
    assert all(code == 0 for *_, code in found), found
    assert found[0][0].startswith("failed") and says in found[0][0] and "finished" in found[0][0], found
    saved = dpsgd.load_run(directory)
    assert saved.finished and saved.metrics()[-1]["updates"] < 12
    assert np.isfinite(saved.state_dict()["0.weight"].numpy()).all()
