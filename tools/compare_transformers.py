#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures longspec beside Hugging Face transformers on this machine: same GGUF, same threads.

  python3 -m pip install torch transformers gguf accelerate   # a virtual environment is best
  tools/compare_transformers.py -m models/SmolLM2-135M-Instruct.Q4_1.gguf [--out docs/transformers.md]

transformers widens the file's weights to the type of --dtype (it has no kernels for them) and attends with PyTorch's
scaled_dot_product_attention. Three things, at each depth (tokens already in the cache): evaluating a prompt of that
length, a decoding step of one row, and a step of several rows with logits for all of them. Rounds of the two programs
alternate; the table shows medians and their ratio. Then attention alone, for a tree of rows: transformers' eager
attention, with a mask of all rows and keys, scores kept whole and key-value heads repeated, beside ours.
"""

import argparse
from datetime import date
from pathlib import Path
import statistics
import sys
import time

from compare_llamacpp import (comparison_table, cpu_name, Failure, measure_longspec, medians, number_list, ROOT,
                              run_longspec_bench, run_tool)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default=str(ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--longspec", default=str(ROOT / "build" / "release" / "longspec"),
                        help="the program to measure")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--cache-type", default="f16", help="of longspec's keys and values (default: f16)")
    parser.add_argument("--depths", type=number_list, default=[512, 7500], help="comma-separated (default: 512,7500)")
    parser.add_argument("--rows", type=number_list, default=[8], help="comma-separated (default: 8)")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of each program (default: 2)")
    parser.add_argument("--repetitions", type=int, default=5, help="steps timed in each round (default: 5)")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--tree-rows", type=int, default=64,
                        help="rows of the tree in the table of attention alone (default: 64)")
    parser.add_argument("--out", type=Path, help="write the report (Markdown) here as well")
    return parser.parse_args()


class Transformers:
    def __init__(self, options):
        try:
            import torch
            import transformers
        except ImportError as missing:
            raise Failure(f"{missing.name} is missing: "
                          "python3 -m pip install torch transformers gguf accelerate") from None
        self.torch, self.version = torch, transformers.__version__
        torch.set_num_threads(options.threads)
        model = Path(options.model)
        if not model.exists():
            raise Failure(f"{model}: no such file; make model MODEL=smollm2 fetches the default one")
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            str(model.parent), gguf_file=model.name, dtype=getattr(torch, options.dtype),
            attn_implementation="sdpa").eval()
        self.n_vocab = self.model.config.vocab_size

    def forward(self, cache, position, n, all_logits):
        """Milliseconds of n tokens from `position` on, which stay in the cache."""
        # Any text will do: time does not depend on it.
        tokens = self.torch.tensor([[(position + i) * 7919 % (self.n_vocab - 100) + 50 for i in range(n)]])
        begin = time.perf_counter()
        with self.torch.inference_mode():
            self.model(input_ids=tokens, past_key_values=cache, use_cache=True, logits_to_keep=0 if all_logits else 1)
        return 1000.0 * (time.perf_counter() - begin)

    def step(self, cache, depth, rows):
        ms = self.forward(cache, depth, rows, True)
        cache.crop(-rows)  # negative: so many fewer
        return ms

    def measure(self, options):
        """{(test, depth, rows): ms} of one round."""
        from transformers import DynamicCache
        results = {}
        for depth in options.depths:
            cache = DynamicCache()
            results["prefill", depth, depth] = self.forward(cache, 0, depth, False)
            for rows in [1, *options.rows]:
                self.step(cache, depth, rows)  # warms up
                times = [self.step(cache, depth, rows) for _ in range(options.repetitions)]
                results["decode" if rows == 1 else "rows", depth, rows] = statistics.median(times)
        return results


def binary_tree(n):
    """Parents, -1 the root's."""
    return [-1 if i == 0 else (i - 1) // 2 for i in range(n)]


class EagerAttention:
    """What transformers does with attn_implementation="eager", one layer at a time, as many layers as the model has."""

    def __init__(self, transformers, options, depth):
        torch, config = transformers.torch, transformers.model.config
        self.torch, self.n_layer, rows = torch, config.num_hidden_layers, options.tree_rows
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.group = config.num_attention_heads // config.num_key_value_heads
        dtype = getattr(torch, options.dtype)
        self.q = torch.randn(1, config.num_attention_heads, rows, self.head_dim, dtype=dtype)
        shape = (1, config.num_key_value_heads, depth + rows, self.head_dim)
        self.kv = [(torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)) for _ in range(self.n_layer)]
        self.mask = torch.full((1, 1, rows, depth + rows), torch.finfo(dtype).min, dtype=dtype)
        self.mask[..., :depth] = 0
        parents = binary_tree(rows)
        for row in range(rows):
            seen = row
            while seen >= 0:
                self.mask[..., row, depth + seen] = 0
                seen = parents[seen]

    def ms(self):
        """Of all layers."""
        functional = self.torch.nn.functional
        begin = time.perf_counter()
        with self.torch.inference_mode():
            for k, v in self.kv:
                k, v = k.repeat_interleave(self.group, dim=1), v.repeat_interleave(self.group, dim=1)
                scores = self.torch.matmul(self.q, k.transpose(2, 3)) * self.head_dim ** -0.5 + self.mask
                p = functional.softmax(scores, dim=-1, dtype=self.torch.float32).to(self.q.dtype)
                self.torch.matmul(p, v).transpose(1, 2).contiguous()
        return 1000.0 * (time.perf_counter() - begin)


def measure_attention(transformers, options):
    """Lines of a table: all layers' attention for a tree of rows at each depth, medians of alternating rounds."""
    lines = ["", "| keys | tree rows | transformers eager ms | longspec ms | eager / longspec |",
             "|---:|---:|---:|---:|---:|"]
    for depth in options.depths:
        eager = EagerAttention(transformers, options, depth)
        eager.ms()
        theirs, ours = [], []
        for _ in range(options.rounds):
            theirs += [eager.ms() for _ in range(options.repetitions)]
            results = run_longspec_bench(options, ["--attention", "--depth", str(depth),
                                                   "--rows", str(options.tree_rows)])
            ours.append(results["tree", depth, options.tree_rows])
        a, b = statistics.median(theirs), statistics.median(ours)
        lines.append(f"| {depth:,} | {options.tree_rows} | {a:.1f} | {b:.1f} | {a / b:.2f}x |")
    return lines


def report(theirs, ours, options, version):
    table = [line.replace("llama.cpp", "transformers") for line in comparison_table(theirs, ours)]
    return "\n".join([
        "# longspec beside transformers", "",
        f"{cpu_name()}; {options.threads} threads; {Path(options.model).name}, widened to {options.dtype} "
        "by transformers "
        f"{version}, {options.cache_type} KV in longspec; {date.today().isoformat()}.",
        f"Medians of {options.rounds} alternating rounds; higher ratios favour longspec.", "", *table])


def make_report(options):
    transformers = Transformers(options)
    rounds = ([], [])
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
        rounds[0].append(transformers.measure(options))
        rounds[1].append(measure_longspec(options))
    table = report(medians(rounds[0]), medians(rounds[1]), options, transformers.version)
    return "\n".join([table, "", "Attention alone, of all layers, a binary tree of rows:",
                      *measure_attention(transformers, options), ""])


if __name__ == "__main__":
    sys.exit(run_tool("compare_transformers", parse_arguments(), make_report))
