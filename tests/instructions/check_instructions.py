#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Instructions of kernels and of a decoding step, counted by callgrind, against those on record.

  check_instructions.py BUILD [--record]

Unlike times, counts are the same on every machine and under any load, so a few percent are a regression and no noise.
They belong to the AVX2 table, since valgrind knows no AVX-512, and to one version of the compiler: with another one the
check is skipped (exit status 77), as it is without valgrind. Counts may fall; `--record` writes what is counted now.
"""

import json
from pathlib import Path
import re
import shutil
import subprocess
import sys

RECORD = Path(__file__).resolve().parent / "counts.json"
TOLERANCE = 0.03
SKIPPED = 77


def compiler(build):
    """Name and version of what compiled the build."""
    files = sorted((build / "CMakeFiles").glob("*/CMakeCXXCompiler.cmake"))
    text = files[0].read_text(encoding="utf-8") if files else ""
    words = [re.search(rf'set\(CMAKE_CXX_COMPILER_{field} "([^"]*)"\)', text) for field in ("ID", "VERSION")]
    return " ".join(word[1] for word in words if word)


def count(program, case):
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no",
               "--toggle-collect=Measured", str(program), case]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False, timeout=300)
    found = re.search(r"Collected : (\d+)", done.stdout)
    if done.returncode != 0 or not found or int(found[1]) == 0:
        raise RuntimeError(f"{case}: {' '.join(command)} ended with {done.returncode}\n{done.stdout}")
    return int(found[1])


def compare(counts, record):
    """One line for each case, and whether none grew."""
    lines, fine = [], True
    for case in sorted(counts.keys() | record.keys()):
        now, known = counts.get(case), record.get(case)
        if now is None or known is None:
            lines.append(f"{case}: {'not on record' if known is None else 'no such case any more'}; run --record")
            fine = False
            continue
        grew = now > known * (1 + TOLERANCE)
        fine = fine and not grew
        lines.append(f"{case}: {now:,} instructions, {100 * (now / known - 1):+.1f} %{' TOO MANY' if grew else ''}")
    return lines, fine


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--record"]):
        print(__doc__, file=sys.stderr)
        return 2
    build = Path(sys.argv[1])
    program = build / "tests" / "instruction_counts"
    if shutil.which("valgrind") is None:
        print("valgrind is not installed")
        return SKIPPED
    listed = subprocess.run([program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    if listed.returncode == SKIPPED:
        print("this CPU has no AVX2")
        return SKIPPED
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {"compiler": "", "counts": {}}
    if sys.argv[2:] != ["--record"] and record["compiler"] != compiler(build):
        print(f"counts on record are those of {record['compiler']}; this is {compiler(build)}")
        return SKIPPED
    counts = {case: count(program, case) for case in listed.stdout.split()}
    if sys.argv[2:] == ["--record"]:
        text = json.dumps({"compiler": compiler(build), "counts": counts}, indent=2)
        RECORD.write_text(text + "\n", encoding="utf-8")
    lines, fine = compare(counts, json.loads(RECORD.read_text(encoding="utf-8"))["counts"])
    print("\n".join(lines))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
