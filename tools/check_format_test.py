# SPDX-License-Identifier: Apache-2.0
"""A file that clang-format would change is named with its line, and one it would not is not."""

import contextlib
import io
from pathlib import Path
import shutil
import tempfile
import unittest

import check_format

GOOD = "int Twice(int x) { return 2 * x; }\n"
BAD = "int Twice(int x) { return 2 * x; }\nint Thrice(int x) {return 3*x;}\n"


class CheckFormatTest(unittest.TestCase):
    def check(self, files):
        """Exit status and output."""
        with tempfile.TemporaryDirectory() as name:
            for path, text in files.items():
                file = Path(name, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            with contextlib.redirect_stdout(io.StringIO()) as output:
                status = check_format.main([name])
        return status, output.getvalue()

    def setUp(self):
        if shutil.which(check_format.PROGRAM) is None:
            self.skipTest(f"no {check_format.PROGRAM}")

    def test_a_clean_tree_passes(self):
        status, output = self.check({"src/a/a.cc": GOOD, "include/a.h": GOOD})
        self.assertEqual(status, 0, output)
        self.assertIn("2 files", output)

    def test_each_folder_is_looked_at_and_the_place_is_named(self):
        for path in ("src/a/testing/a.h", "include/longspec/a.h", "tests/a/a.cc", "examples/a.cc", "tools/a.cc"):
            status, output = self.check({"src/a/a.cc": GOOD, path: BAD})
            self.assertEqual(status, 1, output)
            self.assertEqual(output.count("\n"), 1, output)
            self.assertTrue(output.startswith(f"{path}:2: "), output)
            self.assertIn("make format", output)

    def test_what_is_no_code_of_ours_is_left_alone(self):
        status, output = self.check({"src/a/a.cc": GOOD, "build/a.cc": BAD, "src/a/a.py": BAD})
        self.assertEqual(status, 0, output)

    def test_many_files_are_all_looked_at(self):
        files = {f"src/a/{i}.cc": BAD if i % 7 == 0 else GOOD for i in range(3 * check_format.TOGETHER)}
        status, output = self.check(files)
        self.assertEqual(status, 1)
        self.assertEqual(output.count("\n"), sum(text == BAD for text in files.values()))

    def test_without_the_program_the_check_is_skipped(self):
        name, check_format.PROGRAM = check_format.PROGRAM, "clang-format-of-no-version"
        try:
            self.assertEqual(self.check({"src/a/a.cc": BAD})[0], check_format.SKIPPED)
        finally:
            check_format.PROGRAM = name


if __name__ == "__main__":
    unittest.main()
