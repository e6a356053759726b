#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of measure_offload.py against a program that stands for longspec: what it is called with, and the table."""

import contextlib
import io
import os
import stat
import sys
import tempfile
import unittest

import measure_offload

FAKE = """#!{python}
import json, sys
arguments = sys.argv[1:]
with open({log!r}, "a", encoding="utf-8") as log:
    log.write(" ".join(arguments) + "\\n")
after = lambda name: arguments[arguments.index(name) + 1]
if arguments[0] == "info":
    depth = int(after("--ctx-size"))
    print(json.dumps({{"memory": {{"kv_at_context": depth * 1024, "kv_in_file": depth * 1024}}}}))
elif "--kv-memory" in arguments and after("--kv-memory") == "0":
    sys.exit(3)
else:
    ms = 40.0 if "--kv-offload" in arguments else 10.0
    print(json.dumps({{"test": "machine", "cpu": "none"}}))
    print(json.dumps({{"test": "decode", "depth": int(after("--depth")), "rows": 1, "ms": ms}}))
"""


class MeasureOffload(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.log = os.path.join(folder.name, "log")
        self.longspec = os.path.join(folder.name, "longspec")
        with open(self.longspec, "w", encoding="utf-8") as file:
            file.write(FAKE.format(python=sys.executable, log=self.log))
        os.chmod(self.longspec, os.stat(self.longspec).st_mode | stat.S_IXUSR)

    def table(self, *arguments):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            measure_offload.main(["-m", "model", "--folder", "/spill", "--longspec", self.longspec, *arguments])
        return [[cell.strip() for cell in line.strip("|\n").split("|")] for line in out.getvalue().splitlines()[2:]]

    def test_shares_of_what_the_plan_says_are_in_memory(self):
        rows = self.table("--depth", "65536", "--share", "1,0.5,0.1", "--", "-t", "2")
        self.assertEqual([row[:6] for row in rows], [["65,536", "128", "128", "10.00", "100.00", "1.00"],
                                                     ["65,536", "128", "64", "40.00", "25.00", "0.25"],
                                                     ["65,536", "128", "12", "40.00", "25.00", "0.25"]])
        with open(self.log, encoding="utf-8") as file:
            calls = file.read().splitlines()
        bench = "bench -m model --sweep --json --rows 1 --depth 65536 -t 2"
        self.assertEqual(calls, ["info -m model --json --ctx-size 65536 -t 2", bench,
                                 bench + " --kv-offload /spill --kv-memory 64",
                                 bench + " --kv-offload /spill --kv-memory 12"])

    def test_a_command_may_run_it(self):
        rows = self.table("--depth", "1024,2048", "--share", "1", "--run-with", "env LIMIT=1")
        self.assertEqual([row[0] for row in rows], ["1,024", "2,048"])

    def test_failures_are_said(self):
        with self.assertRaisesRegex(SystemExit, "kv-memory 0: exit status 3"):
            self.table("--depth", "1024", "--share", "0")
        with self.assertRaisesRegex(SystemExit, "/nowhere/longspec: No such file"):
            self.table("--longspec", "/nowhere/longspec")
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
            self.table("--share", "2")
        self.assertIn("--share 2.0: must be from 0 to 1", said.getvalue())


if __name__ == "__main__":
    unittest.main()
