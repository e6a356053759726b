#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Chat templates that are chosen, and models that have none.

Needs the program ($LONGSPEC_BIN, default build/release/longspec) and a model ($LONGSPEC_MODEL, default the small one).
"""

import json
import os
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("LONGSPEC_BIN", os.path.join(ROOT, "build/release/longspec"))
MODEL = os.environ.get("LONGSPEC_MODEL", os.path.join(ROOT, "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
USAGE, BAD_MODEL = 2, 3


@unittest.skipUnless(os.access(BIN, os.X_OK), f"no program at {BIN}")
class ChatTemplates(unittest.TestCase):
    def run_longspec(self, *arguments, model=MODEL):
        return subprocess.run([BIN, "run", "-m", model, "--json", "-n", "4", "--temp", "0", *arguments],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)

    def answer(self, *arguments):
        result = self.run_longspec(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def expect_error(self, code, message, *arguments):
        result = self.run_longspec(*arguments, model="unused.gguf")
        self.assertEqual((result.returncode, result.stdout), (code, ""), result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertIn("longspec: error: " + message, result.stderr)

    def test_what_cannot_be_used_is_refused_before_the_model_is_read(self):
        hi = ("-p", "hi")
        self.expect_error(USAGE, "--chat-template: chat template 'chatlm': it is neither Jinja", "--chat-template",
                          "chatlm", *hi)
        self.expect_error(USAGE, "--chat-template: chat template, line 2: ", "--chat-template", "{{ 1 }}\n{{ x", *hi)
        self.expect_error(USAGE, "--chat-template: is empty", "--chat-template", "", *hi)
        self.expect_error(USAGE, "--chat-template and --chat-template-file: give one of them", "--chat-template",
                          "chatml", "--chat-template-file", "x", *hi)
        self.expect_error(BAD_MODEL, "--chat-template-file: cannot read /no/such: No such file", "--chat-template-file",
                          "/no/such", *hi)

    @unittest.skipUnless(os.path.exists(MODEL), f"no model at {MODEL}")
    def test_one_may_be_chosen(self):
        chatml = self.answer("--chat-template", "chatml", "-p", "Hi")
        text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        self.assertEqual(chatml["tokens"], self.answer("--no-chat", "-p", text)["tokens"])
        # The model's own has a system message besides.
        self.assertLess(chatml["timings"]["prompt_n"], self.answer("-p", "Hi")["timings"]["prompt_n"])
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
            file.write("{{ messages[0].content }}!\n")
            file.flush()
            self.assertEqual(self.answer("--chat-template-file", file.name, "-p", "Hi")["tokens"],
                             self.answer("--no-chat", "-p", "Hi!")["tokens"])
        raw = self.run_longspec("--no-chat", "--chat-template", "chatml", "-p", "Hi")
        self.assertEqual(raw.returncode, USAGE)
        self.assertIn("--chat-template: has no effect on a raw text", raw.stderr)

    @unittest.skipUnless(os.path.exists(MODEL), f"no model at {MODEL}")
    def test_a_model_without_one_is_written_to_as_chatml(self):
        key = b"tokenizer.chat_template"
        with open(MODEL, "rb") as model, tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            file.write(model.read().replace(key, key[:-1] + b"X"))
            file.flush()
            chat, raw = (self.run_longspec("-p", "Hi", *more, model=file.name) for more in (("--chat",), ()))
        notice = "has no chat template: chats are written as ChatML; --chat-template chooses another one"
        self.assertEqual(chat.stderr.count(notice), 1, chat.stderr)
        self.assertNotIn(notice, raw.stderr)
        of_chat, of_raw = (json.loads(result.stdout)["timings"]["prompt_n"] for result in (chat, raw))
        self.assertGreater(of_chat, of_raw)


if __name__ == "__main__":
    unittest.main()
