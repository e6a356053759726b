#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures `longspec eval` beside llama.cpp's prompt lookup on the same prompts, greedily, prompt evaluation not
counted.

  python3 -m pip install llama-cpp-python      # builds llama.cpp; a virtual environment is best
  tools/compare_prompt_lookup.py --data DIR [--families a,b] [--lengths 512,2048] [--out docs/lookup.md]

For every family and context length, one after the other: `longspec eval` with --spec-type auto, then llama.cpp (f16 KV,
flash attention on) plainly and with llama-cpp-python's LlamaPromptLookupDecoding, on the tokens that eval wrote down.
The two programs round differently, so that their texts may part; each is timed on its own.
"""

import argparse
from datetime import date
import json
from pathlib import Path
import statistics
import subprocess
import sys
import tempfile
import time

from compare_llamacpp import cpu_name, Failure, number_list, ROOT, run_tool


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default=str(ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--longspec", default=str(ROOT / "build" / "release" / "longspec"),
                        help="the program to measure")
    parser.add_argument("--data", required=True, help="folder of FAMILY.jsonl or FAMILY.jsonl.gz files")
    parser.add_argument("--families", required=True, help="comma-separated")
    parser.add_argument("--lengths", type=number_list, default=[512, 2048, 4096, 8192], help="comma-separated")
    parser.add_argument("-n", "--predict", type=int, default=128, help="most tokens to generate (default: 128)")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--lookup-tokens", type=number_list, default=[2, 10],
                        help="num_pred_tokens of LlamaPromptLookupDecoding to try (default: 2,10: its documentation's "
                             "advice for CPUs, and its default)")
    parser.add_argument("--out", type=Path, help="write the report (Markdown) here as well")
    return parser.parse_args()


class LlamaCpp:
    def __init__(self, model, threads):
        try:
            import llama_cpp
            from llama_cpp.llama_speculative import LlamaPromptLookupDecoding
        except ImportError:
            raise Failure("llama-cpp-python is missing: python3 -m pip install llama-cpp-python") from None
        self.lookup = LlamaPromptLookupDecoding
        self.version = llama_cpp.__version__
        # logits_all is what a draft model sets; set for both, so that one context and one prefill serve both.
        self.llama = llama_cpp.Llama(model, n_ctx=8192, n_threads=threads, n_threads_batch=threads, flash_attn=True,
                                     logits_all=True, verbose=False)

    def tokens_per_second(self, prompt, n_predict, draft_tokens):
        """Of decoding `n_predict` tokens after a prompt that is in the cache; draft_tokens 0: plainly."""
        self.llama.draft_model = None
        next(self.llama.generate(prompt, temp=0.0))
        self.llama.draft_model = self.lookup(num_pred_tokens=draft_tokens) if draft_tokens else None
        begin, n = time.perf_counter(), 0
        for token in self.llama.generate(prompt, temp=0.0):
            n += 1
            if n == n_predict or token == self.llama.token_eos():
                break
        return n / (time.perf_counter() - begin)


def evaluate(options, family, length, folder):
    """(cell of longspec eval, prompts as tokens)."""
    command = [options.longspec, "eval", "-m", options.model, "-t", str(options.threads), "--data", options.data,
               "--out", folder, "--families", family, "--lengths", str(length), "--methods", "auto", "--temps", "0",
               "-n", str(options.predict)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Failure(f"{' '.join(command)} ended with {done.returncode}: {reason}")
    cell = json.loads(Path(folder, "cells.jsonl").read_text(encoding="utf-8").splitlines()[0])
    path = Path(folder, "prompts.jsonl")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return cell, [json.loads(line)["tokens"] for line in lines]


def measure(options):
    """[(family, length, {column: tokens/s})]; llama.cpp's version."""
    llama = LlamaCpp(options.model, options.threads)
    rows = []
    for family in options.families.split(","):
        for length in options.lengths:
            print(f"{family} at {length}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory() as folder:
                cell, prompts = evaluate(options, family, length, folder)
            if not prompts:
                continue
            speeds = {"longspec auto": cell["tokens_per_second"], "longspec plain": cell["plain_tokens_per_second"]}
            for draft in [0, *options.lookup_tokens]:
                name = f"llama.cpp lookup {draft}" if draft else "llama.cpp plain"
                speeds[name] = statistics.mean(llama.tokens_per_second(p, options.predict, draft) for p in prompts)
            rows.append((family, length, speeds, cell["distinct_4gram"]))
    return rows, llama.version


def report(rows, version, options):
    columns = ["longspec auto", "longspec plain", "llama.cpp plain",
               *(f"llama.cpp lookup {n}" for n in options.lookup_tokens)]
    lines = [f"| family | length | {' | '.join(columns)} | auto / best of llama.cpp | distinct 4-grams |",
             "|---|---:|" + "---:|" * (len(columns) + 2)]
    ratios = []
    for family, length, speeds, distinct in rows:
        best = max(speed for name, speed in speeds.items() if name.startswith("llama.cpp"))
        ratios.append(speeds["longspec auto"] / best)
        cells = " | ".join(f"{speeds[name]:.1f}" for name in columns)
        lines.append(f"| {family} | {length} | {cells} | {ratios[-1]:.2f}x | {distinct:.2f} |")
    mean = f"{statistics.mean(ratios):.2f}x" if ratios else "-"
    return "\n".join([
        "# Speculation beside llama.cpp's prompt lookup", "",
        f"Tokens/s of decoding, greedy. {cpu_name()}; {options.threads} threads; {Path(options.model).name}; "
        "f16 KV, flash "
        f"attention on; llama-cpp-python {version}; {date.today().isoformat()}.", "",
        *lines, "", f"Mean of auto over the best of llama.cpp: {mean}.", ""])


if __name__ == "__main__":
    sys.exit(run_tool("compare_prompt_lookup", parse_arguments(), lambda options: report(*measure(options), options)))
