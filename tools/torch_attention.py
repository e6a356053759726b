#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's attention takes on a card, for rows at the end of a context: one JSON object a line.

  torch_attention.py [--seconds S]

The shapes are those that cuda_check times (src/cuda/step_grid.cu), keys and values in f16, all layers of a model after
one another. "flash" is scaled_dot_product_attention, which here sees rows without a tree; "eager" is what papers call
vanilla: key-value heads repeated, scores kept whole. Milliseconds are medians of CUDA events. Exit status 77 without
torch or a card."""

import argparse
import json
import statistics
import sys
import time

SKIPPED = 77
# Name: layers, query heads, key-value heads, dimensions.
MODELS = {"Qwen2.5-Coder-1.5B": (28, 12, 2, 128), "Llama-3.1-8B": (32, 32, 8, 128)}
ROWS, CONTEXTS, REPEATS = (1, 8, 16, 64), (1024, 16384, 65536), 7


def cases():
    """(model, rows, context), in the order in which they are timed: contexts that all have first."""
    return [(model, rows, context) for context in CONTEXTS for model in MODELS for rows in ROWS]


def attend(torch, kind, q, k, v):
    """q: (1, heads, rows, dims), k and v: (1, kv heads, keys, dims)."""
    if kind == "flash":
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
    return torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype) @ v


def milliseconds(torch, kind, model, rows, context):
    layers, heads, kv_heads, dims = MODELS[model]
    def new(n, length):
        return torch.randn(1, n, length, dims, dtype=torch.float16, device="cuda")
    q, k, v = new(heads, rows), new(kv_heads, context), new(kv_heads, context)
    times = []
    for _ in range(REPEATS + 1):  # the first one loads kernels
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(layers):
            attend(torch, kind, q, k, v)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30, help="begin no case after so many (default: 30)")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("torch is not there")
        return SKIPPED
    if not torch.cuda.is_available():
        print("torch sees no card")
        return SKIPPED
    began = time.monotonic()
    for model, rows, context in cases():
        for kind in ("flash", "eager"):
            if time.monotonic() - began > options.seconds:
                return 0
            ms = milliseconds(torch, kind, model, rows, context)
            print(json.dumps({"model": model, "rows": rows, "context": context, "attention": kind, "ms": round(ms, 4)}),
                  flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
