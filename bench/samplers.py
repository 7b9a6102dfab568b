"""Samplers and clips at equal ε: a linear model on scattering features, with C and η tuned for each.

    dpsgd data get mnist                                           # or cifar10
    cargo build --release --bin dpsgd
    python bench/samplers.py run samplers.jsonl mnist [EPSILON…]   # seven CPU minutes an ε (3 if none is given)
    python bench/samplers.py show samplers.jsonl PICTURE.svg       # the table, and the picture beside it

C and η are chosen on the last training images by a search that is the same for all, with seed 1; what they reach is
measured on the test set with further seeds. An interrupted run resumes. Needs NumPy (bench/requirements.txt), to
cut the training images.
"""
import collections
import concurrent.futures
import functools
import gzip
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BINARY = os.environ.get("DPSGD", ROOT / "target" / "release" / "dpsgd")
DATA = Path(os.environ.get("DPSGD_DATA", ROOT / "data"))
BATCH, EPOCHS, DELTA = 1024, 5, 1e-5
# Its title, its training images, how many of them are held out, and the seeds that are measured. A run on CIFAR-10
# takes four times the time of one on MNIST.
Dataset = collections.namedtuple("Dataset", "title images held seeds")
DATASETS = {"mnist": Dataset("MNIST", 60_000, 10_000, range(2, 7)),
            "cifar10": Dataset("CIFAR-10", 50_000, 5_000, range(2, 5))}
# Groups a round, samples a group, and the ηC at which the search begins.
CLIPS = {"individual": (1024, 1, 0.4), "mixed": (32, 32, 0.002), "batch": (1, 1024, 0.0001)}
ROWS = [(relation, sampler, clip) for relation, sampler, clips in [
    ("substitute", "subsample", CLIPS),
    ("substitute", "poisson", ["individual"]),
    ("substitute", "allocate", CLIPS),
    ("substitute", "shuffle", CLIPS),
    ("add-remove", "poisson", ["individual"]),
    ("add-remove", "allocate", CLIPS),
] for clip in clips]
NAMES = {"subsample": "subsampling", "poisson": "Poisson", "allocate": "random allocation", "shuffle": "shuffling"}
RELATIONS = {"substitute": "one sample substituted", "add-remove": "one sample added or removed"}
# The two-sided 95 % quantiles of Student's law, by the number of runs.
QUANTILES = {3: 4.303, 5: 2.776}


def images(name):
    """The training images of a data set, pixels by rows, columns and channels, with their labels."""
    import numpy

    if name == "cifar10":
        records = [numpy.fromfile(DATA / name / f"data_batch_{i}.bin", numpy.uint8) for i in range(1, 6)]
        records = numpy.concatenate(records).reshape(-1, 1 + 3 * 32 * 32)
        return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0]

    def read(file, skipped, shape):
        unpacked = gzip.decompress((DATA / name / file).read_bytes())
        return numpy.frombuffer(unpacked, numpy.uint8, offset=skipped).reshape(shape)

    return read("train-images-idx3-ubyte.gz", 16, (-1, 28, 28)), read("train-labels-idx1-ubyte.gz", 8, (-1,))


def held_out(name, directory):
    """Writes the training images without the last ones, and those, as two data sets."""
    import numpy

    x, y = images(name)
    kept = DATASETS[name].images - DATASETS[name].held
    for part, chosen in (("train", slice(kept)), ("held", slice(kept, None))):
        numpy.savez(directory / f"{part}.npz", x=numpy.ascontiguousarray(x[chosen]), y=y[chosen].astype(numpy.int64))


def measured(store, data, cache, name, row, epsilon, clip, travel, seed):
    """One run, unless it is in the store; `travel` is ηC, what a round moves w by at most."""
    key = {"dataset": name, "relation": row[0], "sampler": row[1], "clipping": row[2], "epsilon": epsilon,
           "clip": clip, "travel": travel, "seed": seed}
    for line in open(store):
        kept = json.loads(line)
        if all(kept[part] == value for part, value in key.items()):
            return kept
    groups, size, _ = CLIPS[row[2]]
    flags = ["--neighbours", row[0], "--sampling", row[1], "--groups", groups, "--group-size", size,
             "--clip", clip, "--step", travel / clip, "--target-epsilon", epsilon, "--delta", DELTA, "--seed", seed,
             "--features", "scattering", "--features-cache", cache, "--net", "logistic", "--epochs", EPOCHS,
             "--average", "ema:0.95", "--noise", "fast", "--threads", 1, "--ledger", "none", "--quiet", "--json"]
    # Where neighbours differ in their number of samples, that number is private, and what follows from it is given.
    about = DATASETS[name]
    samples = about.images if seed in about.seeds else about.images - about.held
    if row[1] == "poisson":
        flags += ["--rate", BATCH / samples]
    elif row[0] == "add-remove":
        flags += ["--rounds-per-epoch", samples // BATCH]
    with tempfile.TemporaryDirectory() as out:
        command = [BINARY, "train", *data, "--out", f"{out}/run", *map(str, flags)]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    line = key | {"accuracy": found["test_accuracy"], "sigma": sigma(found)}
    with open(store, "a") as file:
        file.write(json.dumps(line) + "\n")
    return line


def sigma(found):
    """σ, wherever the summary keeps it."""
    if isinstance(found, dict):
        return found["sigma"] if "sigma" in found else next(filter(None, map(sigma, found.values())), None)
    return next(filter(None, map(sigma, found)), None) if isinstance(found, list) else None


def searched(store, directory, name, row, epsilon):
    """Tunes one row, then measures it on the test set."""
    cache = directory / "features"
    data = ["--data", directory / "train.npz", "--test", directory / "held.npz", "--classes", 10]

    @functools.cache
    def tried(clip, travel):
        return measured(store, list(map(str, data)), cache, name, row, epsilon, clip, travel, 1)["accuracy"]

    # ηC in steps of 3, as long as that helps; then C at the same ηC, which leaves the noise on w as it is.
    travel = CLIPS[row[2]][2]
    for factor in (3.0, 1 / 3.0):
        while tried(1.0, round(travel * factor, 8)) > tried(1.0, travel):
            travel = round(travel * factor, 8)
    clip = max((1.0, 0.1, 10.0), key=lambda clip: tried(clip, travel))
    for seed in DATASETS[name].seeds:
        measured(store, ["--data", name], cache, name, row, epsilon, clip, travel, seed)
    print(name, epsilon, *row, clip, travel, flush=True)


def run(store, name, *epsilons):
    Path(store).touch()
    with tempfile.TemporaryDirectory() as directory:
        directory = Path(directory)
        held_out(name, directory)
        work = [(row, float(epsilon)) for epsilon in epsilons or ("3",) for row in ROWS]
        # The first row alone computes the features for all.
        searched(store, directory, name, *work[0])
        with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
            list(pool.map(lambda task: searched(store, directory, name, *task), work[1:]))


def results(store):
    """[(data set, ε, row, [final runs], number of tries)] of everything complete."""
    lines = [json.loads(line) for line in open(store)]
    for name, about in DATASETS.items():
        for epsilon in sorted({line["epsilon"] for line in lines if line["dataset"] == name}):
            for row in ROWS:
                mine = [line for line in lines if line["dataset"] == name and line["epsilon"] == epsilon
                        and (line["relation"], line["sampler"], line["clipping"]) == row]
                final = [line for line in mine if line["seed"] in about.seeds]
                if len(final) == len(about.seeds):
                    yield name, epsilon, row, final, len(mine) - len(final)


def interval(final):
    """Mean and half the 95 % interval of the mean, in per cent."""
    accuracies = [100 * line["accuracy"] for line in final]
    return statistics.mean(accuracies), QUANTILES[len(accuracies)] * statistics.stdev(accuracies) / len(accuracies) ** 0.5


def show(store, picture):
    found = list(results(store))
    print("| data | ε | neighbours | sampler | clip | σ | C | ηC | tries | test accuracy, % |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, epsilon, (relation, sampler, clip), final, tries in found:
        mean, half = interval(final)
        print(f"| {DATASETS[name].title} | {epsilon:g} | {RELATIONS[relation]} | {NAMES[sampler]} | {clip} "
              f"| {final[0]['sigma']:.3f} | {final[0]['clip']:g} | {final[0]['travel']:.2g} | {tries} "
              f"| {mean:.2f} ± {half:.2f} |")
    Path(picture).write_text(drawn(found))


def drawn(found):
    """One line a row, one panel a data set and ε: the mean, its interval, and the runs as small dots."""
    left, width, height, top = 330, 230, 22, 46
    panels = list(dict.fromkeys((name, epsilon) for name, epsilon, *_ in found))
    rows = [row for row in ROWS if any(row == other for _, _, other, *_ in found)]
    # The axis is logarithmic in the share of mistakes: 98 % and 99 % are as far apart as 60 % and 80 %.
    low, high = 0.0, 99.0
    total = (left + len(panels) * (width + 30), top + height * len(rows) + 50)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total[0]} {total[1]}" width="{total[0]}" '
           f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>']

    def text(x, y, words, anchor="start"):
        out.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>')

    for i, (relation, sampler, clip) in enumerate(rows):
        sign = {"substitute": "substituted", "add-remove": "added or removed"}[relation]
        text(left - 10, top + height * i + 15, f"{NAMES[sampler]}, {clip} ({sign})", "end")
    for panel, (name, epsilon) in enumerate(panels):
        x0 = left + panel * (width + 30)
        far = lambda accuracy: math.log((100 - low) / (100 - accuracy))
        place = lambda accuracy: x0 + width * far(accuracy) / far(high)
        text(x0 + width / 2, 18, f"{DATASETS[name].title}, ε = {epsilon:g}: test accuracy, %", "middle")
        for tick in (0, 50, 80, 90, 95, 98, 99):
            out.append(f'<line x1="{place(tick):.1f}" x2="{place(tick):.1f}" y1="{top - 4}" '
                       f'y2="{top + height * len(rows)}" stroke="#dddddd"/>')
            text(place(tick), top - 9, f"{tick:g}", "middle")
        for *at, row, final, _ in found:
            if tuple(at) != (name, epsilon):
                continue
            mean, half = interval(final)
            y = top + height * rows.index(row) + 11
            for line in final:
                out.append(f'<circle cx="{place(100 * line["accuracy"]):.1f}" cy="{y}" r="2" fill="#999999"/>')
            ends = [place(max(low, min(high, mean + side * half))) for side in (-1, 1)]
            out.append(f'<line x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{y}" y2="{y}" stroke="#0b5394" '
                       f'stroke-width="2"/><circle cx="{place(mean):.1f}" cy="{y}" r="3.5" fill="#0b5394"/>')
    text(10, total[1] - 30, "Dot and line: mean of the runs and its 95 % interval. Neighbours in parentheses. δ = 1e-5.")
    text(10, total[1] - 12, "Shuffling: against A₁, the only bound proved. All others: against A₀.")
    return "\n".join(out) + "\n</svg>\n"


if __name__ == "__main__":
    {"run": run, "show": show}[sys.argv[1]](*sys.argv[2:])
