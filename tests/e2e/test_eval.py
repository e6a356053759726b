#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longspec eval: its cells, report and charts, what it goes on with after an interruption, and what it refuses.

Needs what test_cli.py needs.
"""

import json
import os
import signal
import subprocess
import tempfile
import time
import unittest
import xml.etree.ElementTree

from test_cli import BIN, INTERRUPTED, MODEL, OK, ROOT, TIMEOUT, USAGE, WithModel, longspec, write_table


class Eval(WithModel):
    DATA = os.path.join(ROOT, "src/eval/testdata")

    def test_runs_reports_and_goes_on(self):
        with tempfile.TemporaryDirectory() as out:
            args = ("eval", "-m", MODEL, "--data", self.DATA, "--out", out, "--families", "report", "--lengths", "256",
                    "--temps", "0,0.7", "-n", "8")
            first = longspec(*args)
            self.assertEqual(first.returncode, OK, first.stderr)
            self.assertIn(b"Identical to plain decoding: 4 of 4 generations.", first.stdout)
            with open(os.path.join(out, "cells.jsonl"), encoding="utf-8") as file:
                cells = [json.loads(line) for line in file]
            self.assertEqual([(cell["temperature"], cell["method"]) for cell in cells],
                             [(0, "ngram"), (0, "auto"), (0.7, "ngram"), (0.7, "auto")])
            self.assertTrue(all(cell["identical_share"] == 1 for cell in cells))
            for name in ("report.md", "report.html", "speedup.svg", "accepted_length.svg", "time_split.svg"):
                self.assertTrue(os.path.exists(os.path.join(out, name)), name)
            self.expect_whole_page(os.path.join(out, "report.html"), first.stdout.decode())
            self.assertEqual(longspec(*args).stdout, first.stdout)  # nothing is run again
            in_form = longspec(*args, "--paper", "specextend,beagle-table1").stdout.decode()
            self.assertIn("In the form of SpecExtend, table 2", in_form)
            self.assertIn("In the form of SpecExtend, table 3", in_form)
            self.assertIn("In the form of Beagle, table 1", in_form)
            self.expect_error(longspec(*args, "-n", "9"), USAGE, "n_predict 8, not 9")

    def test_methods_without_dice_and_without_a_prior(self):
        with tempfile.TemporaryDirectory() as folder:
            table = write_table(folder)
            out = os.path.join(folder, "out")
            args = ("eval", "-m", MODEL, "--data", self.DATA, "--out", out, "--families", "report", "--lengths", "256",
                    "--temps", "0,1", "-n", "8", "--methods", "auto,auto/no-dice,auto/no-prior", "--spec-prior", table)
            result = longspec(*args, "--top-k", "0", "--min-p", "0")
            self.assertEqual(result.returncode, OK, result.stderr)
            report = result.stdout.decode()
            self.assertIn("Identical to plain decoding: 6 of 6 generations.", report)
            prior = f"prior {table}, "
            self.assertRegex(report,
                             rf"\nDrafted with \(.*\): auto: dice, {prior}\d+ pairs; auto/no-dice: {prior}\d+ pairs; "
                             r"auto/no-prior: dice, prior none\.\n")
            cells = {(cell["method"], cell["temperature"]): cell["items"][0]
                     for cell in self.lines_of(out, "cells.jsonl")}
            self.assertEqual(len(cells), 6)
            for (method, temperature), item in cells.items():
                self.assertEqual(item["dice"], temperature > 0 and method != "auto/no-dice", method)
                self.assertEqual(item["uses"]["prior"] == "none", method == "auto/no-prior", method)
            with open(os.path.join(out, "settings.json"), encoding="utf-8") as file:
                self.assertEqual(json.load(file)["top_k"], 0)
            self.expect_error(longspec(*args), USAGE, "holds cells with top_k 0, not 40")
            self.expect_error(longspec(*args, "--methods", "auto/no-luck"), USAGE, "auto/no-luck")

    def expect_whole_page(self, path, markdown):
        """Well-formed, with the report's title, its tables and three charts, and nothing to be fetched or run."""
        page = xml.etree.ElementTree.parse(path).getroot()  # fails unless every tag is closed
        html, svg = "{http://www.w3.org/1999/xhtml}", "{http://www.w3.org/2000/svg}"
        self.assertEqual(page.tag, html + "html")
        self.assertEqual("# " + page.find(f"{html}body/{html}h1").text, markdown.splitlines()[0])
        self.assertEqual(len(list(page.iter(html + "table"))), markdown.count("\n|---"))
        self.assertEqual(len(list(page.iter(html + "tr"))), markdown.count("\n| "))
        self.assertEqual(len(list(page.iter(svg + "svg"))), 3)
        for tag in ("script", "link", "img", "iframe"):
            self.assertEqual(list(page.iter(html + tag)), [])

    @staticmethod
    def lines_of(out, name):
        """The whole lines of a file; one that is cut short does not count."""
        lines = []
        try:
            with open(os.path.join(out, name), encoding="utf-8") as file:
                for text in file:
                    try:
                        lines.append(json.loads(text))
                    except json.JSONDecodeError:
                        pass
        except FileNotFoundError:
            pass
        return lines

    def test_interrupted_and_resumed(self):
        """SIGINT after the first cells; run again, it ends with the cells, texts and counts of a run in one go."""
        args = ("eval", "-m", MODEL, "--data", self.DATA, "--families", "report,needle", "--lengths", "256,320",
                "--methods", "ngram:4,suffix:4", "--temps", "0,0.7", "-n", "8", "--ignore-eos", "--no-progress")

        def counts(out):
            return {(cell["family"], cell["length"], cell["temperature"], cell["method"]):
                    (cell["tokens"], cell["steps"], cell["drafted"], cell["accepted"], cell["accepted_at"],
                     cell["identical_share"], [item["id"] for item in cell["items"]])
                    for cell in self.lines_of(out, "cells.jsonl")}

        with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as parts:
            straight = longspec(*args, "--out", whole)
            self.assertEqual(straight.returncode, OK, straight.stderr)
            expected = counts(whole)
            self.assertEqual(len(expected), 16)

            process = subprocess.Popen([BIN, *args, "--out", parts], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            deadline = time.monotonic() + TIMEOUT
            while not self.lines_of(parts, "cells.jsonl") and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.005)
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=TIMEOUT)
            self.assertEqual(process.returncode, INTERRUPTED, stderr)
            self.assertFalse(stdout)
            finished = counts(parts)
            self.assertGreater(len(finished), 0)
            self.assertLess(len(finished), 16)
            self.assertFalse(os.path.exists(os.path.join(parts, "report.md")))
            # And as if it had been killed in the middle of a line.
            for name in ("cells.jsonl", "prompts.jsonl", "answers.jsonl"):
                path = os.path.join(parts, name)
                os.truncate(path, os.path.getsize(path) - 7)

            resumed = longspec(*args, "--out", parts)
            self.assertEqual(resumed.returncode, OK, resumed.stderr)
            self.assertEqual(counts(parts), expected)
            self.assertEqual(len(self.lines_of(parts, "cells.jsonl")), 16)  # none twice
            for name in ("prompts.jsonl", "answers.jsonl"):
                key = lambda line: json.dumps(line, sort_keys=True)
                self.assertEqual(sorted(self.lines_of(parts, name), key=key),
                                 sorted(self.lines_of(whole, name), key=key))
            self.assertEqual(sorted(os.listdir(parts)), sorted(os.listdir(whole)))

    # An evaluation refuses unknown methods, families and papers by name, and says which there are.
    def test_bad_options(self):
        base = ("eval", "-m", "unused.gguf", "--data", self.DATA, "--out", "/tmp/longspec_eval_unused")
        self.expect_error(longspec("eval", "-m", "unused.gguf"), USAGE, "--data")
        self.expect_error(longspec(*base, "--methods", "magic"), USAGE, "magic")
        self.expect_error(longspec(*base, "--lengths", "50"), USAGE, "--lengths 50")
        self.expect_error(longspec(*base, "--families", "poems"), USAGE, "poems", "needle")
        self.expect_error(longspec(*base, "--paper", "table7"), USAGE, "--paper table7", "longspec-table1")


if __name__ == "__main__":
    unittest.main()
