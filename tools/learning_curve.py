#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the logs of longspec-train (--log) as an SVG: losses above, what a draft foresees below.

    tools/learning_curve.py stage1.jsonl stage2.jsonl -o learning_curve.svg [--accepted TOKENS=LENGTH ...]

Logs of runs that begin with each other's drafts follow one another. Of the training loss a running mean is
drawn, of the validation its loss and the tokens accepted in a row that its agreement lets one expect (plus the
target's own). --accepted marks what `longspec eval` measured after so many tokens.
"""

import argparse
import json
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, GAP, BOTTOM = 720, 460, 64, 16, 28, 48, 44
DECAY = 0.97


def accepted_length(agreement):
    """Of the target's own token and a chain of drafts, each right as often as `agreement` says of its lag."""
    right, expected = 1.0, 1.0
    for share in agreement:
        right *= share
        expected += right
    return expected


def read_entries(path):
    """(tokens that the run has seen, entry) of each line of a log.

    Each call of longspec-train counts its tokens from 0; one that goes on behind a step continues that step's count.
    Steps that a killed call did after its last checkpoint are done again: of those only the later lines count.
    """
    seen, before, last = [], 0, 0
    with open(path, encoding="utf-8") as file:
        for line in file:
            try:
                entry = json.loads(line)
            except ValueError:  # cut off by a full disk or a kill
                continue
            if "validation" not in entry and seen and (entry["tokens"] <= last or entry["step"] <= seen[-1][1]["step"]):
                while seen and seen[-1][1]["step"] >= entry["step"]:
                    seen.pop()
                before = seen[-1][0] if seen else 0
            last = entry["tokens"]
            seen.append((before + last, entry))
    return seen


def read_logs(paths):
    """(tokens, loss) of steps, and (tokens, loss, accepted length) of validations, tokens of all runs added up."""
    steps, validations, before = [], [], 0
    for path in paths:
        entries = read_entries(path)
        for tokens, entry in entries:
            if "validation" in entry:
                whole = entry["validation"][0]
                validations.append((before + tokens, whole["loss"], accepted_length(whole["agreement"])))
            else:
                steps.append((before + tokens, entry["loss"]))
        before += entries[-1][0] if entries else 0
    return steps, validations


def running_mean(points):
    mean, out = None, []
    for x, y in points:
        mean = y if mean is None else DECAY * mean + (1 - DECAY) * y
        out.append((x, mean))
    return out


def ticks(low, high, n=5):
    step = 10.0 ** len(str(int((high - low) / n))) / 10 if high - low > n else 0.1
    for factor in (1, 2, 5, 10, 20, 50, 100):
        if (high - low) / (step * factor) <= n:
            step *= factor
            break
    first = int(low / step) * step
    return [t for i in range(n + 2) if low <= (t := round(first + i * step, 6)) <= high]


class Panel:
    def __init__(self, top, height, x_most, y_low, y_high):
        self.top, self.height, self.x_most, self.low, self.high = top, height, x_most, y_low, y_high

    def at(self, x, y):
        px = LEFT + (WIDTH - LEFT - RIGHT) * x / self.x_most
        py = self.top + self.height * (self.high - y) / (self.high - self.low)
        return f"{px:.1f}", f"{py:.1f}"

    def line(self, points, color):
        text = " ".join(",".join(self.at(x, y)) for x, y in points)
        return f'<polyline points="{text}" fill="none" stroke="{color}" stroke-width="1.6"/>'

    def dots(self, points, color):
        return "".join('<circle cx="{}" cy="{}" r="3.5" fill="{}"/>'.format(*self.at(x, y), color) for x, y in points)

    def frame(self, title):
        out = [f'<text x="{LEFT}" y="{self.top - 8}" font-weight="bold">{title}</text>']
        for y in ticks(self.low, self.high):
            px, py = self.at(0, y)
            out.append(f'<path d="M{px} {py}H{WIDTH - RIGHT}" stroke="#ddd"/>')
            out.append(f'<text x="{LEFT - 6}" y="{py}" dy="4" text-anchor="end">{y:g}</text>')
        return "".join(out)


def draw(steps, validations, accepted):
    x_most = max(x for x, *_ in steps + validations + accepted)
    losses = running_mean(steps)
    y = [v for _, v in losses] + [v[1] for v in validations]
    height = (HEIGHT - TOP - GAP - BOTTOM) / 2
    above = Panel(TOP, height, x_most, min(y) - 0.2, max(y) + 0.2)
    lengths = [(x, e) for x, _, e in validations]
    below = Panel(TOP + height + GAP, height, x_most, 1.0, max([e for _, e in lengths + accepted] + [1.5]) + 0.1)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
           f'font-size="12"><rect width="100%" height="100%" fill="white"/>',
           above.frame("Loss: training (grey), validation (blue)"), above.line(losses, "#999"),
           above.line([(x, v) for x, v, _ in validations], "#06c"),
           below.frame("Accepted length: expected from validation (blue), measured by longspec eval (dots)"),
           below.line(lengths, "#06c"), below.dots(accepted, "#c30")]
    for x in ticks(0, x_most, 6):
        px, _ = below.at(x, 1.0)
        label = f"{x / 1e6:g} M" if x_most >= 2e6 else f"{x / 1e3:g} k"
        out.append(f'<text x="{px}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{label}</text>')
    out.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">tokens seen in training</text></svg>')
    return "\n".join(out) + "\n"


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", nargs="+")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--accepted", nargs="*", default=[], metavar="TOKENS=LENGTH")
    args = parser.parse_args(argv)
    steps, validations = read_logs(args.logs)
    if not steps:
        sys.exit(f"learning_curve: {args.logs[0]}: no steps")
    accepted = [tuple(float(number) for number in pair.split("=")) for pair in args.accepted]
    with open(args.output, "w", encoding="utf-8") as file:
        file.write(draw(steps, validations, accepted))


if __name__ == "__main__":
    main(sys.argv[1:])
