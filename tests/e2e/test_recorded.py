#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What programs that people have send (recorded_requests.py) is answered in the shape that they read.

Editors ask a tiny model of random weights whose vocabulary has the tokens for texts with a hole ($LONGSPEC_BIN, default
build/release/longspec, and make_tiny_model beside it in tools/); the others SmolLM2 (make model MODEL=smollm2).
"""

import http.client
import json
import os
import subprocess
import sys
import tempfile
import unittest
import urllib.parse

import recorded_requests

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
from server_process import ServerProcess  # noqa: E402

BIN = os.environ.get("LONGSPEC_BIN", os.path.join(ROOT, "build/release/longspec"))
TOOL = os.path.join(os.path.dirname(BIN), "tools/make_tiny_model")
SMALL = os.path.join(ROOT, "models/SmolLM2-135M-Instruct.Q4_1.gguf")
GRAMMARS = os.path.isdir(os.path.join(ROOT, "third_party/xgrammar-0.2.8"))


class Answer:
    def __init__(self, response, body):
        self.headers, self.text = response.headers, response.read().decode()
        self.body = body

    def json(self):
        return json.loads(self.text)

    def events(self):
        """(name or None, data) of each, in their order; comments are nobody's."""
        assert self.headers["Content-Type"].startswith("text/event-stream"), self.headers["Content-Type"]
        for block in self.text.split("\n\n"):
            lines = [line for line in block.split("\n") if line and not line.startswith(":")]
            fields = dict(line.split(": ", 1) for line in lines)
            if fields:
                yield fields.get("event"), fields["data"]


class Shapes:
    """What programs read of answers: one method for each name in a request's `reads`."""

    def __init__(self, test):
        self.test = test
        self.equal, self.isin, self.isa = test.assertEqual, test.assertIn, test.assertIsInstance

    # --- OpenAI's ---

    def usage(self, usage):
        self.equal(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])

    def choice(self, answer):
        whole = answer.json()
        self.equal(whole["object"], "chat.completion")
        self.usage(whole["usage"])
        choice, = whole["choices"]
        self.equal((choice["index"], choice["message"]["role"]), (0, "assistant"))
        self.isin(choice["finish_reason"], ("stop", "length", "tool_calls"))
        return choice

    def calls(self, calls):
        for call in calls:
            self.equal(call["type"], "function")
            self.isa(call["id"], str)
            json.loads(call["function"]["arguments"])

    def chat(self, answer):
        choice = self.choice(answer)
        calls = choice["message"].get("tool_calls") or []
        self.equal(choice["finish_reason"] == "tool_calls", bool(calls))
        self.calls(calls)
        if not calls:
            self.isa(choice["message"]["content"], str)

    def chat_of_nothing(self, answer):
        self.equal(self.choice(answer)["message"]["content"], "")

    def call(self, answer):
        choice = self.choice(answer)
        self.equal(choice["finish_reason"], "tool_calls")
        self.calls(choice["message"]["tool_calls"])
        self.isin(choice["message"]["tool_calls"][0]["function"]["name"], ("Forecast", "weather"))

    def json_text(self, answer):
        choice = self.choice(answer)
        if choice["finish_reason"] == "stop":  # else it was cut short
            json.loads(choice["message"]["content"])

    def object(self, answer):
        choice = self.choice(answer)
        self.equal(choice["finish_reason"], "stop")
        self.equal(set(json.loads(choice["message"]["content"])), {"city", "rains"})

    def chat_stream(self, answer):
        *events, last = [data for _, data in answer.events()]
        self.equal(last, "[DONE]")
        chunks = [json.loads(data) for data in events]
        self.equal({chunk["object"] for chunk in chunks}, {"chat.completion.chunk"})
        self.equal(len({chunk["id"] for chunk in chunks}), 1)
        if (answer.body.get("stream_options") or {}).get("include_usage"):
            tail = chunks.pop()
            self.equal(tail["choices"], [])
            self.usage(tail["usage"])
        choices = [chunk["choices"][0] for chunk in chunks]
        self.equal(choices[0]["delta"]["role"], "assistant")
        self.equal([choice["finish_reason"] is None for choice in choices], [True] * (len(choices) - 1) + [False])
        calls = {}
        for choice in choices:
            for piece in choice["delta"].get("tool_calls") or []:
                call = calls.setdefault(piece["index"], {**piece, "function": {"arguments": ""}})
                call["function"]["arguments"] += piece["function"].get("arguments", "")
        if choices[-1]["finish_reason"] == "tool_calls":
            self.calls(calls.values())

    def text(self, answer):
        whole = answer.json()
        self.equal(whole["object"], "text_completion")
        self.usage(whole["usage"])
        self.isa(whole["choices"][0]["text"], str)

    def responses_stream(self, answer):
        items, parts, done, names = [], {}, [], []
        for n, (name, data) in enumerate(answer.events()):
            event = json.loads(data)
            self.equal((event["type"], event["sequence_number"]), (name, n))
            names.append(name)
            if name == "response.output_item.added":
                self.equal(event["output_index"], len(items))
                items.append(event["item"])
                parts[event["item"]["id"]] = ""
            elif name.endswith(".delta"):
                parts[event["item_id"]] += event["delta"]
            elif name in ("response.output_text.done", "response.reasoning_text.done"):
                self.equal(event["text"], parts[event["item_id"]])
            elif name == "response.function_call_arguments.done":
                self.equal(event["arguments"], parts[event["item_id"]])
            elif name == "response.output_item.done":
                done.append(event["item"])
            final = event.get("response")
        self.equal(names[:2], ["response.created", "response.in_progress"])
        self.isin(names[-1], ("response.completed", "response.incomplete"))
        self.equal(final["output"], done)
        self.equal([item["id"] for item in items], [item["id"] for item in done])
        self.equal(final["tools"], answer.body.get("tools", []))
        usage = final["usage"]
        self.equal(usage["total_tokens"], usage["input_tokens"] + usage["output_tokens"])
        self.isa(usage["input_tokens_details"]["cached_tokens"], int)
        self.isa(usage["output_tokens_details"]["reasoning_tokens"], int)

    # --- Anthropic's ---

    def messages_json(self, answer):
        whole = answer.json()
        self.equal((whole["type"], whole["role"]), ("message", "assistant"))
        self.isin(whole["stop_reason"], ("end_turn", "max_tokens", "tool_use"))
        self.isa(whole["usage"]["input_tokens"], int)
        self.test.assertGreater(len(whole["content"]), 0)

    def messages_stream(self, answer):
        events = []
        for name, data in answer.events():
            events.append(json.loads(data))
            self.equal(events[-1]["type"], name)
        self.equal(events[0]["type"], "message_start")
        self.equal((events[0]["message"]["content"], events[0]["message"]["stop_reason"]), ([], None))
        self.isa(events[0]["message"]["usage"]["input_tokens"], int)
        self.equal([event["type"] for event in events[-2:]], ["message_delta", "message_stop"])
        self.isin(events[-2]["delta"]["stop_reason"], ("end_turn", "max_tokens", "tool_use"))
        self.isa(events[-2]["usage"]["output_tokens"], int)
        blocks, is_open, pieces = [], False, ""
        for event in events[1:-2]:
            if event["type"] == "content_block_start":
                self.equal((event["index"], is_open), (len(blocks), False))
                blocks.append(event["content_block"]["type"])
                is_open, pieces = True, ""
            elif event["type"] == "content_block_delta":
                self.equal((event["index"], is_open), (len(blocks) - 1, True))
                kinds = {"text": ["text_delta"], "tool_use": ["input_json_delta"],
                         "thinking": ["thinking_delta", "signature_delta"]}
                self.isin(event["delta"]["type"], kinds[blocks[-1]])
                pieces += event["delta"].get("partial_json", "")
            else:
                self.equal((event["type"], event["index"], is_open), ("content_block_stop", len(blocks) - 1, True))
                is_open = False
                if blocks[-1] == "tool_use" and events[-2]["delta"]["stop_reason"] == "tool_use":
                    self.isa(json.loads(pieces), dict)
        self.equal(is_open, False)
        self.test.assertGreater(len(blocks), 0)

    def count(self, answer):
        self.test.assertGreater(answer.json()["input_tokens"], 10)

    # --- llama.cpp's and Ollama's ---

    def nothing(self, answer):
        self.equal(answer.json(), {})

    def infill(self, answer):
        # llama.vim takes a line with this in it for an answer, and passes over all others.
        line, = answer.text.splitlines()
        self.isin('"content":"', line)
        self.equal(set(answer.json()), set(answer.body["response_fields"]))
        self.isa(answer.json()["timings/prompt_n"], int)

    def llama(self, answer):
        self.isa(answer.json()["content"], str)
        self.isa(answer.json()["timings"]["prompt_ms"], float)
        self.isin("finish_reason" if "finish_reason" in answer.json() else "stop_type", answer.json())

    def llama_list(self, answer):
        self.equal(len(answer.json()), answer.body["n_cmpl"])
        for one in answer.json():
            self.isa(one["content"], str)

    def template(self, answer):
        self.isin("hi", answer.json()["prompt"])

    def tokens(self, answer):
        self.test.assertGreater(len(answer.json()["tokens"]), 3)

    def ollama_stream(self, answer):
        *lines, last = [json.loads(line) for line in answer.text.splitlines()]
        self.equal({line["done"] for line in lines}, {False})
        self.equal((last["done"], last["eval_count"]), (True, 8))
        self.equal({line["message"]["role"] for line in lines}, {"assistant"})


class Replay(unittest.TestCase):
    """`clients` says whose requests."""

    def answer(self, server, request):
        url = urllib.parse.urlsplit(server.url)
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=300)
        self.addCleanup(connection.close)
        headers = {"Content-Type": "application/json", **request.headers}
        connection.request("POST", request.path, json.dumps(request.body).encode(), headers)
        response = connection.getresponse()
        answer = Answer(response, request.body)
        self.assertEqual(response.status, 200, answer.text)
        self.assertIn("X-Request-Id", response.headers)
        return answer

    def replay(self, server, clients):
        for client, requests in clients.items():
            for request in requests:
                with self.subTest(client, request=request.name):
                    getattr(Shapes(self), request.reads)(self.answer(server, request))


@unittest.skipUnless(os.access(BIN, os.X_OK), "needs the program")
@unittest.skipUnless(GRAMMARS, "built without xgrammar")
class Recorded(Replay):
    @unittest.skipUnless(os.path.exists(SMALL), "needs SmolLM2 (make model MODEL=smollm2)")
    @unittest.skipIf("LONGSPEC_SKIP_SLOW" in os.environ, "slow")
    def test_agents_and_clients(self):
        with ServerProcess([BIN, "serve", "-m", SMALL, "-c", "8192", "--port", "0", "-t", "2", "--seed", "5",
                            "-n", "64", "--no-progress", "--no-calibration-cache"]) as server:
            self.replay(server, recorded_requests.CLIENTS)
            unknown = [line for line in server.log if "unknown_fields" in line]
            self.assertEqual(unknown, [])  # all that they say is understood

    # Requests as editors send them for a hole in a file, to a model that fills holes.
    @unittest.skipUnless(os.access(TOOL, os.X_OK), "needs make_tiny_model")
    def test_editors(self):
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "tiny.gguf")
            subprocess.run([TOOL, "--out", model, "--ctx", "4096", "--vocab", "1024", "--fim"], check=True)
            with ServerProcess([BIN, "serve", "-m", model, "--fim", "--port", "0", "-t", "1", "--seed", "5", "-n", "64",
                                "--no-progress", "--no-calibration-cache"]) as server:
                self.replay(server, recorded_requests.EDITORS)


if __name__ == "__main__":
    unittest.main()
