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
        self.assertIn("| one | 20 | 1.20 | 4.00 |", text.getvalue())
        self.assertIn("| two | 10 | 1.30 |  |", text.getvalue())
        root = xml.etree.ElementTree.parse(self.output).getroot()
        self.assertEqual(len(root.findall("{http://www.w3.org/2000/svg}polyline")), 4)

    def test_a_log_without_validations_is_an_error(self):
        log = self.write("a", [{"step": 1, "tokens": 5, "loss": 9}])
        for arguments in ([f"a={log}"], [log]):
            with self.assertRaises(SystemExit):
                compare_trainings.main([*arguments, "-o", self.output])


if __name__ == "__main__":
    unittest.main()
