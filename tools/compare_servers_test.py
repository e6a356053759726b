#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The comparison with two programs that are servers by their looks only."""

import contextlib
import io
import json
import os
from pathlib import Path
import stat
import sys
import tempfile
import unittest

import compare_servers
from compare_servers import Cell, OURS, THEIRS

# A server that writes as many tokens as are asked for, one each `pause` seconds, and notes what it is told. `broken`:
# it answers with an error; `short`: it writes one token less.
FAKE = """#!{python}
import http.server, json, sys, time
NAME, PAUSE, MODE, NOTES = {name!r}, {pause}, {mode!r}, {notes!r}

def note(what):
    with open(NOTES, "a") as file:
        file.write(json.dumps([NAME, what]) + "\\n")

class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def reply(self, text, kind="application/json", status=200):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        self.reply("{{}}")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            return self.reply(json.dumps({{"tokens": [sum(map(ord, word)) for word in body["content"].split()]}}))
        note(body)
        if MODE == "broken":
            return self.reply("no", status=400)
        n = body["max_tokens"] - (MODE == "short")
        self.reply("", "text/event-stream")
        for i in range(n):
            time.sleep(PAUSE)
            self.event({{"choices": [{{"index": 0, "text": "x"}}]}})
        self.event({{"choices": [], "usage": {{"prompt_tokens": len(body["prompt"]), "completion_tokens": n}}}})
        self.wfile.write(b"data: [DONE]\\n\\n")

    def event(self, data):
        self.wfile.write(b"data: " + json.dumps(data).encode() + b"\\n\\n")
        self.wfile.flush()

if "--version" in sys.argv:
    print(NAME, "1.0")
    sys.exit()
note(sys.argv[1:])
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
url = "http://127.0.0.1:%d" % server.server_address[1]
print(("time=0 event=listening url=" if NAME == "ours" else "srv: listening on ") + url, flush=True)
server.serve_forever()
"""


class CompareServers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.notes = self.folder / "notes"
        self.text = self.folder / "text"
        self.text.write_text(" ".join(f"w{i}" for i in range(100)), encoding="utf-8")
        self.programs = {name: self.program(name, pause) for name, pause in (("ours", 0.01), ("theirs", 0.08))}

    def program(self, name, pause, mode=""):
        path = self.folder / name
        path.write_text(FAKE.format(python=sys.executable, name=name, pause=pause, mode=mode,
                                    notes=os.fspath(self.notes)),
                        encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return os.fspath(path)

    def run_main(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = compare_servers.main([
                "-m", self.programs["ours"], "--longspec", self.programs["ours"], "--llama-server",
                self.programs["theirs"], "--text", os.fspath(self.text), "--prompts", "40", "--max-tokens", "6",
                "--requests", "2", *arguments])
        return status, out.getvalue(), err.getvalue()

    def noted(self):
        with open(self.notes, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def test_one_line_for_each_combination_with_ratios(self):
        status, out, err = self.run_main("--users", "1,3", "--llama-args", "--mlock -ub 64")
        self.assertEqual(status, 0, err)
        lines = [line for line in out.splitlines() if line.startswith("| ") and "users" not in line]
        self.assertEqual([line.split(" | ")[:3] for line in lines],
                         [["| 1", "40", "own"], ["| 3", "40", "own"], ["| 1", "40", "shared"], ["| 3", "40", "shared"]])
        for line in lines:
            cells = line.strip("| ").split(" | ")[3:]
            self.assertEqual(len(cells), len(compare_servers.MEASURES))
            for cell in cells:
                self.assertRegex(cell, r"^[\d.]+ / [\d.]+ = [\d.]+$")
                self.assertGreater(float(cell.split(" = ")[1]), 1, line)  # the other one is slow
        self.assertIn("longspec: ours 1.0; llama-server: theirs 1.0.", out)
        self.assertIn("--llama-args '--mlock -ub 64'", out)

    def test_both_get_the_same_requests_and_fair_options(self):
        self.assertEqual(self.run_main("--users", "3", "--documents", "shared")[0], 0)
        noted = self.noted()
        started = {name: what for name, what in noted if isinstance(what, list)}
        for arguments in started.values():
            value = lambda option, given=arguments: given[given.index(option) + 1]
            self.assertEqual((value("--parallel"), value("-c"), value("-t")), ("3", "768", "2"))
        asked = {name: sorted((json.dumps(what) for by, what in noted if by == name and isinstance(what, dict)))
                 for name in ("ours", "theirs")}
        self.assertEqual(asked["ours"], asked["theirs"])
        self.assertEqual(len(asked["ours"]), 4)  # and the one that warms up
        # One after the other: the second starts when the first has had all of its requests.
        names = [name for name, _ in noted]
        self.assertEqual(names, ["ours"] * 5 + ["theirs"] * 5)

    def test_prompts_are_of_the_length_and_share_what_they_are_to_share(self):
        asks = {}
        for kind in ("own", "shared"):
            self.notes.unlink(missing_ok=True)
            self.assertEqual(self.run_main("--users", "4", "--documents", kind)[0], 0)
            asks[kind] = [what["prompt"] for name,
                          what in self.noted() if name == "ours" and isinstance(what, dict)][1:]
            self.assertEqual({len(prompt) for prompt in asks[kind]}, {40})
            self.assertEqual(len({tuple(prompt) for prompt in asks[kind]}), 4)
        self.assertEqual(len({prompt[0] for prompt in asks["own"]}), 4)
        self.assertEqual(len({tuple(prompt[:20]) for prompt in asks["shared"]}), 1)

    def test_what_fails_is_told_and_the_rest_is_measured(self):
        for mode, said in (("broken", "status 400"), ("short", "40 tokens of prompt and 5 of answer, not 40 and 6")):
            self.programs["theirs"] = self.program("theirs", 0, mode)
            status, out, err = self.run_main("--users", "1", "--documents", "own")
            self.assertEqual(status, 1)
            self.assertIn(f"compare_servers: llama-server, 1 user, 40 tokens, own document: {said}", err)
            self.assertRegex(out, r"\| 1 \| 40 \| own \| [\d.]+ / - \|")

    def test_what_cannot_be_measured(self):
        self.assertEqual(self.run_main("-m", "/nonexistent")[0], 1)
        status, _, err = self.run_main("--llama-server", "/nonexistent")
        self.assertEqual(status, 1)
        self.assertIn("/nonexistent: No such file or directory", err)
        status, _, err = self.run_main("--prompts", "5")
        self.assertEqual(status, 1)
        self.assertIn("--prompts 5: too short for the question", err)

    def test_cells_and_figures(self):
        options = compare_servers.parse(["--llama-server", "x", "--users", "1,2", "--prompts", "7"])
        self.assertEqual(compare_servers.cells(options),
                         [Cell(1, 7, False), Cell(2, 7, False), Cell(1, 7, True), Cell(2, 7, True)])
        self.assertEqual(compare_servers.compared(150.0, 50.0, True), "150 / 50.0 = 3.00")
        self.assertEqual(compare_servers.compared(5.0, 50.0, False), "5.00 / 50.0 = 10.00")
        self.assertEqual(compare_servers.compared(0.0, 1.0, False), "0.00 / 1.00 = -")
        results = {(cell, side): {} for cell in compare_servers.cells(options) for side in (OURS, THEIRS)}
        self.assertIn("| 1 | 7 | own | - / - |", compare_servers.table(results, options)[2])


if __name__ == "__main__":
    unittest.main()
