#!/usr/bin/env python3
"""Tables from the JSON lines of account.rs and account_peers.py; the standard library only.

    table.py executable NAME          the executable of target NAME, from cargo's messages on stdin
    table.py print LINES [--command DPSGD]
"""
import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

# The limits that are aimed at.
CALL_MS = 5
TIMES_FASTER = 50
PROCESS_MS = 100
KNOWN = {60_000: (20, None), 1_000_000_000: (2000, 500)}  # N: milliseconds, megabytes

TIGHT = ("dp_accounting_pld", "prv_accountant")


def executable(target):
    """The last executable that cargo names for the target."""
    found = None
    for line in sys.stdin:
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("executable") and message["target"]["name"] == target:
            found = message["executable"]
    if found is None:
        sys.exit(f"cargo built no executable {target}")
    print(found)


def table(header, rows):
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print()


def group(lines, part, *keys):
    """The lines of a part by the values of the keys, in order of appearance."""
    groups = {}
    for line in lines:
        if line["part"] == part:
            groups.setdefault(tuple(line[key] for key in keys), []).append(line)
    return groups


def median(lines):
    return statistics.median(line["cpu_s"] for line in lines)


def met(yes):
    return "yes" if yes else "**no**"


def against_peers(ours, peers):
    """How our interval lies to each peer's: inside PRV's two ends, below PLD's and RDP's one."""
    words = []
    for name, answer in peers.items():
        theirs = answer[0]["epsilon"]
        if "lower" in theirs:
            # An interval that does not meet theirs would prove one of the two wrong.
            inside = theirs["lower"] <= ours["lower"] and ours["upper"] <= theirs["upper"]
            apart = ours["upper"] < theirs["lower"] or theirs["upper"] < ours["lower"]
            place = "inside" if inside else "apart from" if apart else "overlaps"
            words.append(f"{place} {name}'s, width {theirs['upper'] - theirs['lower']:.2g}")
        else:
            gap = theirs["upper"] - ours["upper"]
            words.append(f"{abs(gap):.1e} {'below' if gap >= 0 else '**above**'} {name}")
    return "; ".join(words)


def settings(lines):
    ours = group(lines, "settings", "sampling", "setting")
    peers = group(lines, "peer", "setting", "peer")
    rows, intervals = [], []
    for (sampling, setting), calls in ours.items():
        # In every turn whichever was the fastest in it.
        turns = zip(calls, *(peers[setting, peer] for peer in TIGHT), strict=True)
        ratios = [min(peer["cpu_s"] for peer in theirs) / call["cpu_s"] for call, *theirs in turns]
        name = min(TIGHT, key=lambda peer: median(peers[setting, peer]))
        ms, seconds = 1e3 * median(calls), median(peers[setting, name])
        good = ms <= CALL_MS and min(ratios) >= TIMES_FASTER
        ratio = f"{statistics.median(ratios):.0f} ({min(ratios):.0f} to {max(ratios):.0f})"
        rows.append((f"{sampling} {setting}", f"{ms:.2f}", f"{seconds:.3f}", name, ratio, met(good)))
        epsilon = calls[0]["epsilon"]
        width = f"{epsilon['upper'] - epsilon['lower']:.1e}"
        if sampling == "poisson":
            theirs = {peer: answer for (name, peer), answer in peers.items() if name == setting}
            place = against_peers(epsilon, theirs)
        else:
            place = "no peer has this sampler with a tight bound"
        intervals.append((f"{sampling} {setting}", f"{epsilon['upper']:.9f}", width, place))
    print(f"A certified ε(1e-5), CPU time; aimed at ≤ {CALL_MS} ms and ≥ {TIMES_FASTER} times faster.")
    print("The ratio is the median over the turns, with the smallest and largest; the smallest must reach")
    print("the aim. Subsamples of a fixed size are set beside the peer's Poisson run of the same letter.\n")
    table(("setting", "ours, ms", "fastest tight peer, s", "which", "ratio", "met"), rows)
    print("Where our interval lies to the peers'.\n")
    table(("setting", "ε, upper end", "width", "beside the peers"), intervals)
    rows = [(peer, setting, f"{median(calls):.3f}") for (setting, peer), calls in peers.items()]
    print("Every peer.\n")
    table(("peer", "setting", "CPU s"), rows)


def known(lines):
    rows = []
    for key, calls in group(lines, "known", "sampling", "samples", "groups", "rounds", "differing").items():
        ms, peak = 1e3 * median(calls), max(call["peak_mb"] for call in calls)
        most_ms, most_mb = KNOWN[key[1]]
        good = ms <= most_ms and (most_mb is None or peak <= most_mb)
        limit = f"{most_ms} ms" + (f", {most_mb} MB" if most_mb else "")
        rows.append((*key, f"{ms:.1f}", f"{peak:.1f}", limit, met(good)))
    print("Adversary A₁, which knows the samples of every round (σ = 2, s = 1).\n")
    table(("sampling", "N", "m", "T", "g", "ms", "peak MB", "limit", "met"), rows)


def growth(lines):
    print("How the time for A₁ grows (σ = 2, s = 1; N = 60000, m = 64, E = 100, g = 8 unless varied; T by")
    print("growing N with it, N by growing m with it). Span is the number of values of c² that are listed.\n")
    fits = group(lines, "exponent", "sampling", "against")
    rows = []
    for (sampling, against), calls in group(lines, "growth", "sampling", "against").items():
        values = ", ".join(f"{call['value']:g}" if call["value"] < 1e5 else f"{call['value']:.2g}" for call in calls)
        spans = ", ".join(str(call["span"] or "not listed") for call in calls)
        times = ", ".join(f"{1e3 * call['cpu_s']:.2g}" for call in calls)
        fit = fits[sampling, against][0]
        # The law of c² is to cost at most g³; its spread is about g·E; T and N must not matter.
        limit = {"g": 3, "E": 1, "T": 0.1, "N": 0.1}[against]
        worst = max(fit["exponent"], fit["exponent_of_last_half"])
        exponents = f"{fit['exponent']:.2f}; {fit['exponent_of_last_half']:.2f}"
        rows.append((sampling, against, values, spans, times, exponents, limit, met(worst <= limit)))
    header = ("sampling", "against", "values", "span", "ms", "exponent; of the larger half", "at most", "met")
    table(header, rows)


def process(path, repetitions=15):
    """CPU and wall time of a whole `dpsgd account`, start and printing included."""
    asked = "account --samples 60000 --groups 64 --group-size 1 --epochs 100 --sigma 2 --sampling subsample"
    asked += " --differing 1 --delta 1e-5 --alpha 0.01,0.05,0.5 --json"
    if path is None:
        print("A whole process: not measured, dpsgd does not build.")
        return
    used, passed = [], []
    for _ in range(repetitions):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run([path, *asked.split()], capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode != 0 or '"guarantees"' not in done.stdout:
            print("A whole process: not measured, `dpsgd account` does not answer.")
            return
        passed.append(time.monotonic() - start)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    ms = 1e3 * statistics.median(used)
    print(f"A whole process, `dpsgd {asked}`: {ms:.0f} ms of CPU", end=", ")
    print(f"{1e3 * statistics.median(passed):.0f} ms passed; limit {PROCESS_MS} ms: {met(ms <= PROCESS_MS)}.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("executable").add_argument("name")
    printed = actions.add_parser("print")
    printed.add_argument("lines")
    printed.add_argument("--command")
    arguments = parser.parse_args()
    if arguments.action == "executable":
        executable(arguments.name)
        return
    with open(arguments.lines, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    settings(lines)
    known(lines)
    growth(lines)
    process(arguments.command)


if __name__ == "__main__":
    main()
