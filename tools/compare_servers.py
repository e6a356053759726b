#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures longspec serve beside llama.cpp's llama-server on this machine: same GGUF, same threads, same requests.

  tools/compare_servers.py --llama-server /tmp/llama-build/bin/llama-server [--out docs/servers.md]

llama-server is built from the source inside llama-cpp-python's sdist:

  python3 -m pip download --no-deps --no-binary llama-cpp-python llama-cpp-python
  tar xzf llama_cpp_python-*.tar.gz
  cmake -S llama_cpp_python-*/vendor/llama.cpp -B /tmp/llama-build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \\
      -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF \\
      -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF
  cmake --build /tmp/llama-build --target llama-server

So many users send requests at once, each the next one when it has its answer: a prompt of so many tokens, which is cut
from a text, and an answer of fixed length at temperature 0. With a shared document all prompts begin alike and end in
questions of their own; without, each begins elsewhere in the text. One server runs at a time, started anew for each
line of the table, with a slot for each user, context enough for all of them and one request to warm up; the order
alternates by line. Both stream. The time to the first token is from sending the request; a gap is between two pieces of
one stream. Medians of the rounds; ratios above 1 favour longspec. The client runs on the same machine, for both.
"""

import argparse
from dataclasses import dataclass
from datetime import date
import http.client
import json
from pathlib import Path
import re
import shlex
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request

from compare_llamacpp import check_model, cpu_name, Failure, number_list, ROOT, run_tool
import load_test
from server_process import LISTENING, ServerProcess

START_S = 300  # to load a model
CLIENT_TIMEOUT_S = 600  # without a byte; what OpenAI's Python client waits
WARM_UP_TOKENS = 16
SLOT_TOKENS = 256  # llama-server rounds a slot's context up to such a multiple
OURS, THEIRS = "longspec", "llama-server"


@dataclass(frozen=True)
class Cell:
    """A line of the table."""
    users: int
    prompt: int  # tokens
    shared: bool  # all prompts begin with one document


# Name, unit, and whether more of it is better.
MEASURES = {"rate": ("tokens/s", True), "first": ("first token ms", False), "first_p99": ("first token ms, p99", False),
            "gap": ("gap ms", False), "gap_p99": ("gap ms, p99", False)}


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default=str(ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--longspec", default=str(ROOT / "build" / "release" / "longspec"), help="the program")
    parser.add_argument("--llama-server", required=True, help="llama.cpp's")
    parser.add_argument("--longspec-args", type=shlex.split, default=[],
                        help="more options of longspec serve, as one text")
    parser.add_argument("--llama-args", type=shlex.split, default=[], help="more options of llama-server, as one text")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--users", type=number_list, default=[1, 4, 16, 64],
                        help="comma-separated (default: 1,4,16,64)")
    parser.add_argument("--prompts", type=number_list, default=[512, 4096],
                        help="tokens of a prompt, comma-separated (default: 512,4096)")
    parser.add_argument("--documents", choices=["own", "shared", "both"], default="both")
    parser.add_argument("--max-tokens", type=int, default=64, help="tokens of each answer (default: 64)")
    parser.add_argument("--requests", type=int, default=8, help="of a line, at least; one a user (default: 8)")
    parser.add_argument("--rounds", type=int, default=1, help="of each line (default: 1)")
    parser.add_argument("--timeout", type=int, default=CLIENT_TIMEOUT_S, metavar="S",
                        help=f"a client gives up after so many seconds without a byte (default: {CLIENT_TIMEOUT_S}, "
                        "as OpenAI's Python client)")
    parser.add_argument("--text", type=Path, default=ROOT / "data" / "demo" / "report.txt",
                        help="what prompts are cut from")
    parser.add_argument("--out", type=Path, help="write the report (Markdown) here as well")
    return parser.parse_args(argv)


def cells(options):
    shared = {"own": [False], "shared": [True], "both": [False, True]}[options.documents]
    return [Cell(users, prompt, with_document) for with_document in shared for prompt in options.prompts
            for users in options.users]


def command(side, options, cell):
    slot = -(-(cell.prompt + options.max_tokens + WARM_UP_TOKENS) // SLOT_TOKENS) * SLOT_TOKENS
    common = ["-m", options.model, "-t", str(options.threads), "-c", str(slot * cell.users), "--parallel",
              str(cell.users), "--port", "0"]
    if side == OURS:
        return [options.longspec, "serve", *common, "--no-progress", *options.longspec_args]
    return [options.llama_server, *common, "--host", "127.0.0.1", "-tb", str(options.threads), "-fa", "on",
            "--cont-batching", *options.llama_args]


READY = {OURS: LISTENING, THEIRS: re.compile(r"listening on (http://\S+)")}


def wait_for_health(url):
    deadline = time.monotonic() + START_S
    while True:
        try:
            with urllib.request.urlopen(url + "/health", timeout=START_S):
                return
        except (OSError, http.client.HTTPException) as error:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{url}/health: {error}") from error
        time.sleep(0.1)


class Prompts:
    """Lists of tokens, the same for both servers: whoever is asked first says what the tokens of the text are."""

    def __init__(self, text):
        self.text, self.known = text, {}

    def tokens(self, url, text):
        if text not in self.known:
            request = urllib.request.Request(url + "/tokenize", json.dumps({"content": text}).encode(),
                                             {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=START_S) as response:
                self.known[text] = json.load(response)["tokens"]
        return self.known[text]

    def cut(self, url, begin, length):
        """From that token of the text on, and from its beginning again where it ends."""
        tokens = self.tokens(url, self.text)
        return [tokens[(begin + i) % len(tokens)] for i in range(length)]

    def of(self, url, cell, count):
        """So many prompts of `cell.prompt` tokens."""
        whole = self.tokens(url, self.text)
        prompts = []
        for i in range(count):
            question = self.tokens(url,
                                   f"\n\nQuestion {i + 1}: what does the text above say, in one paragraph?\n\nAnswer:")
            begin = 0 if cell.shared else i * len(whole) // count
            length = cell.prompt - len(question)
            if length < 1:
                raise Failure(f"--prompts {cell.prompt}: too short for the question, which has {len(question)} tokens")
            prompts.append(self.cut(url, begin, length) + question)
        return prompts


def body(prompt, max_tokens, seed):
    return {"prompt": prompt, "max_tokens": max_tokens, "seed": seed, "temperature": 0, "ignore_eos": True,
            "stream": True, "stream_options": {"include_usage": True}}


def measure(side, options, cell, prompts):
    """({measure: value}, complaints)"""
    try:
        with ServerProcess(command(side, options, cell), READY[side], START_S) as server:
            wait_for_health(server.url)
            count = max(cell.users, options.requests)
            requests = [load_test.Request(0, body(prompt, options.max_tokens, i))
                        for i, prompt in enumerate(prompts.of(server.url, cell, count))]
            client = load_test.Client(server.url, timeout=options.timeout)
            warm_up = client.ask(load_test.Request(0, body(prompts.cut(server.url, 7, WARM_UP_TOKENS), 8, 0)))
            outcomes, seconds = load_test.run_load(client, requests, cell.users)
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        return {}, [str(error)]
    complaints = [outcome.error for outcome in [warm_up, *outcomes] if outcome.error]
    for outcome in outcomes:
        told = outcome.usage.get("prompt_tokens"), outcome.usage.get("completion_tokens")
        if not outcome.error and told != (cell.prompt, options.max_tokens):
            complaints.append(f"{told[0]} tokens of prompt and {told[1]} of answer, not {cell.prompt} and "
                              f"{options.max_tokens}")
    if complaints:
        return {}, sorted(set(complaints))
    told = load_test.summary(outcomes, seconds)
    first, gap = told["time_to_first_token_ms"], told["between_tokens_ms"]
    return {"rate": told["tokens_per_second"], "first": first["mean"], "first_p99": first["p99"],
            "gap": gap.get("mean", 0.0), "gap_p99": gap.get("p99", 0.0)}, []


def name_of(cell):
    whose = "shared" if cell.shared else "own"
    return f"{cell.users} user{'s' * (cell.users > 1)}, {cell.prompt} tokens, {whose} document"


def measure_all(options):
    """({(cell, side): {measure: value}}, complaints)"""
    prompts = Prompts(options.text.read_text(encoding="utf-8"))
    results, complaints = {}, []
    for number, cell in enumerate(cells(options)):
        rounds = {OURS: [], THEIRS: []}
        for turn in range(options.rounds):
            for side in (OURS, THEIRS) if (number + turn) % 2 == 0 else (THEIRS, OURS):
                values, wrong = measure(side, options, cell, prompts)
                complaints += [f"{side}, {name_of(cell)}: {line}" for line in wrong]
                rounds[side] += [values] if values else []
                said = ", ".join(f"{MEASURES[key][0]} {figure(value)}" for key, value in values.items())
                print(f"{name_of(cell)}: {side}: {said or 'failed'}", file=sys.stderr, flush=True)
        for side, values in rounds.items():
            results[cell, side] = {key: statistics.median(each[key] for each in values) for key in MEASURES if values}
    return results, complaints


def figure(value):
    """Three digits or more."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def compared(ours, theirs, more_is_better):
    """Ours, theirs, and how many times better ours is."""
    if ours is None or theirs is None:
        return " / ".join("-" if value is None else figure(value) for value in (ours, theirs))
    better, worse = (ours, theirs) if more_is_better else (theirs, ours)
    return f"{figure(ours)} / {figure(theirs)} = " + (f"{better / worse:.2f}" if worse else "-")


def table(results, options):
    lines = ["| users | prompt | document | " + " | ".join(name for name, _ in MEASURES.values()) + " |",
             "|---:|---:|---|" + "---:|" * len(MEASURES)]
    for cell in cells(options):
        ours, theirs = results[cell, OURS], results[cell, THEIRS]
        values = [compared(ours.get(key), theirs.get(key), more) for key, (_, more) in MEASURES.items()]
        lines.append(f"| {cell.users} | {cell.prompt:,} | {'shared' if cell.shared else 'own'} | "
                     f"{' | '.join(values)} |")
    return lines


def version_of(program):
    try:
        done = subprocess.run([program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False)
    except OSError as error:
        raise Failure(f"{program}: {error.strerror}") from None
    return next(iter((done.stdout + done.stderr).strip().splitlines()), "unknown version")


def report(results, options, versions):
    given = [f"--{name} {shlex.quote(shlex.join(words))}" for name, words in
             (("longspec-args", options.longspec_args), ("llama-args", options.llama_args)) if words]
    return "\n".join([
        "# longspec serve beside llama-server", "",
        f"{cpu_name()}; {options.threads} threads; {Path(options.model).name}; {date.today().isoformat()}.",
        f"{OURS}: {versions[0]}; {THEIRS}: {versions[1]}.",
        f"{options.max_tokens} tokens an answer at temperature 0, at least {options.requests} requests a line, "
        "medians of "
        f"{options.rounds} rounds.", f"Each cell: {OURS} / {THEIRS} = how many times better {OURS} is.", "",
        *table(results, options), "",
        f"Measured by `tools/compare_servers.py --threads {options.threads} --users "
        f"{','.join(map(str, options.users))} "
        f"--prompts {','.join(map(str, options.prompts))}",
        f"--documents {options.documents} --max-tokens {options.max_tokens} --requests {options.requests} --rounds "
        f"{options.rounds} --timeout {options.timeout}{''.join(' ' + words for words in given)}`.", ""])


def main(argv=None):
    options = parse(argv)
    complaints = []

    def make_report(options):
        check_model(options)
        versions = [version_of(program) for program in (options.longspec, options.llama_server)]
        results, wrong = measure_all(options)
        complaints.extend(wrong)
        return report(results, options, versions)

    status = run_tool("compare_servers", options, make_report)
    for line in complaints:
        print(f"compare_servers: {line}", file=sys.stderr)
    return status or int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main())
