#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of learning_curve.py: what it reads, and that what it draws is XML."""

import json
import os
import tempfile
import unittest
import xml.etree.ElementTree

import learning_curve


def step(tokens, loss, number=1):
    return {"step": number, "tokens": tokens, "loss": loss, "mean_loss": loss, "lr": 0.1, "gradient_norm": 1}


def validation(tokens, loss, agreement, number=1):
    return {"step": number, "tokens": tokens, "validation": [{"loss": loss, "agreement": agreement}]}


class LearningCurve(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, name, entries):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)
        return path

    def test_runs_follow_one_another(self):
        first = self.write("a", [step(100, 9), validation(100, 8, [0.5, 0.5]), step(200, 8, 2), step(50, 7, 3)])
        second = self.write("b", [step(10, 6)])
        steps, validations = learning_curve.read_logs([first, second])
        self.assertEqual(steps, [(100, 9), (200, 8), (250, 7), (260, 6)])
        self.assertEqual(validations, [(100, 8, 1.75)])

    def test_a_run_that_was_stopped_goes_on_counting(self):
        log = self.write("a",
                         [step(100, 9), step(100, 8, 2), step(200, 7, 3), validation(200, 7, [0.5], 3), step(60, 6, 4)])
        self.assertEqual([tokens for tokens, _ in learning_curve.read_entries(log)], [100, 200, 300, 300, 360])

    def test_steps_that_a_killed_run_lost_are_counted_once(self):
        lost = [step(200, 5, 2), validation(200, 5, [0.1], 2), step(300, 4, 3)]
        log = self.write("a", [step(100, 9), *lost, step(110, 8, 2), validation(110, 8, [0.2], 2), step(220, 7, 3)])
        self.assertEqual([(tokens, entry.get("loss")) for tokens, entry in learning_curve.read_entries(log)],
                         [(100, 9), (210, 8), (210, None), (320, 7)])
        again = self.write("b", [step(100, 9), step(200, 8, 2), step(90, 9)])  # killed before the first checkpoint
        self.assertEqual([tokens for tokens, _ in learning_curve.read_entries(again)], [90])

    def test_a_line_that_was_cut_off_is_left_out(self):
        log = self.write("a", [step(100, 9)])
        with open(log, "a", encoding="utf-8") as file:
            file.write('{"step":2,"tok\n' + json.dumps(step(60, 8, 2)) + "\n")
        self.assertEqual([tokens for tokens, _ in learning_curve.read_entries(log)], [100, 160])

    def test_ticks_lie_inside(self):
        for low, high in ((0, 1.9), (3.2, 9.7), (0, 1234567), (1, 1.6)):
            marks = learning_curve.ticks(low, high)
            self.assertTrue(2 <= len(marks) <= 7, marks)
            self.assertTrue(all(low <= mark <= high for mark in marks))

    # The plot is well-formed, with a mark for each value of --accepted.
    def test_draws_xml(self):
        log = self.write("a", [step(100 * i, 9 - i, i) for i in range(1, 6)] + [validation(500, 5, [0.3], 5)])
        output = os.path.join(self.folder.name, "x.svg")
        learning_curve.main([log, "-o", output, "--accepted", "300=1.2", "500=1.4"])
        root = xml.etree.ElementTree.parse(output).getroot()
        self.assertEqual(len(root.findall("{http://www.w3.org/2000/svg}circle")), 2)

    def test_an_empty_log_is_an_error(self):
        with self.assertRaises(SystemExit):
            learning_curve.main([self.write("a", []), "-o", os.path.join(self.folder.name, "x.svg")])


if __name__ == "__main__":
    unittest.main()
