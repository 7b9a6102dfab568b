"""The cost of simulated clients: time and memory of `dpsgd federate` by the number of clients.

    cargo build --release -p dpsgd-cli
    python3 bench/federated.py target/release/dpsgd > bench/federated/results.md

Logistic regression on MNIST (7,850 parameters), 20 rounds for each client, lognormal delays and speeds. Each size runs in a process
of its own, so that the peak of its memory is its own. Targets: 10,000 clients in at most 60 s and 1 GB; cost linear in updates.
"""

import json
import os
import resource
import subprocess
import sys
import time

SIZES = [1000, 2000, 5000, 10000]


def run(binary, clients):
    command = [
        binary, "federate", "--json", "--quiet", "--clients", str(clients), "--net", "logistic",
        "--rounds", "20", "--groups", "4", "--sigma", "2", "--step", "0.05", "--outer", "plain",
        "--delay", "lognormal:0.5", "--spread", "0.5", "--seed", "1",
    ]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"dpsgd federate --clients {clients} failed")
    wall = time.monotonic() - began
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, json.loads(output)


def main():
    binary = sys.argv[1]
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load before the run {load:.1f}.\n")
    print("| clients | updates | seconds | processor seconds | µs of processor an update | peak MiB |")
    print("|---:|---:|---:|---:|---:|---:|")
    for clients in SIZES:
        wall, busy, peak, found = run(binary, clients)
        updates = found["global"]["updates_applied"] + sum(found["global"]["updates_rejected"].values())
        each = 1e6 * busy / updates
        print(f"| {clients:,} | {updates:,} | {wall:.1f} | {busy:.1f} | {each:.0f} | {peak:.0f} |", flush=True)


main()
