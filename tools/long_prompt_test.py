#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is told of a server that keeps others going while a long prompt is evaluated, and of one that does not."""

import contextlib
import http.server
import io
import json
import threading
import time
import unittest

import fake_server
import long_prompt

STEP_S, LONG_S = 0.005, 0.5


class FakeServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    blocks = False  # everybody waits for the long prompt
    deaf = False  # /health does
    fails = False  # the long prompt is refused

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.free, self.long_ended = threading.Event(), threading.Event()
        self.free.set()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, data, status=200):
        text = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        if self.server.deaf:
            self.server.free.wait()
        self.reply({"status": "ok"})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            return self.reply({"tokens": list(range(100))})
        is_long = len(body["prompt"]) > 1000
        if is_long and self.server.fails:
            return self.reply({"error": "too long"}, 400)
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        if is_long:
            self.server.free.clear()
            time.sleep(LONG_S)
            self.server.free.set()
        elif body["max_tokens"] == 1 and self.server.blocks:
            self.server.long_ended.wait()
            time.sleep(10 * STEP_S)
        with contextlib.suppress(OSError):  # the client goes away
            for _ in range(min(body["max_tokens"], 10000)):
                if self.server.blocks:
                    self.server.free.wait()
                self.event({"choices": [{"index": 0, "text": "x"}]})
                time.sleep(STEP_S)
            self.wfile.write(b"data: [DONE]\n\n")
        if is_long:
            self.server.long_ended.set()

    def event(self, data):
        self.wfile.write(b"data: " + json.dumps(data).encode() + b"\n\n")


class LongPrompt(unittest.TestCase):
    def setUp(self):
        self.server = FakeServer()
        fake_server.serve(self, self.server)

    def run_main(self, *args):
        out, err = io.StringIO(), io.StringIO()
        url = f"http://127.0.0.1:{self.server.server_address[1]}"
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = long_prompt.main(["--url", url, "--prompt-tokens", "2000", *args])
        return status, out.getvalue(), err.getvalue()

    def measure(self):
        return long_prompt.measure(f"http://127.0.0.1:{self.server.server_address[1]}", "text", 2000)

    def test_one_that_keeps_others_going(self):
        measured = self.measure()
        self.assertGreater(len(measured.gaps), 3)
        self.assertGreater(len(measured.health), 3)
        self.assertGreaterEqual(measured.step, STEP_S)
        self.assertGreaterEqual(measured.long_first, LONG_S)
        self.assertGreater(measured.lead, 0)
        status, out, _ = self.run_main()
        self.assertIn("prompt of 2000 tokens   first token after", out)
        self.assertRegex(out, r"short prompt after it   first token after [\d.]+ ms, 0\.\d+ s before the long one's")
        self.assertIn(status, (0, 1))  # this machine may be slow

    def test_a_stream_that_stands_still_and_a_short_prompt_that_waits(self):
        self.server.blocks = True
        measured = self.measure()
        self.assertGreaterEqual(max(measured.gaps), 0.9 * LONG_S)
        self.assertLess(measured.lead, 0)
        complaints = list(measured.complaints())
        self.assertRegex(complaints[0], "99th percentile of the gaps is")
        self.assertRegex(complaints[-1], "the short prompt had its first token .* after the long one")

    def test_health_that_does_not_answer(self):
        self.server.deaf = True
        measured = self.measure()
        self.assertGreaterEqual(max(measured.health), 0.5 * LONG_S)
        self.assertTrue(any("/health is" in line for line in measured.complaints()))
        status, out, err = self.run_main()
        self.assertEqual(status, 1)
        self.assertRegex(out, r"/health meanwhile.*p99 OVER 50")
        self.assertIn("long_prompt: the 99th percentile of /health is", err)

    def test_what_is_kept(self):
        kept = long_prompt.Measured(step=0.01, gaps=[0.055] * 99 + [0.5], health=[0.001], lead=0.1)
        self.assertAlmostEqual(kept.most_gap_ms(), 60)
        self.assertEqual(list(kept.complaints()), [])
        slower = long_prompt.Measured(step=0.05, gaps=[0.2], health=[0.001], lead=0.1)
        self.assertAlmostEqual(slower.most_gap_ms(), 200)
        self.assertEqual(list(slower.complaints()), [])

    def test_a_request_that_fails(self):
        self.server.fails = True
        status, _, err = self.run_main()
        self.assertEqual(status, 1)
        self.assertIn('long_prompt: status 400: {"error": "too long"}', err)

    # Called without what it needs, it ends with status 2.
    def test_options(self):
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(long_prompt.main([]), 2)


if __name__ == "__main__":
    unittest.main()
