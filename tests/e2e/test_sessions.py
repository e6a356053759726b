#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Session files when the program is killed (SIGKILL, so that it cannot do anything about it).

Needs the program ($LONGSPEC_BIN, default build/release/longspec) and SmolLM2 ($LONGSPEC_MODEL). Tests whose
needs are not met are skipped.
"""

import os
import select
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("LONGSPEC_BIN", os.path.join(ROOT, "build/release/longspec"))
MODEL = os.environ.get("LONGSPEC_MODEL", os.path.join(ROOT, "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
TIMEOUT = 300
MOST_KILLS = 40  # until one of them hit the program in the middle of saving


@unittest.skipUnless(os.path.exists(BIN) and os.path.exists(MODEL), "needs the program and SmolLM2")
class Sessions(unittest.TestCase):
    CHAT = ("chat", "-m", MODEL, "-c", "2048", "--temp", "0", "-n", "8", "--no-progress")
    RUN = ("run", "-m", MODEL, "-c", "2048", "--temp", "0", "-n", "4", "--no-progress")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "talk.session")
        self.temporary = self.path + ".tmp"

    def longspec(self, *args, stdin=""):
        done = subprocess.run([BIN, *args], input=stdin.encode(), capture_output=True, timeout=TIMEOUT, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def start(self, *args):
        process = subprocess.Popen([BIN, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, bufsize=0)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def kill(self, process):
        process.send_signal(signal.SIGKILL)
        self.assertEqual(process.wait(TIMEOUT), -signal.SIGKILL)

    def contents(self):
        with open(self.path, "rb") as file:
            return file.read()

    def until(self, happened, process):
        """Waits without sleeping much: what is waited for may last a millisecond."""
        deadline = time.monotonic() + TIMEOUT
        while not happened():
            self.assertLess(time.monotonic(), deadline, "it never happened")
            if process.poll() is not None:
                return False
        return True

    def test_killed_while_saving_the_former_file_is_whole(self):
        # Some megabytes, so that saving takes a while.
        prompt = "The quick brown fox jumps over the lazy dog. " * 100
        self.longspec(*self.RUN, "--no-chat", "-p", prompt, "--session", self.path)
        former = self.contents()
        self.assertGreater(len(former), 1 << 20)
        n_hits = 0
        for _ in range(MOST_KILLS):
            process = self.start(*self.RUN, "--session", self.path)  # the text goes on, and is saved at its end
            if self.until(lambda: os.path.exists(self.temporary), process):
                process.send_signal(signal.SIGKILL)
            process.wait(TIMEOUT)
            if not os.path.exists(self.temporary):
                former = self.contents()  # it was faster: that is the file now
                continue
            n_hits += 1
            self.assertEqual(self.contents(), former)
            break
        self.assertGreater(n_hits, 0, "saving was never hit")
        # What was left of the new one is in nobody's way.
        self.longspec(*self.RUN, "--session", self.path)
        self.assertFalse(os.path.exists(self.temporary))
        self.assertNotEqual(self.contents(), former)

    def test_a_conversation_that_was_cleared_is_saved_whoever_guesses(self):
        for guesses in (["partial"], ["magicdec"], ["lm", "-md", MODEL]):
            chat = (*self.CHAT, "--spec-type", *guesses, "--session", self.path)
            self.longspec(*chat, stdin="Hello there.\n/clear\n/exit\n")
            answer = self.longspec(*chat, stdin="Count to three.\n")
            os.remove(self.path)
            self.assertEqual(answer, self.longspec(*self.CHAT, stdin="Count to three.\n"), guesses)

    def test_killed_between_at_most_the_running_answer_is_lost(self):
        first, second, third = "My name is Ann.\n", "Count to three.\n", "What is my name?\n"
        expected = self.longspec(*self.CHAT, stdin=first + third)
        answer = self.longspec(*self.CHAT, "--session", self.path, stdin=first)
        self.assertTrue(expected.startswith(answer))
        saved = self.contents()
        os.remove(self.path)

        process = self.start(*self.CHAT, "-n", "500", "--ignore-eos", "--session", self.path)
        os.write(process.stdin.fileno(), first.encode())
        # Saved after the answer, although the program goes on.
        self.until(lambda: os.path.exists(self.path), process)
        self.assertIsNone(process.poll())
        self.kill(process)
        self.assertGreater(len(self.contents()), len(saved))  # a longer answer

        # And the answer that runs when it is killed is the only one that is lost.
        with open(self.path, "wb") as file:
            file.write(saved)
        process = self.start(*self.CHAT, "-n", "1500", "--ignore-eos", "--session", self.path)
        os.write(process.stdin.fileno(), second.encode())
        self.assertTrue(select.select([process.stdout], [], [], TIMEOUT)[0])
        self.assertTrue(os.read(process.stdout.fileno(), 1))  # it has begun
        self.kill(process)
        self.assertEqual(self.contents(), saved)
        self.assertEqual(answer + self.longspec(*self.CHAT, "--session", self.path, stdin=third), expected)


if __name__ == "__main__":
    unittest.main()
