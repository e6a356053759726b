#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares generations of `longspec run --stats-file`: some with speculation, the last one without.

  demo_report.py SPECULATIVE.json ... PLAIN.json

Exit status 1 if their tokens differ.
"""

import json
import sys


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def per_second(n, ms):
    return 1000.0 * n / ms if ms > 0 else 0.0


def decode_rate(result):
    return per_second(result["timings"]["predicted_n"], result["timings"]["predicted_ms"])


def row(result, plain):
    timings, speculative = result["timings"], result["speculative"]
    steps = speculative["steps"]
    return [
        speculative["type"],
        f"{per_second(timings['prompt_n'], timings['prompt_ms']):.0f}",
        f"{decode_rate(result):.1f}",
        f"{decode_rate(result) / max(decode_rate(plain), 1e-9):.2f}x",
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
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    results = [load(path) for path in arguments]
    plain = results[-1]
    header = ["speculation", "prefill tok/s", "decode tok/s", "vs none", "prefill s", "decode s", "accepted length",
              "distinct 4-grams"]
    print(table(header, [row(result, plain) for result in results]))
    print(f"\n{plain['timings']['prompt_n']} prompt tokens, {len(plain['tokens'])} generated; "
          f"decoding {decode_rate(results[0]) / max(decode_rate(plain), 1e-9):.2f}x as fast")
    for result in results[:-1]:
        if result["tokens"] != plain["tokens"]:
            print(f"identical: no ({result['speculative']['type']}: first difference at token "
                  f"{first_difference(result['tokens'], plain['tokens'])})")
            return 1
    print("identical: yes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
