#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Code completion in vim: while one types in a terminal, what the server suggests stands behind the cursor.

suggest.vim sends what llama.vim sends and shows the answer as it does; vim runs under tmux, whose screen is looked at.
Needs the program ($LONGSPEC_BIN, default build/release/longspec) and make_tiny_model beside it in tools/, which writes
a model of random weights; the server's --grammar says what it suggests. Skipped without vim 9, tmux or curl.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
from server_process import ServerProcess  # noqa: E402

BIN = os.environ.get("LONGSPEC_BIN", os.path.join(ROOT, "build/release/longspec"))
TOOL = os.path.join(os.path.dirname(BIN), "tools/make_tiny_model")
SCRIPT = os.path.join(ROOT, "tests/e2e/suggest.vim")
GRAMMARS = os.path.isdir(os.path.join(ROOT, "third_party/xgrammar-0.2.8"))
TIMEOUT = 60
SUGGESTED = "rn twice(x);"
CODE = "int twice(int x);\n\nint f(int x) {\n}\n"


def has_vim():
    """One that shows virtual text."""
    if not all(shutil.which(program) for program in ("vim", "tmux", "curl")):
        return False
    asked = ["vim", "-u", "NONE", "-es",
             "-c", "if has('patch-9.0.0067') && has('job') && has('textprop') | cquit 7", "-c", "qall!"]
    return subprocess.run(asked, stdin=subprocess.DEVNULL, check=False).returncode == 7


class Vim:
    """An editor on a screen of its own, until it ends."""

    def __init__(self, url, path):
        self.socket = f"longspec-{os.getpid()}"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "24",
                  "vim", "-u", "NONE", "-N", "-n", "--cmd", f"let g:suggest_url = '{url}/infill'", "-S", SCRIPT, path)

    def tmux(self, *args):
        done = subprocess.run(["tmux", "-L", self.socket, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, check=False)
        return done.stdout if done.returncode == 0 else None

    def keys(self, *keys):
        self.tmux("send-keys", *keys)

    def screen(self):
        """None: it has ended."""
        return self.tmux("capture-pane", "-p")

    def wait_for(self, condition):
        deadline = time.monotonic() + TIMEOUT
        while not condition(self.screen()):
            if time.monotonic() > deadline:
                raise AssertionError(f"not seen after {TIMEOUT} s on\n{self.screen()}")
            time.sleep(0.05)

    def close(self):
        self.tmux("kill-server")


@unittest.skipUnless(os.access(BIN, os.X_OK) and os.access(TOOL, os.X_OK), "needs the program and make_tiny_model")
@unittest.skipUnless(GRAMMARS, "built without xgrammar")
@unittest.skipUnless(has_vim(), "needs vim 9, tmux and curl")
class Suggestions(unittest.TestCase):
    def test_a_suggestion_is_shown_and_taken(self):
        with tempfile.TemporaryDirectory() as folder:
            model, path = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "a.c")
            subprocess.run([TOOL, "--out", model, "--ctx", "4096", "--vocab", "1024", "--fim"], check=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(CODE)
            command = [BIN, "serve", "-m", model, "--fim", "--port", "0", "-t", "1", "--no-progress",
                       "--no-calibration-cache", "--grammar", f'root ::= "{SUGGESTED}"']
            with ServerProcess(command) as server:
                vim = Vim(server.url, path)
                self.addCleanup(vim.close)
                vim.wait_for(lambda screen: screen and "int f(int x) {" in screen)
                vim.keys("3G", "o", "  ", "r", "e", "t", "u")
                vim.wait_for(lambda screen: screen and "  retu" + SUGGESTED in screen)
                with open(path, encoding="utf-8") as file:
                    self.assertEqual(file.read(), CODE)  # it is shown and no part of the text
                vim.keys("Tab")
                vim.keys("Escape", ":wq", "Enter")
                vim.wait_for(lambda screen: screen is None)
                with open(path, encoding="utf-8") as file:
                    self.assertEqual(file.read(), CODE.replace("{\n", "{\n  retu" + SUGGESTED + "\n"))
                asked = [line for line in server.log if "path=/infill" in line]
                self.assertTrue(any("status=200" in line for line in asked), server.log)
                self.assertFalse(any("status=4" in line.replace("status=499", "") for line in asked), asked)


if __name__ == "__main__":
    unittest.main()
