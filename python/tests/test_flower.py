"""Flower: sites with their own ledgers and a server that waits for nobody, in this process, simulated and deployed."""

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("flwr")

# Nothing of a test leaves the machine, and Flower's home is the test's.
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"

import dpsgd
from dpsgd.federated import Terms
from dpsgd.flower import ClientApp, Federation, ServerApp, flat, load_into
from dpsgd.flower.record import ENDED, FAILED, NAME, ROUNDS, UPDATES
from dpsgd.torch import Trainer
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp as FlowerClientApp
from flwr.supercore.task_identity import TaskIdentity
from torch.nn import functional as F

N, TOTAL = 24, 12
# An epoch is one round, so that the run can stop after any; shuffled runs are fast to account for.
RUN = dpsgd.Mechanism.shuffle(samples=N, groups=N, rounds=TOTAL, sigma=1.0)
# Seconds after which something hangs: no limit on what a busy machine may take.
HANGS = 900
EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "flower-app"


def net():
    torch.manual_seed(0)
    return torch.nn.Linear(6, 2)


def site_trainer(directory, site=0, **more):
    draw = torch.Generator().manual_seed(site)
    x = torch.randn(N, 6, generator=draw)
    options = dict(mechanism=RUN, clip=1.0, lr=0.1, outer="plain", progress=False, mode="vmap") | more
    return Trainer(net(), F.cross_entropy, x, (x[:, 0] > 0).long(), directory=directory, **options)


def terms(clients=8, **more):
    return Terms.of(RUN, dimension=14, clients=clients, clip=1.0, lr=0.1, **more)


class Nodes:
    """A grid in this process: each node is a client app, called when its message is looked for."""

    def __init__(self, apps, home):
        self.apps, self.home = dict(apps), home
        self.waiting, self.asked, self.lose = {}, [], set()

    def get_node_ids(self):
        return list(self.apps)

    def push_messages(self, messages):
        sent = []
        for message in messages:
            name = f"message-{len(self.asked)}"
            message.metadata.__dict__["_message_id"] = name
            self.waiting[name] = message
            self.asked.append(message)
            sent.append(name)
        return sent

    def pull_messages(self, names):
        replies = []
        for name in names:
            message = self.waiting[name]
            node = message.metadata.dst_node_id
            context = Context(1, node, {"partition-id": node, "directory": str(self.home / f"site-{node}")}, RecordDict(), {})
            reply = self.apps[node](message, context)
            if reply is None:
                continue
            del self.waiting[name]
            if name in self.lose:
                # What Flower says of a message whose time is over.
                reply = Message(Error(3, "expired"), reply_to=message)
            replies.append(reply)
        return replies


def honest(**more):
    options = dict(more)
    return ClientApp(
        lambda context: site_trainer(context.node_config["directory"], int(context.node_config["partition-id"]), **options)
    )


@pytest.fixture(autouse=True)
def identity():
    """What Flower's own programs set before they call an app."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 0


def run(nodes, directory, agreed=None, **more):
    options = dict(rounds=5, sites=len(nodes.apps), seconds=HANGS) | more
    app = ServerApp(lambda context: Federation(agreed or terms(), net(), directory=directory, **options))
    app(nodes, Context(1, 0, {}, RecordDict(), {}))
    return json.loads((directory / "summary.json").read_text())


def answers(frames, rounds=(), ended=False):
    return lambda message: Message(
        RecordDict({NAME: ConfigRecord({ROUNDS: list(rounds), UPDATES: frames, ENDED: ended})}), reply_to=message
    )


def test_sites_spend_what_they_planned_and_every_update_is_folded(tmp_path):
    nodes = Nodes({1: honest(), 2: honest()}, tmp_path)
    summary = run(nodes, tmp_path / "server", evaluate=lambda weights: {"norm": float(np.linalg.norm(weights))}, every=1)
    assert summary["updates_applied"] == 2 * TOTAL == summary["version"] and summary["updates_rejected"] == {}
    assert all(client["ended"] for client in summary["clients"].values())
    for number in (1, 2):
        saved = dpsgd.load_run(tmp_path / f"site-{number}")
        # The guarantee is the site's own, from its own ledger, and that of a run alone.
        assert saved.finished and saved.private and saved.rounds_charged == TOTAL
        assert saved.epsilon() == RUN.epsilon(1e-5) and (saved.path / "report.html").is_file()
        # All but the last answer was acknowledged; nobody calls a site that has ended.
        assert len(list((saved.path / "outbox").iterdir())) == 2
    assert (tmp_path / "server" / "metrics.jsonl").read_text().count("norm") == 4
    # 12 rounds in messages of 5, for two sites.
    assert len(nodes.asked) == 6
    from safetensors.torch import load_file

    model = net()
    version, weights = Terms((tmp_path / "server" / "terms.json").read_text()).model(
        (tmp_path / "server" / "global.model").read_bytes()
    )
    load_into(model, weights)
    assert version == 24 and torch.equal(load_file(tmp_path / "server" / "model.safetensors")["weight"], model.weight)
    assert np.array_equal(flat(model), weights)


def test_one_site_alone_trains_what_it_would_train_alone(tmp_path):
    """With one site and the rule of the paper, the global model is the site's own, bit for bit."""
    from safetensors.torch import load_file

    # One message for the whole run: a resumed run draws afresh, even with a seed.
    run(Nodes({1: honest(seed=3)}, tmp_path), tmp_path / "server", rounds=TOTAL)
    site_trainer(tmp_path / "alone", 1, seed=3).fit()
    found = [load_file(tmp_path / name / "model.safetensors") for name in ("server", "site-1", "alone")]
    for one in found[1:]:
        assert torch.equal(one["weight"], found[0]["weight"]) and torch.equal(one["bias"], found[0]["bias"])


def test_what_a_hostile_client_sends_changes_nothing_and_is_counted(tmp_path):
    agreed = terms()

    def hostile(message, context):
        asked = message.content[NAME]
        number, version = asked["client"], agreed.model(asked["model"])[0]
        noise = np.random.default_rng(len(seen)).normal(scale=2 / N, size=14).astype(np.float32)
        frame = lambda values, round=0: agreed.update(client=number, round=round, base=version, values=values)
        kinds = [
            [frame(noise * np.nan)],
            [frame(noise[:-1])],
            [frame(noise)],
            [frame(noise)],
            [frame(noise + 1e3, round=1)],
            ["text"],
            [agreed.update(client=number + 1, round=0, base=version, values=noise)],
            [],
        ]
        frames = kinds[min(len(seen), len(kinds) - 1)]
        seen.append(asked)
        if len(seen) == 9:
            return Message(RecordDict({}), reply_to=message)
        if len(seen) == 10:
            return Message(Error(1, "crashed"), reply_to=message)
        return answers(frames)(message)

    seen = []
    app = FlowerClientApp()
    app.train()(hostile)
    nodes = Nodes({1: honest(), 2: app}, tmp_path)
    import dpsgd.flower.server as server

    server._AGAIN, before = 0.0, server._AGAIN
    try:
        summary = run(nodes, tmp_path / "server", agreed)
    finally:
        server._AGAIN = before
    assert summary["clients"]["1"]["accepted"] == TOTAL and summary["clients"]["1"]["rejected"] == {}
    found = summary["clients"]["2"]
    # One of its updates looked like an honest one and was folded, once.
    assert found["accepted"] == 1 and not found["ended"] and found["failed"] == 1
    assert found["rejected"] == {
        "format": 2, "sender": 1, "dimension": 1, "not-finite": 1, "coordinate": 1, "replayed": 1
    }
    # It is not asked for ever.
    assert len(seen) == 3 + 8
    assert np.isfinite(agreed.model((tmp_path / "server" / "global.model").read_bytes())[1]).all()


def test_nobody_waits_for_a_slow_site(tmp_path):
    slow = honest()
    calls = []

    class Slow(FlowerClientApp):
        def __call__(self, message, context):
            calls.append(len(nodes.asked))
            # Not ready until the other site has done everything.
            return slow(message, context) if (tmp_path / "site-1" / "summary.json").exists() else None

    nodes = Nodes({1: honest(), 2: Slow()}, tmp_path)
    summary = run(nodes, tmp_path / "server")
    assert summary["updates_applied"] == 2 * TOTAL and summary["staleness"]["p99"] >= TOTAL
    assert [message.metadata.dst_node_id for message in nodes.asked[:4]].count(2) == 1


def test_a_lost_answer_is_sent_again_and_nothing_is_folded_twice(tmp_path):
    nodes = Nodes({1: honest()}, tmp_path)
    nodes.lose = {"message-1"}
    summary = run(nodes, tmp_path / "server")
    assert summary["updates_applied"] == TOTAL and summary["updates_rejected"] == {}
    assert summary["clients"]["1"]["failed"] == 1 and dpsgd.load_run(tmp_path / "site-1").rounds_charged == TOTAL


def test_a_server_that_is_started_again_goes_on(tmp_path):
    nodes = Nodes({1: honest(), 2: honest()}, tmp_path)
    first = run(nodes, tmp_path / "server", updates=6)
    # Both were asked before the limit was reached, and what they had paid for was folded.
    assert first["updates_applied"] == 10
    again = Nodes(nodes.apps, tmp_path)
    second = run(again, tmp_path / "server")
    assert second["updates_applied"] == 2 * TOTAL and second["run"] == first["run"]
    # Its first messages do not acknowledge what the old server had read: the sites send it again, and it is counted.
    assert second["updates_rejected"] == {"replayed": 10}
    with pytest.raises(ValueError, match="begun with other terms"):
        run(again, tmp_path / "server", terms(rule="buffer:2"))


def test_a_site_says_nothing_about_why_it_failed(tmp_path, caplog):
    def broken(context):
        raise LookupError("patient 17 has no age")

    nodes = Nodes({1: ClientApp(broken)}, tmp_path)
    message = Message(RecordDict({NAME: ConfigRecord({})}), 1, "train")
    message.metadata.__dict__["_message_id"] = "m"
    with caplog.at_level(logging.ERROR, logger="flwr"):
        reply = nodes.apps[1](message, Context(1, 1, {}, RecordDict(), {}))
    assert dict(reply.content[NAME]) == {FAILED: True} and not reply.has_error()


def test_what_does_not_fit_the_terms_is_refused_before_anything_is_spent(tmp_path, monkeypatch):
    import dpsgd.flower.server as server

    monkeypatch.setattr(server, "_AGAIN", 0.0)
    for name, app in {
        "step": honest(lr=0.2),
        "noise": honest(mechanism=RUN.replace(sigma=9.0)),
        "length": honest(mechanism=RUN.replace(rounds=13)),
        "pace": honest(mechanism=dpsgd.Mechanism.poisson(rate=0.9, groups=N, rounds=TOTAL, sigma=1.0)),
    }.items():
        home = tmp_path / name
        summary = run(Nodes({1: app}, home), home / "server")
        assert summary["updates_applied"] == 0 and summary["clients"]["1"]["failed"] == 8
        ledger = home / "site-1" / "ledger"
        assert not ledger.exists() or dpsgd.load_run(home / "site-1").rounds_charged == 0, name


def test_an_answer_takes_a_multiple_of_the_pace(monkeypatch):
    """Reading the samples takes longer the more there are, and where a pace is needed their number is private."""
    from types import SimpleNamespace

    import dpsgd.flower.client as client

    for took, rest in [(7.25, 0.25), (1.5, 0.0), (0.25, 1.25)]:
        moments, waited = [100.0, 100.0 + took], []
        clock = SimpleNamespace(monotonic=lambda: moments.pop(0), sleep=waited.append)
        monkeypatch.setattr(client, "time", clock)
        message = Message(RecordDict({NAME: ConfigRecord({})}), 1, "train")
        message.metadata.__dict__["_message_id"] = "m"
        # Also if it fails.
        reply = ClientApp(lambda context: None, pace=1.5)(message, Context(1, 1, {}, RecordDict(), {}))
        assert dict(reply.content[NAME]) == {FAILED: True} and waited == [rest]


def test_a_run_belongs_to_one_federation(tmp_path, monkeypatch):
    import dpsgd.flower.server as server

    monkeypatch.setattr(server, "_AGAIN", 0.0)
    run(Nodes({1: honest()}, tmp_path), tmp_path / "server", updates=5)
    charged = dpsgd.load_run(tmp_path / "site-1").rounds_charged
    summary = run(Nodes({1: honest()}, tmp_path), tmp_path / "other")
    assert summary["clients"]["1"]["failed"] == 8 and dpsgd.load_run(tmp_path / "site-1").rounds_charged == charged


# Real processes


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Processes:
    """Flower's own programs, ended with the test."""

    def __init__(self, home):
        self.home, self.started = home, []
        home.mkdir()
        (home / "flower").mkdir()
        shutil.copytree(EXAMPLE, home / "app")
        # Ray's sockets need a short path.
        self.ray = Path(tempfile.mkdtemp(prefix="ray-"))
        # The programs are those of the environment that this test runs in.
        scripts = Path(sys.executable).parent
        tools = [str(Path(place).parents[2] / "bin") for place in sys.path if place.endswith("site-packages")]
        self.environment = dict(
            os.environ, FLWR_HOME=str(home / "flower"), RAY_TMPDIR=str(self.ray), OMP_NUM_THREADS="1",
            PATH=os.pathsep.join([str(scripts), *tools, os.environ["PATH"]]), RAY_DISABLE_DOCKER_CPU_WARNING="1",
            PYTHONPATH=os.pathsep.join(place for place in sys.path if place.endswith("site-packages")),
        )

    def start(self, *command):
        with (self.home / f"{len(self.started)}.log").open("w") as log:
            process = subprocess.Popen(
                command, cwd=self.home, env=self.environment, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def serve(self, *command):
        """Starts a program that listens, and waits until it does; the port."""
        for _ in range(5):
            port = free_port()
            process = self.start(*command, "--host", "127.0.0.1", "--port", str(port))
            deadline = time.monotonic() + HANGS
            while process.poll() is None:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        return port
                assert time.monotonic() < deadline, self.logs()
                time.sleep(0.2)
            # Somebody else took the port first: another one.
            self.started.remove(process)
        raise AssertionError(self.logs())

    def call(self, *command):
        done = subprocess.run(
            command, cwd=self.home, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=HANGS,
        )
        return done.stdout

    def wait_for(self, path):
        deadline = time.monotonic() + HANGS
        while not path.is_file():
            ended = [process.args for process in self.started if process.poll() is not None]
            assert not ended and time.monotonic() < deadline, f"{ended}\n{self.logs()}"
            time.sleep(0.3)
        return json.loads(path.read_text())

    def logs(self):
        return "\n".join(path.read_text()[-3000:] for path in sorted(self.home.glob("*.log")))

    def stop(self):
        # Politely first, so that each ends its own: sites before the server.
        for process in reversed(self.started):
            process.terminate()
        for process in self.started:
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        # What they started and did not end, Ray's among it: everything that has this test's home.
        mine = f"FLWR_HOME={self.environment['FLWR_HOME']}".encode()
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if mine in (place / "environ").read_bytes().split(b"\0"):
                    os.kill(int(place.name), signal.SIGKILL)
            except OSError:
                # It has ended, or is not ours.
                pass
        shutil.rmtree(self.ray, ignore_errors=True)


@pytest.fixture
def processes(tmp_path):
    made = Processes(tmp_path / "flower-app")
    try:
        yield made
    finally:
        made.stop()


LINK = ["flower-superlink", "--insecure", "--disable-runtime-dependency-installation"]


def connected(processes, *command):
    port = processes.serve(*command)
    (processes.home / "flower" / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    return port


def checked(home, summary, sites):
    assert summary["updates_applied"] == 120 * sites and summary["updates_rejected"] == {}, summary
    for number in range(sites):
        saved = dpsgd.load_run(home / f"site-{number}")
        assert saved.finished and saved.private and saved.rounds_charged == 120 and 2.9 < saved.epsilon() <= 3
    lines = (home / "server" / "metrics.jsonl").read_text().splitlines()
    # A guess is right half of the time; 0.88 was seen.
    assert json.loads(lines[-1])["test_accuracy"] > 0.75, lines


def test_the_example_in_deployment(processes):
    port = connected(processes, *LINK)
    for number in range(2):
        processes.serve(
            "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}", "--node-config",
            f'partition-id={number} directory="{processes.home}/site-{number}"',
        )
    said = processes.call("flwr", "run", "app", "here", "-c", f'sites=2 rounds=60 home="{processes.home}"')
    assert "Successfully started run" in said, said
    checked(processes.home, processes.wait_for(processes.home / "server" / "summary.json"), 2)


def test_the_example_in_simulation(processes):
    pytest.importorskip("ray")
    connected(processes, *LINK, "--simulation")
    said = processes.call(
        "flwr", "run", "app", "here", "-c", f'sites=3 rounds=60 home="{processes.home}"', "--federation-config",
        "num-supernodes=3",
    )
    assert "Successfully started run" in said, said
    checked(processes.home, processes.wait_for(processes.home / "server" / "summary.json"), 3)
