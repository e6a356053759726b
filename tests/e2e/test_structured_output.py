#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Answers of SmolLM2 under schemas and grammars, as users ask for them: valid, by a validator that is not
ours, and the same with speculation and without.

Needs the program ($LONGSPEC_BIN, default build/release/longspec), built with grammars, and SmolLM2
($LONGSPEC_MODEL). What jsonschema (PyPI) would say is left out where it is not installed.
"""

import json
import os
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("LONGSPEC_BIN", os.path.join(ROOT, "build/release/longspec"))
MODEL = os.environ.get("LONGSPEC_MODEL", os.path.join(ROOT, "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
SCHEMAS = os.path.join(ROOT, "src/grammar/testdata/schemas.jsonl")

try:
    import jsonschema
except ImportError:
    jsonschema = None

PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 30},
                                           "born": {"type": "integer", "minimum": 0, "maximum": 2100}},
          "required": ["name", "born"]}
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city", "strict": True,
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 30},
                                                    "unit": {"enum": ["celsius", "fahrenheit"]}},
                   "required": ["city", "unit"]}}}


def longspec(*args):
    return subprocess.run([BIN, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600,
                          check=False)


def validator(schema):
    """jsonschema's for the draft that has lists of items, where the schema has them."""
    old = isinstance(schema.get("items"), list)
    return (jsonschema.Draft7Validator if old else jsonschema.Draft202012Validator)(schema)


@unittest.skipUnless(os.path.exists(BIN) and os.path.exists(MODEL), "needs the program and SmolLM2")
class StructuredOutput(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        said = longspec("run", "-m", MODEL, "-c", "256", "-p", "a", "-n", "1", "--grammar", 'root ::= "a"')
        if "built without" in said.stderr:
            raise unittest.SkipTest("built without xgrammar")

    def run_json(self, *args):
        done = longspec("run", "-m", MODEL, "-c", "1024", "--json", "--no-progress", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def batch(self, bodies):
        with tempfile.TemporaryDirectory() as folder:
            requests, answers = os.path.join(folder, "in.jsonl"), os.path.join(folder, "out.jsonl")
            with open(requests, "w", encoding="utf-8") as file:
                for i, body in enumerate(bodies):
                    file.write(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions",
                                           "body": body}) + "\n")
            done = longspec("batch", "-m", MODEL, "-c", "1024", "-f", requests, "-o", answers, "--no-progress")
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(answers, encoding="utf-8") as file:
                lines = {line["custom_id"]: line for line in map(json.loads, file)}
            return [lines[str(i)] for i in range(len(bodies))]

    def test_a_schema_is_kept_with_any_speculation(self):
        for temperature in ("0", "0.7"):
            texts = set()
            for drafter in ("none", "auto", "grammar"):
                answer = self.run_json("-p", "Who wrote Faust?", "-n", "200", "--temp", temperature, "-s", "3",
                                       "--spec-type", drafter, "-j", json.dumps(PERSON))
                texts.add(answer["text"])
            self.assertEqual(len(texts), 1)
            person = json.loads(texts.pop())
            self.assertEqual(list(person), ["name", "born"])
            self.assertIsInstance(person["born"], int)

    def test_forced_tokens_are_drafted_and_accepted(self):
        answer = self.run_json("-p", "Who wrote Faust?", "-n", "200", "--temp", "0", "--spec-type", "grammar",
                               "-j", json.dumps(PERSON))
        timings = answer["timings"]
        self.assertGreater(timings["draft_n_accepted"], 3)
        # How forced text is cut into tokens is the model's to say, so not every guess is right.
        self.assertLess(answer["speculative"]["steps"], len(answer["tokens"]))

    def test_a_grammar_is_kept(self):
        answer = self.run_json("-p", "Is the sky blue?", "--grammar", 'root ::= "The answer is " ("yes" | "no") "."')
        self.assertIn(answer["text"], ("The answer is yes.", "The answer is no."))

    def test_a_file_may_hold_it(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"enum": ["yes", "no"]}, file)
            file.flush()
            self.assertIn(self.run_json("-p", "Is the sky blue?", "-jf", file.name)["text"], ('"yes"', '"no"'))

    def test_what_cannot_be_kept_is_said(self):
        for option, text, message in (("-j", '{"not": {}}', "#: not is not supported"),
                                      ("-j", "{", "not JSON"),
                                      ("--grammar", "root ::= a", 'the rule "a" is not defined')):
            done = longspec("run", "-m", MODEL, "-c", "256", "-p", "a", option, text)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(message, done.stderr)
        done = longspec("run", "-m", MODEL, "-p", "a", "-j", "{}", "--grammar", 'root ::= "a"')
        self.assertEqual(done.returncode, 2)
        self.assertIn("give one of them", done.stderr)

    def test_many_schemas_in_one_batch(self):
        with open(SCHEMAS, encoding="utf-8") as file:
            schemas = [json.loads(line)["schema"] for line in file]
        bodies = [{"messages": [{"role": "user", "content": "Give me an example."}], "max_tokens": 150, "seed": 1,
                   "temperature": 0.7, "response_format": {"type": "json_schema",
                                                           "json_schema": {"name": "example", "schema": schema}}}
                  for schema in schemas]
        n_valid = 0
        for schema, line in zip(schemas, self.batch(bodies)):
            self.assertIsNone(line["error"], schema)
            choice = line["response"]["body"]["choices"][0]
            if choice["finish_reason"] != "stop":
                continue  # cut short
            value = json.loads(choice["message"]["content"])
            if jsonschema is not None:
                errors = list(validator(schema).iter_errors(value))
                self.assertEqual(errors, [], f"{value} under {schema}")
            n_valid += 1
        self.assertGreaterEqual(n_valid, len(schemas) - 5)

    def test_tools_are_called(self):
        ask = {"messages": [{"role": "user", "content": "What is the weather in Bonn?"}], "max_tokens": 200,
               "temperature": 0, "tools": [WEATHER]}
        required, named, none = self.batch([
            {**ask, "tool_choice": "required"},
            {**ask, "tool_choice": {"type": "function", "function": {"name": "get_weather"}}},
            {**ask, "tool_choice": "none", "max_tokens": 8}])
        for line in (required, named):
            self.assertIsNone(line["error"])
            choice = line["response"]["body"]["choices"][0]
            self.assertEqual(choice["finish_reason"], "tool_calls")
            self.assertIsNone(choice["message"]["content"])
            call = choice["message"]["tool_calls"][0]
            self.assertEqual(call["type"], "function")
            self.assertEqual(call["function"]["name"], "get_weather")
            arguments = json.loads(call["function"]["arguments"])
            self.assertIn(arguments["unit"], ("celsius", "fahrenheit"))
        self.assertNotIn("tool_calls", none["response"]["body"]["choices"][0]["message"])

    def test_a_refused_schema_is_that_requests_error(self):
        ask = {"messages": [{"role": "user", "content": "?"}], "max_tokens": 20, "temperature": 0}
        bad, good = self.batch([{**ask, "json_schema": {"uniqueItems": True}}, {**ask, "json_schema": {"const": 1}}])
        self.assertEqual(bad["response"]["status_code"], 400)
        self.assertIn("uniqueItems", bad["error"]["message"])
        self.assertEqual(good["response"]["body"]["choices"][0]["message"]["content"], "1")


if __name__ == "__main__":
    unittest.main()
