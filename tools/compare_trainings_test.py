#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of compare_trainings.py: what it reads, what it prints, and that what it draws is XML."""

import contextlib
import io
import json
import os
import tempfile
import unittest
import xml.etree.ElementTree

import compare_trainings


def bucket(begin, rows, loss, agreement):
    return {"begin": begin, "end": 2 * begin or 512, "rows": rows, "loss": loss, "agreement": agreement}


def validation(tokens, *buckets):
    return {"step": 1, "tokens": tokens, "validation": list(buckets)}


class CompareTrainings(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.output = os.path.join(self.folder.name, "x.svg")

    def write(self, name, entries):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)
        return path

    def test_far_positions_are_weighted_by_rows(self):
        log = self.write("a", [
            {"step": 1, "tokens": 5, "loss": 9},
            validation(10, bucket(0, 7, 4, [0.5, 0.5]), bucket(0, 3, 1, [1]), bucket(2048, 3, 2, [1]),
                       bucket(4096, 1, 6, [1]))])
        self.assertEqual(compare_trainings.read_validations(log, 2048), [(10, [0.5, 0.5], 7, 3.0)])
        self.assertEqual(compare_trainings.read_validations(log, 8192), [(10, [0.5, 0.5], 7, None)])

    def test_a_run_that_was_stopped_goes_on_counting(self):
        whole = bucket(0, 1, 4, [0.5])
        log = self.write("a", [{"step": 1, "tokens": 100, "loss": 9}, {**validation(100, whole), "step": 1},
                               {"step": 2, "tokens": 70, "loss": 8}, {**validation(70, whole), "step": 2}])
        self.assertEqual([tokens for tokens, *_ in compare_trainings.read_validations(log, 2048)], [100, 170])

    def test_positions_that_were_left_out_are_wrong(self):
        runs = {"all": [(10, [0.5, 0.5], 8, None)], "half": [(10, [0.5, 0.5], 4, 2.0)]}
        self.assertEqual(compare_trainings.expect_of_all(runs),
                         {"all": [(10, 1.75, None)], "half": [(10, 1.25 + 0.0625, 2.0)]})

    def test_draws_a_line_for_each_run_and_prints_the_last_validation(self):
        first = self.write("a", [validation(10, bucket(0, 1, 4, [0.1]), bucket(2048, 1, 5, [0.1])),
                                 validation(20, bucket(0, 1, 3, [0.2]), bucket(2048, 1, 4, [0.1]))])
        second = self.write("b", [validation(10, bucket(0, 1, 4, [0.3]))])
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            compare_trainings.main([f"one={first}", f"two={second}", "-o", self.output])
        self.assertIn("| one | 20 | 3.00 | 0.20 |  |  |  | 1.20 | 4.00 |", text.getvalue())
        self.assertIn("| two | 10 | 4.00 | 0.30 |  |  |  | 1.30 |  |", text.getvalue())
        root = xml.etree.ElementTree.parse(self.output).getroot()
        self.assertEqual(len(root.findall("{http://www.w3.org/2000/svg}polyline")), 4)

    def test_seeds_of_one_name_are_a_mean_with_its_range(self):
        logs = [self.write(name, [validation(tokens, {**bucket(0, 4, loss, [first, 0.5]), "top_4": [0.6, 0.7],
                                                      "accepted": [chain, 1, 1.25]})])
                for name, tokens, loss, first, chain in (("a", 1000, 4, 0.25, 0.5), ("b", 1200, 5, 0.75, 0.7))]
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            compare_trainings.main(["eagle=" + ",".join(logs), "-o", self.output])
        self.assertIn("| eagle | 1,100 (1,000 to 1,200) | 4.50 (4.00 to 5.00) "
                      "| 0.50 (0.25 to 0.75) 0.50 (0.50 to 0.50) "
                      "| 0.60 (0.60 to 0.60) 0.70 (0.70 to 0.70) | 1.60 (1.50 to 1.70) "
                      "| 2.00 (2.00 to 2.00), 2.25 (2.25 to 2.25) | 1.75 (1.38 to 2.12) |  |", text.getvalue())
        root = xml.etree.ElementTree.parse(self.output).getroot()
        self.assertEqual(len(root.findall("{http://www.w3.org/2000/svg}polyline")), 2)

    def test_a_log_without_validations_is_an_error(self):
        log = self.write("a", [{"step": 1, "tokens": 5, "loss": 9}])
        for arguments in ([f"a={log}"], [log]):
            with self.assertRaises(SystemExit):
                compare_trainings.main([*arguments, "-o", self.output])


if __name__ == "__main__":
    unittest.main()
