# SPDX-License-Identifier: Apache-2.0
"""The demo's verdict: `identical` compares tokens, and nothing else decides it."""

import contextlib
import io
import json
from pathlib import Path
import tempfile
import unittest

import demo_report


def result(kind, tokens, ms, drafted):
    return {"text": "", "tokens": tokens,
            "timings": {"prompt_n": 4500, "prompt_ms": 9000.0, "predicted_n": len(tokens), "predicted_ms": ms,
                        "draft_n": drafted, "draft_n_accepted": drafted // 2},
            "speculative": {"type": kind, "steps": 2, "mean_acceptance_length": 2.5, "distinct_4gram": 0.75}}


def pair(guessed, plain):
    return result("auto", guessed, 100.0, 6), result("none", plain, 200.0, 0)


class DemoReportTest(unittest.TestCase):
    def report(self, *pairs):
        with tempfile.TemporaryDirectory() as folder:
            arguments = []
            for i, results in enumerate(pairs):
                arguments.append(f"task {i}")
                for content in results:
                    path = Path(folder, f"{len(arguments)}.json")
                    path.write_text(json.dumps(content), encoding="utf-8")
                    arguments.append(str(path))
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown):
                status = demo_report.main(arguments)
            return status, shown.getvalue().splitlines()

    # A pair of runs becomes a line of speeds and acceptance that ends with yes.
    def test_equal_tokens(self):
        status, shown = self.report(pair([1, 2, 3, 4], [1, 2, 3, 4]))
        self.assertEqual(status, 0)
        self.assertEqual(len(shown), 3)
        self.assertRegex(shown[2], r"^task 0 +4500 \(500\) +9\.1 +20\.0 +40\.0 +2\.00 +2\.50 +0\.75 +yes$")

    # A pair that differs ends with the first place where it does, and with status 1.
    def test_different_tokens(self):
        status, shown = self.report(pair([1, 2, 9], [1, 2, 3]))
        self.assertEqual(status, 1)
        self.assertTrue(shown[2].endswith("NO, from token 2 on"))

    def test_every_pair_counts(self):
        status, shown = self.report(pair([1, 2, 3], [1, 2, 3]), pair([1, 5, 3], [1, 2, 3]))
        self.assertEqual(status, 1)
        self.assertTrue(shown[2].endswith("yes"))
        self.assertTrue(shown[3].endswith("NO, from token 1 on"))

    def test_a_prefix_is_not_identical(self):
        status, shown = self.report(pair([1, 2], [1, 2, 3]))
        self.assertEqual(status, 1)
        self.assertTrue(shown[2].endswith("NO, from token 2 on"))

    def test_a_task_without_both_is_an_error(self):
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(demo_report.main(["task", "a.json"]), 2)


if __name__ == "__main__":
    unittest.main()
