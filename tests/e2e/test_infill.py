#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Code completion in editors: what llama.vim, llama.vscode and clients of Mistral's API send is answered as they read
it. The ollama package, whose API has holes, too.

Needs the program ($LONGSPEC_BIN, default build/release/longspec) and make_tiny_model beside it in tools/, which writes
a model of random weights whose vocabulary has the tokens for texts with holes. The client of clients.txt is installed
into build/clients; without it its test fails.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

import client_packages

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
from server_process import ServerProcess  # noqa: E402

BIN = os.environ.get("LONGSPEC_BIN", os.path.join(ROOT, "build/release/longspec"))
TOOL = os.path.join(os.path.dirname(BIN), "tools/make_tiny_model")
SMALL = os.path.join(ROOT, "models/SmolLM2-135M-Instruct.Q4_1.gguf")

CHUNK = {"text": "int twice(int x) {\n  return 2 * x;\n}\n", "time": 1234, "filename": "src/twice.c"}
# As the plugins send them, but for shorter texts.
AHEAD = {"id_slot": 0, "input_prefix": "", "input_suffix": "", "input_extra": [CHUNK], "prompt": "", "n_predict": 0,
         "temperature": 0.0, "samplers": [], "cache_prompt": True, "t_max_prompt_ms": 1, "t_max_predict_ms": 1,
         "response_fields": [""], "model": ""}
KEY = {"id_slot": 0, "input_prefix": "int f(int x) {\n", "input_suffix": "\n}\n", "input_extra": [CHUNK],
       "prompt": "  ret", "n_predict": 8, "stop": [], "n_indent": 2, "top_k": 40, "top_p": 0.90,
       "samplers": ["top_k", "top_p", "infill"],
       "cache_prompt": True, "t_max_prompt_ms": 500, "t_max_predict_ms": 1000, "stream": False, "model": "",
       "response_fields": ["content", "timings/prompt_n", "timings/prompt_ms", "timings/prompt_per_token_ms",
                           "timings/prompt_per_second", "timings/predicted_n", "timings/predicted_ms",
                           "timings/predicted_per_token_ms", "timings/predicted_per_second", "truncated",
                           "tokens_cached"]}
CODE = {"input_prefix": "int f(int x) {\n", "input_suffix": "\n}\n", "input_extra": [CHUNK], "prompt": "  ret",
        "n_predict": 8, "top_k": 40, "top_p": 0.99, "samplers": ["top_k", "top_p", "infill"], "stream": False,
        "cache_prompt": True, "t_max_prompt_ms": 500, "t_max_predict_ms": 1000, "stop": [], "n_cmpl": 3}


class Server(ServerProcess):
    def __init__(self, model, *args):
        super().__init__([BIN, "serve", "-m", model, "--no-progress", "--no-calibration-cache", *args])

    def request(self, path, body):
        """(status, text)"""
        request = urllib.request.Request(self.url + path, json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


@unittest.skipUnless(os.access(BIN, os.X_OK) and os.access(TOOL, os.X_OK), "needs the program and make_tiny_model")
class Infill(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        model = os.path.join(cls.folder.name, "tiny.gguf")
        subprocess.run([TOOL, "--out", model, "--ctx", "4096", "--vocab", "1024", "--fim"], check=True)
        cls.server = Server(model, "--fim", "--port", "0", "-t", "1")
        cls.server.__enter__()
        cls.addClassCleanup(cls.server.__exit__)

    def post(self, path, body):
        status, text = self.server.request(path, body)
        self.assertEqual(status, 200, text)
        return text

    def test_what_llama_vim_sends(self):
        self.assertEqual(json.loads(self.post("/infill", AHEAD)), {})
        text = self.post("/infill", KEY)
        # It looks for this in the answer's text, and passes over what has no such part.
        self.assertIn('"content":"', text)
        answer = json.loads(text)
        self.assertEqual(set(answer), set(KEY["response_fields"]))
        # The same key again, and the next one: what was sent is known.
        self.assertEqual(json.loads(self.post("/infill", KEY))["timings/prompt_n"], 1)
        key = json.loads(self.post("/infill", {**KEY, "prompt": "  retu"}))
        self.assertLess(key["timings/prompt_n"], answer["timings/prompt_n"])

    def test_what_llama_vscode_sends(self):
        answers = json.loads(self.post("/infill", CODE))
        self.assertEqual([answer["index"] for answer in answers], [0, 1, 2])
        for answer in answers:
            self.assertIsInstance(answer["content"], str)
            self.assertIn("timings", answer)

    def test_the_window_is_that_of_editors(self):
        answer = json.loads(self.post("/infill", {"input_prefix": "#" * 1500, "input_suffix": ";" * 1500,
                                                  "prompt": "x", "n_predict": 1}))
        self.assertEqual(answer["prompt"].count("#"), 768)
        self.assertEqual(answer["prompt"].count(";"), 64)

    def test_the_window_begins_at_a_line_that_stays(self):
        lines = [f"f{i * 7919 % 1000}();\n" for i in range(400)]
        begins = set()
        for n in range(300, 320):
            answer = json.loads(self.post("/infill", {"input_prefix": "".join(lines[:n]), "input_suffix": "",
                                                      "n_predict": 1}))
            begins.add(answer["prompt"].split("(")[0])
        self.assertLessEqual(len(begins), 6)  # 20 without

    # Mistral's route gives the text of OpenAI's, and a suffix of null is no hole.
    def test_other_forms(self):
        body = {"prompt": "def f(x):\n", "suffix": "\n  return y\n", "max_tokens": 8, "temperature": 0}
        text = json.loads(self.post("/v1/completions", body))["choices"][0]["text"]
        answer = json.loads(self.post("/v1/fim/completions", body))
        self.assertEqual(answer["choices"][0]["message"]["content"], text)
        answer = json.loads(self.post("/v1/completions", {**body, "suffix": None}))
        self.assertEqual(answer["object"], "text_completion")

    def test_the_client_of_ollama(self):
        client_packages.use()
        import ollama
        client = ollama.Client(host=self.server.url)
        self.assertEqual([model.model for model in client.list().models], ["tiny.gguf"])
        self.assertEqual([model.context_length for model in client.ps().models], [4096])
        self.assertIn("insert", client.show("any").capabilities)
        ask = {"model": "any", "options": {"num_predict": 8, "seed": 5}}
        chat = {**ask, "messages": [{"role": "user", "content": "hi"}]}
        whole = client.chat(**chat)
        self.assertEqual((whole.done_reason, whole.eval_count), ("length", 8))
        self.assertEqual("".join(part.message.content for part in client.chat(**chat, stream=True)),
                         whole.message.content)
        hole = client.generate(prompt="def f", suffix="end", **ask)
        body = {"prompt": "def f", "suffix": "end", "max_tokens": 8, "seed": 5}
        self.assertEqual(hole.response, json.loads(self.post("/v1/completions", body))["choices"][0]["text"])
        with self.assertRaisesRegex(ollama.ResponseError, "images is not supported"):
            client.generate(prompt="a", images=["aGk="], **ask)

    def test_the_log_says_what_to_tell_editors(self):
        said = "".join(self.server.log)
        for part in (f"'endpoint_fim': '{self.server.url}/infill'", "llama-vscode.endpoint", "provider: llama.cpp"):
            self.assertIn(part, said)

    @unittest.skipUnless(os.path.exists(SMALL), "needs SmolLM2 (make model MODEL=smollm2)")
    def test_a_model_without_the_tokens_says_so(self):
        with Server(SMALL, "--port", "0", "-c", "512", "-t", "1") as server:
            status, text = server.request("/infill", KEY)
            self.assertEqual(status, 501, text)
            error = json.loads(text)["error"]
            self.assertEqual(error["type"], "not_supported_error")
            self.assertIn("infill is not supported by this model", error["message"])
            status, text = server.request("/v1/completions", {"prompt": "a", "suffix": "b"})
            self.assertEqual(status, 400, text)
            self.assertEqual(json.loads(text)["error"]["param"], "suffix")


if __name__ == "__main__":
    unittest.main()
