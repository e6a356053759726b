#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a model of random weights with the shapes of Llama 3.1 8B in Q4_K_M's mixture, to measure what steps cost.

  make_random_model.py TOKENIZER.gguf OUT.gguf [--layers 32]

What it writes is noise. Speed does not depend on what weights say: a step costs what it costs the real model. The
vocabulary, which the real model's file would bring, is that of TOKENIZER. Needs the packages gguf and numpy.
"""
import argparse

import gguf
import numpy

WIDTH, HIDDEN, HEADS, KV_HEADS, CONTEXT = 4096, 14336, 32, 8, 131072
Q4_K, Q6_K = gguf.GGMLQuantizationType.Q4_K, gguf.GGMLQuantizationType.Q6_K
VALUES_OF_BLOCK = 256
# Where a block's float factors stand, and such that weights are about 0.02 in size and 0 in the mean.
BLOCKS = {Q4_K: (144, {0: 1e-4, 2: 7.5e-4}), Q6_K: (210, {208: 1.5e-5})}


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("out")
    parser.add_argument("--layers", type=int, default=32)
    options = parser.parse_args()
    source = gguf.GGUFReader(options.tokenizer)
    writer = gguf.GGUFWriter(options.out, "llama", use_temp_file=True)
    describe(writer, options.layers)
    copy_tokenizer(source, writer)
    generator, ones = numpy.random.default_rng(1), numpy.ones(WIDTH, numpy.float32)
    vocabulary = len(source.fields["tokenizer.ggml.tokens"].data)

    def add(name, rows, columns, kind):
        writer.add_tensor(f"{name}.weight", random_blocks(generator, rows, columns, kind), raw_dtype=kind)

    add("token_embd", vocabulary, WIDTH, Q4_K)
    add("output", vocabulary, WIDTH, Q6_K)
    writer.add_tensor("output_norm.weight", ones)
    for layer in range(options.layers):
        for name, rows, columns, kind in matrices(layer, options.layers):
            add(f"blk.{layer}.{name}", rows, columns, kind)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", ones)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file(progress=True)
    writer.close()


if __name__ == "__main__":
    main()
