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
    from torch.nn import functional as F
    directory, dies, resume = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "resume"
    if len(sys.argv) == 4:
        # torchrun says where the processes meet, and who is who.
        dist.init_process_group("gloo")
    else:
        # A file where the processes meet: no port that another test could have.
        dist.init_process_group("gloo", init_method=sys.argv[4], rank=int(sys.argv[5]), world_size=int(sys.argv[6]))
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(120, 6, generator=draw); y = (x[:, 0] > 0).long()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    calls = 0
    def loss(out, target):
        global calls
        calls += 1
        if dist.get_rank() == 1 and dies and calls > dies:
            os._exit(9)
        return F.cross_entropy(out, target)
    run = dpsgd.Mechanism.shuffle(samples=120, groups=30, epochs=3, sigma=1.0)
    trainer = dpsgd.torch.Trainer(model, loss, x, y, mechanism=run, clip=0.5, lr=0.3, seed=3, directory=directory,
                                  distributed=True, mode="vmap", chunk=7, threads=1, progress=False)
    try:
        result = trainer.fit(resume=resume)
        flat = torch.cat([p.detach().ravel() for p in model.parameters()])
        everywhere = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
        dist.all_gather(everywhere, flat)
        assert all(torch.equal(flat, other) for other in everywhere)
        if dist.get_rank() == 0:
            print("finished", float(result.epsilon))
        # Whoever ends without this is torn down in the middle of what gloo's threads still hold, and may abort.
        dist.barrier()
        dist.destroy_process_group()
    except dpsgd.RoundFailed as failed:
        print("failed", type(failed.__cause__).__name__, flush=True)
        os._exit(3)
"""


# Only for a test that hangs: no process of these takes a minute, however busy the machine.
HANGS = 600


def together(processes, directory, dies=0, resume="start"):
    home = directory.parent
    program = home / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    meeting = Path(tempfile.mkdtemp(dir=home)) / "meeting"
    started = []
    try:
        for rank in range(processes):
            asked = [directory, dies, resume, meeting.as_uri(), rank, processes]
            started.append(
                subprocess.Popen(
                    [sys.executable, str(program), *map(str, asked)], env=dict(os.environ, OMP_NUM_THREADS="1"),
                    cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                )
            )
        return [(*process.communicate(timeout=HANGS), process.returncode) for process in started]
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.communicate()


def test_one_two_and_four_processes_give_the_same_update(tmp_path):
    models = []
    for processes in (1, 2, 4):
        directory = tmp_path / str(processes)
        found = together(processes, directory)
        assert all(code == 0 for *_, code in found), found
        assert found[0][0].startswith("finished")
        models.append((directory / "model.safetensors").read_bytes())
    assert models[0] == models[1] == models[2]


def test_torchrun_starts_them_too(tmp_path):
    assert together(1, tmp_path / "alone")[0][2] == 0
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launch, str(tmp_path / "program.py"), str(tmp_path / "run"), "0", "start"], capture_output=True, text=True,
        env=dict(os.environ, OMP_NUM_THREADS="1"), cwd=tmp_path, timeout=HANGS,
    )
    assert done.returncode == 0 and "finished" in done.stdout, done.stderr
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (tmp_path / "alone" / "model.safetensors").read_bytes()


def test_a_process_that_dies_costs_a_round_and_not_the_run(tmp_path):
    directory = tmp_path / "run"
    found = together(2, directory, dies=12)
    assert found[1][2] == 9 and found[0][0].startswith("failed"), found
    saved = dpsgd.load_run(directory)
    assert 0 < saved.rounds_charged <= 12 and not saved.finished
    again = together(1, directory, resume="resume")
    assert again[0][0].startswith("finished"), again
    saved = dpsgd.load_run(directory)
    assert saved.resumes == 1 and saved.metrics()[-1]["updates"] < 12
    assert np.isfinite(saved.state_dict()["0.weight"].numpy()).all()
