#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes answers.jsonl.gz of what an evaluation wrote: a line for each prompt, with its answers.

  longspec eval -m MODEL --data DATA --out FOLDER --families ... --lengths ... --temps 0,0.7 -n 96 --methods ngram
  tests/recorded/pack_answers.py FOLDER tests/recorded/answers.jsonl.gz

Answers of fewer than 16 tokens are left out: they say little.
"""

import gzip
import json
from pathlib import Path
import sys

LEAST_TOKENS = 16


def read_lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def pack(folder):
    """The lines, of short contexts first."""
    answers = {}
    for line in read_lines(folder / "answers.jsonl"):
        if len(line["tokens"]) >= LEAST_TOKENS:
            answers.setdefault((line["length"], line["family"], line["id"]), []).append(
                {"temperature": line["temperature"], "tokens": line["tokens"]})
    prompts = {(line["length"], line["family"], line["id"]): line["tokens"] for line in read_lines(folder / "prompts.jsonl")}
    return [{"family": key[1], "length": key[0], "id": key[2], "prompt": prompts[key], "answers": answers[key]}
            for key in sorted(answers)]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in pack(Path(sys.argv[1])))
    with open(sys.argv[2], "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as zipped:
        zipped.write(text.encode())


if __name__ == "__main__":
    main()
