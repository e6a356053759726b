#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes answers.jsonl.gz of what evaluations wrote: a line for each prompt, with its answers and how they were sampled.

  longspec eval -m MODEL --data DATA --out FOLDER --families ... --lengths ... --temps 0,0.7,1.0 -n 96 --methods auto
  longspec eval ... --out OPEN --temps 1.0 --top-k 0 --top-p 1 --min-p 0
  tests/recorded/pack_answers.py FOLDER OPEN -o tests/recorded/answers.jsonl.gz [--prompts 1]

Answers of fewer than 16 tokens are left out: they say little.
"""

import argparse
import gzip
import json
from pathlib import Path

LEAST_TOKENS = 16
SAMPLING = ("seed", "top_k", "top_p", "min_p")


def read_lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def key_of(line):
    return (line["length"], line["family"], line["id"])


def pack(folders, most_prompts):
    """The lines, of short contexts first; of a family and length the first prompts."""
    answers, prompts = {}, {}
    for folder in folders:
        settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
        sampling = {name: settings[name] for name in SAMPLING}
        prompts.update({key_of(line): line["tokens"] for line in read_lines(folder / "prompts.jsonl")})
        for line in read_lines(folder / "answers.jsonl"):
            if len(line["tokens"]) >= LEAST_TOKENS:
                answers.setdefault(key_of(line), []).append(
                    {"temperature": line["temperature"], **sampling, "tokens": line["tokens"]})
    lines, taken = [], {}
    for key in sorted(answers):
        taken[key[:2]] = taken.get(key[:2], 0) + 1
        if taken[key[:2]] <= most_prompts:
            lines.append({"family": key[1], "length": key[0], "id": key[2], "prompt": prompts[key],
                          "answers": answers[key]})
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--prompts", type=int, default=1 << 30, help="of each family and length")
    options = parser.parse_args()
    lines = pack(options.folders, options.prompts)
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    with open(options.output, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as zipped:
        zipped.write(text.encode())


if __name__ == "__main__":
    main()
