#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/tensor/testdata/dequantize.bin: random blocks and what the `gguf` package decodes them to.

    pip install gguf
    tools/make_dequantize_fixture.py src/tensor/testdata/dequantize.bin

Per type: name (8 bytes, zero-padded), number of elements (u32), blocks, decoded elements (f32). Little-endian.
"""
import argparse
import struct

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize

# Where a block keeps its half-precision scales (byte offsets).
HALVES = {
    Type.F16: [0], Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0],
    Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208], Type.BF16: [0],
    Type.Q3_K: [108], Type.IQ4_NL: [0], Type.IQ4_XS: [0], Type.MXFP4: [],
}


def random_blocks(rng, kind, n_blocks):
    n_bytes = GGML_QUANT_SIZES[kind][1]
    blocks = rng.integers(0, 256, (n_blocks, n_bytes), dtype=np.uint8)
    for offset in HALVES[kind]:
        # Any finite value, denormals included: NaN payloads are not what this fixture is about.
        high = blocks[:, offset + 1]
        exponent = 0x7C if kind != Type.BF16 else 0x7F
        high[(high & exponent) == exponent] ^= 0x40
    return blocks


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    args = parser.parse_args()
    rng = np.random.default_rng(20240607)
    with open(args.out, "wb") as out:
        for kind in HALVES:
            n_elements = GGML_QUANT_SIZES[kind][0]
            n_blocks = {1: 64, 32: 6, 256: 3}[n_elements]
            blocks = random_blocks(rng, kind, n_blocks)
            decoded = dequantize(blocks.reshape(1, -1), kind).astype("<f4").reshape(-1)
            assert decoded.size == n_blocks * n_elements
            out.write(struct.pack("<8sI", kind.name.encode(), decoded.size))
            out.write(blocks.tobytes() + decoded.tobytes())


if __name__ == "__main__":
    main()
