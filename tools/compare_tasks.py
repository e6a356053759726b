#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures tasks that people have on longspec serve and on llama.cpp's llama-server: same GGUF, threads and samplers.

  tools/make_tasks.py --data FOLDER --out tasks.jsonl
  tools/compare_tasks.py --tasks tasks.jsonl --llama-server /tmp/llama-build/bin/llama-server --out build/tasks

(tools/compare_servers.py says how llama-server is built.) Each method is a server of its own; all are up at once, and
one is asked at a time. The plain server of either engine evaluates a prompt, which is timed; the others take it from a
slot that it saved. Then each method writes its answer at each temperature, in an order that changes from prompt to
prompt, and what is timed is the whole request, prompt known.

Results are appended to OUT/results.jsonl as they come. What is there is not measured again, so a run that was stopped
goes on. The tables in OUT/report.md are made of all of it. Ratios above 1 favour longspec.
"""

import argparse
import contextlib
from dataclasses import dataclass
from datetime import date
import json
from pathlib import Path
import re
import statistics
import sys
import tempfile
import time
import urllib.error
import urllib.request

from compare_llamacpp import check_model, cpu_name, Failure, ROOT, run_tool
from compare_servers import OURS, READY, START_S, THEIRS, version_of, wait_for_health
from server_process import ServerProcess

MODEL = ROOT / "models" / "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf"
DRAFT = ROOT / "models" / "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf"
PLAIN = "plain"
GUESSED = "auto"
SAMPLERS = {"top_k": 40, "top_p": 0.95, "min_p": 0.05}


@dataclass(frozen=True)
class Method:
    side: str
    name: str
    options: tuple


def methods_of(options):
    """The plain one of a side comes before the others of it."""
    draft = ("-md", str(options.draft))
    known = [Method(OURS, PLAIN, ("--spec-type", "none")), Method(OURS, GUESSED, ()),
             Method(OURS, "auto + 0.5B", draft), Method(THEIRS, PLAIN, ())]
    known += [Method(THEIRS, name, ("--spec-type", name))
              for name in ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")]
    known += [Method(THEIRS, "draft 0.5B", ("--spec-type", "draft-simple", *draft))]
    wanted = [method for method in known if f"{method.side}:{method.name}" in options.methods]
    if len(wanted) != len(options.methods):
        raise Failure("--methods: known are " + ", ".join(f"{each.side}:{each.name}" for each in known))
    for side in {method.side for method in wanted}:
        if PLAIN not in [each.name for each in wanted if each.side == side]:
            raise Failure(f"--methods: {side}:{PLAIN} is missing, which evaluates the prompts of the others")
    return wanted


class Server:
    """A running server of a method."""

    def __init__(self, method, options, slots):
        self.method = method
        common = ["-m", str(options.model), "-t", str(options.threads), "-c", str(options.context), "--parallel", "1",
                  "--port", "0", "--slot-save-path", str(slots)]
        if method.side == OURS:
            command = [options.longspec, "serve", *common, "--no-progress", *method.options]
        else:
            command = [options.llama_server, *common, "--host", "127.0.0.1", "-tb", str(options.threads), "-fa", "on",
                       "--cache-ram", "0", *method.options]
        self.process = ServerProcess(command, READY[method.side], START_S)
        self.url = self.process.url
        wait_for_health(self.url)

    def post(self, path, body):
        """(answer, seconds)"""
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        began = time.monotonic()
        try:
            with urllib.request.urlopen(request) as response:
                return json.load(response), time.monotonic() - began
        except urllib.error.HTTPError as error:
            raise Failure(f"{self.method.side} {self.method.name} {path}: {error.read().decode()[:300]}") from None

    def ask(self, task, tokens, temperature, seed=0):
        """(text, tokens of the prompt, of the answer, seconds)"""
        is_chat = "messages" in task["body"]
        body = {**task["body"], **SAMPLERS, "temperature": temperature, "seed": seed, "id_slot": 0,
                "cache_prompt": True, "max_tokens" if is_chat else "n_predict": tokens}
        answer, seconds = self.post("/v1/chat/completions" if is_chat else "/completion", body)
        text = answer["choices"][0]["message"]["content"] if is_chat else answer["content"]
        timings = answer["timings"]
        return text or "", timings["prompt_n"] + timings.get("cache_n", 0), timings["predicted_n"], seconds

    def slot(self, action):
        self.post(f"/slots/0?action={action}", {"filename": f"{self.method.side}.slot"})

    def memory(self):
        """MiB, the most so far."""
        status = Path(f"/proc/{self.process.process.pid}/status").read_text(encoding="utf-8")
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) // 1024


def distinct_4grams(text):
    words = re.findall(r"\w+|[^\w\s]", text)
    grams = [tuple(words[i:i + 4]) for i in range(len(words) - 3)]
    return len(set(grams)) / len(grams) if grams else 1.0


# --- Measuring ---

def key_of(task, method, temperature):
    return [task["task"], task["tokens"], task["source"], method.side, method.name, temperature]


def measure_task(task, servers, number, options, done, write):
    """`write` gets a result for each answer that is not in `done`."""
    wanted = [server for server in servers
              if any(key_of(task, server.method, each) not in done for each in options.temps)]
    first, n_prompt = {}, {}
    for side in dict.fromkeys(server.method.side for server in wanted):
        plain = next(server for server in servers if (server.method.side, server.method.name) == (side, PLAIN))
        _, n_prompt[side], _, first[side] = plain.ask(task, 1, 0)
        plain.slot("save")
        for server in wanted:
            if server.method.side == side:
                if server is not plain:
                    server.slot("restore")
                server.ask(task, 4, 0)  # what a draft has to read of the prompt
    for place, temperature in enumerate(options.temps):
        turn = (number + place) % len(wanted) if wanted else 0
        for server in wanted[turn:] + wanted[:turn]:
            key, side = key_of(task, server.method, temperature), server.method.side
            if key in done:
                continue
            text, _, n, seconds = server.ask(task, options.answer, temperature)
            write({"key": key, "prompt": n_prompt[side], "first": first[side],
                   "n": n, "seconds": seconds, "distinct": distinct_4grams(text), "text": text,
                   "memory": server.memory()})


def read_results(path):
    if not path.exists():
        return []
    results = []
    for line in path.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError):  # cut short when the run was stopped
            results.append(json.loads(line))
    return results


def measure_all(options):
    tasks = [json.loads(line) for line in options.tasks.read_text(encoding="utf-8").splitlines()]
    tasks = [task for task in tasks if task["tokens"] <= options.most_tokens
             and task["tokens"] >= options.least_tokens][::options.every]
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / "results.jsonl"
    done = [result["key"] for result in read_results(path)]
    methods = methods_of(options)
    with contextlib.ExitStack() as stack, path.open("a", encoding="utf-8") as file:
        slots = stack.enter_context(tempfile.TemporaryDirectory())
        servers = []
        for method in methods:
            servers.append(Server(method, options, slots))
            stack.enter_context(servers[-1].process)

        time.sleep(options.settle)

        def write(result):
            file.write(json.dumps(result) + "\n")
            file.flush()
            print(f"{result['key']}: {result['n']} tokens in {result['seconds']:.2f} s", file=sys.stderr, flush=True)

        for number, task in enumerate(tasks):
            measure_task(task, servers, number, options, done, write)
    return read_results(path)


# --- The report ---

def rate(results):
    return sum(each["n"] for each in results) / sum(each["seconds"] for each in results)


class Cell:
    """A task of a length at a temperature: results by method."""

    def __init__(self, results):
        self.by_method = {}
        for each in results:
            self.by_method.setdefault(tuple(each["key"][3:5]), []).append(each)

    def first(self, side):
        """Of a prompt: seconds, and tokens a second."""
        plain = self.by_method.get((side, PLAIN), [])
        return statistics.median(each["first"] for each in plain) if plain else None

    def rates(self, side):
        return {name: rate(each) for (which, name), each in self.by_method.items() if which == side}

    def ratios(self, name, to):
        """Over the prompts: the ratio of all, the least one."""
        ours = {each["key"][2]: each for each in self.by_method.get((OURS, name), [])}
        theirs = {each["key"][2]: each for each in self.by_method.get(to, [])}
        both = [source for source in ours if source in theirs]
        if not both:
            return None
        return (rate([ours[source] for source in both]) / rate([theirs[source] for source in both]),
                min(rate([ours[source]]) / rate([theirs[source]]) for source in both))

    def identical(self):
        """(texts that are those of plain, texts), of all guessed methods of ours."""
        plain = {each["key"][2]: each["text"] for each in self.by_method.get((OURS, PLAIN), [])}
        guessed = [each for (side, name), results in self.by_method.items() if side == OURS and name != PLAIN
                   for each in results if each["key"][2] in plain]
        return sum(each["text"] == plain[each["key"][2]] for each in guessed), len(guessed)


def shown(value, unit="", digits=1):
    return "-" if value is None else f"{value:.{digits}f}{unit}"


def row(name, cell):
    ours, theirs = cell.rates(OURS), cell.rates(THEIRS)
    best = max(theirs, key=theirs.get, default=None)
    to_plain, to_best = cell.ratios(GUESSED, (OURS, PLAIN)), cell.ratios(GUESSED, (THEIRS, best))
    same, texts = cell.identical()
    guessed = cell.by_method.get((OURS, GUESSED), [])
    return (name, shown(cell.first(OURS), " s"), shown(cell.first(THEIRS), " s"), shown(ours.get(PLAIN)),
            shown(ours.get(GUESSED)), shown(ours.get("auto + 0.5B")), shown(theirs.get(PLAIN)),
            f"{shown(theirs.get(best))} {best}" if best and best != PLAIN else "plain",
            f"{to_plain[0]:.2f} ({to_plain[1]:.2f})" if to_plain else "-",
            f"{to_best[0]:.2f} ({to_best[1]:.2f})" if to_best else "-",
            shown(statistics.mean(each["distinct"] for each in guessed) if guessed else None, digits=2),
            f"{same} of {texts}")


HEAD = ("task, tokens of prompt", "first token", "llama.cpp", "plain", "auto", "auto + 0.5B", "llama.cpp plain",
        "its best", "auto / plain (least)", "auto / its best (least)", "distinct", "identical")


def tables(results):
    lines = []
    for temperature in sorted({each["key"][5] for each in results}):
        lines += [f"## Temperature {temperature:g}", "", "| " + " | ".join(HEAD) + " |",
                  "|---|" + "---:|" * (len(HEAD) - 1)]
        of_temperature = [each for each in results if each["key"][5] == temperature]
        for task, tokens in dict.fromkeys((each["key"][0], each["key"][1]) for each in of_temperature):
            cell = [each for each in of_temperature if each["key"][:2] == [task, tokens]]
            prompt = round(statistics.mean(each["prompt"] for each in cell))
            lines.append("| " + " | ".join(row(f"{task}, {prompt:,}", Cell(cell))) + " |")
        lines.append("")
    memory = {tuple(each["key"][3:5]): each["memory"] for each in results}
    lines += ["Memory at most: " + ", ".join(f"{side} {name} {mib:,} MiB" for (side, name), mib in memory.items())
              + ".", ""]
    return lines


def make_report(options):
    check_model(options)
    versions = [version_of(program) for program in (options.longspec, options.llama_server)]
    results = measure_all(options) if not options.only_report else read_results(options.folder / "results.jsonl")
    if not results:
        raise Failure(f"{options.folder}: nothing was measured")
    text = "\n".join([
        f"{cpu_name()}; {options.threads} threads; {Path(options.model).name}; {date.today().isoformat()}.",
        f"{OURS}: {versions[0]}; {THEIRS}: {versions[1]}. Answers of up to {options.answer} tokens, samplers "
        f"{', '.join(f'{name} {value:g}' for name, value in SAMPLERS.items())}.", "", *tables(results)])
    (options.folder / "report.md").write_text(text, encoding="utf-8")
    return text


def add_programs(parser):
    """What is measured: programs, models, methods, tasks."""
    parser.add_argument("-m", "--model", default=str(MODEL))
    parser.add_argument("-md", "--draft", default=str(DRAFT), help="a small model, for both")
    parser.add_argument("--longspec", default=str(ROOT / "build" / "release" / "longspec"), help="the program")
    parser.add_argument("--llama-server", required=True, help="llama.cpp's")
    parser.add_argument("--tasks", type=Path, required=True, help="what make_tasks.py wrote")
    parser.add_argument("--methods", type=lambda text: [word.strip() for word in text.split(",")],
                        default=[f"{OURS}:{PLAIN}", f"{OURS}:{GUESSED}", f"{THEIRS}:{PLAIN}", f"{THEIRS}:ngram-mod"],
                        help="SIDE:NAME, separated by commas")
    parser.add_argument("-c", "--context", type=int, default=8192)
    parser.add_argument("-t", "--threads", type=int, default=2)


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_programs(parser)
    parser.add_argument("--temps", type=lambda text: [float(word) for word in text.split(",")],
                        default=[0.0, 0.2, 0.7], help="comma-separated (default: 0,0.2,0.7)")
    parser.add_argument("--least-tokens", type=int, default=0, help="of prompts; others are left out")
    parser.add_argument("--most-tokens", type=int, default=4000, help="of prompts; others are left out")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth of those tasks alone")
    parser.add_argument("--answer", type=int, default=128, help="tokens of an answer at most (default: 128)")
    parser.add_argument("--settle", type=float, default=15, metavar="S",
                        help="seconds for servers to measure the machine before the first task (default: 15)")
    parser.add_argument("--only-report", action="store_true", help="of what was measured")
    parser.add_argument("--out", dest="folder", type=Path, required=True, help="folder of results and report")
    parser.set_defaults(out=None)  # run_tool's file
    return parser.parse_args(argv)


def main(argv=None):
    return run_tool("compare_tasks", parse(argv), make_report)


if __name__ == "__main__":
    sys.exit(main())
