#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/deploy/: HAProxy in front of two servers, with the configuration as it is but for its ports; the unit of
systemd, as systemd reads it. Each is skipped where Debian's haproxy or systemd-analyze is not installed."""

import concurrent.futures
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

import test_server as serving

EXAMPLES = os.path.join(serving.ROOT, "examples/deploy")


def setUpModule():
    serving.setUpModule()


def tearDownModule():
    serving.tearDownModule()


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Proxied(serving.Server):
    """HAProxy, asked as a server is."""

    def __init__(self, servers):
        port = free_port()
        with open(os.path.join(EXAMPLES, "haproxy.cfg"), encoding="utf-8") as file:
            text = file.read()
        # That each of them is there once is part of the test.
        for address, to in (("127.0.0.1:8000", port), ("127.0.0.1:8081", servers[0].port),
                            ("127.0.0.1:8082", servers[1].port)):
            text, n = re.subn(re.escape(address) + r"\b", f"127.0.0.1:{to}", text)
            assert n == 1, (address, n)
        self.file = tempfile.NamedTemporaryFile("w", suffix=".cfg")
        self.file.write(text)
        self.file.flush()
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(["haproxy", "-db", "-f", self.file.name], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while True:
            try:
                self.get("/health")
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)
        self.file.close()


@unittest.skipUnless(shutil.which("haproxy"), "haproxy is not installed (Debian: haproxy)")
class HaProxy(unittest.TestCase):
    def setUp(self):
        self.servers = [serving.Server(), serving.Server()]
        for server in self.servers:
            self.addCleanup(server.__exit__)
        self.proxy = Proxied(self.servers)
        self.addCleanup(self.proxy.__exit__)

    def counts(self, name="prompt_tokens_total"):
        return [server.metric(name) for server in self.servers]

    def post(self, body, headers=None):
        status, _, text = self.proxy.request("POST", "/v1/completions", body, headers)
        self.assertEqual(status, 200, text)

    def test_requests_that_begin_alike_go_where_their_beginning_is_known(self):
        documents = [serving.words(200, 1000 * i) for i in range(12)]
        for document in documents:
            for question in ("What is it?", "Who wrote it, and when?", "Why?"):
                self.post(serving.completion(f"{document} {question}", max_tokens=2))
        # Nearly each document was evaluated once, whichever server had it (by chance it would be 21 times for 12), and
        # each server had some.
        n_tokens = [len(self.proxy.post("/tokenize", {"content": document})["tokens"]) for document in documents]
        evaluated = sum(self.counts()) - sum(self.counts("prefix_cache_hits_total"))
        self.assertLess(evaluated, sum(n_tokens) + 3 * max(n_tokens) + 36 * 40)
        self.assertTrue(all(self.counts()), self.counts())

    def test_a_conversation_says_by_a_header_or_a_field_that_it_is_one(self):
        # Their beginnings differ, but that is not asked.
        for mark in (lambda i: ({}, {"X-Conversation": "report-17"}),
                     lambda i: ({"prompt_cache_key": "report-18"}, {})):
            before = self.counts()
            for i in range(8):
                fields, headers = mark(i)
                # Fields stand before the prompt: HAProxy looks at as much of a body as fits its buffer.
                self.post({**fields, **serving.completion(f"{i} " + serving.words(20), max_tokens=2)}, headers)
            changed = [now - then for now, then in zip(self.counts(), before)]
            self.assertEqual(sum(n > 0 for n in changed), 1, changed)
        before = self.counts()
        for i in range(24):
            self.post(serving.completion(f"{i} " + serving.words(20), max_tokens=2))
        self.assertTrue(all(now > then for now, then in zip(self.counts(), before)))

    def test_a_stream_comes_as_it_is_written_and_its_end_is_noticed(self):
        sock = self.proxy.stream("/v1/completions", serving.completion("the sea", max_tokens=4000))
        serving.read_until(sock, b'"text"')
        self.assertEqual(sum(self.counts("generation_tokens_total")), 0)  # they count when the answer has ended
        sock.close()
        for server in self.servers:
            server.wait_for_rest()

    def test_when_a_server_stops_the_other_takes_its_requests(self):
        bodies = [serving.completion(f"{i} " + serving.words(20), max_tokens=4) for i in range(16)]
        texts = [self.proxy.post("/v1/completions", body)["choices"][0]["text"] for body in bodies]
        self.servers[0].__exit__()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            again = list(pool.map(lambda body: self.proxy.post("/v1/completions", body)["choices"][0]["text"], bodies))
        self.assertEqual(again, texts)


class Systemd(unittest.TestCase):
    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_the_unit_is_right(self):
        with open(os.path.join(EXAMPLES, "longspec.service"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn("/usr/local/bin/longspec serve", text)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "longspec.service")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace("/usr/local/bin/longspec", os.path.abspath(serving.BIN)))
            done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, timeout=60,
                                  check=False)
            complaints = [line for line in done.stderr.splitlines() if "longspec.service" in line]
            self.assertEqual((done.returncode, complaints), (0, []), done.stderr)

    def test_its_options_are_those_of_the_program(self):
        with open(os.path.join(EXAMPLES, "longspec.service"), encoding="utf-8") as file:
            options = re.findall(r"--[a-z-]+", re.search(r"^ExecStart=(.*)$", file.read(), re.MULTILINE)[1])
        said = subprocess.run([serving.BIN, "serve", "--help"], capture_output=True, text=True, timeout=60,
                              check=True).stdout
        for option in options:
            self.assertRegex(said, rf"{option}\b")


if __name__ == "__main__":
    unittest.main()
