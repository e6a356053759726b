#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of gguf_fuzz: small GGUF files, good and bad, one feature each.

    tools/make_gguf_corpus.py src/formats/testdata/gguf_corpus
"""
import argparse
import os
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)


def string(text):
    return struct.pack("<Q", len(text)) + text


def entry(key, kind, payload):
    return string(key) + struct.pack("<I", kind) + payload


def array(kind, *elements):
    return struct.pack("<IQ", kind, len(elements)) + b"".join(elements)


def tensor(name, shape, kind, offset):
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def model(entries=(), tensors=(), n_data=0, alignment=32, version=3):
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries)) + b"".join(entries) + b"".join(tensors)
    padding = -len(head) % alignment if tensors else 0
    return head + bytes(padding) + bytes(i * 37 % 251 for i in range(n_data))


def seeds():
    scalars = [
        entry(b"u8", U8, b"\x01"), entry(b"i8", I8, b"\xff"), entry(b"u16", U16, b"\x01\x02"),
        entry(b"i16", I16, b"\xff\xff"), entry(b"u32", U32, b"\x01\0\0\0"), entry(b"i32", I32, b"\xff" * 4),
        entry(b"f32", F32, struct.pack("<f", 0.5)), entry(b"yes", BOOL, b"\x01"),
        entry(b"text", STRING, string(b"hello")), entry(b"u64", U64, b"\x01" * 8), entry(b"i64", I64, b"\xff" * 8),
        entry(b"f64", F64, struct.pack("<d", -2.5)),
    ]
    arrays = [
        entry(b"tokens", ARRAY, array(STRING, string(b"a"), string(b""), string(b"\xc4\xa0t"))),
        entry(b"types", ARRAY, array(I32, b"\x01\0\0\0", b"\x03\0\0\0")),
        entry(b"scores", ARRAY, array(F32, b"\0\0\x80?")), entry(b"flags", ARRAY, array(BOOL, b"\0", b"\x01")),
        entry(b"bytes", ARRAY, array(U8, b"\x01", b"\xff")), entry(b"none", ARRAY, array(U64)),
    ]
    nested = [entry(b"nested", ARRAY, array(ARRAY, array(ARRAY, array(U8, b"\x07")), array(STRING, string(b"x"))))]
    align = [entry(b"general.alignment", U32, struct.pack("<I", 64))]
    split = [entry(b"split.no", U16, b"\0\0"), entry(b"split.count", U16, b"\x02\0"),
             entry(b"split.tensors.count", I32, b"\x02\0\0\0")]
    block_bytes = {0: 4, 1: 2, 2: 18, 3: 20, 6: 22, 7: 24, 8: 34, 12: 144, 13: 176, 14: 210, 30: 2}
    types, offset = [], 0
    for kind, size in block_bytes.items():
        types.append(tensor(f"t{kind}".encode(), (1 if size <= 4 else 32 if size < 100 else 256,), kind, offset))
        offset += (size + 31) // 32 * 32
    yield "empty_model", model()
    yield "version2", model(scalars[:2], version=2)
    yield "scalars", model(scalars)
    yield "arrays", model(arrays)
    yield "nested", model(nested)
    yield "types", model((), types, offset)
    yield "alignment", model(align, [tensor(b"a", (4,), 0, 0), tensor(b"b", (2, 3, 2, 1), 24, 64)], 76, 64)
    yield "shard", model(split, [tensor(b"a", (4,), 0, 0)], 16)
    yield "bad_version1", model(version=1)
    yield "bad_big_endian", b"GGUF" + struct.pack(">IQQ", 3, 0, 0)
    yield "bad_deep", model([entry(b"deep", ARRAY, struct.pack("<IQ", ARRAY, 1) * 20 + array(U8))])
    yield "bad_count", model([entry(b"many", ARRAY, struct.pack("<IQ", U8, 1 << 60))])
    yield "bad_overlap", model((), [tensor(b"a", (16,), 0, 0), tensor(b"b", (4,), 0, 32)], 64)
    yield "bad_type", model((), [tensor(b"a", (256,), 16, 0)], 66)
    yield "bad_truncated", model((), [tensor(b"a", (16,), 0, 0)], 63)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    folder = parser.parse_args().folder
    os.makedirs(folder, exist_ok=True)
    for name, data in seeds():
        with open(os.path.join(folder, name), "wb") as out:
            out.write(data)


if __name__ == "__main__":
    main()
