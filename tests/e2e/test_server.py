#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The server as its clients meet it: the openai and anthropic packages, sockets, faults, signals.

Needs the program ($LONGSPEC_BIN, default build/release/longspec) and make_tiny_model beside it in tools/, which writes
the models: random weights, so texts are noise, but each is one function of its request. The clients of clients.txt are
installed into build/clients; without them their tests fail.
"""

import concurrent.futures
import contextlib
import dataclasses
import gzip
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import typing
import unittest

import client_packages

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import load_test  # noqa: E402
from server_process import ServerProcess  # noqa: E402

BIN = os.environ.get("LONGSPEC_BIN", os.path.join(ROOT, "build/release/longspec"))
TOOL = os.path.join(os.path.dirname(BIN), "tools/make_tiny_model")
TIMEOUT = 120
OK, USAGE, FAILURE = 0, 2, 1

FOLDER = tempfile.TemporaryDirectory()
MODEL = os.path.join(FOLDER.name, "tiny.gguf")
SLOW_MODEL = os.path.join(FOLDER.name, "slow.gguf")  # its prompts take seconds


def setUpModule():
    if not os.access(BIN, os.X_OK):
        raise unittest.SkipTest(f"no program at {BIN}")
    subprocess.run([TOOL, "--out", MODEL, "--ctx", "4096", "--vocab", "1024"], check=True)
    subprocess.run([TOOL, "--out", SLOW_MODEL, "--ctx", "8192", "--layers", "8", "--embd", "512", "--heads", "8",
                    "--ff", "2048"], check=True)


def tearDownModule():
    FOLDER.cleanup()


def needs_time(test):
    """Prompts of the slow model take minutes under sanitizers."""
    return unittest.skipIf("LONGSPEC_SKIP_SLOW" in os.environ, "slow")(test)


class Server(ServerProcess):
    """The program, listening, and what is asked of it."""

    def __init__(self, *args, model=MODEL, host=None):
        where = ["--host", host] if host else ["--port", "0"]
        super().__init__([BIN, "serve", "-m", model, "-t", "2", "--no-progress", "--no-calibration-cache", *where,
                          *args],
                         seconds=TIMEOUT)

    @property
    def port(self):
        return int(self.url.rsplit(":", 1)[1])

    # --- requests ---

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), TIMEOUT)

    def request(self, method, path, body=None, headers=None):
        """(status, headers, body)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        with contextlib.closing(connection):
            data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
            connection.request(method, path, data, headers or {})
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def get(self, path):
        return self.request("GET", path)

    def post(self, path, body, status=200):
        got, _, text = self.request("POST", path, body)
        if got != status:
            raise AssertionError(f"{path}: status {got}: {text[:500]}")
        return json.loads(text)

    def text(self, prompt, **fields):
        return self.post("/v1/completions", completion(prompt, **fields))["choices"][0]["text"]

    def metric(self, name):
        text = self.get("/metrics")[2].decode()
        match = re.search(rf"^longspec:{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return float(match[1])

    def wait_for(self, name, value, seconds=TIMEOUT, pause=0.02):
        deadline = time.monotonic() + seconds
        while self.metric(name) != value:
            if time.monotonic() > deadline:
                raise AssertionError(f"{name} is {self.metric(name)}, not {value}, after {seconds} s")
            time.sleep(pause)

    def stream(self, path, body):
        """A socket on which the request was sent."""
        data = json.dumps({**body, "stream": True}).encode()
        sock = self.connect()
        sock.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        return sock

    def wait_for_rest(self):
        """Nothing runs, and nothing is held."""
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
            self.wait_for(name, 0)


# Arguments that random weights write in a few tokens.
SWITCH = {"type": "object", "properties": {"state": {"type": "string", "enum": ["on", "off"]}}, "required": ["state"],
          "additionalProperties": False}


def completion(prompt, **fields):
    return {"prompt": prompt, "max_tokens": 16, "temperature": 0.8, "seed": 11, "ignore_eos": True, **fields}


def read_until(sock, text):
    data = b""
    while text not in data:
        piece = sock.recv(65536)
        if not piece:
            raise AssertionError(f"the connection ended before {text}: {data[-300:]}")
        data += piece
    return data


def read_all(sock):
    data = b""
    while piece := sock.recv(65536):
        data += piece
    return data


def words(n, first=0):
    return " ".join(f"word{first + i}" for i in range(n))


class Http(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--max-body", "1")
        cls.addClassCleanup(cls.server.__exit__)

    def raw(self, data):
        with self.server.connect() as sock:
            sock.sendall(data)
            return read_all(sock)

    def test_health_models_and_props(self):
        self.assertEqual(json.loads(self.server.get("/health")[2]), {"status": "ok"})
        self.assertEqual(json.loads(self.server.get("/v1/models")[2])["data"][0]["id"], "tiny.gguf")
        props = json.loads(self.server.get("/props")[2])
        self.assertEqual(props["default_generation_settings"]["n_ctx"], 4096)
        self.assertIn("im_start", props["chat_template"])

    def test_head_has_no_body(self):
        answer = self.raw(b"HEAD /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        self.assertTrue(answer.startswith(b"HTTP/1.1 200 OK\r\n"))
        self.assertTrue(answer.endswith(b"\r\n\r\n"))

    def test_a_connection_is_kept_and_pipelined_requests_are_answered_in_order(self):
        two = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        answer = self.raw(two)
        self.assertLess(answer.index(b"200 OK"), answer.index(b"404 Not Found"))

    def test_http_1_0_gets_no_chunks(self):
        body = json.dumps(completion("the sea", stream=True)).encode()
        answer = self.raw(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        self.assertNotIn(b"chunked", answer)
        self.assertTrue(answer.endswith(b"data: [DONE]\n\n"))

    def test_expect_100_continue_and_chunked_bodies(self):
        body = b'{"content": "the sea"}'
        with self.server.connect() as sock:
            sock.sendall(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nConnection: close\r\n"
                         b"Content-Length: %d\r\n\r\n" % len(body))
            self.assertTrue(read_until(sock, b"\r\n\r\n").startswith(b"HTTP/1.1 100 Continue"))
            sock.sendall(body)
            self.assertIn(b'{"tokens":[', read_all(sock))
        chunked = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:7], body[7:])) + b"0\r\n\r\n"
        answer = self.raw(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
                          b"Connection: close\r\n\r\n" + chunked)
        self.assertIn(b'{"tokens":[', answer)

    # Headers and bodies that are too long are refused by their status, also if the length was not announced.
    def test_limits(self):
        self.assertTrue(self.raw(b"GET / HTTP/1.1\r\nX: " + b"x" * 20000 + b"\r\n\r\n").startswith(b"HTTP/1.1 431 "))
        announced = self.raw(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n")
        self.assertTrue(announced.startswith(b"HTTP/1.1 413 "), announced)
        grown = self.raw(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" +
                         b"10000\r\n" + b"x" * 65536 + b"\r\n" + (b"10000\r\n" + b"y" * 65536 + b"\r\n") * 20)
        self.assertTrue(grown.startswith(b"HTTP/1.1 413 "), grown)

    def test_what_is_no_http(self):
        for data in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 4, b"GET /health HTTP/9.9\r\n\r\n",
                     b"GET /health\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
                     b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"):
            answer = self.raw(data)
            self.assertTrue(not answer or re.match(rb"HTTP/1.1 (400|505) ", answer), (data, answer))
        self.assertEqual(self.server.get("/health")[0], 200)

    # No bytes that a body may have take the server down: each is refused in JSON, or meant something after all.
    def test_broken_bodies(self):
        for body in (b"\xff\xfe\xfa", b"{", b'{"prompt": "\xc3\x28"}', b"[" * 500000, b'{"prompt": 1e999}', b"",
                     b'{"prompt": "x", "max_tokens": 1.5}', b"null", b'{"messages": [[[]]]}'):
            for path in ("/v1/completions", "/v1/chat/completions", "/completion", "/tokenize", "/detokenize",
                         "/apply-template", "/v1/messages", "/v1/messages/count_tokens"):
                status, _, text = self.server.request("POST", path, body)
                lenient = path in ("/tokenize", "/detokenize") or (path == "/completion" and b'"x"' in body)
                self.assertIn(status, (200, 400, 413) if lenient else (400, 413), (path, body[:40], text))
                if status != 200:
                    self.assertTrue(json.loads(text)["error"]["message"])

    # A compressed body is what it was before; one that grows beyond the limit, and another compression, are refused.
    def test_compressed_bodies(self):
        body = json.dumps({"content": "the sea"}).encode()
        status, _, text = self.server.request("POST", "/tokenize", gzip.compress(body), {"Content-Encoding": "gzip"})
        self.assertEqual(status, 200, text)
        self.assertEqual(json.loads(text), self.server.post("/tokenize", {"content": "the sea"}))
        bomb = gzip.compress(b" " * (2 << 20) + body)  # more than --max-body
        status, _, text = self.server.request("POST", "/tokenize", bomb, {"Content-Encoding": "gzip"})
        self.assertEqual(status, 413, text)
        status, headers, _ = self.server.request("POST", "/tokenize", body, {"Content-Encoding": "zstd"})
        self.assertEqual((status, headers["Accept-Encoding"]), (415, "gzip, deflate, identity"))

    def test_the_methods_of_a_route(self):
        status, headers, _ = self.server.request("DELETE", "/v1/models")
        self.assertEqual((status, headers["Allow"]), (405, "GET, HEAD, OPTIONS"))

    # So many connections at once are all served, and are gone when they are closed.
    def test_500_connections(self):
        with contextlib.ExitStack() as stack:
            socks = [stack.enter_context(self.server.connect()) for _ in range(500)]
            self.assertEqual(self.server.get("/health")[0], 200)
            for sock in socks:
                sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            for sock in socks:
                self.assertIn(b"200 OK", read_until(sock, b'"ok"'))
            self.assertGreaterEqual(self.server.metric("http_connections"), 500)
        self.server.wait_for("http_connections", 1)  # the one that asks

    def test_a_half_closed_client_counts_as_gone(self):
        sock = self.server.stream("/v1/completions", completion("the sea", max_tokens=4000))
        with sock:
            read_until(sock, b'"text"')
            sock.shutdown(socket.SHUT_WR)
            self.server.wait_for_rest()

    def test_one_line_in_the_log_for_each_request(self):
        before = len(self.server.log)
        self.server.text("the sky")
        time.sleep(0.2)
        lines = [line for line in self.server.log[before:] if "path=/v1/completions" in line]
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], r"status=200 ms=[\d.]+ .*prompt_tokens=\d+ .*tokens=16 .*finish=length")


class Load(unittest.TestCase):
    """tools/load_test.py's requests: random arrivals and lengths, a shared document, clients that go away."""

    N = 16 if "LONGSPEC_SKIP_SLOW" in os.environ else 64

    def requests(self):
        options = load_test.parse(["--requests", str(self.N), "--rate", "40", "--prompt-words", "4:100", "--max-tokens",
                                   "8:80", "--shared", "0.5", "--shared-words", "60", "--cancel", "0.3"])
        requests = load_test.plan(options)
        for i, request in enumerate(requests):
            request.body.update([{"temperature": 0}, {"top_k": 20},
                                 {"speculative": {"drafters": "ngram", "max_rows": 6}}, {"speculative": False},
                                 {"repeat_penalty": 1.2}, {"logprobs": 2}][i % 6])
        return requests

    def test_64_mixed_requests_16_at_once_say_what_each_says_alone(self):
        requests = self.requests()
        loads = []
        with Server("--parallel", "16") as server:
            for _ in range(2):  # with an empty cache, and all of it known
                loads.append(load_test.run_load(load_test.Client(server.url), requests, 16)[0])
        # With memory for hardly more than the longest; all at once, as often as somebody has to wait for it.
        rush = [dataclasses.replace(request, at=0) for request in requests]
        with Server("--parallel", "16", "-c", "1280", "--cache-ram", "0", "--prefill-ms", "1000") as server:
            preemptions = 0
            for _ in range(24):
                loads.append(load_test.run_load(load_test.Client(server.url), rush, 16)[0])
                server.wait_for_rest()
                preemptions = server.metric("num_preemptions_total")
                if preemptions > 0:
                    break
        if self.N == 64:
            self.assertGreater(preemptions, 0)
        with Server("--parallel", "1", "--no-cache-prompt", "--spec-type", "none") as server:
            alone = [load_test.Client(server.url).ask(load_test.Request(0, request.body)) for request in requests]
        for outcomes in loads:
            self.assertEqual([outcome.error for outcome in outcomes if outcome.error], [])
            self.assertGreater(sum(outcome.cancelled for outcome in outcomes), self.N // 20)
            self.assertGreater(sum(not outcome.cancelled for outcome in outcomes), self.N // 2)
            self.assertEqual(load_test.different(outcomes, alone), [])


class Operation(unittest.TestCase):
    def test_sigterm_lets_what_runs_end_and_takes_nothing_new(self):
        with Server("--drain-timeout", "600") as server:
            body = completion("the sea", max_tokens=400)
            whole = server.text("the sea", max_tokens=400)
            sock = server.stream("/v1/completions", body)
            data = read_until(sock, b'"text"')
            server.process.send_signal(signal.SIGTERM)
            data += read_all(sock)
            sock.close()
            text = "".join(event["choices"][0]["text"] for event in events(data) if event["choices"])
            self.assertEqual(text, whole)
            self.assertEqual(server.process.wait(30), OK)
            with self.assertRaises(OSError):
                server.connect()

    @needs_time
    def test_a_second_signal_does_not_wait(self):
        with Server("--drain-timeout", "600", model=SLOW_MODEL) as server:
            sock = server.stream("/v1/completions", completion("the sea", max_tokens=8000))
            read_until(sock, b'"text"')
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.1)
            self.assertIsNone(server.process.poll())
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(10), 130)
            sock.close()

    def test_a_unix_socket(self):
        path = os.path.join(FOLDER.name, "server.sock")
        for _ in range(2):  # the second finds what the first, killed, left behind
            server = Server(host=f"unix:{path}")
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(path)
                sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                self.assertIn(b"200 OK", read_until(sock, b'"ok"'))
            server.process.kill()
            server.__exit__()
        self.assertTrue(os.path.exists(path))

    def test_a_port_that_is_taken(self):
        with Server() as server:
            done = subprocess.run([BIN, "serve", "-m", MODEL, "--no-progress", "--port", str(server.port)],
                                  stderr=subprocess.PIPE, text=True, timeout=TIMEOUT, check=False)
            self.assertNotEqual(done.returncode, OK)
            self.assertIn(f"cannot listen on 127.0.0.1:{server.port}: Address already in use", done.stderr)

    def test_a_script_for_llama_server(self):
        with Server("-c", "1024", "-ngl", "99", "--jinja", "-cb", "--mlock", "--no-mmap", "-np", "-1", "-fa", "on",
                    "--log-disable", "--no-warmup", "--metrics") as server:
            self.assertEqual(server.get("/health")[0], 200)
            warnings = [line for line in server.log if "warning" in line]
            self.assertEqual(len(warnings), 1, warnings)
            self.assertIn("-ngl, --jinja, -cb, --mlock, --no-mmap, -fa, --log-disable and --no-warmup "
                          "have no effect here", warnings[0])

    def test_pages_of_elsewhere(self):
        with Server("--cors-origins", "https://chat.example") as server:
            for origin, status in (("https://chat.example", 200), ("https://evil.example", 403),
                                   (server.url, 200), ("http://localhost:3000", 403)):
                got, headers, _ = server.request("GET", "/v1/models", headers={"Origin": origin})
                self.assertEqual(got, status, origin)
                self.assertEqual(headers["Access-Control-Allow-Origin"], origin if status == 200 else None)

    def test_what_is_thought(self):
        """Options say it of all chats."""
        chat = {"messages": [{"role": "user", "content": "the sea"}], "max_tokens": 60,
                "grammar": 'root ::= "<think>" [a-z] "</think>" [A-Z]'}
        with Server("--reasoning-format", "deepseek", "-rea", "off") as server:
            if b"get_xgrammar" in server.request("POST", "/v1/chat/completions", chat)[2]:
                self.skipTest("built without xgrammar")
            message = server.post("/v1/chat/completions", chat)["choices"][0]["message"]
            self.assertRegex(message["reasoning_content"], "^[a-z]$")
            self.assertRegex(message["content"], "^[A-Z]$")
            inside = server.post("/v1/chat/completions", {**chat, "reasoning_format": "none"})
            self.assertRegex(inside["choices"][0]["message"]["content"], "^<think>.</think>.$")

    # What serving cannot be started with is said at once, by the option's name.
    def test_bad_options(self):
        for args, part in ((("--port", "99999"), "--port"), (("--slot-save-path", "/nonexistent"), "--slot-save-path"),
                           (("--parallel", "-2"), "--parallel"), (("--spec-type", "magic"), "magic"),
                           (("--cors-origins", "chat.example"), "chat.example"), (("--lora", "a.gguf"), "--lora: ")):
            done = subprocess.run([BIN, "serve", "-m", MODEL, "--no-progress", *args], stderr=subprocess.PIPE,
                                  text=True, timeout=TIMEOUT, check=False)
            self.assertEqual(done.returncode, USAGE, done.stderr)
            self.assertIn(part, done.stderr)


def events(data):
    """Of a chunked response as it came over the wire."""
    body = data.split(b"\r\n\r\n", 1)[1] if data.startswith(b"HTTP/") else data
    text = b"".join(re.findall(rb"(?s)[0-9a-f]+\r\n(data: .*?\n\n|: ping\n\n|event: .*?\n\n)\r\n", body)).decode()
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


class Clients(unittest.TestCase):
    """The packages that users have, unchanged."""

    @classmethod
    def setUpClass(cls):
        client_packages.use()
        import anthropic
        import openai
        cls.anthropic_package, cls.openai_package = anthropic, openai
        cls.server = Server("--api-key", "secret", "--alias", "little")
        cls.addClassCleanup(cls.server.__exit__)
        cls.openai = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="secret")
        cls.anthropic = anthropic.Anthropic(base_url=cls.server.url, api_key="secret")

    def chat(self, **fields):
        return self.openai.chat.completions.create(**{"model": "little", "max_tokens": 24, "temperature": 0.7,
                                                      "seed": 5, "messages": [{"role": "user", "content": "the sea"}],
                                                      **fields})

    # OpenAI's client lists and finds the model by the name that it is served under.
    def test_models(self):
        self.assertEqual([model.id for model in self.openai.models.list()], ["little"])
        self.assertEqual(self.openai.models.retrieve("little").id, "little")
        with self.assertRaises(self.openai_package.NotFoundError):
            self.openai.models.retrieve("big")

    def test_chat_with_and_without_a_stream(self):
        whole = self.chat()
        self.assertIn(whole.choices[0].finish_reason, ("stop", "length"))
        self.assertEqual(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens)
        self.assertIsNotNone(whole.usage.completion_tokens_details.accepted_prediction_tokens)
        text, usage, role = "", None, None
        for chunk in self.chat(stream=True, stream_options={"include_usage": True}):
            if chunk.choices:
                role = role or chunk.choices[0].delta.role
                text += chunk.choices[0].delta.content or ""
            usage = chunk.usage or usage
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(role, "assistant")
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)

    # Three answers to one request, which are the same streamed.
    def test_several_choices(self):
        whole = self.chat(n=3)
        self.assertEqual([choice.index for choice in whole.choices], [0, 1, 2])
        texts = ["", "", ""]
        for chunk in self.chat(n=3, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
        self.assertEqual(texts, [choice.message.content for choice in whole.choices])

    # As many of the likeliest tokens as asked for, for each token, in both of OpenAI's forms.
    def test_logprobs(self):
        whole = self.chat(logprobs=True, top_logprobs=2, extra_body={"ignore_eos": True})
        content = whole.choices[0].logprobs.content
        self.assertEqual(len(content), 24)
        self.assertTrue(all(len(token.top_logprobs) == 2 for token in content))
        text = self.openai.completions.create(model="little", prompt="the sea", max_tokens=5, logprobs=1, seed=3,
                                              extra_body={"ignore_eos": True})
        self.assertEqual(len(text.choices[0].logprobs.tokens), 5)
        self.assertEqual(text.choices[0].logprobs.text_offset[0], 0)

    # The text ends before the stop string, and says so.
    def test_stop(self):
        whole = self.openai.completions.create(model="little", prompt="the sea", max_tokens=40, seed=3,
                                               extra_body={"ignore_eos": True}).choices[0].text
        stop = whole[10:13]
        cut = self.openai.completions.create(model="little", prompt="the sea", max_tokens=40, seed=3, stop=[stop],
                                             extra_body={"ignore_eos": True}).choices[0]
        self.assertEqual(cut.text, whole[:whole.index(stop)])
        self.assertEqual(cut.finish_reason, "stop")

    # A predicted text changes nothing of the answer, and is what was accepted of it.
    def test_prediction(self):
        plain = self.chat(temperature=0, extra_body={"ignore_eos": True}).choices[0].message.content
        predicted = self.chat(temperature=0, prediction={"type": "content", "content": plain},
                              extra_body={"ignore_eos": True, "speculative": {"drafters": "prediction", "max_rows": 8}})
        self.assertEqual(predicted.choices[0].message.content, plain)
        self.assertGreater(predicted.usage.completion_tokens_details.accepted_prediction_tokens, 0)

    # What is wrong arrives in the client as the exception that OpenAI's own server would cause.
    def test_errors(self):
        with self.assertRaises(self.openai_package.BadRequestError) as raised:
            self.chat(temperature=9)
        self.assertEqual(raised.exception.param, "temperature")
        self.assertIn("from 0 to 2", raised.exception.message)
        with self.assertRaises(self.openai_package.BadRequestError) as raised:
            self.chat(messages=[{"role": "user", "content": words(2000)}])
        self.assertEqual(raised.exception.type, "exceed_context_size_error")
        self.assertEqual(raised.exception.body["n_ctx"], 4096)
        with self.assertRaises(self.openai_package.AuthenticationError):
            self.openai_package.OpenAI(base_url=self.server.url + "/v1", api_key="guess").completions.create(
                model="little", prompt="x")
        with self.assertRaises(self.openai_package.NotFoundError):
            self.openai.embeddings.create(model="little", input="x")

    @needs_time
    def test_a_full_queue_is_retried(self):
        with Server("--parallel", "1", "--max-queued-requests", "1") as server:
            client = self.openai_package.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=20)
            ask = lambda i: client.completions.create(model="x", prompt=f"chapter {i}", max_tokens=60,
                                                      extra_body={"ignore_eos": True}).usage.completion_tokens
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                self.assertEqual(list(pool.map(ask, range(6))), [60] * 6)
        with Server("--parallel", "1", "--max-queued-requests", "1", model=SLOW_MODEL) as server:
            once = self.openai_package.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
            endless = completion("the sea", max_tokens=8000)
            with server.stream("/v1/completions", endless) as running:
                read_until(running, b'"text"')
                with server.stream("/v1/completions", endless):
                    server.wait_for("num_requests_waiting", 1)
                    with self.assertRaises(self.openai_package.RateLimitError) as raised:
                        once.completions.create(model="x", prompt="y")
                    self.assertEqual(raised.exception.response.headers["retry-after"], "1")

    # --- tools and forms of answers ---

    def needs_grammars(self):
        status, _, text = self.server.request("POST", "/completion", {"prompt": "x", "json_schema": {}, "n_predict": 1},
                                              {"Authorization": "Bearer secret"})
        if status == 400 and b"get_xgrammar" in text:
            self.skipTest("built without xgrammar")

    def tools_of_a_chat(self):
        return {"tools": [{"type": "function", "function": {"name": name, "description": "Switches it.", "strict": True,
                                                            "parameters": SWITCH}} for name in ("lamp", "fan")],
                "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 400}

    # A call that the client can read; its result goes back into the chat, and tools that are not offered are not told
    # of.
    def test_tools(self):
        self.needs_grammars()
        whole = self.chat(**self.tools_of_a_chat())
        choice = whole.choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        self.assertIsNone(choice.message.content)
        call, = choice.message.tool_calls
        self.assertIn(call.function.name, ("lamp", "fan"))
        self.assertIn(json.loads(call.function.arguments)["state"], ("on", "off"))
        # Their results go back as they came.
        turns = [{"role": "user", "content": "the sea"}, choice.message.model_dump(exclude_none=True),
                 {"role": "tool", "tool_call_id": call.id, "content": "done"}]
        again = self.chat(messages=turns, tools=self.tools_of_a_chat()["tools"], tool_choice="none")
        self.assertIsNone(again.choices[0].message.tool_calls)
        self.assertGreater(again.usage.prompt_tokens,
                           self.chat().usage.prompt_tokens)  # tools that are not offered are not told
        named = self.chat(**{**self.tools_of_a_chat(),
                             "tool_choice": {"type": "function", "function": {"name": "fan"}}})
        self.assertEqual(named.choices[0].message.tool_calls[0].function.name, "fan")

    # Calls in pieces: the first has id and name, and the pieces together are the whole call.
    def test_streamed_tools(self):
        self.needs_grammars()
        whole = self.chat(n=2, **self.tools_of_a_chat())
        calls, finish = [None, None], [None, None]
        for chunk in self.chat(n=2, stream=True, **self.tools_of_a_chat()):
            for choice in chunk.choices:
                finish[choice.index] = choice.finish_reason or finish[choice.index]
                for delta in choice.delta.tool_calls or ():
                    self.assertEqual(delta.index, 0)
                    if calls[choice.index] is None:
                        self.assertEqual(delta.type, "function")
                        calls[choice.index] = [delta.function.name, delta.function.arguments, delta.id]
                    else:
                        self.assertIsNone(delta.id)
                        calls[choice.index][1] += delta.function.arguments
        self.assertEqual(finish, ["tool_calls"] * 2)
        self.assertEqual([call[:2] for call in calls],
                         [[choice.message.tool_calls[0].function.name, choice.message.tool_calls[0].function.arguments]
                          for choice in whole.choices])
        self.assertNotEqual(calls[0][2], calls[1][2])
        # The package's own way of putting a stream together.
        ask = {"model": "little", "temperature": 0.7, "seed": 5, "messages": [{"role": "user", "content": "the sea"}]}
        with self.openai.chat.completions.stream(**ask, **self.tools_of_a_chat()) as stream:
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].message.tool_calls[0].function.arguments, calls[0][1])

    def test_the_agent_of_the_page_in_docs(self):
        self.needs_grammars()
        with open(os.path.join(ROOT, "docs/server.md"), encoding="utf-8") as file:
            program, = re.findall(r"(?s)```python\n(import json\n.*?)```", file.read())
        program, n = re.subn(r'base_url="[^"]*", api_key="none"', f'base_url="{self.server.url}/v1", api_key="secret"',
                             program)
        self.assertEqual(n, 1)
        done = subprocess.run([os.path.join(client_packages.CLIENTS, "bin/python"), "-c", program],
                              capture_output=True, text=True, timeout=TIMEOUT, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreaterEqual(int(done.stdout.split()[0]), 3)  # what was asked, a call and its result

    # The client's own helpers make an object of an answer that a schema was given for.
    def test_structured_output(self):
        self.needs_grammars()
        import pydantic

        class Verdict(pydantic.BaseModel):
            verdict: typing.Literal["yes", "no"]
            sure: bool

        ask = {"model": "little", "seed": 5, "messages": [{"role": "user", "content": "the sea"}], "max_tokens": 400}
        parsed = self.openai.chat.completions.parse(response_format=Verdict, **ask).choices[0]
        self.assertEqual(parsed.finish_reason, "stop")
        self.assertIn(parsed.message.parsed.verdict, ("yes", "no"))
        with self.openai.chat.completions.stream(response_format=Verdict, **ask) as stream:
            self.assertEqual(stream.get_final_completion().choices[0].message.parsed, parsed.message.parsed)
        response = self.openai.responses.parse(model="little", input="the sea", text_format=Verdict,
                                               max_output_tokens=400)
        self.assertIn(response.output_parsed.verdict, ("yes", "no"))
        with self.assertRaises(self.openai_package.BadRequestError) as raised:
            self.chat(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"not": {}}}})
        self.assertEqual(raised.exception.param, "response_format")
        self.assertIn("not is not supported", raised.exception.message)

    def test_tools_of_responses(self):
        self.needs_grammars()
        tool = {"type": "function", "name": "lamp", "parameters": SWITCH, "strict": True}
        ask = {"model": "little", "input": "the sea", "max_output_tokens": 400, "tools": [tool],
               "tool_choice": "required", "parallel_tool_calls": False, "extra_body": {"seed": 5}}
        whole = self.openai.responses.create(**ask)
        call, = whole.output
        self.assertEqual((whole.status, call.type, call.name), ("completed", "function_call", "lamp"))
        self.assertIn(json.loads(call.arguments)["state"], ("on", "off"))
        self.assertEqual(whole.tools[0].name, "lamp")
        told, final = "", None
        for event in self.openai.responses.create(stream=True, **ask):
            if event.type == "response.function_call_arguments.delta":
                told += event.delta
            if event.type == "response.function_call_arguments.done":
                self.assertEqual(event.arguments, told)
            if event.type == "response.completed":
                final = event.response
        self.assertEqual(told, call.arguments)
        self.assertEqual(final.output[0].arguments, call.arguments)
        turns = [{"role": "user", "content": "the sea"}, call.model_dump(exclude_none=True),
                 {"type": "function_call_output", "call_id": call.call_id, "output": "done"}]
        again = self.openai.responses.create(model="little", input=turns, max_output_tokens=16)
        self.assertGreater(again.usage.input_tokens, 16)

    # Anthropic's client reads a call, whole and in pieces.
    def test_anthropic_tools(self):
        self.needs_grammars()
        tools = [{"name": name, "description": "Switches it.", "input_schema": SWITCH} for name in ("lamp", "fan")]
        ask = {"model": "little", "max_tokens": 400, "messages": [{"role": "user", "content": "the sea"}],
               "tools": tools, "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
               "extra_body": {"seed": 3}}
        whole = self.anthropic.messages.create(**ask)
        self.assertEqual(whole.stop_reason, "tool_use")
        call, = whole.content
        self.assertEqual(call.type, "tool_use")
        self.assertIn(call.input["state"], ("on", "off"))
        with self.anthropic.messages.stream(**ask) as stream:
            pieces = [event.partial_json for event in stream if event.type == "input_json"]
            final = stream.get_final_message()
        self.assertEqual(json.loads("".join(pieces)), call.input)
        self.assertEqual([(block.name, block.input) for block in final.content], [(call.name, call.input)])
        self.assertEqual(final.stop_reason, "tool_use")
        turns = ask["messages"] + [
            {"role": "assistant", "content": [call.model_dump(exclude_none=True)]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "done"}]}]
        again = self.anthropic.messages.create(**{**ask, "messages": turns, "max_tokens": 16,
                                                  "tool_choice": {"type": "none"}})
        self.assertIn(again.stop_reason, ("end_turn", "max_tokens"))
        counted = self.anthropic.messages.count_tokens(model="little", messages=ask["messages"], tools=tools)
        self.assertEqual(counted.input_tokens, whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0))

    # OpenAI's Responses API: streamed text is the whole text, and what needs a memory of earlier ones is refused.
    def test_responses(self):
        ask = {"model": "little", "input": "the sea", "instructions": "Be brief.", "max_output_tokens": 24,
               "temperature": 0.7, "extra_body": {"seed": 5}}
        whole = self.openai.responses.create(**ask)
        self.assertGreater(whole.usage.output_tokens, 0)
        text, final = "", None
        for event in self.openai.responses.create(stream=True, **ask):
            if event.type == "response.output_text.delta":
                text += event.delta
            if event.type in ("response.completed", "response.incomplete"):
                final = event.response
        self.assertEqual(text, whole.output_text)
        self.assertEqual(final.output_text, whole.output_text)
        self.assertEqual(final.status, whole.status)
        with self.assertRaises(self.openai_package.BadRequestError):
            self.openai.responses.create(model="little", input="x", previous_response_id="resp_1")

    # Anthropic's client: streamed text is the whole text, and counted tokens are those that are used.
    def test_anthropic_messages(self):
        ask = {"model": "little", "max_tokens": 24, "system": "Be brief.",
               "messages": [{"role": "user", "content": "the sea"}], "extra_body": {"seed": 3}}
        whole = self.anthropic.messages.create(**ask)
        self.assertEqual(whole.role, "assistant")
        self.assertIn(whole.stop_reason, ("end_turn", "max_tokens"))
        with self.anthropic.messages.stream(**ask) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, "".join(block.text for block in whole.content))
        self.assertEqual(final.stop_reason, whole.stop_reason)
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)
        counted = self.anthropic.messages.count_tokens(model="little", system="Be brief.", messages=ask["messages"])
        self.assertEqual(counted.input_tokens,
                         whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0))

    def test_anthropic_thoughts_and_prefills(self):
        """What Claude Code sends, and an answer that begins with what the client said it should."""
        messages = [{"role": "user", "content": "the sea"},
                    {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"},
                                                      {"type": "text", "text": "the sea and"}]}]
        sampling = {"seed": 3, "temperature": 0.5}
        ask = {"model": "little", "max_tokens": 8, "messages": messages,
               "extra_body": {**sampling, "context_management": {"edits": []}, "output_config": {"effort": "low"}},
               "extra_headers": {"anthropic-beta": "context-management-2025-06-27,interleaved-thinking-2025-05-14"}}
        whole = self.anthropic.messages.create(thinking={"type": "enabled", "budget_tokens": 1024}, **ask)

        def post(path, body):
            return json.loads(self.server.request("POST", path, body, {"Authorization": "Bearer secret"})[2])

        prompt = post("/apply-template", {"messages": [{"role": "user", "content": "the sea"},
                                                       {"role": "assistant", "content": "the sea and"}]})["prompt"]
        self.assertTrue(prompt.endswith("the sea and"), prompt)
        self.assertEqual(whole.content[0].text,
                         post("/completion", {"prompt": prompt, "n_predict": 8, **sampling})["content"])
        self.assertFalse(hasattr(whole, "timings"))

    def test_thoughts(self):
        """Of a model that is made to think by a grammar."""
        self.needs_grammars()
        extra = {"reasoning_format": "deepseek",
                 "grammar": r'root ::= "<think>\n" [a-z]{3,9} " <" "\n</think>\n\n" [A-Z]{3,9}'}
        whole = self.chat(extra_body=extra, max_tokens=200).choices[0].message
        self.assertRegex(whole.reasoning_content, r"^[a-z]{3,9} <$")
        self.assertRegex(whole.content, r"^[A-Z]{3,9}$")
        thought = text = ""
        for chunk in self.chat(extra_body=extra, max_tokens=200, stream=True):
            for choice in chunk.choices:
                thought += getattr(choice.delta, "reasoning_content", None) or ""
                text += choice.delta.content or ""
        self.assertEqual((thought, text), (whole.reasoning_content, whole.content))
        ask = {"model": "little", "max_tokens": 200, "messages": [{"role": "user", "content": "the sea"}],
               "thinking": {"type": "enabled", "budget_tokens": 1024}, "extra_body": {**extra, "seed": 5}}
        blocks = self.anthropic.messages.create(**ask).content
        self.assertEqual([block.type for block in blocks], ["thinking", "text"])
        with self.anthropic.messages.stream(**ask) as stream:
            final = stream.get_final_message()
        self.assertEqual((final.content[0].thinking, final.content[1].text), (blocks[0].thinking, blocks[1].text))
        ask = {"model": "little", "input": "the sea", "max_output_tokens": 200, "extra_body": {**extra, "seed": 5}}
        items = self.openai.responses.create(**ask).output
        self.assertEqual([item.type for item in items], ["reasoning", "message"])
        with self.openai.responses.stream(**ask) as stream:
            deltas = "".join(event.delta for event in stream if event.type == "response.reasoning_text.delta")
            last = stream.get_final_response()
        self.assertEqual(deltas, items[0].content[0].text)
        self.assertEqual(last.output[1].content[0].text, items[1].content[0].text)

    # What is wrong arrives in Anthropic's client as its own exceptions.
    def test_anthropic_errors(self):
        with self.assertRaises(self.anthropic_package.BadRequestError) as raised:
            self.anthropic.messages.create(model="little", max_tokens=-2, messages=[{"role": "user", "content": "x"}])
        self.assertEqual(raised.exception.body["error"]["type"], "invalid_request_error")
        with self.assertRaises(self.anthropic_package.AuthenticationError):
            self.anthropic_package.Anthropic(base_url=self.server.url, api_key="guess").messages.create(
                model="little", max_tokens=1, messages=[{"role": "user", "content": "x"}])


if __name__ == "__main__":
    unittest.main()
