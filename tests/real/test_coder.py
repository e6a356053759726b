#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The promise on a model that people use: after thousands of tokens of prompt, at temperatures 0 and above, whoever
guesses, the text of Qwen2.5-Coder-1.5B is the one that is written without guesses. Its chat template as Jinja2 renders
it. Takes minutes.

Needs the program ($LONGSPEC_BIN, default build/release/longspec) and the models of `make model` and, for what drafts
with it, of `make model MODEL=coder-0.5b`. Tests whose needs are not met are skipped.
"""

import json
import os
from pathlib import Path
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tools")]
from server_process import ServerProcess  # noqa: E402

BIN = os.environ.get("LONGSPEC_BIN", str(ROOT / "build/release/longspec"))
MODELS = {name: ROOT / "models" / f"Qwen2.5-Coder-{name}-Instruct-Q4_K_M.gguf" for name in ("1.5B", "0.5B")}
CODER, SMALL = str(MODELS["1.5B"]), str(MODELS["0.5B"])
REPOSITORY = ROOT / "data" / "demo" / "repository.txt"
TIMEOUT = 1000
N_PREDICT = 160


@unittest.skipUnless(os.access(BIN, os.X_OK) and os.path.exists(CODER), "needs the program and the coder model")
class Coder(unittest.TestCase):
    def longspec(self, *args):
        done = subprocess.run([BIN, *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT, check=False)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace")[-2000:])
        return done.stdout

    # Every drafter writes what plain decoding writes, on the model that people use.
    def test_selfcheck(self):
        said = self.longspec("selfcheck", "-m", CODER, "-n", "16", "--temps", "0,0.7").decode()
        self.assertRegex(said, r"\n\d+ comparisons, 0 different\n$")
        self.assertGreater(said.count("identical"), 50)

    def test_a_long_prompt_goes_on_alike_whoever_guesses(self):
        with tempfile.TemporaryDirectory() as folder:
            base, copy = os.path.join(folder, "base"), os.path.join(folder, "copy")
            run = ("run", "-m", CODER, "--no-chat", "-f", str(REPOSITORY), "-c", "8192", "--seed", "7", "--json",
                   "--no-progress")
            # The prompt is evaluated once.
            begun = json.loads(self.longspec(*run, "-n", "1", "--session", base))
            self.assertGreater(begun["timings"]["prompt_n"], 4000)
            guessers = [("auto",), ("ppm",), ("suffix",)]
            if os.path.exists(SMALL):
                guessers += [("auto", "-md", SMALL), ("lm", "-md", SMALL)]

            def go_on(temperature, *guesser):
                shutil.copy(base, copy)
                return json.loads(self.longspec(*run, "-n", str(N_PREDICT), "--temp", temperature, "--spec-type",
                                                *guesser, "--session", copy))
            for temperature in ("0", "0.7"):
                plain = go_on(temperature, "none")
                self.assertLessEqual(plain["timings"]["prompt_n"], 2)  # the rest came with the session
                self.assertGreater(len(plain["tokens"]), N_PREDICT // 4)
                for guesser in guessers:
                    with self.subTest(temperature=temperature, guesser=guesser):
                        guessed = go_on(temperature, *guesser)
                        self.assertEqual(guessed["tokens"], plain["tokens"])
                        self.assertGreater(guessed["timings"]["draft_n_accepted"], 0)

    # Prompts of chats are, byte for byte, those that transformers rendered.
    def test_chat_templates(self):
        for model, golden in ((CODER, "coder.jsonl"), (SMALL, "coder-0.5b.jsonl")):
            if not os.path.exists(model):
                continue
            lines = (ROOT / "tests" / "golden" / golden).read_text(encoding="utf-8").splitlines()
            chats = [line for line in map(json.loads, lines) if "chat" in line]
            self.assertGreater(len(chats), 2)
            with ServerProcess([BIN, "serve", "-m", model, "--port", "0", "-c", "512"]) as server:
                for line in chats:
                    request = urllib.request.Request(f"{server.url}/apply-template", json.dumps(line["chat"]).encode(),
                                                     {"Content-Type": "application/json"})
                    with urllib.request.urlopen(request, timeout=60) as answer:
                        self.assertEqual(json.load(answer)["prompt"], line["text"])

    @unittest.skipUnless(os.path.exists(SMALL), "needs the small coder model")
    def test_a_hole_is_filled_alike_whoever_guesses(self):
        hole = {"input_prefix": "def add(a, b):\n    return ", "input_suffix": "\n\nprint(add(1, 2))\n",
                "input_extra": [{"filename": "sub.py", "text": "def sub(a, b):\n    return a - b\n"}],
                "n_predict": 24, "temperature": 0, "return_tokens": True}
        samplers = {"samplers": ["top_k", "top_p", "infill"], "top_k": 40, "top_p": 0.9, "seed": 7}
        with ServerProcess([BIN, "serve", "-m", SMALL, "--port", "0", "-c", "2048"]) as server:
            for fields in ({}, samplers):
                answers = []
                for speculative in (True, False):
                    request = urllib.request.Request(
                        f"{server.url}/infill", json.dumps({**hole, **fields, "speculative": speculative}).encode())
                    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                        answers.append(json.load(answer))
                self.assertTrue(answers[0]["content"].startswith("a + b"), answers[0]["content"])
                self.assertEqual(answers[0]["tokens"], answers[1]["tokens"])
                self.assertEqual(answers[0]["stop_type"], "eos")


if __name__ == "__main__":
    unittest.main()
