#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times prompts and steps of some rows on longspec and on programs like llama.cpp's llama-bench, in turn.

  tools/compare_steps.py -m MODEL --peer llama.cpp=/tmp/llama-build/bin/llama-bench \\
    --peer "ik_llama.cpp=/tmp/ik-build/bin/llama-bench -rtr 1" --rounds 5

Every program is asked once in each round, so that a slow minute hits all; a cell has the median over the rounds, and
the least and the most. longspec's rows come after --depth keys and compute all their logits. Those of the others come
after none and compute the logits of the last row (an empty cache favours them a little; with `-d` in the words of
a --peer they fill theirs first). The fastest of a line is bold.
"""

import argparse
from collections import defaultdict
import json
from pathlib import Path
import shlex
import statistics
import subprocess
import sys

from compare_llamacpp import cpu_name, Failure, number_list, ROOT, run_tool

OURS = "longspec"


def peer(text):
    """A name, and the words of its command."""
    name, mark, command = text.partition("=")
    if not mark or not name or not command:
        raise argparse.ArgumentTypeError(f"{text!r}: NAME=COMMAND is right")
    return name, shlex.split(command)


def output_of(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(f"{command[0]} ended with status {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def ask_longspec(options):
    """Milliseconds by the rows of a step; those of the prompt have its length."""
    rows = ",".join(map(str, options.rows))
    lines = output_of([options.longspec, "bench", "-m", options.model, "-t", options.threads, "--depth", options.depth,
                       "--rows", rows, "--json", *shlex.split(options.options)]).splitlines()
    return {line["rows"]: line["ms"] for line in map(json.loads, lines) if "ms" in line and "rows" in line}


def ask_peer(command, options):
    rows = ",".join(map(str, [*options.rows, options.depth]))
    text = output_of([*command, "-m", options.model, "-t", options.threads, "-fa", 1, "-p", rows, "-n", 0,
                      "-r", options.repetitions, "-o", "json"])
    return {line["n_prompt"]: line["avg_ns"] / 1e6 for line in json.loads(text[text.index("["):])}


def measure(options):
    """Milliseconds of every round, by program and rows."""
    found = defaultdict(lambda: defaultdict(list))
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
        answers = [(OURS, ask_longspec(options))]
        answers += [(name, ask_peer(command, options)) for name, command in options.peer]
        for name, times in answers:
            for rows, ms in times.items():
                found[name][rows].append(ms)
    return found


def cell(times, best):
    median = f"{statistics.median(times):.1f}"
    return f"{f'**{median}**' if best else median} ({min(times):.1f} to {max(times):.1f})"


def table(found, options):
    lines = ["| ms | " + " | ".join(found) + " | times as fast |", "|---|" + "---:|" * (len(found) + 1)]
    for rows in [*options.rows, options.depth]:
        medians = {name: statistics.median(times[rows]) for name, times in found.items()}
        best = min(medians, key=medians.get)
        others = [ms for name, ms in medians.items() if name != OURS]
        times_as_fast = f"{min(others) / medians[OURS]:.2f}" if others else ""
        label = f"prompt of {rows}" if rows == options.depth else f"{rows} row{'s' * (rows > 1)}"
        cells = " | ".join(cell(times[rows], name == best) for name, times in found.items())
        lines.append(f"| {label} | {cells} | {times_as_fast} |")
    return "\n".join(lines)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--longspec", default=str(ROOT / "build" / "release" / "longspec"), help="the program")
    parser.add_argument("--options", default="", help="further words of `longspec bench`, such as '-ctk i8 -ctv i8'")
    parser.add_argument("--peer", type=peer, action="append", default=[], metavar="NAME=COMMAND",
                        help="a llama-bench and its further words; as many as you like")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--depth", type=int, default=512, help="keys before the rows, and length of the prompt")
    parser.add_argument("--rows", type=number_list, default=[1, 2, 4, 8, 16, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=2, help="of each step in a round, of the peers")
    options = parser.parse_args()
    if not Path(options.model).is_file():
        raise Failure(f"--model: there is no file {options.model}")
    if options.depth in options.rows:
        raise Failure("--rows: a step may not have as many rows as the prompt has tokens (--depth)")
    return options


def main():
    options = parse_arguments()
    print(f"{cpu_name()}, {options.threads} threads, {Path(options.model).name}, {options.depth} keys\n")
    print(table(measure(options), options))


if __name__ == "__main__":
    run_tool(main)
