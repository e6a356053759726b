#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures suggestions at the cursor on longspec serve --fim and on llama.cpp's llama-server: same GGUF, same requests.

  tools/compare_completion.py --llama-server /tmp/llama-build/bin/llama-server src/kv/*.cc [--out report.md]

(tools/compare_servers.py says how llama-server is built.) Somebody types in source files. At some lines of each file
the cursor lands (a jump); then the line is written, a few characters at a time (keys), and the next one is begun (a new
line). After each the editor asks for one line, as llama.vim does: 256 lines before the cursor, 64 behind it, sampled
by top_k 40, top_p 0.9 and `infill`. What is typed is what the file has there. Both servers are up all the time and
asked in turn, each with its own settings for editors: longspec serve --fim, and llama.cpp's preset for models of this
size (-b 1024 -ub 1024 --cache-reuse 256, which moves keys and is approximate). The table has medians and 90th
percentiles by event: tokens of the prompt that were evaluated, and seconds until the suggestion is there.
"""

import argparse
import contextlib
from dataclasses import dataclass
from datetime import date
import json
import os
from pathlib import Path
import statistics
import sys
import time
import urllib.error
import urllib.request

from compare_llamacpp import check_model, cpu_name, Failure, ROOT, run_tool
from compare_servers import OURS, READY, START_S, THEIRS, version_of, wait_for_health
from server_process import ServerProcess

MODEL = ROOT / "models" / "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf"
LINES_BEFORE, LINES_BEHIND = 256, 64
EVENTS = ("a jump", "a key", "a new line")
KEY_CHARACTERS = 4  # typed between two requests: fast typing asks for less than every key
MOST_KEYS = 4  # requests in a line
SAMPLING = {"top_k": 40, "top_p": 0.9, "samplers": ["top_k", "top_p", "infill"], "seed": 1, "n_predict": 64}


@dataclass(frozen=True)
class Request:
    event: str
    file: str
    body: dict
    rest: str  # of the line, as the file has it


def request_at(event, name, lines, row, column):
    """The cursor stands in lines[row], behind its first `column` characters; what the file has there is yet to come."""
    before = "".join(line + "\n" for line in lines[max(0, row - LINES_BEFORE):row])
    behind = "\n" + "".join(line + "\n" for line in lines[row + 1:row + 1 + LINES_BEHIND])
    return Request(event, name, {**SAMPLING, "input_prefix": before, "prompt": lines[row][:column],
                                 "input_suffix": behind, "input_extra": [], "stop": ["\n"], "cache_prompt": True,
                                 "id_slot": 0}, lines[row][column:])


def indent_of(line):
    return len(line) - len(line.lstrip())


def typing(name, text, places):
    """Requests of somebody who writes two lines at each of so many places of the file."""
    lines = text.split("\n")
    rows = [row for row in range(len(lines) - 2) if len(lines[row].strip()) >= 12 and len(lines[row + 1].strip()) >= 12]
    if not rows:
        return []
    chosen = [rows[(2 * i + 1) * len(rows) // (2 * places)] for i in range(places)]
    requests = []
    for row in dict.fromkeys(chosen):
        requests.append(request_at("a jump", name, lines, row, indent_of(lines[row])))
        for at in (row, row + 1):
            if at > row:
                requests.append(request_at("a new line", name, lines, at, indent_of(lines[at])))
            ends = range(indent_of(lines[at]) + KEY_CHARACTERS, len(lines[at]), KEY_CHARACTERS)
            requests += [request_at("a key", name, lines, at, end) for end in list(ends)[:MOST_KEYS]]
    return requests


@dataclass
class Suggestion:
    event: str
    evaluated: int  # tokens of the prompt
    seconds: float
    tokens: int  # of the answer
    rounds: int  # 0: the server does not say
    right: int  # characters of it that the file has there


class Server:
    def __init__(self, side, options):
        self.side = side
        common = ["-m", str(options.model), "-t", str(options.threads), "--port", "0"]
        if side == OURS:
            command = [options.longspec, "serve", "--fim", "--no-progress", *common, *options.longspec_args]
        else:
            command = [options.llama_server, *common, "--host", "127.0.0.1", "-tb", str(options.threads), "-fa", "on",
                       "-c", "8192", "--parallel", "1", "-b", "1024", "-ub", "1024", "--cache-reuse", "256",
                       *options.llama_args]
        self.process = ServerProcess(command, READY[side], START_S)
        self.url = self.process.url
        wait_for_health(self.url)

    def ask(self, request):
        data = urllib.request.Request(self.url + "/infill", json.dumps(request.body).encode(),
                                      {"Content-Type": "application/json"})
        began = time.monotonic()
        try:
            with urllib.request.urlopen(data) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            raise Failure(f"{self.side} /infill: {error.read().decode()[:300]}") from None
        seconds = time.monotonic() - began
        timings, n = answer["timings"], answer["timings"]["predicted_n"]
        rounds = n - timings.get("draft_n_accepted", 0) if self.side == OURS else 0
        right = len(os.path.commonprefix([answer["content"], request.rest]))
        return Suggestion(request.event, timings["prompt_n"], seconds, n, rounds, right)


def measure(options, write):
    requests = []
    for path in options.files:
        requests += typing(path.name, path.read_text(encoding="utf-8", errors="replace"), options.places)
    if not requests:
        raise Failure("the files have no lines to write: some with two lines of 12 characters in a row are needed")
    results = {OURS: [], THEIRS: []}
    with contextlib.ExitStack() as stack:
        servers = []
        for side in (OURS, THEIRS):
            servers.append(Server(side, options))
            stack.enter_context(servers[-1].process)
        time.sleep(options.settle)
        for number, request in enumerate(requests):
            for server in servers if number % 2 == 0 else reversed(servers):
                results[server.side].append(server.ask(request))
            write(f"{number + 1} of {len(requests)}: {request.file}, {request.event}: "
                  + ", ".join(f"{side} {of[-1].evaluated} tokens, {of[-1].seconds:.2f} s"
                              for side, of in results.items()))
    return results


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def table(results):
    lines = ["| event, requests | tokens evaluated (90 %) | llama.cpp | seconds (90 %) | llama.cpp | times |",
             "|---|---:|---:|---:|---:|---:|"]
    for event in EVENTS:
        ours, theirs = ([each for each in results[side] if each.event == event] for side in (OURS, THEIRS))
        if not ours:
            continue
        cells = [f"{event}, {len(ours)}"]
        for name, shown in (("evaluated", "{:.0f} ({:.0f})"), ("seconds", "{:.2f} ({:.2f})")):
            for of in (ours, theirs):
                values = [getattr(each, name) for each in of]
                cells.append(shown.format(statistics.median(values), percentile(values, 0.9)))
        ratio = statistics.median(each.seconds for each in theirs) / statistics.median(each.seconds for each in ours)
        lines.append("| " + " | ".join([*cells, f"{ratio:.2f}"]) + " |")
    return lines


def make_report(options):
    check_model(options)
    versions = [version_of(program) for program in (options.longspec, options.llama_server)]
    results = measure(options, lambda line: print(line, file=sys.stderr, flush=True))
    ours, theirs = results[OURS], results[THEIRS]
    tokens, rounds = sum(each.tokens for each in ours), sum(each.rounds for each in ours)
    return "\n".join([
        f"{cpu_name()}; {options.threads} threads; {Path(options.model).name}; {date.today().isoformat()}; "
        f"{len(options.files)} files.",
        f"{OURS}: {versions[0]}; {THEIRS}: {versions[1]}.", "", *table(results), "",
        f"Tokens of a suggestion: {tokens / len(ours):.1f}, {THEIRS} "
        f"{sum(each.tokens for each in theirs) / len(theirs):.1f}; a round of {OURS} {tokens / max(rounds, 1):.2f}. "
        f"Characters of it that the file has there: {statistics.mean(each.right for each in ours):.1f}, {THEIRS} "
        f"{statistics.mean(each.right for each in theirs):.1f}.", ""])


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="source files that are written")
    parser.add_argument("-m", "--model", default=str(MODEL))
    parser.add_argument("--longspec", default=str(ROOT / "build" / "release" / "longspec"), help="the program")
    parser.add_argument("--longspec-args", type=str.split, default=[],
                        help="more options of longspec serve, as one text")
    parser.add_argument("--llama-server", required=True, help="llama.cpp's")
    parser.add_argument("--llama-args", type=str.split, default=[], help="more options of llama-server, as one text")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--places", type=int, default=2, help="of each file (default: 2)")
    parser.add_argument("--settle", type=float, default=15, metavar="S",
                        help="seconds for servers to measure the machine before the first request (default: 15)")
    parser.add_argument("--out", type=Path, help="write the report (Markdown) here as well")
    return parser.parse_args(argv)


def main(argv=None):
    return run_tool("compare_completion", parse(argv), make_report)


if __name__ == "__main__":
    sys.exit(main())
