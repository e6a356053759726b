#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps timed on programs that print times which somebody wrote down."""

import argparse
import contextlib
import io
import json
from pathlib import Path
import stat
import sys
import tempfile
import unittest
from unittest import mock

import compare_steps

OURS = [{"test": "machine", "gb_per_second": 30}, {"test": "prefill", "rows": 512, "ms": 2000.0},
        {"test": "decode", "rows": 1, "ms": 30.0}, {"test": "rows", "rows": 8, "ms": 50.0}]
THEIRS = [{"n_prompt": 1, "avg_ns": 24e6}, {"n_prompt": 8, "avg_ns": 90e6}, {"n_prompt": 512, "avg_ns": 5000e6}]


class CompareSteps(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "model.gguf").write_bytes(b"")

    def program(self, name, text, status=0):
        path = self.folder / name
        path.write_text(f"#!{sys.executable}\nimport sys\nprint({text!r})\n"
                        f"print('no such thing', file=sys.stderr)\nsys.exit({status})\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    def run_main(self, *words, theirs=None):
        ours = self.program("ours", "\n".join(map(json.dumps, OURS)))
        theirs = theirs or self.program("theirs", "loading\n" + json.dumps(THEIRS))
        words = ("compare_steps.py", "-m", str(self.folder / "model.gguf"), "--longspec", ours, "--rounds", "3",
                 "--peer", f"other={theirs} -rtr 1", "--rows", "1,8", *words)
        said = io.StringIO()
        with mock.patch.object(sys, "argv", list(words)), contextlib.redirect_stdout(said), \
                contextlib.redirect_stderr(io.StringIO()):
            compare_steps.main()
        return said.getvalue().splitlines()

    def test_a_line_has_every_program_and_the_fastest_is_bold(self):
        lines = self.run_main()
        self.assertIn("| 1 row | 30.0 (30.0 to 30.0) | **24.0** (24.0 to 24.0) | 0.80 |", lines)
        self.assertIn("| 8 rows | **50.0** (50.0 to 50.0) | 90.0 (90.0 to 90.0) | 1.80 |", lines)
        self.assertIn("| prompt of 512 | **2000.0** (2000.0 to 2000.0) | 5000.0 (5000.0 to 5000.0) | 2.50 |", lines)

    def test_a_cell_is_the_median_of_the_rounds(self):
        self.assertEqual(compare_steps.cell([3, 1, 8], False), "3.0 (1.0 to 8.0)")

    def test_a_program_that_fails_is_named_with_its_reason(self):
        with self.assertRaisesRegex(compare_steps.Failure, "broken ended with status 3: no such thing"):
            self.run_main(theirs=self.program("broken", "", status=3))

    def test_a_peer_is_a_name_and_a_command(self):
        self.assertEqual(compare_steps.peer("ik=/bin/x -rtr 1"), ("ik", ["/bin/x", "-rtr", "1"]))
        with self.assertRaises(argparse.ArgumentTypeError):
            compare_steps.peer("/bin/x")

    def test_rows_may_not_be_the_prompts(self):
        with self.assertRaisesRegex(compare_steps.Failure, "--rows"):
            self.run_main("--depth", "8")


if __name__ == "__main__":
    unittest.main()
