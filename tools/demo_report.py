#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares texts of `longspec run --stats-file`, each written with speculation and without.

  demo_report.py TASK GUESSED.json PLAIN.json [TASK GUESSED.json PLAIN.json]...

The guessed one evaluated the prompt. Exit status 1 if tokens differ.
"""

import json
import sys

HEADER = ("", "prompt", "first token", "plain", "guessed", "times as fast", "accepted length", "distinct 4-grams",
          "identical")
UNITS = ("", "tokens (per s)", "after s", "tokens/s", "tokens/s", "", "tokens", "share", "")


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def per_second(n, ms):
    return 1000.0 * n / ms if ms > 0 else 0.0


def decode_rate(result):
    return per_second(result["timings"]["predicted_n"], result["timings"]["predicted_ms"])


def first_token_s(result):
    """The prompt and one step."""
    timings, steps = result["timings"], max(result["speculative"]["steps"], 1)
    return (timings["prompt_ms"] + timings["predicted_ms"] / steps) / 1000


def first_difference(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def identical(guessed, plain):
    if guessed["tokens"] == plain["tokens"]:
        return "yes"
    return f"NO, from token {first_difference(guessed['tokens'], plain['tokens'])} on"


def row(task, guessed, plain):
    timings, speculative = guessed["timings"], guessed["speculative"]
    return (task, f"{timings['prompt_n']} ({per_second(timings['prompt_n'], timings['prompt_ms']):.0f})",
            f"{first_token_s(guessed):.1f}", f"{decode_rate(plain):.1f}", f"{decode_rate(guessed):.1f}",
            f"{decode_rate(guessed) / max(decode_rate(plain), 1e-9):.2f}",
            f"{speculative['mean_acceptance_length']:.2f}" if timings["draft_n"] else "-",
            f"{speculative['distinct_4gram']:.2f}", identical(guessed, plain))


def table(lines):
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(cell.rjust(width) if i else cell.ljust(width)
                               for i, (cell, width) in enumerate(zip(line, widths))).rstrip() for line in lines)


def main(arguments):
    if not arguments or len(arguments) % 3 != 0:
        print(__doc__, file=sys.stderr)
        return 2
    pairs = [(task, load(guessed), load(plain))
             for task, guessed, plain in zip(arguments[::3], arguments[1::3], arguments[2::3])]
    print(table([HEADER, UNITS, *(row(*pair) for pair in pairs)]))
    return 0 if all(guessed["tokens"] == plain["tokens"] for _, guessed, plain in pairs) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
