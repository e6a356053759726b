#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures longspec beside llama.cpp on this machine: same GGUF, same threads, f16 KV, flash attention on.

  python3 -m pip install llama-cpp-python      # builds llama.cpp; a virtual environment is best
  tools/compare_llamacpp.py -m models/SmolLM2-135M-Instruct.Q4_1.gguf [--out docs/comparison.md]

Four things, at each depth (tokens already in the cache): evaluating a prompt of that length, a decoding step of one
row, and a step of several rows with logits for all of them, as verification needs. Rounds of the two programs
alternate, so that a slow minute hits both; the table shows medians and their ratio.

  tools/compare_llamacpp.py --sequences 1,4,8,16,32 [--depths 512,4096] [--out docs/parallel.md]

Many sequences instead: steps of so many with one row each, every one with keys of its own, in tokens/s of all of them;
and beside them whole answers of longspec, end to end, plain and with speculation (--answers 0 leaves them out).
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
    parser.add_argument("--longspec", default=str(ROOT / "build" / "release" / "longspec"),
                        help="the program to measure")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--cache-type", default="f16", help="of longspec's keys and values (default: f16)")
    parser.add_argument("--depths", type=number_list,
                        help="comma-separated (default: 512,7500; with --sequences 512,4096)")
    parser.add_argument("--rows", type=number_list, default=[8, 64], help="comma-separated (default: 8,64)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each program (default: 3)")
    parser.add_argument("--repetitions", type=int, default=8, help="steps timed in each round (default: 8)")
    parser.add_argument("--sequences", type=number_list, help="measure so many sequences at once; comma-separated")
    parser.add_argument("--answers", type=int, default=128,
                        help="with --sequences: tokens of each whole answer; 0: none are measured (default: 128)")
    parser.add_argument("--text", default=str(ROOT / "data" / "demo" / "report.txt"),
                        help="with --sequences: what the prompts of whole answers are cut from")
    parser.add_argument("--only", choices=["llama.cpp", "longspec"], help="measure only one of the two")
    parser.add_argument("--out", type=Path, help="write the report (Markdown) here as well")
    options = parser.parse_args()
    options.depths = options.depths or ([512, 4096] if options.sequences else [512, 7500])
    return options


# --- llama.cpp ---

class LlamaModel:
    """llama.cpp and a model in it, driven through its C interface so that only llama_decode is timed."""

    def __init__(self, path):
        try:
            import llama_cpp
        except ImportError:
            raise Failure("llama-cpp-python is missing: python3 -m pip install llama-cpp-python") from None
        self.api = llama_cpp
        self.path = path
        self.version = llama_cpp.__version__
        self.log = llama_cpp.llama_log_callback(lambda level, text, data: None)  # kept: C holds a pointer to it
        llama_cpp.llama_log_set(self.log, None)
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(os.fsencode(path), llama_cpp.llama_model_default_params())
        if not self.model:
            raise Failure(f"{path}: llama.cpp cannot load it")
        self.n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def close(self):
        self.api.llama_model_free(self.model)


class LlamaContext:
    """A context of so many sequences, each with n_ctx positions of its own."""

    def __init__(self, model, threads, n_ctx, max_rows, n_sequences=1):
        self.model = model
        self.api = model.api
        self.n_sequences = n_sequences
        n_ctx = (n_ctx + 255) // 256 * 256  # it divides what it gets by the sequences, and rounds that
        self.context = self.api.llama_init_from_model(
            model.model, self.params(threads, n_ctx * n_sequences, max(max_rows, n_sequences)))
        if not self.context:
            raise Failure(f"{model.path}: llama.cpp cannot make a context of {n_sequences} x {n_ctx} tokens")
        self.memory = self.api.llama_get_memory(self.context)
        self.batch = self.api.llama_batch_init(max(CHUNK, max_rows, n_sequences), 0, 1)

    def params(self, threads, n_ctx, max_rows):
        params = self.api.llama_context_default_params()
        fields = {name for name, *_ in params._fields_}
        params.n_ctx, params.n_batch, params.n_ubatch = n_ctx, max(CHUNK, max_rows), CHUNK
        params.n_seq_max = self.n_sequences
        if "kv_unified" in fields:
            params.kv_unified = False  # a row need not look at the keys of other sequences
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = self.api.GGML_TYPE_F16
        if "flash_attn_type" in fields:
            params.flash_attn_type = self.api.LLAMA_FLASH_ATTN_TYPE_ENABLED
        else:  # before September 2025
            params.flash_attn = True
        if "n_outputs_max" in fields:
            params.n_outputs_max = params.n_batch
        return params

    def set_row(self, i, position, sequence, has_logits):
        """Any text will do: time does not depend on it."""
        batch = self.batch
        batch.token[i] = (position + i) * 7919 % (self.model.n_vocab - 100) + 50
        batch.pos[i] = position
        batch.n_seq_id[i] = 1
        batch.seq_id[i][0] = sequence
        batch.logits[i] = int(has_logits)

    def run(self, n, what):
        """Milliseconds of one llama_decode of the batch's first n rows."""
        self.batch.n_tokens = n
        begin = time.perf_counter()
        status = self.api.llama_decode(self.context, self.batch)
        self.api.llama_synchronize(self.context)
        end = time.perf_counter()
        if status != 0:
            raise Failure(f"llama_decode of {what} returned {status}")
        return 1000.0 * (end - begin)

    def decode(self, position, n, all_logits):
        """Milliseconds of n tokens of the first sequence from `position` on."""
        for i in range(n):
            self.set_row(i, position + i, 0, all_logits or i == n - 1)
        return self.run(n, f"{n} tokens at {position}")

    def truncate(self, length):
        for sequence in range(self.n_sequences):
            if not self.api.llama_memory_seq_rm(self.memory, sequence, length, -1):
                raise Failure(f"llama.cpp cannot cut its cache to {length}")

    def prefill(self, depth):
        self.api.llama_memory_clear(self.memory, True)
        return sum(self.decode(start, min(CHUNK, depth - start), False) for start in range(0, depth, CHUNK))

    def step(self, depth, rows):
        ms = self.decode(depth, rows, True)
        self.truncate(depth)
        return ms

    def fill(self, depth):
        """Every sequence gets `depth` tokens: copies of keys of one of them, in memory of its own."""
        self.prefill(depth)
        for sequence in range(1, self.n_sequences):
            self.api.llama_memory_seq_cp(self.memory, 0, sequence, -1, -1)

    def step_of_all(self, depth):
        """Milliseconds of one row of each sequence after `depth` keys."""
        for sequence in range(self.n_sequences):
            self.set_row(sequence, depth, sequence, True)
        ms = self.run(self.n_sequences, f"{self.n_sequences} sequences at {depth}")
        self.truncate(depth)
        return ms

    def close(self):
        self.api.llama_batch_free(self.batch)
        self.api.llama_free(self.context)


class LlamaCpp:
    """Steps of one sequence."""

    def __init__(self, model, threads, n_ctx, max_rows):
        self.model = LlamaModel(model)
        self.version = self.model.version
        self.context = LlamaContext(self.model, threads, n_ctx, max_rows)

    def measure(self, depths, rows, repetitions):
        """{(test, depth, rows): ms} of one round."""
        results = {}
        for depth in depths:
            results["prefill", depth, depth] = self.context.prefill(depth)
            for n in [1, *rows]:
                self.context.step(depth, n)  # warms up
                times = [self.context.step(depth, n) for _ in range(repetitions)]
                results["decode" if n == 1 else "rows", depth, n] = statistics.median(times)
        return results

    def close(self):
        self.context.close()
        self.model.close()


def measure_llama_sequences(model, options):
    """{(depth, sequences): tokens/s of all} of one round."""
    results = {}
    for depth in options.depths:
        for n in options.sequences:
            context = LlamaContext(model, options.threads, depth + 1, n, n)
            try:
                context.fill(depth)
                context.step_of_all(depth)  # warms up
                times = [context.step_of_all(depth) for _ in range(options.repetitions)]
            finally:
                context.close()
            results[depth, n] = 1000.0 * n / statistics.median(times)
    return results


# --- longspec ---

def json_lines(output):
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def parse_bench(output):
    """The lines of `longspec bench --json` as {(test, depth, rows): ms}."""
    results = {}
    for row in json_lines(output):
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


def measure_longspec_sequences(options):
    """{(depth, sequences): tokens/s of all} of one round: steps, answers written plainly, and with speculation."""
    shape = ["--depth", ",".join(map(str, options.depths)), "--parallel", ",".join(map(str, options.sequences)),
             "--repetitions"]
    steps = json_lines(longspec_bench(options, [*shape, str(options.repetitions)]))
    results = {"steps": {(row["depth"], row["sequences"]): row["tokens_per_second"] for row in steps}}
    if options.answers > 0:
        for row in json_lines(longspec_bench(options, [*shape, "1", "--answers", str(options.answers),
                                                       "--prompts", "unrelated", "--text", options.text])):
            kind = "plain" if row["speculation"] == "none" else "speculation"
            results.setdefault(kind, {})[row["depth"], row["sequences"]] = row["tokens_per_second"]
    return results


def run_longspec_bench(options, arguments):
    """{(test, depth, rows): ms}"""
    return parse_bench(longspec_bench(options, arguments))


def longspec_bench(options, arguments):
    """What `longspec bench --json` prints."""
    command = [options.longspec, "bench", "-m", options.model, "-t", str(options.threads), "--json",
               "--cache-type-k", options.cache_type, "--cache-type-v", options.cache_type, *arguments]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, check=False)
    except OSError as error:
        raise Failure(f"{options.longspec}: {error.strerror}; build it with make") from None
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Failure(f"{' '.join(command)} ended with {done.returncode}: {reason}")
    return done.stdout


# --- Report ---

def cpu_name():
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    fields = dict(line.split(":", 1) for line in reversed(text.splitlines()) if ":" in line)
    fields = {key.strip(): value.strip() for key, value in fields.items()}
    flags = fields.get("flags", "").split()
    extensions = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")
    known = [flag for flag in extensions if flag in flags]
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


def heading(options, version):
    """What was measured, on what, with what."""
    return ["# longspec beside llama.cpp", "",
            f"{cpu_name()}; {options.threads} threads; {Path(options.model).name}; f16 KV ({options.cache_type} in "
            f"longspec), flash attention on; llama-cpp-python {version}; {date.today().isoformat()}.",
            f"Medians of {options.rounds} alternating rounds; higher ratios favour longspec.", ""]


def report(llama, ours, options, version):
    return "\n".join([
        *heading(options, version), *comparison_table(llama, ours), "",
        "Cost of a step of several rows, in steps of one row:", "",
        *row_cost_table(llama, ours, options), "",
        f"Measured by `tools/compare_llamacpp.py --threads {options.threads} "
        f"--depths {','.join(map(str, options.depths))} "
        f"--rows {','.join(map(str, options.rows))} --rounds {options.rounds}`.", ""])


def rate(tokens_per_second):
    return "-" if tokens_per_second is None else f"{tokens_per_second:.1f}"


def sequences_table(llama, ours):
    """Of {(depth, sequences): tokens/s}, and of longspec such tables by kind."""
    lines = ["| keys each | sequences | llama.cpp, steps | longspec, steps | longspec / llama.cpp | answers, plain "
             "| answers, speculation | speculation / plain |", "|---:|---:|---:|---:|---:|---:|---:|---:|"]
    for key in sorted(llama.keys() | ours.get("steps", {}).keys()):
        steps, plain, guessed = (ours.get(kind, {}).get(key) for kind in ("steps", "plain", "speculation"))
        lines.append(f"| {key[0]:,} | {key[1]} | {rate(llama.get(key))} | {rate(steps)} "
                     f"| {ratio(steps, llama.get(key))} | {rate(plain)} | {rate(guessed)} | {ratio(guessed, plain)} |")
    return lines


def sequences_report(llama, ours, options, version):
    return "\n".join([
        *heading(options, version), "Tokens/s of all sequences:", "", *sequences_table(llama, ours), "",
        "Steps are forward passes of one row of each sequence, with logits; answers are written end to end by the "
        "scheduler,", f"{options.answers} tokens each at temperature 0, without the time of their prompts.", "",
        f"Measured by `tools/compare_llamacpp.py --threads {options.threads} "
        f"--sequences {','.join(map(str, options.sequences))} --depths {','.join(map(str, options.depths))} "
        f"--answers {options.answers} --rounds {options.rounds}`.", ""])


def check_model(options):
    if not Path(options.model).exists():
        raise Failure(f"{options.model}: no such file; make model MODEL=smollm2 fetches the default one")


def alternate(options, measure_llama, measure_ours):
    """Rounds of both programs in turn: (rounds of llama.cpp, rounds of longspec). Either may be None."""
    rounds = ([], [])
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
        if measure_llama:
            rounds[0].append(measure_llama())
        if measure_ours:
            rounds[1].append(measure_ours())
    return rounds


def measure(options):
    """(rounds of llama.cpp, rounds of longspec, llama-cpp-python's version)"""
    check_model(options)
    llama = None
    if options.only != "longspec":
        llama = LlamaCpp(options.model, options.threads, max(options.depths) + max(options.rows) + 32,
                         max(options.rows))
    rounds = alternate(options,
                       llama and (lambda: llama.measure(options.depths, options.rows, options.repetitions)),
                       options.only != "llama.cpp" and (lambda: measure_longspec(options)))
    if llama:
        llama.close()
    return (*rounds, llama.version if llama else "not measured")


def measure_sequences(options):
    """The same of many sequences."""
    check_model(options)
    llama = LlamaModel(options.model) if options.only != "longspec" else None
    rounds = alternate(options, llama and (lambda: measure_llama_sequences(llama, options)),
                       options.only != "llama.cpp" and (lambda: measure_longspec_sequences(options)))
    if llama:
        llama.close()
    return (*rounds, llama.version if llama else "not measured")


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
    if options.sequences:
        llama, ours, version = measure_sequences(options)
        kinds = {kind for results in ours for kind in results}
        by_kind = {kind: medians([results.get(kind, {}) for results in ours]) for kind in kinds}
        return sequences_report(medians(llama), by_kind, options, version)
    llama, ours, version = measure(options)
    return report(medians(llama), medians(ours), options, version)


if __name__ == "__main__":
    sys.exit(run_tool("compare_llamacpp", parse_arguments(), make_report))
