#!/usr/bin/env python3
"""Updates a second over Flower, on this machine; `bench/federated-flower` sets everything up and runs this.

Four sites that compute nothing answer every message with one update, or with many; the server of dpsgd.flower checks,
folds and saves them. SuperLink and SuperNodes are Flower's own programs on loopback. What is measured is the time between
the first and the last answer, so that starting up does not count.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SITES = 4


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def measured(rounds, seconds, dimension):
    """Updates a second, seconds a message, and what was rejected."""
    home = Path(tempfile.mkdtemp(prefix="dpsgd-flower-"))
    shutil.copytree(Path(__file__).parent / "flower-app", home / "app")
    port, started = free_port(), []
    (home / "flower").mkdir()
    (home / "flower" / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    environment = dict(
        os.environ, FLWR_HOME=str(home / "flower"), FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1",
        PYTHONPATH=os.pathsep.join(place for place in sys.path if place.endswith("site-packages")),
    )

    def start(*command):
        log = (home / f"{len(started)}.log").open("w")
        started.append(
            subprocess.Popen(command, cwd=home, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        )

    try:
        start(
            "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(port),
            "--disable-runtime-dependency-installation",
        )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
        for _ in range(SITES):
            start(
                "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}", "--host", "127.0.0.1", "--port",
                str(free_port()),
            )
        time.sleep(3)
        subprocess.run(
            ["flwr", "run", "app", "here", "-c",
             f'rounds={rounds} seconds={float(seconds)} dimension={dimension} sites={SITES} home="{home}"'],
            cwd=home, env=environment, check=True, stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + seconds + 120
        while not (home / "server" / "summary.json").exists():
            if time.monotonic() > deadline:
                sys.exit("\n".join(path.read_text()[-2000:] for path in sorted(home.glob("*.log"))))
            time.sleep(0.2)
        summary = json.loads((home / "server" / "summary.json").read_text())
        lines = [json.loads(line) for line in (home / "server" / "metrics.jsonl").read_text().splitlines()]
        # The last line repeats the end of the run.
        first, last = lines[0], lines[-2]
        took = last["at"] - first["at"]
        updates = last["updates"] - first["updates"]
        return updates / took, took * rounds * SITES / updates, summary["updates_rejected"]
    finally:
        # Politely first, so that each ends its own: sites before the server.
        for process in reversed(started):
            process.terminate()
        for process in started:
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        shutil.rmtree(home, ignore_errors=True)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=40)
    options.add_argument("--dimension", type=int, default=61706)
    given = options.parse_args()
    print(f"Flower on loopback, {SITES} sites that compute nothing, {given.dimension:,} parameters")
    print("| updates a message | updates folded a second | seconds a message of a site | rejected |")
    print("|---:|---:|---:|---|")
    for rounds in (1, 20, 100):
        rate, message, rejected = measured(rounds, given.seconds, given.dimension)
        print(f"| {rounds} | {rate:.2f} | {message:.1f} | {rejected or 'none'} |", flush=True)


if __name__ == "__main__":
    main()
