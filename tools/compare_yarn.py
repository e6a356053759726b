#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `longspec perplexity` with transformers on a text, by position, with YaRN: that of what is computed.

  python3 -m pip install torch transformers gguf   # a virtual environment is best
  tools/compare_yarn.py -m models/SmolLM2-135M-Instruct.Q4_1.gguf -f report.txt -n 16384 --rope-scale 8

Both get the same tokens, the same weights (the file's, widened to float32; a file of them is written for longspec) and
keys and values in float32, so what differs is the order of additions, and rotary positions if one of them is wrong.
The exit status is 1 if the mean of a bucket differs by more than --tolerance.
"""

import argparse
import json
import os
from pathlib import Path
import subprocess
import sys
import tempfile

from compare_llamacpp import Failure, ROOT, run_tool

SLICE = 512  # rows whose logits are held at a time


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-f", "--file", required=True, help="a text of at least -n tokens")
    parser.add_argument("-n", "--tokens", type=int, default=2000, help="of the text (default: 2000)")
    parser.add_argument("--rope-scale", type=float, default=8.0, help="YaRN's factor; 1: without (default: 8)")
    parser.add_argument("--longspec", default=str(ROOT / "build" / "release" / "longspec"))
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--folder", help="where the widened weights are written (default: a temporary folder)")
    parser.add_argument("--out", type=Path, help="write the report (Markdown) here as well")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="nats, of a bucket's mean (default: 1e-4)")
    return parser.parse_args()


def longspec(options, *arguments):
    try:
        result = subprocess.run([options.longspec, *arguments], check=True, stdout=subprocess.PIPE)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Failure(str(error)) from None
    return json.loads(result.stdout)


class Weights:
    """A GGUF file's metadata, and its tensors in float32."""

    def __init__(self, path):
        import gguf
        self.gguf, self.reader = gguf, gguf.GGUFReader(path)
        self.architecture = self.get("general.architecture")

    def get(self, key, otherwise=None):
        field = self.reader.get_field(key.replace("ARCH", getattr(self, "architecture", "")))
        return otherwise if field is None else field.contents()

    def tensors(self):
        """(name, (n_out, n_in) or (n_in) float32), one after the other."""
        for tensor in self.reader.tensors:
            yield tensor.name, self.gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(tensor.shape[::-1])

    def write(self, path):
        writer = self.gguf.GGUFWriter(path, self.architecture)
        for field in self.reader.fields.values():
            if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
                continue
            sub_type = field.types[-1] if field.types[0] == self.gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type)
        for name, tensor in self.tensors():
            writer.add_tensor(name, tensor)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def load_transformers(weights, options):
    import torch
    from make_architecture_fixture import CLASSES, hugging_face_name, unpermuted
    torch.set_num_threads(options.threads)
    if weights.architecture not in CLASSES:
        raise Failure(f"architecture {weights.architecture}: known are {', '.join(CLASSES)}")
    config_class, model_class = CLASSES[weights.architecture]
    heads, width = weights.get("ARCH.attention.head_count"), weights.get("ARCH.embedding_length")
    kv_heads = weights.get("ARCH.attention.head_count_kv", heads)
    trained = weights.get("ARCH.context_length")
    rope = {"rope_type": "default", "rope_theta": weights.get("ARCH.rope.freq_base", 10000.0)}
    if options.rope_scale != 1:
        rope.update(rope_type="yarn", factor=options.rope_scale, original_max_position_embeddings=trained)
    state = {}
    for name, tensor in weights.tensors():
        x = torch.from_numpy(tensor)
        if weights.architecture == "llama" and name.endswith(("attn_q.weight", "attn_k.weight")):
            x = unpermuted(x, heads if "attn_q" in name else kv_heads)
        state[hugging_face_name(name)] = x
    tied = "lm_head.weight" not in state
    if tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    net = model_class(config_class(
        vocab_size=state["lm_head.weight"].shape[0], hidden_size=width, tie_word_embeddings=tied,
        intermediate_size=weights.get("ARCH.feed_forward_length"), num_hidden_layers=weights.get("ARCH.block_count"),
        num_attention_heads=heads, num_key_value_heads=kv_heads,
        head_dim=weights.get("ARCH.attention.key_length", width // heads),
        rms_norm_eps=weights.get("ARCH.attention.layer_norm_rms_epsilon", 1e-5), rope_parameters=rope,
        max_position_embeddings=int(trained * options.rope_scale), attn_implementation="sdpa"))
    net.load_state_dict(state, strict=True)
    return net.float().eval()


def their_nats(net, tokens):
    """Minus the logarithm of the chance of each token but the first."""
    import torch
    nats = []
    with torch.inference_mode():
        ids = torch.tensor([tokens])
        hidden = net.model(input_ids=ids, use_cache=False).last_hidden_state[0]
        for begin in range(0, len(tokens) - 1, SLICE):
            end = min(begin + SLICE, len(tokens) - 1)
            chances = torch.log_softmax(net.lm_head(hidden[begin:end]).double(), dim=-1)
            nats += (-chances.gather(1, ids[0, begin + 1:end + 1, None])[:, 0]).tolist()
    return nats


def compare(ours, nats, tolerance):
    """(lines of a table, whether all buckets agree)."""
    lines = ["| positions | tokens | longspec, nats | transformers, nats | difference |", "|---|---:|---:|---:|---:|"]
    agree = True
    for bucket in ours["by_position"]:
        theirs = nats[max(bucket["from"], 1) - 1:bucket["to"] - 1]
        mean = sum(theirs) / len(theirs)
        difference = bucket["nats"] - mean
        agree = agree and len(theirs) == bucket["tokens"] and abs(difference) <= tolerance
        lines.append(f"| {bucket['from']:,} to {bucket['to'] - 1:,} | {bucket['tokens']:,} | {bucket['nats']:.6f} "
                     f"| {mean:.6f} | {difference:+.1e} |")
    return lines, agree


def make_report(options):
    try:
        weights = Weights(options.model)
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            wide = os.path.join(folder, "f32.gguf")
            weights.write(wide)
            scaled = ["--rope-scaling", "yarn", "--rope-scale", str(options.rope_scale)]
            rope = [] if options.rope_scale == 1 else scaled
            ours = longspec(options, "perplexity", "-m", wide, "-f", options.file, "-c", str(options.tokens),
                            "--chunks", "1", "-ctk", "f32", "-ctv", "f32", "-t", str(options.threads), "--json", *rope)
        tokens = longspec(options, "tokenize", "-m", options.model, "-f", options.file, "--no-parse-special",
                          "--json")["tokens"]
        if weights.get("tokenizer.ggml.add_bos_token", False):
            tokens.insert(0, weights.get("tokenizer.ggml.bos_token_id"))
        if len(tokens) < options.tokens:
            raise Failure(f"{options.file}: {len(tokens)} tokens, fewer than -n {options.tokens}")
        net = load_transformers(weights, options)
        nats = their_nats(net, tokens[:options.tokens])
        import transformers
    except ImportError as missing:
        raise Failure(f"{missing.name} is missing: python3 -m pip install torch transformers gguf") from None
    lines, agree = compare(ours, nats, options.tolerance)
    head = [f"{Path(options.model).name} in float32, rotary scaling: {ours['rope_scaling']}; "
            f"transformers {transformers.__version__}.", ""]
    if not agree:
        print("\n".join([*head, *lines]))
        raise Failure(f"a bucket differs by more than {options.tolerance} nats")
    return "\n".join([*head, *lines, ""])


if __name__ == "__main__":
    sys.exit(run_tool("compare_yarn", parse_arguments(), make_report))
