#!/usr/bin/env python3
"""Tables from the JSON lines of `dpsgd bench` and train_peers.py; the standard library only.

Every ratio is taken within a round, in which ours and the peers ran one after the other; the median over the
rounds is printed, with the smallest and the largest.
"""
import collections
import json
import statistics
import sys

NOT_PRIVATE = ("plain", "plain_channels_last")
SETTINGS = [("lenet5", 64), ("lenet5", 512), ("paper_cnn", 64), ("paper_cnn", 512)]
# What is aimed at, in the order of the settings.
PLAIN_TARGET = (1.2, 1.2, 1.0, 1.5)
PRIVATE_TARGET = (3.5, 3.5, 2.0, 3.5)


def read(path):
    """{(net, batch): {method: [rate of each round]}}"""
    rates = collections.defaultdict(lambda: collections.defaultdict(list))
    for line in open(path):
        row = json.loads(line)
        rates[row["net"], row["batch"]][row["method"]].append(row["samples_per_s"])
    return rates


def median(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def fastest(methods, names):
    """The rate of the fastest of some methods in every round."""
    return [max(rates) for rates in zip(*(methods[name] for name in names))]


def ratios(above, below):
    return [a / b for a, b in zip(above, below)]


def table(title, rows):
    print(f"| {title} | " + " | ".join(f"{net} {batch}" for net, batch in SETTINGS) + " |")
    print("|---" * (len(SETTINGS) + 1) + "|")
    for name, cells in rows:
        print(f"| {name} | " + " | ".join(cells) + " |")
    print()


def main():
    rates = read(sys.argv[1])
    at = [rates[setting] for setting in SETTINGS]
    ours = [methods["dpsgd_individual"] for methods in at]
    private = [[m for m in methods if not m.startswith("dpsgd_") and m not in NOT_PRIVATE and m != "batch_clip"]
               for methods in at]
    table("individual clipping against", [
        ("the faster plain PyTorch (not private)",
         [median(ratios(o, fastest(m, NOT_PRIVATE))) for o, m in zip(ours, at)]),
        ("aimed at", [f"≥ {target}" for target in PLAIN_TARGET]),
        ("the fastest private peer", [median(ratios(o, fastest(m, p))) for o, m, p in zip(ours, at, private)]),
        ("aimed at", [f"≥ {target}" for target in PRIVATE_TARGET]),
    ])
    table("ours against our individual clipping", [
        (name, [median(ratios(m[f"dpsgd_{name}"], o)) for o, m in zip(ours, at)])
        for name in ("batch", "mixed", "sgd", "adam", "plain")
    ])
    names = [name for name in at[0]]
    table("samples/s, median", [
        (name, [f"{statistics.median(m[name]):,.0f}" for m in at]) for name in names
    ])


if __name__ == "__main__":
    main()
