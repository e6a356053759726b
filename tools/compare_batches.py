#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds `longspec batch` with guesses against `longspec batch` without, at several numbers of sequences at once.

Requests are made of texts in the form that `longspec eval --data` reads (FAMILY.jsonl.gz with `instruction` and
`prompt_text`). Both ways are run in turn, the first of them another one each round. Times are of whole runs, loading
included. Status 1 if answers differ.

    tools/compare_batches.py --data eval --parallel 1,4,8,16 --rounds 3
"""

import argparse
import gzip
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from compare_llamacpp import cpu_name, Failure, number_list, ROOT

FAMILIES = "gov_report,book_continuation,code_completion,cnn_dm,meeting_qmsum,doc_summary"


def parse_arguments(args=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default=str(ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--longspec", default=str(ROOT / "build" / "release" / "longspec"))
    parser.add_argument("--data", type=Path, required=True, help="folder of FAMILY.jsonl.gz")
    parser.add_argument("--families", type=lambda text: text.split(","), default=FAMILIES.split(","))
    parser.add_argument("--each", type=int, default=4, help="requests of each family (default: 4)")
    parser.add_argument("--characters", type=int, default=2200, help="of each text (default: 2200)")
    parser.add_argument("--max-tokens", type=int, default=96, help="of an answer (default: 96)")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--parallel", type=number_list, default=[1, 4, 8, 16])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--without", type=shlex.split, default=["--spec-type", "none"],
                        help="options of the one side (default: --spec-type none)")
    parser.add_argument("--with", dest="with_", type=shlex.split, default=["--spec-type", "auto"],
                        help="of the other (default: --spec-type auto)")
    return parser.parse_args(args)


def make_requests(options):
    """One line each, in the form of OpenAI's batch API; families in turn."""
    texts = []
    for family in options.families:
        path = options.data / f"{family}.jsonl.gz"
        try:
            with gzip.open(path, "rt", encoding="utf-8") as file:
                items = [json.loads(line) for line, _ in zip(file, range(options.each))]
        except (OSError, ValueError) as error:
            raise Failure(f"{path}: {error}") from None
        if len(items) < options.each:
            raise Failure(f"{path}: {len(items)} texts, {options.each} are needed (--each)")
        texts.append([f"{item['instruction']}\n\n{item['prompt_text'][:options.characters]}" for item in items])
    return [{"custom_id": f"{family}-{i}", "method": "POST", "url": "/v1/chat/completions",
             "body": {"messages": [{"role": "user", "content": texts[f][i]}], "max_tokens": options.max_tokens,
                      "temperature": options.temperature, "seed": i}}
            for i in range(options.each) for f, family in enumerate(options.families)]


def answers_of(path):
    """What was said, by request."""
    answers = {}
    with open(path, encoding="utf-8") as file:
        for line in map(json.loads, file):
            answers[line["custom_id"]] = line["response"]["body"]["choices"][0]["message"]["content"]
    return answers


def distinct_share(texts):
    """Of all runs of four words, those that are said once or first."""
    grams = [tuple(words[i:i + 4]) for text in texts for words in [text.split()] for i in range(len(words) - 3)]
    return len(set(grams)) / max(1, len(grams))


def run(options, requests, parallel, spec, out):
    command = [options.longspec, "batch", "-m", options.model, "-f", requests, "-o", out, "--parallel", str(parallel),
               "-t", str(options.threads), "--no-progress", *spec]
    Path(out).unlink(missing_ok=True)  # answers that are there already would not be given again
    begin = time.monotonic()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          check=False)
    seconds = time.monotonic() - begin
    if done.returncode != 0:
        raise Failure(f"{shlex.join(command)}: {done.stderr.decode(errors='replace').strip()[-400:]}")
    return seconds, answers_of(out)


def row(parallel, without, with_):
    """A line of the table, of the seconds of each round."""
    cell = lambda times: ", ".join(f"{t:.1f}" for t in times)
    ratios = sorted(a / b for a, b in zip(without, with_))
    return (f"| {parallel} | {cell(without)} | {cell(with_)} | {sum(without) / sum(with_):.3f}x | "
            f"{statistics.median(ratios):.3f}x |")


def main():
    options = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        requests = f"{folder}/requests.jsonl"
        lines = make_requests(options)
        with open(requests, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        print(f"{cpu_name()}, {options.threads} threads, {len(lines)} requests, temperature {options.temperature}; "
              f"seconds of whole runs: {shlex.join(options.without)} | {shlex.join(options.with_)}\n")
        print("| parallel | without, s | with, s | of all time | median round |\n|---:|---|---|---:|---:|", flush=True)
        said = None
        for parallel in options.parallel:
            times = ([], [])
            for n in range(options.rounds):
                for side in ((0, 1), (1, 0))[n % 2]:
                    spec = (options.without, options.with_)[side]
                    seconds, answers = run(options, requests, parallel, spec, f"{folder}/answers.jsonl")
                    times[side].append(seconds)
                    if said is not None and answers != said:
                        raise Failure(f"--parallel {parallel} {shlex.join(spec)}: answers differ")
                    said = answers
            print(row(parallel, *times), flush=True)
        print(f"\nAll answers are the same; distinct 4-gram share {distinct_share(said.values()):.2f}.")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"compare_batches: {failure}")
