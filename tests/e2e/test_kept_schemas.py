#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Answers under schemas and grammars by a stand-in for a model that wants to break out of them, judged by validators
that are not ours: jsonschema with the checkers of formats that it knows (PyPI), and Python's re.

tools/sample_answers.cc writes them; $LONGSPEC_SAMPLES (12) for each of some hundred forms, $LONGSPEC_SAMPLE_SEED (1).
Needs the program's build with tests ($LONGSPEC_BIN, default build/release/longspec, says where) and grammars.
"""

import json
import os
import re
import subprocess
import unittest

import client_packages

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("LONGSPEC_BIN", os.path.join(ROOT, "build/release/longspec"))
TOOL = os.path.join(os.path.dirname(BIN), "tools/sample_answers")
SCHEMAS = os.path.join(ROOT, "src/grammar/testdata/schemas.jsonl")
SAMPLES = os.environ.get("LONGSPEC_SAMPLES", "12")
SEED = os.environ.get("LONGSPEC_SAMPLE_SEED", "1")

FORMATS = ("date", "time", "date-time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6",
           "uri", "uri-reference", "iri", "iri-reference", "uri-template", "uuid", "json-pointer",
           "relative-json-pointer")
# A length that some text of the format has.
USUAL_LENGTH = {"date": 10, "time": 9, "date-time": 20, "ipv4": 9, "uuid": 36}
BOUNDS = (0, 1, 2, 16, 17, 127, 128, 129, 130, 255, 500, 1000)
# {0} is a bound.
REPETITIONS = (r"^.{{0,{0}}}$", r"^[^x]{{0,{0}}}$", r"^\S{{0,{0}}}$", r"^\s{{0,{0}}}$", r"^[a-z]{{{0}}}$",
               r"^\D{{0,{0}}}$", r"^\W{{0,{0}}}$", r"^[^\w]{{0,{0}}}$", r"^[^\d\s]{{{0},}}$", r"^(ab|c){{0,{0}}}$",
               r"^x.{{2,{0}}}y$", r"^(ab){{0,{0}}}$", r"^[a-z][a-z0-9-]{{0,{0}}}[a-z0-9]$", r"^.{{{0}}}")
PATTERNS = ("^$", "^", "$", "a", "^a|b$", "a$", "^a", "^\"a\"$", r"^a\\b$", "^[\"\\\\\n]*$", r"^\n$",
r"^[^\x00-\x1f]*$",
            r"^[\x00-\x1f]{3}$", "^[\u0080-\U0010ffff]{1,3}$", "^(\u65e5|\U0001f600)+$", r"^\d+(\.\d+)?$",
            r"^[A-Z]{2}-\d{3,5}$", r"^(?:[01]\d|2[0-3]):[0-5]\d$", "^#?([a-f0-9]{6}|[a-f0-9]{3})$",
            r"^[\w.+-]+@[\w-]+\.[\w.-]+$", r"^https?://[^\s/$.?#].[^\s]*$", r"^\+?[1-9]\d{1,14}$",
            "^[^@]+$", "^(a|b)*a(a|b){7}$", "^(a*)*b$", "^(?P<x>a)(?:b)?$", "^a{2,}?$", r"^[\]\[^-]+$",
            r"^\s*\S+\s*$", r"^.*$", r"^[^\"]*$", r"^(\\\")*$", r"^\u00e9\x41$", "^(GET|POST) /[a-z/]*$")
STRINGS = (
    {"pattern": "^[a-z]+$", "minLength": 3, "maxLength": 5}, {"pattern": "^(ab)*$", "minLength": 3, "maxLength": 140},
    {"pattern": "^(aaa|bbbbb)*$", "minLength": 7, "maxLength": 9}, {"pattern": "x", "maxLength": 3},
    {"pattern": "^a", "minLength": 130}, {"pattern": "^[a-z]+@[a-z]+$", "maxLength": 12},
    {"pattern": "^.{0,200}$", "maxLength": 3}, {"maxLength": 524288}, {"minLength": 3, "maxLength": 2 ** 53},
    {"format": "date", "pattern": "^20"}, {"format": "ipv6", "maxLength": 8}, {"format": "uri", "maxLength": 140},
    {"format": "email", "maxLength": 8}, {"format": "hostname", "minLength": 130}, {"format": "nobody-knows",
    "maxLength": 2},
    {"allOf": [{"pattern": "^a"}, {"pattern": "z$"}, {"maxLength": 6}]},
    {"allOf": [{"format": "date"}, {"pattern": "-29$"}, {"minLength": 1}]},
    {"anyOf": [{"maxLength": 2}, {"minLength": 5, "maxLength": 6}]},
    {"anyOf": [{"maxLength": 129}, {"pattern": "^x*$", "maxLength": 300}]},
    {"enum": ["a", "bb", "ccc", 1], "maxLength": 2}, {"type": "string", "enum": ["2024-02-30", "2024-02-29"],
                                                      "format": "date"})
OTHERS = (
    {"type": "object"}, {}, {"type": "array"}, {"type": "object", "maxProperties": 2},
    {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1},
    {"type": "object", "properties": {"a": {"type": "integer"}, "ab": {"type": "null"}, "": {"const": 1},
                                      "\"\n": {"const": 2}}, "additionalProperties": {"type": "boolean"}},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a", "b"], "additionalProperties": {
        "type": "string", "maxLength": 2}},
    {"type": "object", "patternProperties": {"^x[0-9]{0,3}$": {"type": "string", "maxLength": 129}},
     "additionalProperties": False},
    {"type": "object", "patternProperties": {"^.{0,140}$": {"type": "null"}}},
    {"type": "object", "propertyNames": {"format": "date"}, "maxProperties": 3},
    {"type": "object", "propertyNames": {"maxLength": 130, "minLength": 129}, "maxProperties": 2},
    {"type": "object", "properties": {"text": {"type": "string", "maxLength": 500}, "n": {"type": "integer"}},
     "required": ["text", "n"], "additionalProperties": False},
    {"type": "object", "properties": {"a": {"type": "string", "minLength": 129}, "b": {"format": "json-pointer"}},
     "required": ["a", "b"]},
    {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "minProperties": 2, "maxProperties": 2},
    {"type": "array", "items": {"type": "string", "maxLength": 3}, "minItems": 2, "maxItems": 130},
    {"type": "array", "items": {"enum": [1, 2]}, "minItems": 129, "maxItems": 140},
    {"type": "array", "items": {"const": 1}, "minItems": 200},
    {"type": "array", "prefixItems": [{"type": "string", "pattern": "^.{0,129}$"}, {"type": "integer"}], "minItems": 2},
    {"type": ["string", "null", "integer"], "minLength": 129, "maximum": 3},
    {"type": "integer", "minimum": -3, "exclusiveMaximum": 1000}, {"type": "integer", "exclusiveMinimum": 7},
    {"type": "integer", "multipleOf": 7}, {"type": "integer", "minimum": 2, "maximum": 100, "multipleOf": 7},
    {"type": "number", "minimum": -0.5, "maximum": 2.25}, {"type": "number", "exclusiveMinimum": 0,
    "exclusiveMaximum": 1},
    {"type": "number", "maximum": -3.5}, {"type": "integer", "maximum": 9007199254740991},
    {"$defs": {"t": {"type": "object", "properties": {"s": {"type": "string", "maxLength": 129},
    "t": {"$ref": "#/$defs/t"}},
                     "required": ["s"]}}, "$ref": "#/$defs/t"},
    {"allOf": [{"properties": {"a": {"type": "null"}}, "additionalProperties": False},
               {"properties": {"a": {}, "b": {"type": "integer"}}}]},
    {"allOf": [{"properties": {"a": {"type": "string"}}, "additionalProperties": {"maxLength": 2}},
               {"properties": {"b": {"type": "string"}}, "required": ["b", "c"]}]},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False,
     "anyOf": [{"properties": {"b": {}}}, {"required": ["a"]}]},
    {"allOf": [{"items": {"type": "integer"}}, {"items": {"maximum": 3, "minimum": 0}, "maxItems": 4}]},
    {"const": "\"\n\\\u00e9\U0001f600\u0000"}, {"enum": ["\"", "\\", {"a\n": ["\t"]}]},
    {"enum": [2 ** 63, 2 ** 64, -10 ** 30, 0.1, {"a": [1e22, 10 ** 25 + 1]}]}, {"const": 2 ** 64 - 1})
# The language beside each as Python has it.
GRAMMARS = (
    ('root ::= "a" [^"\\n]{0,129} "b"', '(?s)a[^"\n]{0,129}b'), ('root ::= [a-z]{129,200}', "[a-z]{129,200}"),
    ('root ::= ("ab" | "c"){0,300} "."', r"(ab|c){0,300}\."), ('root ::= .{0,200}', "(?s).{0,200}"),
    ('root ::= x{2,130} "e"\nx ::= "a" | "bb"', "(a|bb){2,130}e"), ('root ::= [^\\x00-\\x7f]{1,3}',
    "[^\x00-\x7f]{1,3}"))

REGEXES = (r"^.{{0,{0}}}$", r"[^x\n]{{0,{0}}}", r"[a-z]{{{0}}}", r"^(ab|c){{1,{0}}}", r"x.{{2,{0}}}y|\S{{0,{0}}}$",
           r"[A-Z]\w{{0,{0}}}: \"[^\"]*\"", r"(\d{{1,3}}\.){{3}}\d{{1,{0}}}")


def string(**rules):
    return {"type": "string", **rules}


def bounded():
    for bound in BOUNDS:
        yield string(maxLength=bound)
        yield string(minLength=bound, maxLength=bound + 1)
        yield string(minLength=bound)


def repeated():
    for bound in (3, 16, 128, 129, 300):
        for pattern in REPETITIONS:
            yield string(pattern=pattern.format(bound))


def formatted():
    for name in FORMATS:
        yield string(format=name)
        yield string(format=name, maxLength=60)
        yield string(format=name, minLength=1, maxLength=300)
        yield string(format=name, pattern="^[^x]*$")
        if name in USUAL_LENGTH:
            yield string(format=name, minLength=USUAL_LENGTH[name], maxLength=USUAL_LENGTH[name])


def listed():
    with open(SCHEMAS, encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)["schema"]


class Broken(Exception):
    """What no validator of schemas looks at."""


def has_free_names(schema):
    """Whether a name may be written twice: an answer's last one counts."""
    text = json.dumps(schema)
    return "\"properties\"" not in text or any(word in text for word in ("additionalProperties\": {",
    "patternProperties",
                                                                         "propertyNames", ": {}"))


def read_json(text, free_names):
    def members(pairs):
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names) and not free_names:
            raise Broken("a name twice")
        return dict(pairs)

    value = json.loads(text, object_pairs_hook=members, parse_constant=lambda name: Broken(name))
    json.dumps(value, ensure_ascii=False).encode("utf-8")  # halves of pairs are no characters
    return value


@unittest.skipUnless(os.access(TOOL, os.X_OK), f"needs {TOOL}")
class KeptSchemas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        client_packages.use()
        import jsonschema  # pylint: disable=import-outside-toplevel
        cls.jsonschema = jsonschema
        checkers = jsonschema.Draft202012Validator.FORMAT_CHECKER.checkers
        assert set(FORMATS) <= set(checkers), f"no checker of {set(FORMATS) - set(checkers)}"

    def judge_schema(self, schema, text):
        old = isinstance(schema.get("items"), list)
        kind = self.jsonschema.Draft7Validator if old else self.jsonschema.Draft202012Validator
        value = read_json(text, has_free_names(schema))
        for error in kind(schema, format_checker=kind.FORMAT_CHECKER).iter_errors(value):
            raise Broken(error.message[:200])

    def check(self, forms, judge, least_whole=0.9):
        """`forms`: what the sampler is given, and what `judge` gets beside each text."""
        forms = list(forms)
        done = subprocess.run([TOOL, "--answers", SAMPLES, "--seed", SEED], input="".join(
            json.dumps(form) + "\n" for form, _ in forms), capture_output=True, text=True, timeout=3600, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        results = [json.loads(line) for line in done.stdout.split("\n") if line]
        self.assertEqual(len(results), len(forms))
        n_whole, n_all = 0, 0
        for (form, known), result in zip(forms, results):
            with self.subTest(form=json.dumps(form)):
                self.assertNotIn("error", result)
                self.assertEqual(result["faults"], [])
                whole = [answer["text"] for answer in result["answers"] if answer["whole"]]
                self.assertGreater(len(whole), 0, "no answer came to its end")
                n_whole, n_all = n_whole + len(whole), n_all + len(result["answers"])
                for latin in whole:
                    try:
                        judge(known, latin.encode("latin-1").decode("utf-8"))
                    except (Broken, ValueError) as error:
                        self.fail(f"{latin!r}: {error}")
        self.assertGreater(n_whole, least_whole * n_all)

    def check_schemas(self, schemas):
        self.check(((({"schema": schema}), schema) for schema in schemas), self.judge_schema)

    def test_bounds_of_lengths(self):
        self.check_schemas(bounded())

    def test_repetitions_in_patterns(self):
        self.check_schemas(repeated())

    # Strings that have to match a pattern.
    def test_patterns(self):
        self.check_schemas(string(pattern=pattern) for pattern in PATTERNS)

    def test_formats_alone_and_beside_other_rules(self):
        self.check_schemas(formatted())

    def test_rules_of_strings_together(self):
        self.check_schemas(STRINGS)

    # All other rules for values, and schemas that are given as a list.
    def test_other_rules(self):
        self.check_schemas(OTHERS)
        self.check_schemas(listed())

    def judge_match(self, pattern, text):
        if not re.fullmatch(pattern, text):
            raise Broken(f"does not fit {pattern}")

    # Grammars, against regular expressions of the same language.
    def test_grammars(self):
        self.check(((({"grammar": grammar}), pattern) for grammar, pattern in GRAMMARS), self.judge_match)

    # Regular expressions, with bounds that are short and ones that are beyond what automata like to count.
    def test_regexes(self):
        patterns = [regex.format(bound) for regex in REGEXES for bound in (3, 128, 129, 300)]
        self.check((({"regex": pattern}, pattern) for pattern in patterns), self.judge_match)

    def test_tools(self):
        """Calls of functions, as tools make them: the arguments are the schema's, and nothing else follows."""
        schemas = [{"type": "object", "properties": {"text": rules, "n": {"type": "integer"}},
                    "required": ["text", "n"], "additionalProperties": False}
                   for rules in (string(maxLength=500), string(minLength=129), string(pattern="^[^x]{0,129}$"),
                                 string(format="json-pointer"), string(format="date", maxLength=30))]
        tags = [{"type": "structural_tag", "format": {
            "type": "triggered_tags", "triggers": ["<tool_call>"], "at_least_one": True, "stop_after_first": True,
            "tags": [{"begin": "<tool_call>", "content": {"type": "json_schema", "json_schema": schema},
                      "end": "</tool_call>"}]}} for schema in schemas]

        def judge(schema, text):
            match = re.fullmatch("(?s)<tool_call>(.*)</tool_call>", text)
            if not match:
                raise Broken("is no call")
            self.judge_schema(schema, match[1])

        self.check(zip(({"tag": tag} for tag in tags), schemas), judge)

    def test_the_validators_see_what_is_wrong(self):
        for schema, text in ((string(maxLength=129), '"a"\n"b"'), (string(maxLength=2), '"abc"'),
                             (string(format="date"), '"2024-02-30"'), (string(format="json-pointer"), '"a"'),
                             (string(), '"\\ud83d"'), (string(), '"\n"'),
                             ({"properties": {"a": {"type": "null"}}}, '{"a": null, "a": null}')):
            with self.assertRaises((Broken, ValueError), msg=f"{text} under {schema}"):
                self.judge_schema(schema, text)


if __name__ == "__main__":
    unittest.main()
