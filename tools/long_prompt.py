#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a long prompt does to everybody else on a server: to a stream that runs, to /health, to a short prompt after it.

A stream without speculation runs, one token a step. Alone, its gaps tell what a step of one row takes. Then a long
prompt arrives, and a short one after it. Until the long one's first token, the 99th percentile of the stream's gaps is
to stay under max(50 ms, three steps of one row) plus one step, /health is to answer within 50 ms, and the short prompt
is to have its first token first. Status 1 if not.

    python3 tools/long_prompt.py -m models/SmolLM2-135M-Instruct.Q4_1.gguf [--prompt-tokens 7500] [-- --prefill-ms 25]
"""

import argparse
import contextlib
import http.client
import json
import statistics
import sys
import threading
import time
import urllib.parse
from dataclasses import dataclass, field

from compare_llamacpp import Failure, ROOT, check_model
from compare_servers import Prompts
import load_test
from server_process import ServerProcess

HEALTH_EVERY_S = 0.01
MOST_HEALTH_MS = 50.0
LEAST_GAP_MS = 50.0
N_ALONE = 40  # steps of the stream before the long prompt
N_AFTER = 3  # steps of the stream between the long prompt and the short one
ENDLESS = 1 << 30
STREAM_TOKENS = 8192  # more than the stream has time for
TIMEOUT_S = 600


@dataclass
class Measured:
    """Times in seconds."""
    step: float = 0.0  # of one row
    gaps: list = field(default_factory=list)  # of the stream, while the long prompt was evaluated
    health: list = field(default_factory=list)  # how long /health took, in that time
    rest: list = field(default_factory=list)  # and before
    long_first: float = 0.0  # from sending the long prompt to its first token
    short_first: float = 0.0
    lead: float = 0.0  # by which the short one's first token was the earlier one

    def most_gap_ms(self):
        return max(LEAST_GAP_MS, 3000 * self.step) + 1000 * self.step

    def complaints(self):
        """What is not as it is to be, one line each."""
        gap, health = (load_test.numbers(values)["p99"] for values in (self.gaps, self.health))
        if gap > self.most_gap_ms():
            yield f"the 99th percentile of the gaps is {gap:.1f} ms, more than {self.most_gap_ms():.1f} ms"
        if health > MOST_HEALTH_MS:
            yield f"the 99th percentile of /health is {health:.1f} ms, more than {MOST_HEALTH_MS:.0f} ms"
        if self.lead <= 0:
            yield f"the short prompt had its first token {-self.lead:.3f} s after the long one"


class Asking:
    """A request in a thread of its own, that can be looked at while it runs."""

    def __init__(self, url, prompt, **fields):
        body = {"prompt": prompt, "temperature": 0, "ignore_eos": True, "stream": True, "speculative": False, **fields}
        self.request = load_test.Request(0, body, cancel_after_pieces=ENDLESS)
        self.outcome = load_test.Outcome(sent=time.monotonic())
        self.thread = threading.Thread(target=load_test.Client(url, timeout=TIMEOUT_S).ask_once,
                                       args=(self.request, self.outcome), daemon=True)
        self.thread.start()

    def wait_for(self, n_pieces):
        while len(self.outcome.pieces) < n_pieces:
            if not self.thread.is_alive() and len(self.outcome.pieces) < n_pieces:
                raise Failure(self.outcome.error or "an answer was shorter than asked for")
            time.sleep(0.001)

    def stop(self):
        """Goes away with its next token."""
        self.request.cancel_after_pieces = 0
        self.thread.join(TIMEOUT_S)


class HealthPolls:
    """(when it was asked, when it answered), all the time, over one connection."""

    def __init__(self, url):
        self.address, self.polls, self.error = urllib.parse.urlsplit(url).netloc, [], ""
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.poll, daemon=True)
        self.thread.start()

    def poll(self):
        connection = http.client.HTTPConnection(self.address, timeout=TIMEOUT_S)
        with contextlib.closing(connection):
            while not self.ended.wait(HEALTH_EVERY_S):
                began = time.monotonic()
                try:
                    connection.request("GET", "/health")
                    response = connection.getresponse()
                    body = response.read()
                except (OSError, http.client.HTTPException) as error:
                    self.error = f"/health: {type(error).__name__}: {error}"
                    return
                if response.status != 200:
                    self.error = f"/health: status {response.status}: {body[:200].decode(errors='replace')}"
                    return
                self.polls.append((began, time.monotonic()))

    def stop(self):
        self.ended.set()
        self.thread.join(TIMEOUT_S)


def lengths(spans, first, last):
    """Of those that lie in that time, if only in part."""
    return [end - begin for begin, end in spans if end >= first and begin <= last]


def measure(url, text, prompt_tokens):
    """Raises Failure. The server needs memory for the prompt and for the stream, which grows meanwhile."""
    prompts = Prompts(text)
    stream = Asking(url, prompts.cut(url, 3, 16), max_tokens=ENDLESS)
    health = HealthPolls(url)
    try:
        stream.wait_for(N_ALONE)
        long = Asking(url, prompts.cut(url, 0, prompt_tokens), max_tokens=1)
        stream.wait_for(len(stream.outcome.pieces) + N_AFTER)
        short = Asking(url, prompts.cut(url, 5, 8), max_tokens=1)
        for asked in (short, long):
            asked.wait_for(1)
    finally:
        stream.stop()
        health.stop()
    for error in (stream.outcome.error, health.error):
        if error:
            raise Failure(error)
    pieces, began, ended = stream.outcome.pieces, long.outcome.sent, long.outcome.pieces[0]
    gaps = list(zip(pieces, pieces[1:]))
    return Measured(step=statistics.median(lengths(gaps, 0, began)), gaps=lengths(gaps, began, ended),
                    health=lengths(health.polls, began, ended), rest=lengths(health.polls, 0, began),
                    long_first=ended - began, short_first=short.outcome.pieces[0] - short.outcome.sent,
                    lead=ended - short.outcome.pieces[0])


def line_of(values):
    told = load_test.numbers(values)
    return ", ".join(f"{name} {told[name]:.1f}" for name in ("mean", "p50", "p99", "max"))


def show(measured, prompt_tokens):
    gap, health = (load_test.numbers(values)["p99"] for values in (measured.gaps, measured.health))
    print(f"prompt of {prompt_tokens} tokens   first token after {measured.long_first:.2f} s")
    print(f"step of one row         {1000 * measured.step:.1f} ms")
    print(f"gaps meanwhile, ms      {line_of(measured.gaps)} of {len(measured.gaps)}; p99 "
          f"{'under' if gap <= measured.most_gap_ms() else 'OVER'} {measured.most_gap_ms():.1f}")
    print(f"/health meanwhile, ms   {line_of(measured.health)} of {len(measured.health)}; p99 "
          f"{'under' if health <= MOST_HEALTH_MS else 'OVER'} {MOST_HEALTH_MS:.0f}")
    print(f"short prompt after it   first token after {1000 * measured.short_first:.1f} ms, "
          f"{measured.lead:.2f} s before the long one's")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", help="the model's file; a server is started")
    parser.add_argument("--longspec", default=str(ROOT / "build" / "release" / "longspec"), help="the program")
    parser.add_argument("--url", help="of a server that runs already, instead of a model")
    parser.add_argument("--prompt-tokens", type=int, default=7500)
    parser.add_argument("--text", default=str(ROOT / "data" / "demo" / "report.txt"), help="what prompts are cut from")
    parser.add_argument("--json", metavar="FILE", help="writes the numbers there, too")
    parser.add_argument("serve_args", nargs="*", metavar="-- OPTION", help="options for the server")
    options = parser.parse_args(argv)
    if bool(options.model) == bool(options.url):
        print("long_prompt: give either -m or --url", file=sys.stderr)
        return 2
    try:
        with open(options.text, encoding="utf-8") as file:
            text = file.read()
        with contextlib.ExitStack() as stack:
            url = options.url
            if not url:
                check_model(options)
                url = stack.enter_context(ServerProcess([
                    options.longspec, "serve", "-m", options.model, "--port", "0", "--no-progress",
                    "-c", str(options.prompt_tokens + STREAM_TOKENS), *options.serve_args])).url
            measured = measure(url, text, options.prompt_tokens)
    except (Failure, OSError, RuntimeError) as error:
        print(f"long_prompt: {error}", file=sys.stderr)
        return 1
    show(measured, options.prompt_tokens)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"step_ms": 1000 * measured.step, "gaps_ms": load_test.numbers(measured.gaps),
                       "health_ms": load_test.numbers(measured.health), "long_first_ms": 1000 * measured.long_first,
                       "short_first_ms": 1000 * measured.short_first, "lead_ms": 1000 * measured.lead}, file, indent=1)
    complaints = list(measured.complaints())
    for line in complaints:
        print(f"long_prompt: {line}", file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
