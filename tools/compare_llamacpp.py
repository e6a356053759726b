#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures longspec beside llama.cpp on this machine: same GGUF, same threads, f16 KV, flash attention on.

  python3 -m pip install llama-cpp-python      # builds llama.cpp; a virtual environment is best
  tools/compare_llamacpp.py -m models/SmolLM2-135M-Instruct.Q4_1.gguf [--out docs/comparison.md]

Four things, at each depth (tokens already in the cache): evaluating a prompt of that length, a decoding step of one
row, and a step of several rows with logits for all of them, as verification needs. Rounds of the two programs
alternate, so that a slow minute hits both; the table shows medians and their ratio.
"""

import argparse
from datetime import date
import json
import os
from pathlib import Path
import platform
import statistics
import subprocess
import sys
import time

ROOT = Path(__file__).resolve().parent.parent
CHUNK = 512


class Failure(Exception):
    """A one-line reason, for the user."""


def number_list(text):
    return [int(word) for word in text.split(",")]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default=str(ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--longspec", default=str(ROOT / "build" / "release" / "longspec"), help="the program to measure")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--cache-type", default="f16", help="of longspec's keys and values (default: f16)")
    parser.add_argument("--depths", type=number_list, default=[512, 7500], help="comma-separated (default: 512,7500)")
    parser.add_argument("--rows", type=number_list, default=[8, 64], help="comma-separated (default: 8,64)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each program (default: 3)")
    parser.add_argument("--repetitions", type=int, default=8, help="steps timed in each round (default: 8)")
    parser.add_argument("--only", choices=["llama.cpp", "longspec"], help="measure only one of the two")
    parser.add_argument("--out", type=Path, help="write the report (Markdown) here as well")
    return parser.parse_args()


# --- llama.cpp ---

class LlamaCpp:
    """One context of llama.cpp, driven through its C interface so that only llama_decode is timed."""

    def __init__(self, model, threads, n_ctx, max_rows):
        try:
            import llama_cpp
        except ImportError:
            raise Failure("llama-cpp-python is missing: python3 -m pip install llama-cpp-python") from None
        self.api = llama_cpp
        self.version = llama_cpp.__version__
        self.log = llama_cpp.llama_log_callback(lambda level, text, data: None)  # kept: C holds a pointer to it
        llama_cpp.llama_log_set(self.log, None)
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(os.fsencode(model), llama_cpp.llama_model_default_params())
        if not self.model:
            raise Failure(f"{model}: llama.cpp cannot load it")
        self.n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.context = llama_cpp.llama_init_from_model(self.model, self.context_params(threads, n_ctx, max_rows))
        if not self.context:
            raise Failure(f"{model}: llama.cpp cannot make a context of {n_ctx} tokens")
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.batch = llama_cpp.llama_batch_init(max(CHUNK, max_rows), 0, 1)

    def context_params(self, threads, n_ctx, max_rows):
        params = self.api.llama_context_default_params()
        fields = {name for name, *_ in params._fields_}
        params.n_ctx, params.n_batch, params.n_ubatch = n_ctx, max(CHUNK, max_rows), CHUNK
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = self.api.GGML_TYPE_F16
        if "flash_attn_type" in fields:
            params.flash_attn_type = self.api.LLAMA_FLASH_ATTN_TYPE_ENABLED
        else:  # before September 2025
            params.flash_attn = True
        if "n_outputs_max" in fields:
            params.n_outputs_max = params.n_batch
        return params

    def decode(self, position, n, all_logits):
        """Milliseconds of one llama_decode of n tokens from `position` on."""
        batch = self.batch
        batch.n_tokens = n
        for i in range(n):
            batch.token[i] = (position + i) * 7919 % (self.n_vocab - 100) + 50  # any text will do: time does not depend on it
            batch.pos[i] = position + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = int(all_logits or i == n - 1)
        begin = time.perf_counter()
        status = self.api.llama_decode(self.context, batch)
        self.api.llama_synchronize(self.context)
        end = time.perf_counter()
        if status != 0:
            raise Failure(f"llama_decode of {n} tokens at {position} returned {status}")
        return 1000.0 * (end - begin)

    def truncate(self, length):
        if not self.api.llama_memory_seq_rm(self.memory, 0, length, -1):
            raise Failure(f"llama.cpp cannot cut its cache to {length}")

    def prefill(self, depth):
        self.api.llama_memory_clear(self.memory, True)
        return sum(self.decode(start, min(CHUNK, depth - start), False) for start in range(0, depth, CHUNK))

    def step(self, depth, rows):
        ms = self.decode(depth, rows, True)
        self.truncate(depth)
        return ms

    def measure(self, depths, rows, repetitions):
        """{(test, depth, rows): ms} of one round."""
        results = {}
        for depth in depths:
            results["prefill", depth, depth] = self.prefill(depth)
            for n in [1, *rows]:
                self.step(depth, n)  # warms up
                times = [self.step(depth, n) for _ in range(repetitions)]
                results["decode" if n == 1 else "rows", depth, n] = statistics.median(times)
        return results

    def close(self):
        self.api.llama_batch_free(self.batch)
        self.api.llama_free(self.context)
        self.api.llama_model_free(self.model)


# --- longspec ---

def parse_bench(output):
    """The lines of `longspec bench --json` as {(test, depth, rows): ms}."""
    results = {}
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        row = json.loads(line)
        if row["test"] in ("machine", "sampling"):
            continue
        rows = {"prefill": row["depth"], "decode": 1}.get(row["test"], row["rows"])
        # A row count of one is a decoding step under another name.
        test = "decode" if row["test"] == "rows" and rows == 1 else row["test"]
        results[test, row["depth"], rows] = row["ms"]
    return results


def measure_longspec(options):
    return run_longspec_bench(options, ["--depth", ",".join(map(str, options.depths)),
                                        "--rows", ",".join(map(str, [1, *options.rows]))])


def run_longspec_bench(options, arguments):
    """{(test, depth, rows): ms}"""
    command = [options.longspec, "bench", "-m", options.model, "-t", str(options.threads), "--json",
               "--cache-type-k", options.cache_type, "--cache-type-v", options.cache_type, *arguments]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              check=False)
    except OSError as error:
        raise Failure(f"{options.longspec}: {error.strerror}; build it with make") from None
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Failure(f"{' '.join(command)} ended with {done.returncode}: {reason}")
    return parse_bench(done.stdout)


# --- Report ---

def cpu_name():
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    fields = dict(line.split(":", 1) for line in reversed(text.splitlines()) if ":" in line)
    fields = {key.strip(): value.strip() for key, value in fields.items()}
    flags = fields.get("flags", "").split()
    known = [flag for flag in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16") if flag in flags]
    return f"{fields.get('model name', platform.machine())} ({', '.join(known) or 'no vector extensions we know'})"


def medians(rounds):
    keys = {key for results in rounds for key in results}
    return {key: statistics.median(results[key] for results in rounds if key in results) for key in keys}


def describe(test, rows):
    return {"prefill": "prompt", "decode": "1 row"}.get(test, f"{rows} rows")


def cell(ms):
    return "-" if ms is None else f"{ms:.0f}" if ms >= 1000 else f"{ms:.2f}"


def ratio(above, below):
    return "-" if above is None or not below else f"{above / below:.2f}x"


def comparison_table(llama, ours):
    order = {"prefill": 0, "decode": 1, "rows": 2}
    lines = ["| keys | test | llama.cpp ms | longspec ms | llama.cpp / longspec |", "|---:|---|---:|---:|---:|"]
    for key in sorted(llama.keys() | ours.keys(), key=lambda key: (key[1], order.get(key[0], 3), key[2])):
        test, depth, rows = key
        a, b = llama.get(key), ours.get(key)
        lines.append(f"| {depth:,} | {describe(test, rows)} | {cell(a)} | {cell(b)} | {ratio(a, b)} |")
    return lines


def row_cost_table(llama, ours, options):
    lines = ["| keys | rows | llama.cpp | longspec |", "|---:|---:|---:|---:|"]
    for depth in options.depths:
        for rows in options.rows:
            costs = [ratio(side.get(("rows", depth, rows)), side.get(("decode", depth, 1))) for side in (llama, ours)]
            lines.append(f"| {depth:,} | {rows} | {costs[0]} | {costs[1]} |")
    return lines


def report(llama, ours, options, version):
    return "\n".join([
        "# longspec beside llama.cpp", "",
        f"{cpu_name()}; {options.threads} threads; {Path(options.model).name}; f16 KV ({options.cache_type} in longspec), flash attention on; "
        f"llama-cpp-python {version}; {date.today().isoformat()}.",
        f"Medians of {options.rounds} alternating rounds; higher ratios favour longspec.", "",
        *comparison_table(llama, ours), "",
        "Cost of a step of several rows, in steps of one row:", "",
        *row_cost_table(llama, ours, options), "",
        f"Measured by `tools/compare_llamacpp.py --threads {options.threads} --depths {','.join(map(str, options.depths))} "
        f"--rows {','.join(map(str, options.rows))} --rounds {options.rounds}`.", ""])


def measure(options):
    """Rounds of both programs, alternating: (rounds of llama.cpp, rounds of longspec, llama-cpp-python's version)."""
    if not Path(options.model).exists():
        raise Failure(f"{options.model}: no such file; make model fetches the default one")
    llama, version = None, "not measured"
    if options.only != "longspec":
        llama = LlamaCpp(options.model, options.threads, max(options.depths) + max(options.rows) + 32, max(options.rows))
        version = llama.version
    rounds = ([], [])
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
        if llama:
            rounds[0].append(llama.measure(options.depths, options.rows, options.repetitions))
        if options.only != "llama.cpp":
            rounds[1].append(measure_longspec(options))
    if llama:
        llama.close()
    return (*rounds, version)


def run_tool(name, options, make_report):
    """Prints the report and writes it to options.out; the exit status, after one line if it failed."""
    try:
        text = make_report(options)
        print(text, end="")
        if options.out:
            options.out.write_text(text, encoding="utf-8")
    except Failure as failure:
        print(f"{name}: {failure}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{name}: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def make_report(options):
    llama, ours, version = measure(options)
    return report(medians(llama), medians(ours), options, version)


if __name__ == "__main__":
    sys.exit(run_tool("compare_llamacpp", parse_arguments(), make_report))
