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


class DemoReportTest(unittest.TestCase):
    def report(self, *results):
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder, f"{i}.json") for i in range(len(results))]
            for path, content in zip(paths, results):
                path.write_text(json.dumps(content), encoding="utf-8")
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown):
                status = demo_report.main([str(path) for path in paths])
            return status, shown.getvalue()

    def test_equal_tokens(self):
        status, shown = self.report(result("ngram", [1, 2, 3, 4], 100.0, 6), result("none", [1, 2, 3, 4], 200.0, 0))
        self.assertEqual(status, 0)
        self.assertTrue(shown.endswith("identical: yes\n"))
        self.assertIn("decoding 2.00x as fast", shown)
        self.assertRegex(shown, r"ngram +500 +40\.0 +2\.00x +9\.0 +0\.1 +2\.50 +0\.75")
        self.assertRegex(shown, r"none +500 +20\.0 +1\.00x +9\.0 +0\.2 +- +0\.75")

    def test_different_tokens(self):
        status, shown = self.report(result("ngram", [1, 2, 9], 1.0, 1), result("none", [1, 2, 3], 1.0, 0))
        self.assertEqual(status, 1)
        self.assertIn("identical: no (ngram: first difference at token 2)", shown)

    def test_each_is_held_against_the_last(self):
        status, shown = self.report(result("auto", [1, 2, 3], 1.0, 1), result("lm", [1, 5, 3], 1.0, 1),
                                    result("none", [1, 2, 3], 1.0, 0))
        self.assertEqual(status, 1)
        self.assertIn("identical: no (lm: first difference at token 1)", shown)

    def test_a_prefix_is_not_identical(self):
        status, shown = self.report(result("ngram", [1, 2], 1.0, 1), result("none", [1, 2, 3], 0.0, 0))
        self.assertEqual(status, 1)
        self.assertIn("first difference at token 2", shown)


if __name__ == "__main__":
    unittest.main()
