#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A file of requests as users answer it: the answers of `run`, errors, kills, Ctrl-C, a full disk.

Needs the program ($LONGSPEC_BIN, default build/release/longspec) and SmolLM2 ($LONGSPEC_MODEL). Tests whose
needs are not met are skipped.
"""

import gzip
import json
import os
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("LONGSPEC_BIN", os.path.join(ROOT, "build/release/longspec"))
MODEL = os.environ.get("LONGSPEC_MODEL", os.path.join(ROOT, "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
OK, USAGE, BAD_MODEL, OUTPUT, INTERRUPTED = 0, 2, 3, 5, 130


def longspec(*args):
    return subprocess.run([BIN, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600,
                          check=False)


def chat(custom_id, content, **fields):
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 12, "temperature": 0, **fields}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}


def text(custom_id, prompt, **fields):
    body = {"prompt": prompt, "max_tokens": 12, "temperature": 0, **fields}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/completions", "body": body}


@unittest.skipUnless(os.path.exists(BIN) and os.path.exists(MODEL), "needs the program and SmolLM2")
class Batch(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.input = os.path.join(self.folder.name, "requests.jsonl")
        self.output = os.path.join(self.folder.name, "answers.jsonl")

    def command(self, *args):
        return ["batch", "-m", MODEL, "-c", "1024", "-f", self.input, "-o", self.output, *args]

    def write(self, requests):
        with open(self.input, "w", encoding="utf-8") as file:
            file.writelines((entry if isinstance(entry, str) else json.dumps(entry)) + "\n" for entry in requests)

    def size(self):
        return os.path.getsize(self.output) if os.path.exists(self.output) else 0

    def lines(self):
        with open(self.output, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def answers(self):
        """By custom_id; none may be there twice."""
        lines = self.lines()
        by_id = {line["custom_id"]: line for line in lines}
        self.assertEqual(len(by_id), len(lines))
        return by_id

    def test_answers_are_those_of_run(self):
        self.write([chat("chat", "Name three colours."), text("text", "Once upon a time"),
                    chat("sampled", "Tell me a story.", temperature=0.9, top_p=0.8, seed=5),
                    text("twice", "The sea", n=2, temperature=1, seed=6)])
        done = longspec(*self.command("--parallel", "3"))
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertIn("requests = 4: 4 answered, 0 errors\n", done.stderr)
        self.assertRegex(done.stderr, r"generated tokens = \d+ in [\d.]+ s \([\d.]+ tokens per second\)\n")
        answers = self.answers()
        runs = {"chat": ["-p", "Name three colours.", "--temp", "0"],
                "text": ["-p", "Once upon a time", "--no-chat", "--temp", "0"],
                "sampled": ["-p", "Tell me a story.", "--temp", "0.9", "--top-p", "0.8", "--seed", "5"]}
        defaults = ["--top-k", "0", "--top-p", "1", "--min-p", "0"]
        for name, args in runs.items():
            alone = json.loads(longspec("run", "-m", MODEL, "-c", "1024", "-n", "12", "--json", *defaults,
                                        *args).stdout)
            body = answers[name]["response"]["body"]
            choice = body["choices"][0]
            self.assertEqual(choice["text"] if name == "text" else choice["message"]["content"], alone["text"])
            self.assertEqual(body["usage"]["completion_tokens"], len(alone["tokens"]))
        first, second = answers["twice"]["response"]["body"]["choices"]
        self.assertNotEqual(first["text"], second["text"])

    def test_a_bad_line_is_that_lines_error(self):
        self.write(["no JSON", chat("hot", "x", temperature=9), chat("long", "word " * 3000), chat("good", "Hello"),
                    chat("typo", "Hello", temprature=1)])
        done = longspec(*self.command())
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn("3 of 5 requests failed", done.stderr)
        self.assertIn('requests.jsonl:5: the field "temprature" is not known', done.stderr)
        answers = self.answers()
        self.assertEqual(answers[None]["error"]["line"], 1)
        self.assertEqual(answers["hot"]["response"]["body"]["error"]["param"], "temperature")
        self.assertEqual(answers["long"]["error"]["code"], "context_length_exceeded")
        self.assertIn("1024", answers["long"]["error"]["message"])
        self.assertIsNone(answers["good"]["error"])

    def test_a_killed_run_goes_on(self):
        requests = [text(f"r{i}", f"Chapter {i}.", max_tokens=16, ignore_eos=True) for i in range(24)]
        with gzip.open(self.input, "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in requests)
        kept = b""
        for _ in range(2):
            with subprocess.Popen([BIN, *self.command("--parallel", "2")], stderr=subprocess.DEVNULL) as run:
                while run.poll() is None and self.size() <= len(kept):
                    time.sleep(0.01)
                run.send_signal(signal.SIGKILL)
            with open(self.output, "rb") as file:
                now = file.read()
            self.assertTrue(now.startswith(kept))
            kept = now[:now.rfind(b"\n") + 1]
        with open(self.output, "ab") as file:
            file.write(b'{"id":"batch_req_torn","custom_id":"r23","resp')
        done = longspec(*self.command("--parallel", "2"))
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn(f"{kept.count(bytes([10]))} done before\n", done.stderr)
        self.assertEqual(set(self.answers()), {entry["custom_id"] for entry in requests})

    def test_ctrl_c_says_how_to_go_on(self):
        self.write([text(f"r{i}", f"Chapter {i}.", max_tokens=64, ignore_eos=True) for i in range(50)])
        with subprocess.Popen([BIN, *self.command("--parallel", "2")], stderr=subprocess.PIPE, text=True) as run:
            while run.poll() is None and self.size() == 0:
                time.sleep(0.01)
            run.send_signal(signal.SIGINT)
            _, errors = run.communicate(timeout=60)
        self.assertEqual(run.returncode, INTERRUPTED, errors)
        self.assertIn(f"interrupted; {len(self.lines())} of 50 requests are done, and the same command goes on", errors)

    def test_what_cannot_be_written_or_read(self):
        self.write([chat("a", "Hello")])
        full = longspec("batch", "-m", MODEL, "-c", "256", "-f", self.input, "-o", "/dev/full")
        self.assertEqual(full.returncode, OUTPUT, full.stderr)
        self.assertIn("No space left on device", full.stderr)
        with open(self.output, "w", encoding="utf-8") as file:
            file.write("Dear diary\n")
        diary = longspec(*self.command())
        self.assertEqual(diary.returncode, OUTPUT, diary.stderr)
        self.assertIn("answers.jsonl:1: no answer of a batch", diary.stderr)
        missing = longspec("batch", "-m", MODEL, "-f", "/nowhere.jsonl", "-o", self.output)
        self.assertEqual(missing.returncode, BAD_MODEL, missing.stderr)
        piped = subprocess.run([BIN, "batch", "-m", MODEL, "-f", "/dev/stdin", "-o", self.output], input="{}\n",
                               capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual(piped.returncode, BAD_MODEL, piped.stderr)
        self.assertIn("-f /dev/stdin: is a pipe", piped.stderr)
        self.assertEqual(longspec("batch", "-m", MODEL, "-f", self.input).returncode, USAGE)


if __name__ == "__main__":
    unittest.main()
