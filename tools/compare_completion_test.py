#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Typing measured on two programs that are servers by their looks only."""

import contextlib
import io
import json
from pathlib import Path
import stat
import sys
import tempfile
import unittest

import compare_completion

# A server that evaluates as many tokens as it is told, for so long.
FAKE = """#!{python}
import http.server, json, sys, time

class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def reply(self, data, status=200):
        text = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        self.reply({{}})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open({notes!r}, "a") as file:
            file.write(json.dumps([self.path, body]) + "\\n")
        if {broken}:
            return self.reply({{"error": "no holes"}}, 501)
        time.sleep({tokens} / 10000)
        self.reply({{"content": "alpha", "timings": {{"prompt_n": {tokens}, "predicted_n": 6, "draft_n_accepted": 4}}}})

if "--version" in sys.argv:
    print({name!r}, "1.0")
    sys.exit()
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
url = f"http://127.0.0.1:{{server.server_port}}"
print(f"event=listening url={{url}}" if {name!r} == "ours" else f"listening on {{url}}", flush=True)
server.serve_forever()
"""
SOURCE = "".join(f"  call_of_line({i}, alpha);\n" for i in range(40))


class CompareCompletionTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "model.gguf").touch()
        (self.folder / "a.cc").write_text(SOURCE)

    def fake(self, name, tokens, broken=False):
        path = self.folder / name
        path.write_text(FAKE.format(python=sys.executable, name=name, tokens=tokens, broken=broken,
                                    notes=str(self.folder / f"{name}.notes")))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    def run_tool(self, *files, broken=False):
        arguments = [*files, "-m", str(self.folder / "model.gguf"), "--longspec", self.fake("ours", 50),
                     "--llama-server", self.fake("theirs", 200, broken), "--settle", "0", "--places", "2"]
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            status = compare_completion.main(arguments)
        return status, out.getvalue(), err.getvalue()

    def test_both_get_the_same_requests(self):
        status, out, err = self.run_tool(str(self.folder / "a.cc"))
        self.assertEqual(status, 0, err)
        notes = [[json.loads(line) for line in (self.folder / f"{name}.notes").read_text().splitlines()]
                 for name in ("ours", "theirs")]
        self.assertEqual(notes[0], notes[1])
        self.assertEqual({path for path, _ in notes[0]}, {"/infill"})
        self.assertRegex(out, r"\| a jump, 2 \| 50 \(50\) \| 200 \(200\) \|")
        self.assertRegex(out, r"\| a key, 1\d \| 50 \(50\) \| 200 \(200\) \|")
        self.assertRegex(out, r"\| a new line, 2 \| .* \| [1-9]\.\d\d \|")
        self.assertIn("a round of longspec 3.00", out)

    def test_the_text_is_that_of_the_file(self):
        lines = SOURCE.split("\n")
        for request in compare_completion.typing("a.cc", SOURCE, 3):
            before, typed = request.body["input_prefix"], request.body["prompt"]
            row = before.count("\n")
            self.assertTrue(lines[row].startswith(typed))
            self.assertEqual(before + typed + request.rest + request.body["input_suffix"], SOURCE + "\n")

    def test_says_what_failed(self):
        status, _, err = self.run_tool(str(self.folder / "a.cc"), broken=True)
        self.assertEqual(status, 1)
        self.assertIn("llama-server /infill", err)
        (self.folder / "empty.cc").write_text("\n")
        status, _, err = self.run_tool(str(self.folder / "empty.cc"))
        self.assertEqual(status, 1)
        self.assertIn("no lines to write", err)


if __name__ == "__main__":
    unittest.main()
