#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The load test against a server that is none: it writes texts that are functions of their requests, or not."""

import contextlib
import http.server
import io
import json
import threading
import time
import unittest
from unittest import mock

import fake_server
import load_test


class FakeServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.running = self.most_running = self.n_asked = 0
        self.wrong_together = False  # a text depends on who else is there
        self.full = 0  # so many requests are sent away first
        self.fails = False

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.n_asked += 1
            server.running += 1
            together = server.running > 1
            server.most_running = max(server.most_running, server.running)
            full, server.full = server.full > 0, max(0, server.full - 1)
        self.counted = True
        try:
            if full or server.fails:
                self.send_response(429 if full else 400)
                self.send_header("Retry-After", "0.01")
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")
            else:
                self.answer(body, together)
        except OSError:
            pass  # the client has gone
        finally:
            self.end()

    def end(self):
        """Counts as running no more: before the client can know that it is over, and ask again."""
        with self.server.lock:
            self.server.running -= self.counted
        self.counted = False

    def answer(self, body, together):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        time.sleep(0.01)
        for i in range(body["max_tokens"]):
            text = f"{hash((body['prompt'], body['seed'], i)) % 1000} "
            if self.server.wrong_together and together and i == 3:
                text = "oops "
            self.event({"choices": [{"index": 0, "text": text}]})
            time.sleep(0.001)
        self.event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": body["max_tokens"],
                                             "prompt_tokens_details": {"cached_tokens": 4}},
                    "timings": {"draft_n": 3, "draft_n_accepted": 2}})
        self.end()
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, data):
        self.wfile.write(b": ping\n\ndata: " + json.dumps(data).encode() + b"\n\n")


class LoadTest(unittest.TestCase):
    def setUp(self):
        self.server = FakeServer()
        fake_server.serve(self, self.server)

    def run_main(self, *args):
        """(status, standard output, standard error)"""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = load_test.main(["--url", self.server.url, "--max-tokens", "6:9", "--concurrency", "8", *args])
        return status, out.getvalue(), err.getvalue()

    def test_texts_that_are_as_alone(self):
        status, out, err = self.run_main("--requests", "12", "--rate", "200")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("12: 12 answered, 0 cancelled, 0 failed", out)
        self.assertIn("texts             12 of 12 as alone", out)
        self.assertIn("24 of 36 accepted", out)
        self.assertGreater(self.server.most_running, 1)
        self.assertLessEqual(self.server.most_running, 8)

    def test_a_text_that_depends_on_others_is_found(self):
        self.server.wrong_together = True
        status, out, err = self.run_main("--requests", "12")
        self.assertEqual(status, 1)
        self.assertRegex(err, r"request \d+ differs from its text alone at character \d+: 'oops ")
        self.assertNotIn("12 of 12 as alone", out)

    def test_cancelled_ones_are_compared_as_far_as_they_came(self):
        status, out, _ = self.run_main("--requests", "24", "--cancel", "1")
        self.assertEqual(status, 0)
        self.assertRegex(out, r"24: \d+ answered, ([1-9]|1\d|2\d) cancelled, 0 failed")
        self.server.wrong_together = True
        requests = load_test.plan(load_test.parse(["--requests", "8", "--max-tokens", "9"]))
        for request in requests:
            request.cancel_after_pieces = 6
        client = load_test.Client(self.server.url)
        outcomes, _ = load_test.run_load(client, requests, 8)
        self.assertTrue(all(outcome.cancelled for outcome in outcomes))
        alone = [client.ask(load_test.Request(0, request.body)) for request in requests]
        self.assertTrue(load_test.different(outcomes, alone))

    def test_a_full_queue_is_tried_again(self):
        self.server.full = 3
        status, out, _ = self.run_main("--requests", "4", "--no-check")
        self.assertEqual(status, 0)
        self.assertIn("4 answered, 0 cancelled, 0 failed, 3 retries", out)
        self.assertEqual(self.server.n_asked, 7)

    def test_failures_are_told(self):
        self.server.fails = True
        status, out, err = self.run_main("--requests", "2")
        self.assertEqual(status, 1)
        self.assertIn("2 failed", out)
        self.assertIn("request 0: status 400", err)

    def test_what_is_no_address(self):
        with contextlib.redirect_stderr(io.StringIO()) as err:
            self.assertEqual(load_test.main(["--url", "localhost:8080"]), 2)
        self.assertIn("--url", err.getvalue())


class Plan(unittest.TestCase):
    def plan(self, *args):
        return load_test.plan(load_test.parse(list(args)))

    def test_the_same_options_make_the_same_requests(self):
        self.assertEqual(self.plan("--rate", "5", "--cancel", "0.5"), self.plan("--rate", "5", "--cancel", "0.5"))
        self.assertNotEqual(self.plan("--seed", "1"), self.plan("--seed", "2"))

    def test_arrivals_lengths_and_shares(self):
        requests = self.plan("--requests", "400", "--rate", "10", "--prompt-words", "3:5", "--shared", "0.5",
                             "--shared-words", "7", "--cancel", "0.25", "--max-tokens", "2:4")
        self.assertEqual([r.at for r in requests], sorted(r.at for r in requests))
        self.assertAlmostEqual(requests[-1].at / 40, 1, delta=0.3)
        lengths = {len(r.body["prompt"].split()) for r in requests}
        self.assertEqual(lengths, {3, 4, 5, 10, 11, 12})
        self.assertAlmostEqual(sum(len(r.body["prompt"].split()) > 5 for r in requests) / 400, 0.5, delta=0.1)
        n_cancelled = sum(r.cancel_after_s is not None or r.cancel_after_pieces is not None for r in requests)
        self.assertAlmostEqual(n_cancelled / 400, 0.25, delta=0.1)
        self.assertEqual({r.body["max_tokens"] for r in requests}, {2, 3, 4})

    # Ranges without words or in the wrong order, and a chance above one, are refused.
    def test_wrong_options(self):
        for args in (("--prompt-words", "0"), ("--prompt-words", "5:3"), ("--cancel", "2")):
            with mock.patch("sys.stderr", io.StringIO()), self.assertRaises(SystemExit):
                self.plan(*args)

    # Percentiles are values that occurred, also of a single one, and times are told in milliseconds.
    def test_percentiles(self):
        values = list(range(1, 101))
        self.assertEqual([load_test.percentile(values, p) for p in (50, 90, 99, 100)], [50, 90, 99, 100])
        self.assertEqual(load_test.percentile([7], 99), 7)
        told = load_test.numbers([0.001, 0.003])
        self.assertEqual((told["mean"], told["p50"], told["max"]), (2.0, 1.0, 3.0))
        self.assertEqual(load_test.numbers([]), {})


if __name__ == "__main__":
    unittest.main()
