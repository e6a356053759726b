# SPDX-License-Identifier: Apache-2.0
"""Lines are summed by module, and a module below the minimum is named."""

import unittest

import coverage

FILES = [("src/base/a.cc", 10, 9), ("src/base/b.h", 10, 10), ("src/kernels/cpu/c.cc", 10, 7), ("include/longspec/x.h", 5, 0)]


class CoverageTest(unittest.TestCase):
    def setUp(self):
        self.modules = coverage.by_module(
            {"files": [{"filename": name, "line_total": total, "line_covered": covered} for name, total, covered in FILES]})

    def test_lines_are_summed_by_module(self):
        self.assertEqual(self.modules, {"base": (19, 20), "kernels": (7, 10)})

    def test_a_low_module_is_named(self):
        lines, low = coverage.table(self.modules, 80.0)
        self.assertEqual(low, ["kernels"])
        self.assertRegex("\n".join(lines), r"kernels +10 +7 +70\.0 %  below 80 %")
        self.assertEqual(coverage.table(self.modules, 70.0)[1], [])


if __name__ == "__main__":
    unittest.main()
