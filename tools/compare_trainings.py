#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws logs of longspec-train (--log) side by side as an SVG and prints their last validations as a table.

    tools/compare_trainings.py "all of it=base.jsonl" "without anchors=plain.jsonl" --far 2048 -o ablations.svg
    tools/compare_trainings.py "eagle=eagle-1.jsonl,eagle-2.jsonl,eagle-3.jsonl" "exit=exit-1.jsonl" -o kinds.svg

Above: the accepted length that agreement with the target lets one expect over all validated positions. Below: the
loss at positions from --far on. Logs of one name are runs with other seeds: each has a line, and the table has their
means and in brackets the least and the most. Logs are compared by tokens seen; losses of runs with other labels
(--distill) are not comparable, accepted lengths are: positions that one run leaves out and another does not, because
their label is in no vocabulary of the draft, count as wrong.
"""

import argparse
import sys

from learning_curve import BOTTOM, GAP, HEIGHT, LEFT, TOP, WIDTH, Panel, accepted_length, read_entries, ticks

COLORS = ("#06c", "#c30", "#083", "#a0a", "#850", "#555", "#0aa", "#e80", "#639")


def read_validations(path, far):
    """(tokens, agreement by lag, positions, loss from position `far` on) of each validation; no loss: None."""
    points = []
    for tokens, entry in read_entries(path):
        if "validation" not in entry:
            continue
        whole, *buckets = entry["validation"]
        behind = [b for b in buckets if b["begin"] >= far]
        rows = sum(b["rows"] for b in behind)
        loss = sum(b["loss"] * b["rows"] for b in behind) / rows if rows else None
        points.append((tokens, whole["agreement"], whole["rows"], loss))
    return points


def expect_of_all(runs):
    """(tokens, accepted length over the positions of the run that has most, loss) of each validation of each run."""
    most = max(rows for points in runs.values() for _, _, rows, _ in points)
    return {name: [(tokens, accepted_length([share * rows / most for share in agreement]), loss)
                   for tokens, agreement, rows, loss in points] for name, points in runs.items()}


def legend(panel, names):
    out = []
    for i, name in enumerate(names):
        y = panel.top + 14 + 16 * i
        out.append(f'<path d="M{LEFT + 12} {y - 4}h22" stroke="{COLORS[i]}" stroke-width="2"/>'
                   f'<text x="{LEFT + 40}" y="{y}">{name}</text>')
    return "".join(out)


def draw(logs, runs, far):
    x_most = max(point[0] for points in runs.values() for point in points)
    lengths = [point[1] for points in runs.values() for point in points]
    losses = [point[2] for points in runs.values() for point in points if point[2] is not None]
    height = (HEIGHT - TOP - GAP - BOTTOM) / 2
    above = Panel(TOP, height, x_most, 1.0, max(lengths) + 0.1)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
           f'font-size="12"><rect width="100%" height="100%" fill="white"/>',
           above.frame("Accepted length to expect of a chain of four")]
    lines = [(runs[path], color) for paths, color in zip(logs.values(), COLORS) for path in paths]
    for points, color in lines:
        out.append(above.line([(x, y) for x, y, _ in points], color))
    out.append(legend(above, logs))
    if losses:
        below = Panel(TOP + height + GAP, height, x_most, min(losses) - 0.1, max(losses) + 0.1)
        out.append(below.frame(f"Validation loss at positions from {far} on"))
        for points, color in lines:
            out.append(below.line([(x, loss) for x, _, loss in points if loss is not None], color))
    for x in ticks(0, x_most, 6):
        px, _ = above.at(x, 1.0)
        out.append(f'<text x="{px}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x / 1e3:g} k</text>')
    out.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">tokens seen in training</text></svg>')
    return "\n".join(out) + "\n"


def last_validation(path):
    """(tokens, entry of all rows) of a log's last validation."""
    return [(tokens, entry["validation"][0]) for tokens, entry in read_entries(path) if "validation" in entry][-1]


def by_lag(entries, kind):
    """What validations of several seeds say for each place of a chain; "" if one of them does not say it."""
    return " ".join(of_seeds(shares) for shares in zip(*(entry.get(kind, ()) for entry in entries)))


def of_seeds(values, form="{:.2f}"):
    """The mean, and where there are several the least and the most; values may be missing."""
    if any(value is None for value in values):
        return ""
    mean = form.format(sum(values) / len(values))
    if len(values) == 1:
        return mean
    return f"{mean} ({form.format(min(values))} to {form.format(max(values))})"


def table(logs, runs, far):
    """`logs`: paths by name. `runs`: points by path, as expect_of_all gives them."""
    lines = ["| run | tokens seen | loss | first choice, by lag | among four, by lag | chain of 4 | trees of 8, 16 "
             f"| accepted length to expect | loss at positions from {far} on |",
             "|---|---:|---:|---|---|---:|---|---:|---:|"]
    for name, paths in logs.items():
        tokens, entries = zip(*map(last_validation, paths))
        # The target's own token is one more.
        chain, *trees = [of_seeds([1 + entry["accepted"][shape] if "accepted" in entry else None for entry in entries])
                         for shape in range(3)]
        _, accepted, losses = zip(*(runs[path][-1] for path in paths))
        cells = (name, of_seeds(tokens, "{:,.0f}"), of_seeds([entry["loss"] for entry in entries]),
                 by_lag(entries, "agreement"), by_lag(entries, "top_4"), chain,
                 ", ".join(tree for tree in trees if tree), of_seeds(accepted), of_seeds(losses))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", nargs="+", metavar="NAME=LOG[,LOG...]")
    parser.add_argument("--far", type=int, default=2048, metavar="POSITION")
    parser.add_argument("-o", "--output", required=True)
    args = parser.parse_args(argv)
    if len(args.logs) > len(COLORS):
        sys.exit(f"compare_trainings: at most {len(COLORS)} names")
    logs, runs = {}, {}
    for pair in args.logs:
        name, separator, paths = pair.partition("=")
        if not separator:
            sys.exit(f"compare_trainings: {pair}: expected NAME=LOG")
        logs[name] = paths.split(",")
        for path in logs[name]:
            runs[path] = read_validations(path, args.far)
            if not runs[path]:
                sys.exit(f"compare_trainings: {path}: no validations; train with --validate")
    runs = expect_of_all(runs)
    with open(args.output, "w", encoding="utf-8") as file:
        file.write(draw(logs, runs, args.far))
    print(table(logs, runs, args.far))


if __name__ == "__main__":
    main(sys.argv[1:])
