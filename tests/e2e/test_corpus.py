#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Texts that drafts come from: longspec corpus, its indexes and tables of n-grams, what is learned and kept.

Needs what test_cli.py needs.
"""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest

from test_cli import BAD_MODEL, BIN, INTERRUPTED, MODEL, OK, OUTPUT, TIMEOUT, USAGE, WithModel, longspec


class Corpus(WithModel):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.corpus = os.path.join(self.folder.name, "corpus")

    def test_a_former_answer_is_drafted_and_changes_nothing(self):
        run = ("run", "-m", MODEL, "-p", "Name three rivers.", "-n", "24", "--temp", "0", "--json")
        plain = json.loads(longspec(*run, "--spec-type", "none").stdout)
        made = longspec("corpus", "-m", MODEL, "-f", "-", "-o", self.corpus, stdin=plain["text"].encode())
        self.assertEqual(made.returncode, OK, made.stderr)
        self.assertRegex(made.stdout.decode(), r"corpus: \d+ tokens\n$")
        drafted = json.loads(longspec(*run, "--spec-type", "suffix", "--spec-corpus", self.corpus).stdout)
        self.assertEqual(drafted["text"], plain["text"])
        self.assertEqual(drafted["tokens"], plain["tokens"])
        self.assertGreater(drafted["timings"]["draft_n_accepted"], 5)

    def test_recycling_keeps_its_file(self):
        table = os.path.join(self.folder.name, "table")
        run = ("run", "-m", MODEL, "-p", "Count to ten.", "-n", "16", "--temp", "0", "--json", "--spec-type",
               "recycling", "--spec-recycling-file", table)
        cold, warm = (json.loads(longspec(*run).stdout) for _ in range(2))
        self.assertTrue(os.path.exists(table))
        self.assertEqual(cold["tokens"], warm["tokens"])
        self.assertGreaterEqual(warm["timings"]["draft_n_accepted"], cold["timings"]["draft_n_accepted"])

    # Corpora that are none, and texts and places that cannot be used, are named.
    def test_bad_files(self):
        with open(self.corpus, "wb") as file:
            file.write(b"LSCORPUS")
        run = ("run", "-m", MODEL, "-p", "hi", "-n", "1", "--spec-type", "suffix", "--spec-corpus")
        for path in (self.corpus, os.path.join(self.folder.name, "none")):
            result = longspec(*run, path)
            self.assertNotEqual(result.returncode, OK)
            self.assertIn(path.encode(), result.stderr)
        self.expect_error(longspec("corpus", "-m", MODEL, "-f", "-", "-o", self.corpus, stdin=b""), USAGE, "empty")
        self.expect_error(longspec("corpus", "-m", MODEL, "-f", "-", "-o", "/nonexistent/x", stdin=b"a"), OUTPUT,
                          "/nonexistent/x")
        self.expect_error(longspec("corpus", "-m", MODEL, "-o", self.corpus), USAGE, "--file")


class Ngrams(WithModel):
    SUMMARY = (r"^\S+: (\d+) tokens counted; \d+ single tokens, \d+ contexts of 1 with (\d+) successors, .*; "
               r"\d+ pairs in (\d+) bytes\n$")

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.table = self.path("table.ngrams")

    def path(self, name, text=None):
        path = os.path.join(self.folder.name, name)
        if text is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return path

    def count(self, *args, output=None):
        """Tokens counted, pairs of contexts of one token, and the table's bytes."""
        output = output or self.table
        result = longspec("corpus", "--ngrams", "-m", MODEL, "-o", output, *args)
        self.assertEqual(result.returncode, OK, result.stderr)
        summary = re.match(self.SUMMARY, result.stdout.decode())
        self.assertTrue(summary, result.stdout)
        with open(output, "rb") as file:
            table = file.read()
        self.assertEqual(len(table), int(summary[3]))
        self.assertTrue(table.startswith(b"LSNGRAMS"))
        return int(summary[1]), int(summary[2]), table

    def test_texts_documents_and_former_tables(self):
        text = self.path("text.txt", "one two three four\n" * 20)
        tokens, pairs, table = self.count("-f", text)
        self.assertGreater(pairs, 3)
        self.assertEqual(self.count("-f", text)[2], table)
        # Twice the text is the text and its table, but for the end of one and the beginning of the other.
        self.assertEqual(self.count("-f", text, text, output=self.path("twice"))[0], 2 * tokens)
        merged_tokens, merged_pairs, merged = self.count("-f", text, "--merge", self.table, output=self.path("merged"))
        self.assertEqual((merged_tokens, merged_pairs), (tokens, pairs))
        self.assertNotEqual(merged, table)
        # Only answers are counted.
        answers = self.path("answers.jsonl", json.dumps({"prompt": "one two " * 50, "answer": "five six"}) + "\n")
        few, _, _ = self.count("-f", answers, "--ngram-min-count", "1", "--ngram-order", "2", "--ngram-successors", "2")
        self.assertLess(few, 10)

    def test_answers_are_kept_to_be_counted(self):
        kept = self.path("kept.jsonl")
        run = ("run", "-m", MODEL, "-p", "Name \"three\" rivers.\n\u00e9", "-n", "12", "--temp", "0", "--json",
               "--keep-answers", kept)
        texts = [json.loads(longspec(*run).stdout)["text"] for _ in range(2)]
        with open(kept, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        self.assertEqual(lines, [{"prompt": "Name \"three\" rivers.\n\u00e9", "answer": text} for text in texts])
        tokens, _, _ = self.count("-f", kept, "--ngram-min-count", "2")
        self.assertGreater(tokens, 20)

    def test_an_answer_that_cannot_be_kept_is_a_warning(self):
        for path in ("/nonexistent/kept", "/dev/full"):
            result = longspec("run", "-m", MODEL, "-p", "hi", "-n", "2", "--temp", "0", "--keep-answers", path)
            self.assertEqual(result.returncode, OK, result.stderr)
            self.assertEqual(result.stderr.decode().count("longspec: warning: --keep-answers: cannot write " + path), 1)

    # What cannot be counted or written is said with the file and its line.
    def test_errors(self):
        count = ("corpus", "--ngrams", "-m", MODEL, "-o", self.table)
        empty = self.path("empty.txt", "")
        self.expect_error(longspec(*count), USAGE, "nothing to count", "--file")
        self.expect_error(longspec(*count, "-f", empty), USAGE, "empty")
        self.expect_error(longspec(*count, "-f", self.path("once.txt", "once")), USAGE, "no token occurs 3 times")
        self.expect_error(longspec(*count, "-f", self.path("none.jsonl")), BAD_MODEL, "none.jsonl")
        self.expect_error(longspec(*count, "-f", self.path("bad.jsonl", "{}\n")), BAD_MODEL, "bad.jsonl:1")
        self.expect_error(longspec(*count, "--shards", self.folder.name), BAD_MODEL, self.folder.name)
        self.expect_error(longspec(*count, "--merge", empty), BAD_MODEL, "empty.txt", "not a table of n-grams")
        # Said before the model and the first text are read.
        for kind in ((), ("--ngrams",)):
            self.expect_error(longspec("corpus", *kind, "-m", "unused.gguf", "-o", self.table, "-f", empty, "-f",
                                       self.path("none.txt")), BAD_MODEL, "none.txt")
        for option in (("--ngram-order", "5"), ("--weight", "0"), ("--ngram-min-count", "0"),
                       ("--ngram-successors", "0")):
            self.expect_error(longspec(*count, "-f", empty, *option), USAGE, option[0])
        self.expect_error(longspec("corpus", "-m", MODEL, "-o", self.table, "-f", empty, "--weight", "2"), USAGE,
                          "--ngrams")
        self.expect_error(longspec("corpus", "--ngrams", "-m", MODEL, "-o", "/nonexistent/x", "-f",
                                   self.path("a.txt", "a a a a")), OUTPUT, "/nonexistent/x")
        self.assertFalse(os.path.exists(self.table))

    # Counting that is interrupted leaves no table, not even a part of one.
    def test_ctrl_c(self):
        lines = json.dumps({"text": "one two three " * 500}) + "\n"
        many = self.path("many.jsonl", lines * 6000)
        process = subprocess.Popen([BIN, "corpus", "--ngrams", "-m", MODEL, "-o", self.table, "-f", many],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, INTERRUPTED, stderr)
        self.assertEqual(stdout, b"")
        self.assertIn(b"interrupted; ", stderr)
        self.assertFalse(os.path.exists(self.table))


if __name__ == "__main__":
    unittest.main()
