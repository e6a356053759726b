#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Drafting with dice and with tables of n-grams, from the command line: what is used, what is said, what is refused.

Needs what test_cli.py needs.
"""

import json
import os
import re
import shutil
import struct
import tempfile
import unittest

from test_cli import BAD_MODEL, MODEL, OK, USAGE, WithModel, longspec, write_table


def swap_two_tokens(model):
    """Swaps the numbers of two tokens of a model file: it then has another tokenizer, and is otherwise well-formed."""
    entries = [struct.pack("<Q", len(token)) + token for token in ("\u0120cat".encode(), "\u0120dog".encode())]
    with open(model, "r+b") as file:
        head = file.read(8 << 20)
        places = [head.index(entry) for entry in entries]
        for place, entry in zip(places, reversed(entries)):
            file.seek(place)
            file.write(entry)


class DiceAndPriors(WithModel):
    PROMPT = "Say again: the repair of the bridge took two summers, and the bridge was repaired."

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.table = write_table(self.folder)

    def damaged_table(self):
        with open(self.table, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last[0] ^ 1]))
        return self.table

    def run_hot(self, *options):
        return self.run_json("-p", self.PROMPT, "-n", "40", "--temp", "0.8", "-s", "5", *options)

    def test_they_never_change_the_text(self):
        plain = self.run_hot("--spec-type", "none")
        self.assertEqual(plain["speculative"]["dice"], False)
        self.assertEqual(plain["speculative"]["uses"], {})
        accepted = {}
        for spec_type in ("auto", "ppm", "suffix", "ppm,recycling"):
            for dice in ("on", "off"):
                for prior in (self.table, "none"):
                    with self.subTest(type=spec_type, dice=dice, prior=prior):
                        read = () if spec_type == "suffix" else ("--spec-prior", prior)
                        out = self.run_hot("--spec-type", spec_type, "--spec-dice", dice, *read)
                        self.assertEqual(out["tokens"], plain["tokens"])
                        self.assertEqual(out["text"], plain["text"])
                        speculative = out["speculative"]
                        self.assertEqual(speculative["dice"], dice == "on")
                        if spec_type == "suffix":
                            self.assertEqual(speculative["uses"], {})
                        elif prior == "none":
                            self.assertEqual(speculative["uses"], {"prior": "none"})
                        else:
                            self.assertRegex(speculative["uses"]["prior"], rf"^{re.escape(prior)}, \d+ pairs$")
                        accepted[spec_type, dice, prior] = out["timings"]["draft_n_accepted"]
        self.assertGreater(accepted["ppm", "on", self.table], 0)
        # Without dice there is nothing to know at temperature 0.
        cold = self.run_json("-p", self.PROMPT, "-n", "8", "--temp", "0", "--spec-prior", self.table)
        self.assertEqual(cold["speculative"]["dice"], False)

    def test_verbose_says_what_was_used(self):
        def details(*options):
            result = longspec("run", "-m", MODEL, "-p", "Hi", "-n", "4", "-s", "1", "-v", *options)
            self.assertEqual(result.returncode, OK, result.stderr)
            return result.stderr.decode().splitlines()
        both = details("--temp", "0.8", "--spec-prior", self.table)
        self.assertIn("dice: used", both)
        self.assertTrue(any(re.match(rf"prior: {re.escape(self.table)}, \d+ pairs$", line) for line in both), both)
        self.assertIn("prior: none", details("--temp", "0.8", "--spec-prior", "none"))
        for options in (("--temp", "0"), ("--temp", "0.8", "--spec-dice", "off"),
                        ("--temp", "0.8", "--spec-type", "none")):
            self.assertNotIn("dice: used", details(*options), options)

    def test_the_one_beside_the_model_is_found(self):
        model = os.path.join(self.folder, "model.gguf")
        os.symlink(MODEL, model)
        os.mkdir(os.path.join(self.folder, "priors"))
        found = os.path.join(self.folder, "priors", "x.ngrams")
        run = ("run", "-m", model, "-p", "Hi", "-n", "4", "--temp", "0.8", "-s", "1", "--json")
        self.assertEqual(json.loads(longspec(*run).stdout)["speculative"]["uses"], {"prior": "none"})
        os.rename(self.table, found)
        used = json.loads(longspec(*run).stdout)
        self.assertTrue(used["speculative"]["uses"]["prior"].startswith(found + ", "))
        self.assertNotIn("notice", used["speculative"])
        # A damaged one is left alone, with a line that says so.
        self.table = found
        self.damaged_table()
        unused = json.loads(longspec(*run).stdout)
        self.assertEqual(unused["speculative"]["uses"], {"prior": "none"})
        self.assertIn(found, unused["speculative"]["notice"])
        self.assertEqual(unused["tokens"], used["tokens"])
        result = longspec(*run[:-1])
        self.assertEqual(result.returncode, OK, result.stderr)
        self.assertRegex(result.stderr.decode(), rf"(?m)^note: {re.escape(found)}: .*; it was not used$")

    def test_what_cannot_be_used(self):
        run = ("run", "-m", MODEL, "-p", "hi", "-n", "1", "--spec-prior")
        self.expect_error(longspec(*run, os.path.join(self.folder, "none.ngrams")), BAD_MODEL, "none.ngrams")
        junk = os.path.join(self.folder, "junk.ngrams")
        with open(junk, "wb") as file:
            file.write(b"hello")
        self.expect_error(longspec(*run, junk), BAD_MODEL, junk, "longspec corpus --ngrams")
        self.expect_error(longspec(*run, self.damaged_table()), BAD_MODEL, self.table, "checksum")

    def test_a_table_of_another_tokenizer(self):
        other = os.path.join(self.folder, "other.gguf")
        shutil.copyfile(MODEL, other)
        swap_two_tokens(other)
        run = ("run", "-p", "hi", "-n", "2", "--temp", "0", "--spec-prior", self.table, "-m")
        self.expect_error(longspec(*run, other), USAGE, self.table, "made for another tokenizer than this model's")
        self.assertEqual(longspec(*run, MODEL).returncode, OK)
        own = write_table(self.folder, other)
        self.assertEqual(longspec("run", "-p", "hi", "-n", "2", "--temp", "0", "--spec-prior", own, "-m",
                                  other).returncode, OK)


if __name__ == "__main__":
    unittest.main()
