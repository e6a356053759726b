#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of summarise_eval.py: sums over texts, the slowest cell, and repeating texts apart."""

import json
from pathlib import Path
import tempfile
import unittest

import summarise_eval


def item(ms, plain_ms, distinct=1.0):
    return {"identical": True, "tokens": 10, "steps": 5, "accepted": 5, "drafted": 15, "ms": ms, "plain_ms": plain_ms,
            "distinct_4gram": distinct}


class SummariseEval(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, cells, top_k=40):
        (self.folder / "settings.json").write_text(json.dumps({"top_k": top_k}), encoding="utf-8")
        lines = [json.dumps({"family": family, "method": "auto", "length": length, "temperature": 0.7, "items": items})
                 for family, length, items in cells]
        (self.folder / "cells.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def test_sums_and_least(self):
        self.write([("a", 512, [item(10, 20), item(10, 10)]), ("b", 512, [item(20, 10)])])
        sums = summarise_eval.summarise([self.folder], 0.8, False)
        self.assertEqual(list(sums), [(("0.7", 0), "auto")])
        self.assertEqual(sums[(("0.7", 0), "auto")].row(), "3 | 1.000x | 0.50x | 2.00 | 3.0 | 3")

    # Cells are summed by temperature and length, and prompts whose texts repeat themselves apart.
    def test_groups(self):
        self.write([("a", 512, [item(1, 2), item(1, 3, 0.5)]), ("a", 2048, [item(1, 4)])], top_k=0)
        sums = summarise_eval.summarise([self.folder], 0.8, True)
        self.assertEqual(sorted(where for where, _ in sums),
                         [("0.7 unfiltered", 512), ("0.7 unfiltered", 2048), ("0.7 unfiltered, repeating", 512)])


if __name__ == "__main__":
    unittest.main()
