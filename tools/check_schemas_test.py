#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The check of schemas against a server that is none."""

import contextlib
import http.server
import io
import json
import unittest

import check_schemas
import fake_server


class FakeServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    content = '{"name": "x"}'
    finish = "stop"
    depends = False  # on speculation
    bodies = ()


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies += (body,)
        plain = body.get("speculative") is False
        content = self.server.content + (" " if plain and self.server.depends else "")
        answer = json.dumps({
            "choices": [{"message": {"content": content}, "finish_reason": self.server.finish}],
            "timings": {"predicted_n": 10, "predicted_ms": 100.0 if plain else 50.0},
            "speculation": {"rounds": 0 if plain else 4}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


@unittest.skipIf(check_schemas.jsonschema is None, "jsonschema is not installed")
class CheckSchemas(unittest.TestCase):
    def setUp(self):
        self.server = FakeServer(("127.0.0.1", 0), Handler)
        fake_server.serve(self, self.server)

    def run_main(self, *args):
        out, err = io.StringIO(), io.StringIO()
        url = f"http://127.0.0.1:{self.server.server_address[1]}"
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = check_schemas.main(["--url", url, "--answers", "1", *args])
        return status, out.getvalue(), err.getvalue()

    def test_the_schemas_are_schemas_of_which_no_answer_is_endless(self):
        schemas = check_schemas.read_schemas()
        self.assertEqual(len({entry["name"] for entry in schemas}), 20)
        for entry in schemas:
            check_schemas.jsonschema.Draft202012Validator.check_schema(entry["schema"])
            for part in parts(entry["schema"]):
                if part.get("type") == "string":
                    short = part.get("format") in ("date", "ipv4", "uuid") or {"maxLength", "pattern"} & set(part)
                    self.assertTrue(short, entry["name"])
                if part.get("type") == "array":
                    self.assertIn("maxItems", part, entry["name"])

    def test_valid_answers_and_their_speeds(self):
        self.server.content = '{"name": "Goethe", "profession": "poet", "born": 1749}'
        status, out, err = self.run_main()
        self.assertEqual((status, err), (0, ""))
        self.assertIn("valid answers  1 of 1", out)
        self.assertRegex(out, r"plain +100\.0 +100\.0 +1\.000 +1\.00 +1\.00")
        self.assertRegex(out, r"speculation +200\.0 +200\.0 +1\.000 +2\.50 +2\.50")
        self.assertIn("speculation is 2.00 times as fast with a schema, 2.00 times without", out)
        self.assertEqual(len(self.server.bodies), 4)
        self.assertEqual(self.server.bodies[3]["max_tokens"], 10)

    def test_what_is_not_valid_is_told(self):
        for content, finish, said in (('{"name": 5}', "stop", "5 is not of type 'string'"), ("x", "stop", "not JSON"),
                                      ('{"na', "length", "cut short")):
            self.server.content, self.server.finish = content, finish
            status, out, err = self.run_main("--no-speeds")
            self.assertEqual(status, 1)
            self.assertIn("valid answers  0 of 1", out)
            self.assertIn(said, err)

    def test_a_text_that_depends_on_speculation_is_told(self):
        self.server.content, self.server.depends = '{"name": "Goethe", "profession": "poet", "born": 1749}', True
        status, _, err = self.run_main()
        self.assertEqual(status, 1)
        self.assertIn("another text without speculation", err)

    # Called without what it needs, it ends with status 2.
    def test_options(self):
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(check_schemas.main([]), 2)


def parts(schema):
    """All objects in it."""
    if isinstance(schema, dict):
        yield schema
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from parts(inner)


if __name__ == "__main__":
    unittest.main()
