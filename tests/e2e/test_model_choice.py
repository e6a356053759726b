#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which model a command takes that is given none. Needs the program ($LONGSPEC_BIN, default build/release/longspec)."""

import os
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("LONGSPEC_BIN", os.path.join(ROOT, "build/release/longspec"))
USAGE, BAD_MODEL = 2, 3
SMALL = "SmolLM2-135M-Instruct.Q4_1.gguf"


@unittest.skipUnless(os.access(BIN, os.X_OK), f"no program at {BIN}")
class ModelChoice(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.program = os.path.join(self.folder, "build", "release", "longspec")
        os.makedirs(os.path.dirname(self.program))
        shutil.copy(BIN, self.program)  # beside no models
        self.here = os.path.join(self.folder, "here")
        os.makedirs(self.here)

    def longspec(self, *arguments):
        environment = {**os.environ, "XDG_DATA_HOME": os.path.join(self.folder, "data")}
        return subprocess.run([self.program, *arguments], cwd=self.here, env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, check=False)

    def put(self, folder, name):
        os.makedirs(os.path.join(self.folder, folder), exist_ok=True)
        with open(os.path.join(self.folder, folder, name), "w", encoding="utf-8") as file:
            file.write("no model")

    def expect_usage_error(self, result, *parts):
        self.assertEqual(result.returncode, USAGE)
        self.assertEqual(result.stderr.count("\n"), 1)
        for part in ("longspec: error: --model: ", *parts):
            self.assertIn(part, result.stderr)

    def test_where_there_is_none_it_says_what_would_be_right(self):
        for command in (("run", "-p", "hi"), ("chat",), ("serve", "--port", "0"), ("bench",), ("info",), ("selfcheck",),
                        ("tokenize", "-f", "-"), ("corpus", "-f", "-", "-o", "x")):
            with self.subTest(command=command):
                self.expect_usage_error(self.longspec(*command), "there is none in models, ", "'make model'")

    def test_the_nearest_is_taken_and_named(self):
        for folder, shown in (("data/longspec/models", "/.*/data/longspec/models"), ("models", "/.*/models"),
                              ("here/models", "models")):
            self.put(folder, SMALL)
            result = self.longspec("info")
            self.assertEqual(result.returncode, BAD_MODEL)
            lines = result.stderr.splitlines()
            self.assertEqual(len(lines), 2)
            self.assertRegex(lines[0], f"^model: {shown}/{SMALL} .-m FILE takes another.$")
            self.assertIn(f"models/{SMALL}", lines[1])
        self.put("here/models", "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf")
        self.assertRegex(self.longspec("info").stderr, "^model: models/Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf ")

    def test_of_several_none_is_guessed(self):
        for name in ("a.gguf", "b.gguf"):
            self.put("here/models", name)
        self.expect_usage_error(self.longspec("info"), "models has a.gguf, b.gguf: say it with -m FILE")

    def test_one_that_is_given_is_not_talked_about(self):
        self.put("models", SMALL)
        result = self.longspec("info", "-m", "x.gguf")
        self.assertEqual(result.returncode, BAD_MODEL)
        self.assertNotIn("takes another", result.stderr)
        self.expect_usage_error(self.longspec("info", "-m", ""), "is empty")


if __name__ == "__main__":
    unittest.main()
