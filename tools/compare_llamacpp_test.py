#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/compare_llamacpp.py with a made-up longspec; llama.cpp itself is not asked."""

import contextlib
import io
import os
from pathlib import Path
import stat
import sys
import tempfile
import unittest

import compare_llamacpp

FAKE = """#!/bin/sh
case "$*" in
  *--answers*) echo '{"test":"answers","depth":64,"sequences":4,"speculation":"none","tokens_per_second":100}'
               echo '{"test":"answers","depth":64,"sequences":4,"speculation":"auto","tokens_per_second":150}';;
  *--parallel*) echo '{"test":"batch","depth":64,"sequences":4,"tokens_per_second":200}';;
  *) echo '{"test":"machine"}'
     echo '{"test":"prefill","depth":64,"rows":64,"ms":9}'
     echo '{"test":"rows","depth":64,"rows":1,"ms":2}'
     echo '{"test":"rows","depth":64,"rows":8,"ms":3}';;
esac
"""


class CompareTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.program = Path(folder.name) / "longspec"
        self.program.write_text(FAKE, encoding="utf-8")
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)

    def run_tool(self, *arguments):
        sys.argv = ["compare_llamacpp", "-m", os.fspath(self.program), "--longspec", os.fspath(self.program), "--only",
                    "longspec", "--depths", "64", "--rounds", "2", *arguments]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = compare_llamacpp.run_tool("compare_llamacpp", compare_llamacpp.parse_arguments(),
                                               compare_llamacpp.make_report)
        return status, out.getvalue(), err.getvalue()

    def test_steps_of_one_sequence(self):
        status, out, err = self.run_tool("--rows", "8")
        self.assertEqual(status, 0, err)
        self.assertIn("| 64 | 1 row | - | 2.00 | - |", out)
        self.assertIn("| 64 | 8 rows | - | 3.00 | - |", out)
        self.assertIn("| 64 | 8 | - | 1.50x |", out)

    # Several sequences have a row of their own, and without answers its numbers are left out.
    def test_many_sequences(self):
        status, out, err = self.run_tool("--sequences", "4")
        self.assertEqual(status, 0, err)
        self.assertIn("| 64 | 4 | - | 200.0 | - | 100.0 | 150.0 | 1.50x |", out)
        self.assertEqual(err.count("round "), 2)
        self.assertIn("| 64 | 4 | - | 200.0 | - | - | - | - |", self.run_tool("--sequences", "4", "--answers", "0")[1])

    def test_ratios_favour_longspec(self):
        lines = compare_llamacpp.sequences_table({(64, 4): 50.0}, {"steps": {(64, 4): 200.0}})
        self.assertEqual(lines[2], "| 64 | 4 | 50.0 | 200.0 | 4.00x | - | - | - |")

    def test_a_failure_is_one_line(self):
        self.program.write_text("#!/bin/sh\necho no such model >&2\nexit 3\n", encoding="utf-8")
        status, out, err = self.run_tool("--sequences", "4")
        self.assertEqual((status, out), (1, ""))
        self.assertRegex(err.splitlines()[-1], r"^compare_llamacpp: .* ended with 3: no such model$")


if __name__ == "__main__":
    unittest.main()
