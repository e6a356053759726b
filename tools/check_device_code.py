#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the bodies of GPU kernels and reads what the compiler made of them; no card is needed.

  check_device_code.py [--record] [ARCHITECTURE...]     90 (compute capability 9.0) if none is named

- PTX: sums and products of floats are rounded once and by themselves (.rn, which forbids the assembler to contract
  them), nothing is approximated or flushed, and bodies whose reference has no fma have none.
- Machine code: bodies of integer products use tensor cores, and attention in i8 sums of four products.
- The assembler's report: registers and spilled bytes of each kernel are at most those on record
  (check_device_code.json); a kernel that is not listed with spilled bytes spills none. Of another version of nvcc only
  the spills are compared. `--record` writes what is there now.

Exit status 77 without nvcc.
"""

import collections
from concurrent.futures import ThreadPoolExecutor
import functools
import json
import os
from pathlib import Path
import re
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = Path(__file__).resolve().parent.parent
RECORD = Path(__file__).resolve().with_suffix(".json")
SKIPPED = 77
# All that a runtime launches, in three parts (src/kernels/gpu/bodies.h).
SOURCES = ("card_attention_launches.cu", "card_product_launches.cu", "card_row_launches.cu")
# Of PTX. Without .rn a sum and a product may become one instruction that rounds once.
FORBIDDEN = {
    "arithmetic that may be contracted":
        r"(?<![.\w])(?:add|sub|mul|mad)(?:\.ftz)?(?:\.sat)?\.(?:f16x2|f16|bf16|f32|f64)\b",
    "another rounding than to the nearest": r"\b(?:add|sub|mul|fma|div|sqrt)\.(?:rz|rm|rp)\.",
    "an approximation": r"\b\w+(?:\.\w+)*\.(?:approx|full)\b",
    "flushing": r"\b\w+(?:\.\w+)*\.ftz\b",
    "a sum of floats on tensor cores": r"\bmma\.sync\.[\w.]*\.f(?:16|32)\b",
    "a sum in no order": r"\b(?:atom|red)\.\w+(?:\.\w+)*\.(?:add|noftz)[\w.]*\.f(?:16|32|64)\b",
}
FMA = re.compile(r"\bfma\.rn\.")
# Bodies that only add, multiply, round, compare and move.
WITHOUT_FMA = re.compile(r"^(?:Each<(?:Sum|WithBias|GatheredRows|QueriesByHead|AllowedLogits)>|Scatter"
                         r"|StoreKv|MoveSlots|MoveBlocks|FetchChunks|CheckRows|Argmax|JoinParts<.*>|TopK)$")
# Names of machine instructions by the low nine bits of their code: what is above them says where operands come from.
INSTRUCTIONS = {0x037: "IMMA", 0x026: "IDP", 0x023: "FFMA", 0x187: "STL", 0x183: "LDL"}
NEEDED = ((re.compile(r"^(?:ManyRows|FewRows|StreamedRows)<"), "IMMA"),
          (re.compile(r"^FusedAttention<.*KvType\)6"), "IDP"))


def find_nvcc():
    root = os.environ.get("LONGSPEC_CUDA_ROOT")
    folders = [*([os.path.join(root, "bin")] if root else []), os.environ.get("PATH", ""), "/usr/local/cuda/bin"]
    return shutil.which("nvcc", path=os.pathsep.join(folders))


def flags(text):
    """Those of cmake/cuda.cmake."""
    words = re.search(r"set\(LONGSPEC_NVCC_FLAGS (.*?)\)\n", text, re.DOTALL)[1].split()
    return [word.replace("${PROJECT_SOURCE_DIR}", str(ROOT)) for word in words]


def parse_report(text):
    """What ptxas -v says: {symbol: (registers, spilled bytes)}."""
    found = {}
    for part in re.split(r"^ptxas info +: Compiling entry function ", text, flags=re.MULTILINE)[1:]:
        symbol = re.match(r"'(\w+)'", part)[1]
        spilled = sum(map(int, re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", part).groups()))
        found[symbol] = (int(re.search(r"Used (\d+) registers", part)[1]), spilled)
    return found


def parse_ptx(text):
    """{symbol: its instructions}; functions that are called belong to all."""
    parts = re.split(r"^(?:\.\w+ )*\.entry (\w+)\(", text, flags=re.MULTILINE)
    return {symbol: parts[0] + body for symbol, body in zip(parts[1::2], parts[2::2])}


def parse_machine_code(elf):
    """{symbol: how many of which INSTRUCTIONS} of a cubin. An instruction has 16 bytes."""
    header, = struct.unpack_from("<Q", elf, 40)
    size, n, names = struct.unpack_from("<HHH", elf, 58)
    sections = [struct.unpack_from("<IIQQQQ", elf, header + i * size) for i in range(n)]
    found = {}
    for section in sections:
        begin = sections[names][4] + section[0]
        name = elf[begin:elf.index(b"\0", begin)].decode()
        if name.startswith(".text."):
            codes = struct.iter_unpack("<H14x", elf[section[4]:section[4] + section[5]])
            counts = collections.Counter(INSTRUCTIONS.get(code & 0x1FF) for code, in codes)
            found[name.removeprefix(".text.")] = {key: count for key, count in counts.items() if key}
    return found


def body_of(name):
    """`void longspec::cuda::RunBody<longspec::kernels::gpu::Rope>(...)` is Rope."""
    name = re.sub(r"\blongspec::(?:\w+::)*", "", name)
    begin = name.index("RunBody<") + len("RunBody<")
    depth, at = 1, begin
    while depth:
        depth += {"<": 1, ">": -1}.get(name[at], 0)
        at += 1
    return re.sub(r"\s+>", ">", name[begin:at - 1]).strip()


def wrong_code(name, ptx, machine):
    """What the law forbids, of one kernel."""
    found = []
    for what, pattern in FORBIDDEN.items():
        if match := re.search(pattern, ptx):
            found.append(f"{name}: {what}: {match[0]}")
    if WITHOUT_FMA.match(name) and FMA.search(ptx):
        found.append(f"{name}: fma, which the reference has not")
    for bodies, instruction in NEEDED:
        if bodies.match(name) and not machine.get(instruction):
            found.append(f"{name}: no {instruction} in it")
    return found


def wrong_use(used, known, same_version):
    """Registers and spills of an architecture beside the record, both {kernel: [registers, spilled bytes]}."""
    found = [f"{name}: is on record and not there; --record" for name in sorted(known.keys() - used.keys())]
    for name, (registers, spilled) in sorted(used.items()):
        if name not in known:
            found.append(f"{name}: is not on record; --record")
            continue
        most, most_spilled = known[name]
        if spilled > most_spilled:
            found.append(f"{name}: {spilled} bytes are spilled, {most_spilled} on record")
        if same_version and registers > most:
            found.append(f"{name}: {registers} registers, {most} on record")
    return found


def compile_one(nvcc, folder, work):
    """{kernel: (registers, spilled bytes, PTX, machine instructions)} of one source."""
    architecture, source = work
    kept = Path(folder, f"{source}.{architecture}")
    kept.mkdir()
    command = [nvcc, *flags((ROOT / "cmake" / "cuda.cmake").read_text(encoding="utf-8")), f"-arch=sm_{architecture}",
               "-cubin", "--keep", "--keep-dir", str(kept), str(ROOT / "src" / "cuda" / source), "-o",
               str(kept / "all.cubin")]
    done = subprocess.run(command, cwd=kept, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{source}: {done.stdout[-3000:]}")
    use = parse_report(done.stdout)
    ptx = parse_ptx(next(kept.glob("*.ptx")).read_text(encoding="utf-8"))
    machine = parse_machine_code((kept / "all.cubin").read_bytes())
    names = subprocess.run(["c++filt"], input="\n".join(use), stdout=subprocess.PIPE, text=True, check=True).stdout
    return {body_of(name): (*use[symbol], ptx[symbol], machine[symbol])
            for symbol, name in zip(use, names.splitlines())}


def main():
    arguments = sys.argv[1:]
    record = "--record" in arguments
    architectures = [word for word in arguments if word != "--record"] or ["90"]
    if not all(word.isdigit() for word in architectures):
        print(__doc__, file=sys.stderr)
        return 2
    nvcc = find_nvcc()
    if nvcc is None:
        print("nvcc is not there: nothing was compiled for a card")
        return SKIPPED
    said = subprocess.run([nvcc, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    version = re.search(r"\bV([\d.]+)", said)[1]
    known = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {"nvcc": version, "kernels": {}}
    work = [(architecture, source) for source in SOURCES for architecture in architectures]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        compiled = list(zip(work, pool.map(functools.partial(compile_one, nvcc, folder), work)))
    wrong = []
    for architecture in architectures:
        kernels = {name: of for (of_architecture, _), found in compiled if of_architecture == architecture
                   for name, of in found.items()}
        used = {name: list(of[:2]) for name, of in kernels.items()}
        if record:
            known["kernels"][architecture] = used
            known["nvcc"] = version
        found = [line for name, of in kernels.items() for line in wrong_code(name, *of[2:])]
        found += wrong_use(used, known["kernels"].get(architecture, {}), known["nvcc"] == version)
        wrong += [f"sm_{architecture}: {line}" for line in found]
        spilled = {name: use[1] for name, use in used.items() if use[1]}
        print(f"sm_{architecture}: {len(used)} kernels, at most {max(use[0] for use in used.values())} registers; "
              f"bytes spilled: {spilled or 'none'}")
    if record:
        lines = [f'    "{architecture}": {{\n' + ",\n".join(
            f"      {json.dumps(name)}: {json.dumps(use)}" for name, use in sorted(kernels.items())) + "\n    }"
            for architecture, kernels in sorted(known["kernels"].items())]
        RECORD.write_text(f'{{\n  "nvcc": "{known["nvcc"]}",\n  "kernels": {{\n' + ",\n".join(lines) + "\n  }\n}\n",
                          encoding="utf-8")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
