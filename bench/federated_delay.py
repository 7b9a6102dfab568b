"""What asynchrony and robust aggregation cost: `dpsgd federate` against delay, as a table of comma-separated values.

    cargo build --release -p dpsgd-cli
    python3 bench/federated_delay.py target/release/dpsgd runs/federated > docs/results/federated.csv
    cargo run --release -p dpsgd-federated --example delay -- docs/results/federated.csv docs/results/federated.png

Ten clients on MNIST, logistic regression, 5 epochs, m = 300, each client at ε ≤ 3, plain steps on the server. A step is 3 for each update and 30 for a buffer
or an average of ten. Answers are kept in the second argument's folder; what is there is not run again.
"""

import json
import os
import subprocess
import sys

COMMON = [
    "federate", "--json", "--quiet", "--net", "logistic", "--epochs", "5", "--groups", "300", "--outer", "plain",
    "--spread", "0.5", "--max-staleness", "100000",
]
SERVERS = {
    "central": ["--clients", "1", "--step", "3"],
    "synchronous": ["--clients", "10", "--step", "30", "--synchronous"],
    "each": ["--clients", "10", "--step", "3"],
    "restart": ["--clients", "10", "--step", "3", "--restarts", "2"],
    "buffer": ["--clients", "10", "--step", "30", "--rule", "buffer:10"],
    "trimmed": ["--clients", "10", "--step", "30", "--rule", "trimmed:10:2"],
    "median": ["--clients", "10", "--step", "30", "--rule", "median:10"],
}
SPLITS = ["iid", "dirichlet:0.3"]
DELAYS = [1, 8, 64]


def rows():
    """(server, split, delay, attackers)"""
    yield ("central", "iid", 0, 0)
    for split in SPLITS:
        yield ("synchronous", split, 0, 0)
        for delay in DELAYS:
            yield ("each", split, delay, 0)
            yield ("buffer", split, delay, 0)
    yield ("restart", "iid", 1, 0)
    for server in ["buffer", "trimmed", "median"]:
        for attackers in [0, 2]:
            if server != "buffer" or attackers:
                yield (server, "iid", 1, attackers)


def answer(binary, folder, row, seed):
    server, split, delay, attackers = row
    name = f"{server}-{split.replace(':', '')}-{delay}-{attackers}-{seed}.json"
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        flags = SERVERS[server] + ["--split", split, "--attackers", str(attackers), "--seed", str(seed)]
        if delay:
            flags += ["--delay", f"lognormal:{delay},0.5"]
        found = subprocess.run([binary, *COMMON, *flags], check=True, capture_output=True).stdout
        with open(path, "wb") as file:
            file.write(found)
    with open(path) as file:
        return json.load(file)


def main():
    binary, folder = sys.argv[1:3]
    seeds = [int(seed) for seed in sys.argv[3:]] or [1]
    os.makedirs(folder, exist_ok=True)
    print("server,split,delay,attackers,seed,accuracy,staleness,staleness_p99,epsilon,applied,rejected,discarded")
    for row in rows():
        for seed in seeds:
            found = answer(binary, folder, row, seed)
            clients = [given for client in found["clients"] for given in client["guarantees"]]
            epsilon = max(given["epsilon"]["upper"] for given in clients if given["adversary"] == "A0")
            model, stale = found["global"], found["staleness"]
            values = [
                *row, seed, f"{100 * model['test_accuracy']:.2f}", f"{stale['mean']:.1f}", stale["p99"], f"{epsilon:.4f}",
                model["updates_applied"], sum(model["updates_rejected"].values()), f"{found['discarded_work']:.3f}",
            ]
            print(",".join(map(str, values)), flush=True)


main()
