# SPDX-License-Identifier: Apache-2.0
"""What check_device_code.py reads of a compiler's output, and what it takes for wrong. No nvcc."""

import struct
import unittest

import check_device_code as device_code

REPORT = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1a' for 'sm_90'
ptxas info    : Function properties for _Z1a
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 512 bytes smem
ptxas info    : Compiling entry function '_Z1b' for 'sm_90'
ptxas info    : Function properties for _Z1b
    48 bytes stack frame, 44 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 80 registers, used 1 barriers
"""
PTX = """.version 9.0
.visible .entry _Z1a(
\tmul.rn.f32 %f3, %f1, %f2;
\tadd.rn.f32 %f4, %f3, %f1;
}
.visible .entry _Z1b(
\tfma.rn.f32 %f4, %f3, %f1, %f2;
}
"""
CLEAN = "add.rn.f32 %f1, %f2, %f3; add.s32 %r1, %r2, %r3; mul.wide.s32 %rd1, %r1, 4; div.rn.f32 %f1, %f2, %f3;"


def cubin(name, codes):
    """An ELF file of two sections: names, and machine code."""
    names = b"\0.shstrtab\0.text." + name.encode() + b"\0"
    text = b"".join(struct.pack("<H14x", code) for code in codes)
    at = 64 + 3 * 64
    section = "<IIQQQQIIQQ"
    return (b"\x7fELF".ljust(40, b"\0") + struct.pack("<QIHHHHHH", 64, 0, 64, 0, 0, 64, 3, 1)
            + struct.pack(section, *[0] * 10)
            + struct.pack(section, 1, 3, 0, 0, at, len(names), 0, 0, 1, 0)
            + struct.pack(section, 11, 1, 6, 0, at + len(names), len(text), 0, 0, 128, 0) + names + text)


class CheckDeviceCodeTest(unittest.TestCase):
    def test_the_assemblers_report(self):
        self.assertEqual(device_code.parse_report(REPORT), {"_Z1a": (40, 0), "_Z1b": (80, 68)})

    def test_instructions_belong_to_their_kernel(self):
        ptx = device_code.parse_ptx(PTX)
        self.assertEqual([bool(device_code.FMA.search(ptx[name])) for name in ("_Z1a", "_Z1b")], [False, True])

    def test_machine_code(self):
        codes = [0x237, 0x237, 0x226, 0x823, 0x918]
        self.assertEqual(device_code.parse_machine_code(cubin("_Z1a", codes)),
                         {"_Z1a": {"IMMA": 2, "IDP": 1, "FFMA": 1}})

    def test_names_are_short(self):
        name = ("void longspec::cuda::RunBody<longspec::kernels::gpu::Each<longspec::kernels::gpu::Gated"
                "<longspec::kernels::gpu::Silu> > >(longspec::kernels::gpu::Each<int>::Args)")
        self.assertEqual(device_code.body_of(name), "Each<Gated<Silu>>")

    def test_what_is_rounded_once_is_right(self):
        self.assertEqual(device_code.wrong_code("RmsNorm", CLEAN + "fma.rn.f32 %f1, %f2, %f3, %f4;", {}), [])

    def test_what_the_law_forbids(self):
        for wrong in ("mul.f32 %f1, %f2, %f3;", "add.f32 %f1, %f2, %f3;", "add.f64 %d1, %d2, %d3;",
                      "mul.f16 %h1, %h2, %h3;", "fma.rz.f32 %f1, %f2, %f3, %f4;", "ex2.approx.f32 %f1, %f2;",
                      "div.full.f32 %f1, %f2, %f3;", "add.rn.ftz.f32 %f1, %f2, %f3;", "red.global.add.f32 [%rd1], %f1;",
                      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f1};"):
            self.assertEqual(len(device_code.wrong_code("RmsNorm", CLEAN + wrong, {})), 1, wrong)
        self.assertEqual(device_code.wrong_code("Each<Sum>", "fma.rn.f32 %f1, %f2, %f3, %f4;", {}),
                         ["Each<Sum>: fma, which the reference has not"])

    def test_products_use_tensor_cores(self):
        name = "ManyRows<UnitsQ8<(WeightFormat)3>, 64>"
        self.assertEqual(device_code.wrong_code(name, CLEAN, {"IMMA": 8}), [])
        self.assertEqual(device_code.wrong_code(name, CLEAN, {"FFMA": 8}), [f"{name}: no IMMA in it"])

    def test_use_beside_the_record(self):
        known = {"a": [40, 0], "b": [80, 68]}
        self.assertEqual(device_code.wrong_use({"a": [40, 0], "b": [64, 24]}, known, True), [])
        self.assertEqual(device_code.wrong_use({"a": [41, 0], "b": [80, 69]}, known, True),
                         ["a: 41 registers, 40 on record", "b: 69 bytes are spilled, 68 on record"])
        self.assertEqual(device_code.wrong_use({"a": [41, 4], "b": [80, 68]}, known, False),
                         ["a: 4 bytes are spilled, 0 on record"])
        self.assertEqual(device_code.wrong_use({"a": [40, 0], "c": [1, 0]}, known, True),
                         ["b: is on record and not there; --record", "c: is not on record; --record"])

    def test_flags_are_the_builds(self):
        text = (device_code.ROOT / "cmake" / "cuda.cmake").read_text(encoding="utf-8")
        self.assertIn("-fmad=false", device_code.flags(text))
        self.assertIn(f"-I{device_code.ROOT}/src", device_code.flags(text))


if __name__ == "__main__":
    unittest.main()
