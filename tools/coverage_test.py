# SPDX-License-Identifier: Apache-2.0
"""Lines are summed by module, and a module below the minimum is named."""

from pathlib import Path
import tempfile
import unittest

import coverage

FILES = [("src/base/a.cc", 10, 9), ("src/base/b.h", 10, 10), ("src/kernels/cpu/c.cc", 10, 7),
         ("include/longspec/x.h", 5, 0)]


class CoverageTest(unittest.TestCase):
    def setUp(self):
        self.modules = coverage.by_module(
            {"files": [{"filename": name, "line_total": total, "line_covered": covered} for name, total,
                       covered in FILES]})

    def test_lines_are_summed_by_module(self):
        self.assertEqual(self.modules, {"base": (19, 20), "kernels": (7, 10)})

    def test_a_low_module_is_named(self):
        lines, low = coverage.table(self.modules, 80.0)
        self.assertEqual(low, ["kernels"])
        self.assertRegex("\n".join(lines), r"kernels +10 +7 +70\.0 %  below 80 %")
        self.assertEqual(coverage.table(self.modules, 70.0)[1], [])

    def test_a_module_that_was_not_built_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("base", "train", "notes"):
                Path(folder, name).mkdir()
            for name in ("base", "train"):
                Path(folder, name, "CMakeLists.txt").touch()
            self.assertEqual(coverage.left_out(self.modules, Path(folder)), ["train"])


if __name__ == "__main__":
    unittest.main()
