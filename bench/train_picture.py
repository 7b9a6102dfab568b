#!/usr/bin/env python3
"""Speed against batch size, a panel a network, from the JSON lines of `bench/train`; the standard library only.

    python bench/train_picture.py train.jsonl docs/results/training-speed.svg

A point is the median over the rounds. Both axes are logarithmic.
"""
import math
import statistics
import sys
from pathlib import Path

from train_table import read

# Name in the lines, words in the picture, colour, and whether nothing is private about it.
METHODS = [
    ("dpsgd_plain", "dpsgd, not private", "#0b5394", True),
    ("dpsgd_individual", "dpsgd, every sample clipped", "#0b5394", False),
    ("dpsgd_adam", "dpsgd, Adam inside groups of 64", "#6fa8dc", False),
    ("plain_channels_last", "PyTorch, not private (channels last)", "#888888", True),
    ("plain", "PyTorch, not private", "#bbbbbb", True),
    ("batch_clip", "PyTorch, one clip a batch", "#38761d", False),
    ("opacus_hooks", "Opacus, hooks", "#cc0000", False),
    ("opacus_ew", "Opacus, expanded weights", "#e69138", False),
    ("opacus_ghost", "Opacus, ghost norms", "#a64d79", False),
    ("vmap", "torch.func.vmap", "#7f6000", False),
]
WIDTH, HEIGHT, LEFT, TOP, GAP = 360, 300, 70, 40, 70


def drawn(rates):
    nets = sorted({net for net, _ in rates})
    batches = sorted({batch for _, batch in rates})
    middle = {key: {name: statistics.median(values) for name, values in methods.items()}
              for key, methods in rates.items()}
    width = LEFT + len(nets) * (WIDTH + GAP)
    height = TOP + HEIGHT + 50 + 20 * math.ceil(len(METHODS) / 2)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
           'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>']

    def text(x, y, words, anchor="middle"):
        out.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>')

    for panel, net in enumerate(nets):
        x0 = LEFT + panel * (WIDTH + GAP)
        values = [value for (other, _), methods in middle.items() if other == net for value in methods.values()]
        low, high = math.log10(min(values)) - 0.05, math.log10(max(values)) + 0.05
        across = lambda batch: x0 + 20 + (WIDTH - 40) * (math.log2(batch / batches[0])
                                                         / max(1.0, math.log2(batches[-1] / batches[0])))
        up = lambda rate: TOP + HEIGHT * (high - math.log10(rate)) / (high - low)
        text(x0 + WIDTH / 2, 20, f"{net}: samples a second against batch size")
        for power in range(int(low), int(high) + 1):
            for digit in (1, 2, 5):
                rate = digit * 10**power
                if low <= math.log10(rate) <= high:
                    out.append(f'<line x1="{x0}" x2="{x0 + WIDTH}" y1="{up(rate):.1f}" y2="{up(rate):.1f}" '
                               'stroke="#eeeeee"/>')
                    text(x0 - 6, up(rate) + 4, f"{rate:,}", "end")
        for batch in batches:
            text(across(batch), TOP + HEIGHT + 16, batch)
        for name, _, colour, plain in METHODS:
            points = [(across(batch), up(middle[net, batch][name]))
                      for batch in batches if name in middle.get((net, batch), {})]
            if not points:
                continue
            dash = ' stroke-dasharray="5 4"' if plain else ""
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
            out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    for i, (_, words, colour, plain) in enumerate(METHODS):
        x, y = LEFT + (i % 2) * (WIDTH + GAP) / 1.5, TOP + HEIGHT + 45 + 20 * (i // 2)
        dash = ' stroke-dasharray="5 4"' if plain else ""
        out.append(f'<line x1="{x:.1f}" x2="{x + 30:.1f}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" '
                   f'stroke-width="2"{dash}/>')
        text(x + 38, y, words, "start")
    return "\n".join(out) + "\n</svg>\n"


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(drawn(read(sys.argv[1])))
