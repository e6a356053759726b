#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts load on a server of OpenAI's completions API, and checks that nobody's text depends on it.

Requests arrive at random (Poisson), with prompts and answers of random lengths, some of which begin with one shared
document; some clients go away before their first token or in the middle of their answer. Afterwards each request is
sent again, alone, with the same seed: the text must be the same, and what a cancelled one got must be its beginning.
Prints percentiles. Status 1 if a text differs or a request fails.

    longspec serve -m model.gguf &
    python3 tools/load_test.py --requests 64 --rate 8 --concurrency 16 --prompt-words 16:512 --cancel 0.2
"""

import argparse
import concurrent.futures
import contextlib
import http.client
import json
import random
import socket
import sys
import threading
import time
import urllib.parse
from dataclasses import dataclass, field

MOST_RETRIES = 50  # of a request that a full queue sends away


def span(text):
    """'16:512' or '64': the least and the most."""
    least, _, most = text.partition(":")
    values = int(least), int(most or least)
    if not 0 < values[0] <= values[1]:
        raise argparse.ArgumentTypeError(f"{text} must be a number or LEAST:MOST, from 1 on")
    return values


def share(text):
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} must be from 0 to 1")
    return value


@dataclass
class Request:
    at: float  # seconds after the start
    body: dict
    cancel_after_s: float | None = None  # goes away so long after it was sent
    cancel_after_pieces: int | None = None  # or once it has so many pieces of text


@dataclass
class Outcome:
    text: str = ""
    error: str = ""
    cancelled: bool = False
    sent: float = 0.0  # by the monotonic clock, as all times here
    pieces: list = field(default_factory=list)  # when each came
    ended: float = 0.0
    usage: dict = field(default_factory=dict)
    timings: dict = field(default_factory=dict)
    retries: int = 0


def plan(options):
    """The requests, in the order in which they arrive. The same options make the same requests."""
    dice = random.Random(options.seed)
    words = lambda n: " ".join(f"{dice.choice(WORDS)}{dice.randrange(1000)}" for _ in range(n))
    document = words(options.shared_words)
    requests, at = [], 0.0
    for i in range(options.requests):
        if options.rate > 0:
            at += dice.expovariate(options.rate)
        own = words(dice.randint(*options.prompt_words))
        body = {"prompt": f"{document}\n{own}" if dice.random() < options.shared else own,
                "max_tokens": dice.randint(*options.max_tokens), "seed": i, "temperature": options.temperature,
                "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
        if options.model:
            body["model"] = options.model
        request = Request(at, body)
        if dice.random() < options.cancel:
            if dice.random() < 0.5:
                request.cancel_after_s = dice.uniform(0, 0.2)
            else:
                request.cancel_after_pieces = dice.randint(1, max(1, body["max_tokens"] // 2))
        requests.append(request)
    return requests


WORDS = ("river stone paper window letter garden winter market engine silver bridge candle forest harbour ladder "
         "meadow needle orchard pepper quarry").split()


class Client:
    def __init__(self, url, key="", timeout=600.0):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"{url} must be an address such as http://127.0.0.1:8080")
        self.host, self.port, self.path = parts.hostname, parts.port or 80, parts.path.rstrip("/")
        self.headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        self.timeout = timeout

    def ask(self, request):
        """Sends it, now, and follows its stream to the end or until it is to go away."""
        outcome = Outcome(sent=time.monotonic())
        for outcome.retries in range(MOST_RETRIES + 1):
            wait = self.ask_once(request, outcome)
            if wait is None:
                break
            time.sleep(wait)
        else:
            outcome.error = "the queue was full too often"
        outcome.ended = time.monotonic()
        return outcome

    def ask_once(self, request, outcome):
        """Seconds after which to try again, or None."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)
        gone = threading.Event()

        def go_away():
            gone.set()
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)

        timer = None
        try:
            connection.connect()
            if request.cancel_after_s is not None:
                timer = threading.Timer(request.cancel_after_s, go_away)
                timer.start()
            connection.request("POST", self.path + "/v1/completions", json.dumps(request.body), self.headers)
            response = connection.getresponse()
            if response.status == 429:
                response.read()
                return float(response.headers.get("Retry-After", "1"))
            if response.status != 200:
                outcome.error = f"status {response.status}: {response.read(500).decode(errors='replace')}"
                return None
            self.follow(response, request, outcome)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if not gone.is_set():
                outcome.error = f"{type(error).__name__}: {error}"
        finally:
            if timer is not None:
                timer.cancel()
            connection.close()
        # One that had ended before it was to go away is an answer like any other.
        if gone.is_set() and not outcome.usage:
            outcome.cancelled, outcome.error = True, ""
        return None

    @staticmethod
    def follow(response, request, outcome):
        done = False
        while line := response.readline():
            if not line.startswith(b"data: "):
                continue
            if line.startswith(b"data: [DONE]"):
                done = True
                break
            event = json.loads(line[6:])
            if "error" in event:
                outcome.error = event["error"]["message"]
                return
            text = "".join(choice["text"] for choice in event["choices"])
            if text:
                outcome.text += text
                outcome.pieces.append(time.monotonic())
            outcome.usage = event.get("usage") or outcome.usage
            outcome.timings = event.get("timings") or outcome.timings
            if request.cancel_after_pieces is not None and len(outcome.pieces) >= request.cancel_after_pieces:
                outcome.cancelled = True
                return
        if not done:
            raise ValueError("the stream ended before its end")


def run_load(client, requests, concurrency):
    """(outcomes, seconds)"""
    start = time.monotonic()

    def run(request):
        time.sleep(max(0.0, start + request.at - time.monotonic()))
        return client.ask(request)

    with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
        outcomes = list(pool.map(run, requests))
    return outcomes, time.monotonic() - start


def different(outcomes, outcomes_alone):
    """Texts that are not what the same request says alone, one line each."""
    lines = []
    for i, (outcome, alone) in enumerate(zip(outcomes, outcomes_alone)):
        if outcome.error:
            continue
        if alone.error:
            lines.append(f"request {i} alone: {alone.error}")
            continue
        same = alone.text.startswith(outcome.text) if outcome.cancelled else alone.text == outcome.text
        if not same:
            at = next((j for j, (a, b) in enumerate(zip(outcome.text, alone.text)) if a != b),
                      min(len(outcome.text), len(alone.text)))
            lines.append(f"request {i} differs from its text alone at character {at}: "
                         f"{outcome.text[at:at + 20]!r}, alone {alone.text[at:at + 20]!r}")
    return lines


def percentile(values, percent):
    """Of sorted values: the nearest rank."""
    return values[min(len(values) - 1, max(0, -(-len(values) * percent // 100) - 1))]


def numbers(values):
    """Milliseconds."""
    ordered = sorted(1000 * value for value in values)
    if not ordered:
        return {}
    return {"mean": sum(ordered) / len(ordered), **{f"p{p}": percentile(ordered, p) for p in (50, 90, 95, 99)},
            "max": ordered[-1]}


def summary(outcomes, seconds):
    whole = [o for o in outcomes if not o.error and not o.cancelled]
    several = [o for o in whole if len(o.pieces) > 1]
    # A cancelled answer has no usage: its pieces are counted, each of which is a token at least.
    tokens = sum(o.usage.get("completion_tokens", len(o.pieces)) for o in outcomes)
    cached = sum((o.usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0) for o in whole)
    return {
        "requests": len(outcomes), "answered": len(whole), "cancelled": sum(o.cancelled for o in outcomes),
        "failed": sum(bool(o.error) for o in outcomes), "retries": sum(o.retries for o in outcomes),
        "seconds": seconds, "prompt_tokens": sum(o.usage.get("prompt_tokens", 0) for o in whole),
        "cached_tokens": cached, "tokens": tokens, "tokens_per_second": tokens / seconds,
        "draft_n": sum(o.timings.get("draft_n", 0) for o in whole),
        "draft_n_accepted": sum(o.timings.get("draft_n_accepted", 0) for o in whole),
        "time_to_first_token_ms": numbers(o.pieces[0] - o.sent for o in whole if o.pieces),
        "between_tokens_ms": numbers(b - a for o in several for a, b in zip(o.pieces, o.pieces[1:])),
        "time_per_token_ms": numbers((o.pieces[-1] - o.pieces[0]) / (len(o.pieces) - 1) for o in several),
        "whole_answer_ms": numbers(o.ended - o.sent for o in whole),
    }


def show(told):
    print(f"requests          {told['requests']}: {told['answered']} answered, {told['cancelled']} cancelled, "
          f"{told['failed']} failed, {told['retries']} retries")
    print(f"duration          {told['seconds']:.2f} s")
    print(f"prompt tokens     {told['prompt_tokens']}, of them {told['cached_tokens']} from the cache")
    print(f"generated tokens  {told['tokens']}, {told['tokens_per_second']:.1f} a second")
    print(f"guesses           {told['draft_n_accepted']} of {told['draft_n']} accepted")
    columns = ("mean", "p50", "p90", "p95", "p99", "max")
    print(f"{'milliseconds':24}" + "".join(f"{name:>10}" for name in columns))
    for name in ("time_to_first_token", "between_tokens", "time_per_token", "whole_answer"):
        values = told[name + "_ms"]
        print(f"{name.replace('_', ' '):24}" + "".join(f"{values.get(c, float('nan')):10.2f}" for c in columns))


def parse(argv):
    parser = argparse.ArgumentParser(description="Puts load on a server and checks that texts do not depend on it.")
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--api-key", default="")
    parser.add_argument("--model", default="", help="name in the requests (default: none)")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.0, help="requests a second, at random; 0: all at once")
    parser.add_argument("--concurrency", type=int, default=16, help="most requests at once")
    parser.add_argument("--prompt-words", type=span, default=(16, 128), metavar="LEAST:MOST")
    parser.add_argument("--max-tokens", type=span, default=(16, 64), metavar="LEAST:MOST")
    parser.add_argument("--shared", type=share, default=0.5, help="share of requests that begin with one document")
    parser.add_argument("--shared-words", type=int, default=128, help="words of that document")
    parser.add_argument("--cancel", type=share, default=0.0, help="share of clients that go away")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=1, help="of the plan; request i has the seed i")
    parser.add_argument("--no-check", action="store_true", help="do not send each request again, alone")
    parser.add_argument("--json", metavar="FILE", help="writes the numbers there, too")
    return parser.parse_args(argv)


def main(argv=None):
    options = parse(argv)
    try:
        client = Client(options.url, options.api_key)
    except ValueError as error:
        print(f"load_test: --url: {error}", file=sys.stderr)
        return 2
    requests = plan(options)
    outcomes, seconds = run_load(client, requests, options.concurrency)
    told = summary(outcomes, seconds)
    bad = [f"request {i}: {outcome.error}" for i, outcome in enumerate(outcomes) if outcome.error]
    if not options.no_check:
        lines = different(outcomes, [client.ask(Request(0, request.body)) for request in requests])
        told["as_alone"] = len(outcomes) - len(bad) - len(lines)
        bad += lines
    show(told)
    if not options.no_check:
        print(f"texts             {told['as_alone']} of {told['requests']} as alone")
    for line in bad:
        print(f"load_test: {line}", file=sys.stderr)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(told, file, indent=1)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
