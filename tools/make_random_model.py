#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes models of random weights, to measure what steps cost, and drafts that can be converted and run.

  make_random_model.py TOKENIZER.gguf OUT.gguf [--layers 32]
  make_random_model.py TARGET.gguf OUT --eagle3 [--draft-vocab 32768]

What it writes is noise. Speed does not depend on what weights say: a step costs what it costs the real model. The first
line writes a model with the shapes of Llama 3.1 8B in Q4_K_M's mixture. The vocabulary, which the real model's file
would bring, is that of TOKENIZER. This needs the packages gguf and numpy. The second line writes an EAGLE-3 draft for
TARGET, of TARGET's widths, as a folder in the form in which such drafts are published (config.json and
model.safetensors). It asks `longspec info` for the widths.
"""
import argparse
import json
import os
from pathlib import Path
import random
import struct
import subprocess
import sys

try:
    import gguf
    import numpy
except ImportError:
    gguf = numpy = None  # a draft needs neither

PROGRAM = Path(__file__).resolve().parent.parent / "build/release/longspec"
WIDTH, HIDDEN, HEADS, KV_HEADS, CONTEXT = 4096, 14336, 32, 8, 131072
Q4_K, Q6_K = (gguf.GGMLQuantizationType.Q4_K, gguf.GGMLQuantizationType.Q6_K) if gguf else (None, None)
VALUES_OF_BLOCK = 256
# Where a block's float factors stand, and such that weights are about 0.02 in size and 0 in the mean.
BLOCKS = {Q4_K: (144, {0: 1e-4, 2: 7.5e-4}), Q6_K: (210, {208: 1.5e-5})}
# The upper bytes of numbers of bf16 from 0.008 to 0.031, of either sign.
UPPER_BYTES = bytes((0x3C, 0xBC)[i % 2] for i in range(256))
ONE = b"\x80\x3f"  # in bf16


def random_blocks(generator, rows, columns, kind):
    """Bytes of a matrix, rows * columns / 256 blocks of `kind`."""
    size, factors = BLOCKS[kind]
    blocks = generator.integers(0, 256, (rows, columns // VALUES_OF_BLOCK, size), numpy.uint8)
    for offset, factor in factors.items():
        blocks[:, :, offset:offset + 2] = numpy.frombuffer(numpy.float16(factor).tobytes(), numpy.uint8)
    return blocks.reshape(rows, -1)


def more_bits(layer, layers):
    """Layers whose values and down projections llama.cpp's Q4_K_M keeps in 6 bits."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * eighth or (layer - eighth) % 3 == 2


def copy_tokenizer(source, writer):
    for field in source.fields.values():
        if field.name.startswith("tokenizer."):
            kind = field.types[0]
            writer.add_key_value(field.name, field.contents(), kind, field.types[-1] if len(field.types) > 1 else None)


def describe(writer, layers):
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(500000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)


def matrices(layer, layers):
    """Name, rows, columns and type of the matrices of a layer."""
    kv, often = KV_HEADS * WIDTH // HEADS, Q6_K if more_bits(layer, layers) else Q4_K
    return (("attn_q", WIDTH, WIDTH, Q4_K), ("attn_k", kv, WIDTH, Q4_K), ("attn_v", kv, WIDTH, often),
            ("attn_output", WIDTH, WIDTH, Q4_K), ("ffn_gate", HIDDEN, WIDTH, Q4_K), ("ffn_up", HIDDEN, WIDTH, Q4_K),
            ("ffn_down", WIDTH, HIDDEN, often))


def write_model(tokenizer, out, layers):
    source = gguf.GGUFReader(tokenizer)
    writer = gguf.GGUFWriter(out, "llama", use_temp_file=True)
    describe(writer, layers)
    copy_tokenizer(source, writer)
    generator, ones = numpy.random.default_rng(1), numpy.ones(WIDTH, numpy.float32)
    vocabulary = len(source.fields["tokenizer.ggml.tokens"].data)

    def add(name, rows, columns, kind):
        writer.add_tensor(f"{name}.weight", random_blocks(generator, rows, columns, kind), raw_dtype=kind)

    add("token_embd", vocabulary, WIDTH, Q4_K)
    add("output", vocabulary, WIDTH, Q6_K)
    writer.add_tensor("output_norm.weight", ones)
    for layer in range(layers):
        for name, rows, columns, kind in matrices(layer, layers):
            add(f"blk.{layer}.{name}", rows, columns, kind)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", ones)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file(progress=True)
    writer.close()


def eagle3_tensors(facts, draft_vocabulary):
    """(name, type, shape) of each tensor; `facts`: what `longspec info --json` says of the target."""
    width, hidden = facts["n_embd"], facts["n_ff"]
    heads, kv = facts["n_head"] * facts["head_dim"], facts["n_head_kv"] * facts["head_dim"]
    yield from (("d2t", "I64", [draft_vocabulary]), ("t2d", "BOOL", [facts["n_vocab"]]))
    attention = (("q", heads, 2 * width), ("k", kv, 2 * width), ("v", kv, 2 * width), ("o", width, heads))
    mlp = (("gate", hidden, width), ("up", hidden, width), ("down", width, hidden))
    for part, products in (("self_attn", attention), ("mlp", mlp)):
        for name, rows, columns in products:
            yield f"midlayer.{part}.{name}_proj.weight", "BF16", [rows, columns]
    for name in ("midlayer.input_layernorm", "midlayer.hidden_norm", "midlayer.post_attention_layernorm", "norm"):
        yield f"{name}.weight", "BF16", [width]
    yield "fc.weight", "BF16", [width, 3 * width]
    yield "lm_head.weight", "BF16", [draft_vocabulary, width]


def tensor_bytes(generator, name, shape, draft_vocabulary):
    if name == "d2t":  # the draft's tokens are the target's first ones: nothing to add
        return bytes(8 * draft_vocabulary)
    if name == "t2d":
        return bytes(int(token < draft_vocabulary) for token in range(shape[0]))
    if len(shape) == 1:
        return ONE * shape[0]
    count = shape[0] * shape[1]
    values = bytearray(2 * count)
    values[0::2] = generator.randbytes(count)
    values[1::2] = generator.randbytes(count).translate(UPPER_BYTES)
    return values


def eagle3_config(facts, draft_vocabulary):
    return {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": facts["n_embd"],
            "intermediate_size": facts["n_ff"], "num_attention_heads": facts["n_head"],
            "num_key_value_heads": facts["n_head_kv"], "head_dim": facts["head_dim"], "num_hidden_layers": 1,
            "vocab_size": facts["n_vocab"], "draft_vocab_size": draft_vocabulary, "rms_norm_eps": 1e-6,
            "rope_theta": facts["rope_freq_base"], "max_position_embeddings": facts["n_ctx_train"],
            "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16"}


def write_eagle3(facts, out, draft_vocabulary):
    tensors, header, size = list(eagle3_tensors(facts, draft_vocabulary)), {}, 0
    for name, kind, shape in tensors:
        end = size + {"BF16": 2, "I64": 8, "BOOL": 1}[kind] * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [size, end]}
        size = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    generator = random.Random(1)
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, _, shape in tensors:
            file.write(tensor_bytes(generator, name, shape, draft_vocabulary))
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as file:
        json.dump(eagle3_config(facts, draft_vocabulary), file, indent=1)


def facts_of(target, program):
    asked = subprocess.run([program, "info", "-m", target, "--json"], capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        sys.exit(f"make_random_model: {asked.stderr.strip()}")
    return json.loads(asked.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="whose tokenizer a model gets; the target of a draft")
    parser.add_argument("out", metavar="OUT")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--eagle3", action="store_true", help="an EAGLE-3 draft for MODEL, in the folder OUT")
    parser.add_argument("--draft-vocab", type=int, default=32768, help="tokens of the draft's head, at most MODEL's")
    parser.add_argument("--longspec", default=PROGRAM, help="the program that is asked about MODEL (%(default)s)")
    options = parser.parse_args()
    if options.eagle3:
        facts = facts_of(options.model, options.longspec)
        write_eagle3(facts, options.out, min(options.draft_vocab, facts["n_vocab"]))
    elif gguf is None:
        sys.exit("make_random_model: needs the packages gguf and numpy")
    else:
        write_model(options.model, options.out, options.layers)


if __name__ == "__main__":
    main()
