#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The server when things go wrong: what users of other servers complain of, clients that misbehave, slots that are cut
off in the middle of saving, long prompts. Needs what test_server.py needs, but for the clients.
"""

import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
import tempfile
import time
import unittest

import test_server as serving
from test_server import (completion, load_test, MODEL, needs_time, read_all, read_until, Server, SLOW_MODEL, TIMEOUT,
                         TOOL, words)
import long_prompt  # noqa: E402  (test_server says where tools are)


def setUpModule():
    serving.setUpModule()


def tearDownModule():
    serving.tearDownModule()


class Complaints(unittest.TestCase):
    """What others complain of; each test is named after where it was seen."""

    @needs_time
    def test_llamacpp_13262_disconnect_in_a_prompt(self):
        with Server(model=SLOW_MODEL) as server:
            sock = server.stream("/v1/completions", completion(words(900), return_progress=True))
            read_until(sock, b'"prompt_progress"')
            sock.close()
            server.wait_for_rest()
            self.assertEqual(server.metric("generation_tokens_total"), 0)

    @needs_time
    def test_llamacpp_11720_24496_a_cancel_in_the_queue_leaves_others_alone(self):
        with Server("--parallel", "1", model=SLOW_MODEL) as server:
            body = completion("the sea", max_tokens=300)
            alone = server.post("/v1/completions", body)["choices"][0]["text"]
            running = server.stream("/v1/completions", body)
            read_until(running, b'"text"')
            queued = server.stream("/v1/completions", completion("the sky", max_tokens=3000))
            server.wait_for("num_requests_waiting", 1)
            queued.close()
            rest = read_until(running, b"[DONE]")
            running.close()
            self.assertIn(b'"finish_reason":"length"', rest)
            self.assertEqual(server.post("/v1/completions", body)["choices"][0]["text"], alone)
            server.wait_for_rest()

    def test_llamacpp_24630_disconnects_while_decoding_wedge_nothing(self):
        with Server("--parallel", "4") as server:
            for _ in range(12):
                sock = server.stream("/v1/completions", completion("the sea", max_tokens=4000))
                read_until(sock, b'"text"')
                sock.close()
            server.wait_for_rest()
            deadline = time.monotonic() + 30
            while any(slot["is_processing"] for slot in json.loads(server.get("/slots")[2])):
                self.assertLess(time.monotonic(), deadline, "a slot is still busy")
                time.sleep(0.05)
            self.assertEqual(len(server.text("the sea")), len(server.text("the sea")))

    @needs_time
    def test_ik_1210_llamacpp_20684_health_answers_in_a_prompt_and_with_a_full_queue(self):
        with Server("--parallel", "1", "--max-queued-requests", "4", model=SLOW_MODEL) as server:
            socks = [server.stream("/v1/completions", completion(words(900, i))) for i in range(8)]
            read_until(socks[0], b"\r\n\r\n")
            for _ in range(20):
                self.assertEqual(server.get("/health")[0], 200)
            # They were answered while the first prompt was evaluated.
            self.assertEqual(server.metric("generation_tokens_total"), 0)
            for sock in socks:
                sock.close()
            server.wait_for_rest()

    @needs_time
    def test_llamacpp_6607_14343_others_go_on_while_7500_tokens_are_evaluated(self):
        # tools/long_prompt.py's figures, held to what does not depend on how fast or how busy the machine is.
        model = os.path.join(serving.FOLDER.name, "wide.gguf")  # some seconds for the prompt, some ms for a step
        subprocess.run([TOOL, "--out", model, "--ctx", "8192", "--layers", "4", "--embd", "256", "--heads", "4",
                        "--ff", "1024"], check=True)
        with Server("-c", "16384", "--prefill-ms", "20", model=model) as server:
            measured = long_prompt.measure(server.url, words(300), 7500)
        # Evaluated in one go, the prompt would be one gap.
        gaps = load_test.numbers(measured.gaps)
        self.assertGreater(len(measured.gaps), 10)
        self.assertLess(gaps["p99"], max(4 * measured.most_gap_ms(), 1000 * measured.long_first / 5), measured)
        # Answered by a thread of its own: as fast as at rest, but for who else wants the processor.
        health, rest = load_test.numbers(measured.health), load_test.numbers(measured.rest)
        self.assertGreater(len(measured.health), 10)
        self.assertLess(health["p50"], max(long_prompt.MOST_HEALTH_MS, 4 * rest["p90"]), measured)
        self.assertLess(health["max"], 1000 * measured.long_first / 4)
        self.assertGreater(measured.lead, 0)
        self.assertLess(measured.short_first, measured.long_first / 2)

    def test_llamacpp_23652_too_little_memory_for_all_fails_nobody(self):
        prompts = [f"chapter {i} of the sea" for i in range(8)]
        with Server("-c", "4096") as server:
            alone = [server.text(prompt, max_tokens=700) for prompt in prompts]
        # One context of keys and values for eight answers that need more together.
        with Server("-c", "1024", "--cache-ram", "0", "--parallel", "8") as server:
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                together = list(pool.map(lambda prompt: server.text(prompt, max_tokens=700), prompts))
            self.assertGreater(server.metric("num_preemptions_total"), 0)
        self.assertEqual(together, alone)

    def test_llamacpp_7052_vllm_23138_texts_do_not_depend_on_others_or_on_the_cache(self):
        bodies = [completion(words(5 + 20 * (i % 4)) + f" {i % 3}", seed=i, max_tokens=20 + 3 * i,
                             temperature=0 if i % 4 == 0 else 0.9, n=1 + i % 2) for i in range(16)]
        with Server("--no-cache-prompt", "--parallel", "1") as server:
            alone = [server.post("/v1/completions", {**body, "speculative": False})["choices"] for body in bodies]
        with Server() as server:
            for _ in range(2):  # with an empty cache, and with all prompts known
                with concurrent.futures.ThreadPoolExecutor(16) as pool:
                    together = list(pool.map(lambda body: server.post("/v1/completions", body)["choices"], bodies))
                self.assertEqual(together, alone)

    def test_vllm_54360_53388_speculation_loses_no_prefix_hits(self):
        with Server() as server:
            body = completion(words(60), max_tokens=8)
            first = server.post("/v1/completions", body)
            again = server.post("/v1/completions", {**body, "speculative": {"drafters": "ngram"}})
            tokens = first["usage"]["prompt_tokens"]
            self.assertEqual(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
            self.assertEqual(again["usage"]["prompt_tokens_details"]["cached_tokens"], tokens - 1)

    def test_llamacpp_3380_9201_memory_in_pieces_holds_a_long_one(self):
        longest = completion(words(225), max_tokens=16)
        with Server("-c", "1280") as server:
            alone = server.post("/v1/completions", longest)
        self.assertGreater(alone["usage"]["total_tokens"], 1024)  # of 1,280: it needs all chunks
        bodies = [completion(f"{i} " + words(1 + 7 * (i % 9)), max_tokens=5 + 11 * (i % 7)) for i in range(48)]
        with Server("-c", "1280", "--cache-ram", "0", "--parallel", "8") as server:
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda body: server.post("/v1/completions", body), bodies))
            self.assertEqual(server.post("/v1/completions", longest)["choices"], alone["choices"])

    def test_vllm_17984_49548_guesses_that_do_not_pay_end(self):
        # What random weights write at this temperature, nobody can guess.
        options = ("--spec-type", "ngram,recycling", "--parallel", "16")
        bodies = [completion(f"{i} " + words(8), seed=i, max_tokens=200, temperature=2, top_k=0, top_p=1, min_p=0)
                  for i in range(16)]
        with Server(*options) as server, concurrent.futures.ThreadPoolExecutor(16) as pool:
            timings = [answer["timings"]
                       for answer in pool.map(lambda body: server.post("/v1/completions", body), bodies)]
        tokens, guessed = (sum(each[key] for each in timings) for key in ("predicted_n", "draft_n"))
        self.assertEqual(tokens, 16 * 200)
        self.assertLess(guessed, tokens // 8)  # a fixed policy verifies five times as many

    def test_vllm_16258_19254_all_streams_are_guessed_for_in_the_same_pass(self):
        # The guesses are those of a prediction that is right, as far as its tokens are those that were drawn.
        ask = completion("the sea", max_tokens=120, temperature=0,
                         speculative={"drafters": "prediction", "max_rows": 6})
        with Server("--spec-policy", "fixed", "--parallel", "8", "--no-cache-prompt") as server:
            passes, texts = [], []
            said = server.text("the sea", max_tokens=120, temperature=0)
            ask["prediction"] = {"type": "content", "content": said}
            for n in (1, 8):
                before = server.metric("step_rows_count")
                answer = server.post("/v1/completions", {**ask, "n": n})
                passes.append(server.metric("step_rows_count") - before)
                texts += [choice["text"] for choice in answer["choices"]]
                accepted = answer["usage"]["completion_tokens_details"]["accepted_prediction_tokens"]
                self.assertGreater(accepted, 2 * n)
            self.assertEqual(set(texts), {said})
            # Eight take no more passes than one that writes a token a pass.
            self.assertLess(max(passes), 120)


class Clients(unittest.TestCase):
    """That come in crowds, do not read, or go."""

    def test_500_requests_at_once_are_answered_or_sent_away(self):
        with Server("--parallel", "8", "--max-queued-requests", "32") as server:
            alone = server.text("the sea", max_tokens=8)
            before = peak_memory(server)
            data = json.dumps(completion("the sea", max_tokens=8)).encode()
            request = (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                       b"Content-Length: %d\r\n\r\n" % len(data))
            with contextlib.ExitStack() as stack:
                socks = [stack.enter_context(server.connect()) for _ in range(500)]
                for sock in socks:
                    sock.sendall(request + data)
                answers = [read_all(sock) for sock in socks]
            n_answered = 0
            for answer in answers:
                head, body = answer.split(b"\r\n\r\n", 1)
                if head.startswith(b"HTTP/1.1 200 "):
                    n_answered += 1
                    self.assertEqual(json.loads(body)["choices"][0]["text"], alone)
                else:
                    self.assertTrue(head.startswith(b"HTTP/1.1 429 "), answer)
                    self.assertIn(b"Retry-After: 1", head)
                    self.assertEqual(json.loads(body)["error"]["type"], "rate_limit_error")
            self.assertGreaterEqual(n_answered, 32)
            server.wait_for_rest()
            self.assertLess(peak_memory(server) - before, 256 << 20)

    def fill(self, server):
        """A stream of 7 KB a step, 25 MB in all, whose client reads nothing."""
        body = {"messages": [{"role": "user", "content": "the sea"}], "max_tokens": 3500, "n": 4, "ignore_eos": True,
                "stream": True, "logprobs": True, "top_logprobs": 20, "timings_per_token": True, "seed": 11}
        data = json.dumps(body).encode()
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", server.port))
        sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        return sock

    def test_a_client_that_reads_nothing_is_given_up_and_others_are_not(self):
        with Server("-c", "16384") as server:
            other = server.text("the sky", max_tokens=100)
            with self.fill(server):
                server.wait_for("num_requests_running", 4)
                self.assertEqual(server.text("the sky", max_tokens=100), other)
                server.wait_for_rest()
            self.assertLess(server.metric("generation_tokens_total"), 4 * 3500)

    @needs_time
    def test_what_a_client_held_that_has_gone_is_free_within_a_step(self):
        with Server("--parallel", "1", model=SLOW_MODEL) as server:
            endless = completion("the sea", max_tokens=6000)

            def steps_of_one_that_goes(sock):
                before = server.metric("step_rows_count")
                sock.close()
                server.wait_for_rest()
                return server.metric("step_rows_count") - before

            def while_decoding():
                sock = server.stream("/v1/completions", endless)
                read_until(sock, b'"text"')
                return steps_of_one_that_goes(sock)

            def in_a_prompt():
                sock = server.stream("/v1/completions",
                                     completion(f"{time.monotonic()} {words(400)}", return_progress=True))
                read_until(sock, b'"processed":0')
                return steps_of_one_that_goes(sock)

            def in_the_queue():
                with server.stream("/v1/completions", endless) as running:
                    read_until(running, b'"text"')
                    queued = server.stream("/v1/completions", endless)
                    server.wait_for("num_requests_waiting", 1)
                    before = server.metric("step_rows_count")
                    queued.close()
                    server.wait_for("num_requests_waiting", 0, pause=0)  # a pause would be as long as some steps
                    steps = server.metric("step_rows_count") - before
                server.wait_for_rest()
                return steps

            for state in (while_decoding, in_a_prompt, in_the_queue):
                # The step that runs when it goes, and one that may begin before that is known. A busy machine may be
                # late to know: once is enough.
                fewest = TIMEOUT
                for _ in range(10):
                    fewest = min(fewest, state())
                    if fewest <= 2:
                        break
                self.assertLessEqual(fewest, 2, state.__name__)

    def test_a_client_with_a_full_buffer_that_goes_is_noticed(self):
        with Server("-c", "16384") as server:
            sock = self.fill(server)
            server.wait_for("num_requests_running", 4)
            deadline = time.monotonic() + TIMEOUT
            while min(slot["n_decoded"] for slot in json.loads(server.get("/slots")[2]) if slot["is_processing"]) < 700:
                self.assertLess(time.monotonic(), deadline)  # 5 MB: more than a socket takes that nobody reads
            sock.close()
            server.wait_for_rest()
            self.assertLess(server.metric("generation_tokens_total"), 4 * 3500)

    def test_a_log_that_nobody_reads_holds_up_nobody(self):
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
        process = subprocess.Popen([serving.BIN, "serve", "-m", MODEL, "-t", "2", "--no-progress",
                                    "--no-calibration-cache", "--port", str(port)], stdin=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        self.addCleanup(connection.close)

        def models():
            connection.request("GET", "/v1/models")
            response = connection.getresponse()
            response.read()
            return response.status

        deadline = time.monotonic() + TIMEOUT
        while True:
            with contextlib.suppress(OSError):
                if models() == 200:
                    break
            connection.close()
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        for _ in range(1500):  # a line each: more than a pipe holds
            self.assertEqual(models(), 200)
        process.terminate()
        self.assertEqual(process.wait(TIMEOUT), 0)
        self.assertIn(b"path=/v1/models status=200", process.stderr.read())

    # Whatever numbers a request has, it is answered or refused, and the server answers the next one as before.
    def test_absurd_requests(self):
        with Server("-c", "1024") as server:
            whole = server.text("the sea")
            for fields in ({"max_tokens": -5}, {"temperature": 1e300}, {"temperature": -1}, {"top_k": -(1 << 70)},
                           {"n": 1000000}, {"n": 0}, {"logprobs": 1 << 40}, {"seed": 1e300},
                           {"logit_bias": {"99999999": 1}}, {"logit_bias": {"1": 1e308}},
                           {"stop": ["x" * 100000] * 100}, {"stop": [""]}, {"top_p": 1e-320}, {"presence_penalty": 1e9},
                           {"prompt": [1 << 40]}, {"prompt": [-1]}, {"prompt": "\u0000"}, {"t_max_predict_ms": 1e18},
                           {"speculative": {"max_rows": 1 << 40}}, {"prompt": words(4000)}):
                body = {**completion("the sea", max_tokens=4), **fields}
                status, _, text = server.request("POST", "/v1/completions", body)
                self.assertIn(status, (200, 400), (fields, text[:300]))
                if status == 400:
                    self.assertTrue(json.loads(text)["error"]["message"])
            for path, body in (("/v1/responses", b'{"input": "\xc3\x28"}'), ("/v1/responses", b"[" * 100000),
                               ("/slots/0?action=save", b"\xff"), ("/slots/99999999999999999999?action=erase", b"{}"),
                               ("/slots/-1?action=erase", b"{}"), ("/slots/0?action=" + "x" * 5000, b"{}"),
                               ("/v1/messages", b'{"max_tokens": 1e400, "messages": []}')):
                status, _, text = server.request("POST", path, body)
                self.assertIn(status, (400, 413, 501), (path, text[:300]))
            self.assertEqual(server.text("the sea"), whole)


def peak_memory(server):
    """Bytes."""
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as file:
        return int(re.search(r"VmHWM:\s*(\d+) kB", file.read())[1]) << 10


class Slots(unittest.TestCase):
    """Files of slots that are cut off, damaged or have no room."""

    BODY = completion(words(100), max_tokens=4)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.path = folder.name, os.path.join(folder.name, "a.bin")

    def server(self, *args, **options):
        return Server("--slot-save-path", self.folder, *args, **options)

    def save(self, server, status=200):
        return server.post("/slots/0?action=save", {"filename": "a.bin"}, status)

    def restore(self, server):
        return server.request("POST", "/slots/0?action=restore", {"filename": "a.bin"})

    def contents(self):
        with open(self.path, "rb") as file:
            return file.read()

    def test_killed_while_saving_the_old_file_is_whole(self):
        with self.server() as server:
            whole = server.post("/v1/completions", self.BODY)["choices"]
            self.save(server)
        good = self.contents()
        self.assertGreater(len(good), 1 << 17)
        os.mkfifo(self.path + ".tmp")  # takes so much and no more: saving is held up in the middle
        server = self.server()
        self.addCleanup(server.close)
        self.addCleanup(server.process.kill)
        server.post("/v1/completions", {**self.BODY, "prompt": words(110)})
        with contextlib.closing(server.connect()) as sock:
            data = b'{"filename": "a.bin"}'
            sock.sendall(b"POST /slots/0?action=save HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data)
                         + data)
            with open(self.path + ".tmp", "rb", buffering=0) as pipe:
                self.assertTrue(pipe.read(1))
                # Meanwhile others are served.
                self.assertEqual(server.post("/v1/completions", self.BODY)["choices"], whole)
                self.assertIsNone(server.process.poll())
                server.process.kill()
                server.process.wait(TIMEOUT)
        self.assertEqual(self.contents(), good)
        os.remove(self.path + ".tmp")
        with open(self.path + ".tmp", "wb") as file:  # as it is left where it is no pipe
            file.write(good[:1000])
        with self.server() as again:
            self.assertEqual(self.restore(again)[0], 200)
            self.assertEqual(again.post("/v1/completions", self.BODY)["choices"], whole)
            self.save(again)  # what was left is in nobody's way
        self.assertFalse(os.path.exists(self.path + ".tmp"))

    def test_while_a_slot_is_saved_others_wait_for_its_room(self):
        os.mkfifo(self.path + ".tmp")  # saving is held up for as long as nobody reads
        with self.server("-c", "1024", "--cache-ram", "0") as server:
            server.post("/v1/completions", {**self.BODY, "prompt": words(160)})  # all there is
            with contextlib.closing(server.connect()) as sock:
                data = b'{"filename": "a.bin"}'
                sock.sendall(b"POST /slots/0?action=save HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
                             % len(data) + data)
                with open(self.path + ".tmp", "rb", buffering=0) as pipe:
                    self.assertTrue(pipe.read(1))
                    with concurrent.futures.ThreadPoolExecutor(1) as pool:
                        other = pool.submit(server.request, "POST", "/v1/completions", self.BODY)
                        with self.assertRaises(concurrent.futures.TimeoutError):
                            other.result(timeout=1)
                        while pipe.read(1 << 16):
                            pass
                        status, _, text = other.result(timeout=TIMEOUT)
                        self.assertEqual(status, 200, text)

    def test_a_slot_whose_answer_filled_the_context_is_saved(self):
        with self.server("-c", "1024") as server:
            answer = server.post("/completion", {"prompt": words(160), "n_predict": -1, "ignore_eos": True})
            self.assertEqual(answer["stop_type"], "limit")
            self.assertEqual(self.save(server)["n_saved"], 1023)
            self.assertEqual(self.restore(server)[0], 200)

    def test_damaged_files_are_refused_and_change_nothing(self):
        with self.server() as server:
            whole = server.post("/v1/completions", self.BODY)["choices"]
            self.save(server)
            good = self.contents()
            flipped = lambda at: good[:at] + bytes([good[at] ^ 1]) + good[at + 1:]
            damaged = {"empty": b"", "no session": b"GGUF" * 1000, "cut in its head": good[:20],
                       "cut": good[:len(good) // 2], "longer": good + b"x", "first byte": flipped(0),
                       "a token": flipped(len(good) // 1000 + 100), "a key": flipped(len(good) // 2)}
            for name, data in damaged.items():
                with open(self.path, "wb") as file:
                    file.write(data)
                server.post("/slots/0?action=erase", {})
                status, _, text = self.restore(server)
                self.assertEqual(status, 400, (name, text))
                self.assertIn("a.bin", json.loads(text)["error"]["message"])
                self.assertEqual(server.post("/v1/completions", self.BODY)["choices"], whole)
            os.remove(self.path)
            os.mkdir(self.path)
            self.assertIn(self.restore(server)[0], (400, 404, 500))
            self.assertIn(server.request("POST", "/slots/0?action=save", {"filename": "a.bin"})[0], (400, 500))
            os.rmdir(self.path)
            # Of another model.
            other = os.path.join(self.folder, "other.gguf")
            subprocess.run([TOOL, "--out", other, "--ctx", "4096", "--vocab", "1024", "--seed", "77"], check=True)
            with open(self.path, "wb") as file:
                file.write(good)
            with self.server(model=other) as stranger:
                status, _, text = self.restore(stranger)
                self.assertEqual(status, 400, text)
            self.assertEqual(self.restore(server)[0], 200)

    def test_a_full_disk_leaves_the_old_file(self):
        with self.server() as server:
            whole = server.post("/v1/completions", self.BODY)["choices"]
            self.save(server)
            good = self.contents()
            os.symlink("/dev/full", self.path + ".tmp")
            server.post("/v1/completions", {**self.BODY, "prompt": words(110)})
            status, _, text = server.request("POST", "/slots/0?action=save", {"filename": "a.bin"})
            self.assertGreaterEqual(status, 500, text)
            self.assertIn("No space left on device", json.loads(text)["error"]["message"])
            self.assertEqual(self.contents(), good)
            self.assertEqual(server.get("/health")[0], 200)
            if os.path.lexists(self.path + ".tmp"):
                os.remove(self.path + ".tmp")
            self.save(server)
            self.assertNotEqual(self.contents(), good)
            self.assertEqual(server.post("/v1/completions", self.BODY)["choices"], whole)


if __name__ == "__main__":
    unittest.main()
