#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tasks measured on two programs that are servers by their looks only."""

import contextlib
import gzip
import io
import json
import os
from pathlib import Path
import stat
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

import compare_tasks
import plot_answer
from compare_tasks import Cell, OURS, THEIRS

# A server that writes `n` words, one each `pause` seconds where it does not guess, and half as long where it does.
FAKE = """#!{python}
import http.server, json, sys, time
NAME, PAUSE, NOTES = {name!r}, {pause}, {notes!r}
GUESSES = "none" not in sys.argv

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
        with open(NOTES, "a") as file:
            file.write(json.dumps([NAME, GUESSES, self.path, body]) + "\\n")
        if "slots" in self.path:
            return self.reply({{}})
        n = body.get("n_predict") or body["max_tokens"]
        if {broken} and n > 4:
            return self.reply({{"error": "no"}}, 400)
        time.sleep(n * PAUSE / (1 + GUESSES))
        timings = {{"prompt_n": 3, "cache_n": 4, "predicted_n": n}}
        text = " ".join(f"w{{i}}" for i in range(n))
        if "messages" in body:
            return self.reply({{"choices": [{{"message": {{"content": text}}}}], "timings": timings}})
        self.reply({{"content": text, "timings": timings}})

if "--version" in sys.argv:
    print(NAME, "1.0")
    sys.exit()
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
url = f"http://127.0.0.1:{{server.server_port}}"
print(f"event=listening url={{url}}" if NAME == "ours" else f"listening on {{url}}", flush=True)
server.serve_forever()
"""
TASKS = [{"task": "go on", "tokens": 1000, "source": "a", "body": {"prompt": "one"}},
         {"task": "talk", "tokens": 0, "source": "b", "body": {"messages": [{"role": "user", "content": "two"}]}},
         {"task": "go on", "tokens": 9000, "source": "c", "body": {"prompt": "too long"}}]


class CompareTasksTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.notes = self.folder / "notes"
        (self.folder / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in TASKS))
        (self.folder / "model.gguf").touch()

    def fake(self, name, pause, broken=False):
        path = self.folder / name
        path.write_text(FAKE.format(python=sys.executable, name=name, pause=pause, notes=str(self.notes),
                                    broken=broken))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    def run_tool(self, *more, broken=False):
        arguments = ["-m", str(self.folder / "model.gguf"), "--longspec", self.fake("ours", 0.002),
                     "--llama-server", self.fake("theirs", 0.004, broken), "--tasks",
                     str(self.folder / "tasks.jsonl"), "--temps", "0,0.7", "--answer", "20", "--settle", "0",
                     "--out",
                     str(self.folder / "out"), *more]
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            status = compare_tasks.main(arguments)
        return status, out.getvalue(), err.getvalue()

    def test_measures_each_method_once_and_makes_tables(self):
        status, out, err = self.run_tool()
        self.assertEqual(status, 0, err)
        self.assertEqual(out.count("## Temperature"), 2)
        self.assertIn("| go on, 7 |", out)
        self.assertIn("1 of 1", out)
        notes = [json.loads(line) for line in self.notes.read_text().splitlines()]
        self.assertNotIn("too long", [body.get("prompt") for _, _, _, body in notes])
        saved = [path for _, _, path, _ in notes if "save" in path]
        restored = [path for _, _, path, _ in notes if "restore" in path]
        self.assertEqual((len(saved), len(restored)), (4, 4))
        results = compare_tasks.read_results(self.folder / "out" / "results.jsonl")
        self.assertEqual(len(results), 2 * 2 * 4)  # tasks, temperatures, methods
        chosen = [each for each in results if each["key"][5] == 0.7 and each["key"][0] == "go on"]
        took = {tuple(each["key"][3:5]): each["seconds"] for each in chosen}  # all wrote as many tokens
        for other in ((OURS, "plain"), (THEIRS, "plain")):
            self.assertAlmostEqual(Cell(chosen).ratios("auto", other)[0], took[other] / took[OURS, "auto"])
        before = len(notes)
        status, again, _ = self.run_tool()  # all is there
        self.assertEqual((status, again), (0, out))
        self.assertEqual(len(self.notes.read_text().splitlines()), before)

    def test_goes_on_in_the_middle_of_a_task(self):
        self.assertEqual(self.run_tool()[0], 0)
        path = self.folder / "out" / "results.jsonl"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[:3]) + lines[3][:20] + "\n")  # stopped as the fourth was written
        self.assertEqual(self.run_tool()[0], 0)
        keys = [str(each["key"]) for each in compare_tasks.read_results(path)]
        self.assertEqual(len(keys), len(lines))
        self.assertEqual(len(set(keys)), len(keys))

    def test_says_what_failed(self):
        status, _, err = self.run_tool(broken=True)
        self.assertEqual(status, 1)
        self.assertIn("llama-server plain /completion", err)
        status, _, err = self.run_tool("--methods", "longspec:plain,longspec:fast")
        self.assertEqual(status, 1)
        self.assertIn("--methods: known are longspec:plain", err)
        status, _, err = self.run_tool("--methods", "longspec:auto")
        self.assertEqual(status, 1)
        self.assertIn("longspec:plain is missing", err)

    # A text that is too short to repeat anything counts as distinct, and one that repeats itself by its share.
    def test_distinct(self):
        self.assertEqual(compare_tasks.distinct_4grams("a b c"), 1)
        self.assertAlmostEqual(compare_tasks.distinct_4grams("a b a b a b a"), 0.5)


class PlotAnswerTest(unittest.TestCase):
    def test_draws_a_line_for_each_method(self):
        lines = {"longspec plain": [(0, 0), (1, 10), (4, 40)], "longspec auto": [(0, 0), (0.5, 10), (1.5, 40)],
                 "llama-server plain": [(0, 0), (5, 40)]}
        root = ElementTree.fromstring(plot_answer.draw(lines))
        svg = "{http://www.w3.org/2000/svg}"
        ends = [line.get("points").split()[-1] for line in root.findall(f"{svg}polyline")]
        self.assertEqual([end.split(",")[1] for end in ends], ["16.0"] * 3)  # all 40 tokens, at the top
        self.assertEqual(ends[2].split(",")[0], "570.0")  # five seconds, at the right
        texts = [text.text for text in root.findall(f"{svg}text")]
        for text in ("longspec auto", "26.7 tokens/s", "10.0 tokens/s", "8.0 tokens/s", "5 s", "40"):
            self.assertIn(text, texts)

    # The axis has at most so many marks, at round numbers.
    def test_steps(self):
        self.assertEqual(list(plot_answer.steps_of(192, 6)), [0, 50, 100, 150])


class MakeTasksTest(unittest.TestCase):
    def test_takes_kinds_in_turn(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            line = "    x = some_function(argument)\n"
            families = {"code_completion": [
                {"id": f"{language}-{n}-{i}", "language": language, "prompt_text": line * (n * 4 // len(line)),
                 "reference": line * 40} for n in (1000, 2000, 4000, 8000, 16000) for i in range(2)
                for language in ("python", "java")],
                "gov_report": [{"id": f"report-{n}", "prompt_text": "word " * (n * 4 // 5)}
                               for n in (1000, 4000, 16000, 30000)],
                "meeting_qmsum": [{"id": f"meeting-{n}", "prompt_text": "word " * (n * 4 // 5),
                                   "instruction": "Sum up."} for n in (4000, 16000)],
                "mt_bench": [{"id": f"chat-{i}", "prompt_text": "Hello", "category": category}
                             for i, category in enumerate(("coding", "coding", "writing"))]}
            for family, examples in families.items():
                with gzip.open(folder / f"{family}.jsonl.gz", "wt") as file:
                    file.writelines(json.dumps(example) + "\n" for example in examples)
            out = folder / "tasks.jsonl"
            subprocess.run([sys.executable, Path(__file__).with_name("make_tasks.py"), "--data", folder, "--out", out,
                            "--prompts", "2"], check=True, stdout=subprocess.DEVNULL, env=dict(os.environ))
            tasks = [json.loads(line) for line in out.read_text().splitlines()]
        sources = {}
        for task in tasks:
            sources.setdefault((task["task"], task["tokens"]), []).append(task["source"])
        self.assertEqual(sources["go on with a file", 4000], ["python-4000-0", "java-4000-0"])
        self.assertEqual(sources["chat", 0], ["chat-0", "chat-2"])
        self.assertEqual(len(sources), 15)
        fim = next(task for task in tasks if task["task"] == "fill in the middle")
        self.assertRegex(fim["body"]["prompt"], r"(?s)^<\|fim_prefix\|>.*\n<\|fim_suffix\|>    x.*<\|fim_middle\|>$")


if __name__ == "__main__":
    unittest.main()
