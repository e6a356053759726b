#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sums up evaluations by temperature and method, texts that repeat themselves apart, as a Markdown table.

  tools/summarise_eval.py OUT [OUT ...] [--distinct 0.8] [--by-length]

OUT is a folder that `longspec eval` wrote. Speed is over plain decoding of the same prompts in the same run, by the
time of all texts together. "least" is the slowest cell (family, length, temperature). Texts with a distinct 4-gram
share below --distinct are counted apart.
"""

import argparse
import json
from pathlib import Path


def read_cells(folder):
    lines = (folder / "cells.jsonl").read_text(encoding="utf-8").splitlines()
    settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    cells = []
    for line in lines:
        try:
            cells.append((settings, json.loads(line)))
        except ValueError:  # cut short when the evaluation was killed; its cell was run again
            continue
    return cells


class Sum:
    def __init__(self):
        self.texts = self.same = self.tokens = self.steps = self.accepted = self.drafted = 0
        self.ms = self.plain_ms = 0.0
        self.cells = {}

    def add(self, cell, item):
        self.texts += 1
        self.same += item["identical"]
        for name in ("tokens", "steps", "accepted", "drafted", "ms", "plain_ms"):
            setattr(self, name, getattr(self, name) + item[name])
        of_cell = self.cells.setdefault((cell["family"], cell["length"]), [0.0, 0.0])
        of_cell[0] += item["ms"]
        of_cell[1] += item["plain_ms"]

    def row(self):
        least = min(plain / ms for ms, plain in self.cells.values())
        return (f"{self.texts} | {self.plain_ms / self.ms:.3f}x | {least:.2f}x | "
                f"{1 + self.accepted / self.steps:.2f} | {self.drafted / self.steps:.1f} | {self.same}")


def summarise(folders, distinct, by_length):
    sums = {}
    for folder in folders:
        for settings, cell in read_cells(folder):
            for item in cell["items"]:
                varied = "" if item["distinct_4gram"] >= distinct else ", repeating"
                unfiltered = " unfiltered" if settings["top_k"] <= 0 and cell["temperature"] > 0 else ""
                where = (f"{cell['temperature']:g}{unfiltered}{varied}", cell["length"] if by_length else 0)
                sums.setdefault((where, cell["method"]), Sum()).add(cell, item)
    return sums


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--distinct", type=float, default=0.8)
    parser.add_argument("--by-length", action="store_true")
    options = parser.parse_args()
    print("| temperature | method | texts | speed | least | tokens a step | drafts a step | same text |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    sums = summarise(options.folders, options.distinct, options.by_length)
    for ((where, length), method), total in sorted(sums.items()):
        at = f"{where}, {length} keys" if length else where
        print(f"| {at} | {method} | {total.row()} |")


if __name__ == "__main__":
    main()
