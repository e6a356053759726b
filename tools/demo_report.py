#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares two generations of `longspec run --stats-file`: one with speculation, one without.

  demo_report.py SPECULATIVE.json PLAIN.json

Exit status 1 if their tokens differ.
"""

import json
import sys


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def per_second(n, ms):
    return 1000.0 * n / ms if ms > 0 else 0.0


def row(result):
    timings, speculative = result["timings"], result["speculative"]
    steps = speculative["steps"]
    return [
        speculative["type"],
        f"{per_second(timings['prompt_n'], timings['prompt_ms']):.0f}",
        f"{per_second(timings['predicted_n'], timings['predicted_ms']):.1f}",
        f"{timings['prompt_ms'] / 1000:.1f}",
        f"{timings['predicted_ms'] / 1000:.1f}",
        f"{speculative['mean_acceptance_length']:.2f}" if steps and timings["draft_n"] else "-",
        f"{speculative['distinct_4gram']:.2f}",
    ]


def table(header, rows):
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in [header, *rows])


def first_difference(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def main(arguments):
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    speculative, plain = (load(path) for path in arguments)
    header = ["speculation", "prefill tok/s", "decode tok/s", "prefill s", "decode s", "accepted length",
              "distinct 4-grams"]
    print(table(header, [row(speculative), row(plain)]))
    gain = per_second(speculative["timings"]["predicted_n"], speculative["timings"]["predicted_ms"]) / max(
        per_second(plain["timings"]["predicted_n"], plain["timings"]["predicted_ms"]), 1e-9)
    print(f"\n{plain['timings']['prompt_n']} prompt tokens, {len(plain['tokens'])} generated; "
          f"decoding {gain:.2f}x as fast")
    if speculative["tokens"] == plain["tokens"]:
        print("identical: yes")
        return 0
    print(f"identical: no (first difference at token {first_difference(speculative['tokens'], plain['tokens'])})")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
