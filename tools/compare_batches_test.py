#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two ways of answering a file of requests, held against each other, with a program that is played."""

import contextlib
import gzip
import io
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import compare_batches

# Says the same whatever the options, unless it is told to lie; logs how it was called, and leaves what is answered.
PROGRAM = """#!{python}
import json, os, sys
args = sys.argv[1:]
if os.path.exists(args[args.index("-o") + 1]): sys.exit()
with open({log!r}, "a") as log: log.write(json.dumps(args) + "\\n")
if "--fail" in args: sys.exit("longspec: error: no such thing")
with open(args[args.index("-f") + 1]) as requests, open(args[args.index("-o") + 1], "w") as out:
    for line in reversed(requests.read().splitlines()):
        name = json.loads(line)["custom_id"]
        text = name + (" lies" if "--lie" in args else " says it")
        out.write(json.dumps({{"custom_id": name, "response": {{"body": {{"choices": [
            {{"message": {{"content": text}}}}]}}}}}}) + "\\n")
"""


class CompareBatches(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.log = self.folder / "log"
        self.program = self.folder / "longspec"
        self.program.write_text(PROGRAM.format(python=sys.executable, log=str(self.log)))
        os.chmod(self.program, 0o755)
        for family in ("one", "two"):
            with gzip.open(self.folder / f"{family}.jsonl.gz", "wt") as file:
                for i in range(3):
                    file.write(json.dumps({"instruction": f"Read {i}.", "prompt_text": family * 50}) + "\n")

    def run_tool(self, *args):
        out = io.StringIO()
        command = ["compare_batches", "--longspec", str(self.program), "--data", str(self.folder), "--families",
                   "one,two", "--each", "2", "--characters", "30", "--rounds", "2", "--parallel", "1,4", *args]
        with mock.patch.object(sys, "argv", command), contextlib.redirect_stdout(out):
            compare_batches.main()
        return out.getvalue()

    def test_a_table_of_both_ways_in_turn(self):
        out = self.run_tool()
        self.assertRegex(out, r"(?m)^\| 4 \| \d+\.\d, \d+\.\d \| \d+\.\d, \d+\.\d \| \d+\.\d{3}x \| \d+\.\d{3}x \|$")
        self.assertIn("4 requests", out)
        self.assertIn("All answers are the same", out)
        calls = [json.loads(line) for line in self.log.read_text().splitlines()]
        self.assertEqual([call[call.index("--spec-type") + 1] for call in calls], ["none", "auto", "auto", "none"] * 2)
        self.assertEqual([call[call.index("--parallel") + 1] for call in calls], ["1"] * 4 + ["4"] * 4)

    def test_requests_take_turns_by_family(self):
        options = compare_batches.parse_arguments(["--data", str(self.folder), "--families", "one,two", "--each", "2",
                                                   "--characters", "5"])
        lines = compare_batches.make_requests(options)
        self.assertEqual([line["custom_id"] for line in lines], ["one-0", "two-0", "one-1", "two-1"])
        self.assertEqual(lines[2]["body"]["messages"][0]["content"], "Read 1.\n\noneon")

    def test_the_ratio_is_of_all_time_and_of_the_median_round(self):
        self.assertEqual(compare_batches.row(8, [2.0, 4.0, 9.0], [1.0, 4.0, 5.0]),
                         "| 8 | 2.0, 4.0, 9.0 | 1.0, 4.0, 5.0 | 1.500x | 1.800x |")

    # The share of distinct 4-grams is counted over all texts together.
    def test_shares(self):
        self.assertEqual(compare_batches.distinct_share(["a b c d e", "x a b c d"]), 0.75)

    # Answers that differ, a server that fails and texts that are missing end the comparison with their reason.
    def test_failures(self):
        for args, reason in ((("--with=--lie",), "--lie: answers differ"), (("--with=--fail",), "no such thing"),
                             (("--each", "4"), "3 texts, 4 are needed"), (("--families", "three"), "three.jsonl.gz")):
            with self.assertRaisesRegex(compare_batches.Failure, reason):
                self.run_tool(*args)


if __name__ == "__main__":
    unittest.main()
