#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the coverage preset, runs its tests and prints the line coverage of each module of src/.

  coverage.py [--minimum PERCENT]

Exit status 1 if a test fails or a module is below the minimum (80). Tests, fuzz targets and test helpers do not count,
nor do files whose instructions this CPU lacks, nor a module that is not built: the trainer needs LibTorch. Such are
named.
"""

import argparse
import json
import os
from pathlib import Path
import subprocess
import sys

import run_tests

BUILD = run_tests.BUILD / "coverage"
NOT_COUNTED = (r".*_test\.cc", r".*_fuzz\.cc", r".*_bench\.cc", r".*/testing/.*")
# Files built for instructions that a CPU may lack, and the flag of /proc/cpuinfo they need.
NEEDS_CPU = ((r".*/kernels/cpu/avx512.*", "avx512f"), (r".*/kernels/cpu/avx2.*", "avx2"),
             (r".*/kernels/cpu/amx.*", "amx_tile"))


def cpu_flags():
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return {flag for line in lines if line.startswith(("flags", "Features")) for flag in line.split(":", 1)[1].split()}


def measure():
    """gcovr's summary: {"files": [{"filename", "line_total", "line_covered"}]}."""
    excluded = list(NOT_COUNTED) + [pattern for pattern, flag in NEEDS_CPU if flag not in cpu_flags()]
    report = BUILD / "coverage.json"
    command = ["gcovr", "--root", str(run_tests.ROOT), "--filter", f"{run_tests.ROOT}/src/", "--json-summary",
               str(report), "--gcov-ignore-parse-errors", "-j", str(os.cpu_count()), str(BUILD)]
    for pattern in excluded:
        command += ["--exclude", pattern]
    # It warns of every count that threads have upset; a line that ran has some count all the same.
    done = subprocess.run(command, cwd=run_tests.ROOT, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"coverage: gcovr failed\n{done.stderr}")
    return json.loads(report.read_text(encoding="utf-8"))


def by_module(summary):
    """{module: (covered, total)} of the files under src/."""
    modules = {}
    for file in summary["files"]:
        parts = Path(file["filename"]).parts
        if parts[0] != "src" or len(parts) < 3:
            continue
        covered, total = modules.get(parts[1], (0, 0))
        modules[parts[1]] = (covered + file["line_covered"], total + file["line_total"])
    return modules


def left_out(modules, folder):
    """Modules in the folder that have no line in `modules`: they were not built."""
    return sorted(path.parent.name for path in folder.glob("*/CMakeLists.txt") if path.parent.name not in modules)


def table(modules, minimum):
    """The lines to print, and the modules below the minimum."""
    lines, low = [f"{'module':<12} {'lines':>7} {'covered':>8} {'share':>8}"], []
    rows = sorted(modules.items())
    rows.append(("all", tuple(map(sum, zip(*modules.values()))) if modules else (0, 0)))
    for name, (covered, total) in rows:
        share = 100.0 * covered / total if total else 100.0
        mark = ""
        if name != "all" and share < minimum:
            low.append(name)
            mark = f"  below {minimum:g} %"
        lines.append(f"{name:<12} {total:>7} {covered:>8} {share:>6.1f} %{mark}")
    return lines, low


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minimum", type=float, default=80.0, help="percent of lines each module needs (default: 80)")
    minimum = parser.parse_args().minimum
    tally = run_tests.Tally()
    if not run_tests.build("coverage", [], tally):
        return tally.finish()
    for counts in BUILD.rglob("*.gcda"):  # of an earlier run
        counts.unlink()
    # The command line is mostly tested by running it, most of it on the small model: without that (make model
    # MODEL=smollm2), cli is below the minimum.
    run_tests.run_everything("coverage", tally, {}, {"LONGSPEC_SKIP_SLOW": "1"}, {"LONGSPEC_SKIP_SLOW": "1"})
    modules = by_module(measure())
    lines, low = table(modules, minimum)
    print("\n" + "\n".join(lines) + "\n")
    for name in left_out(modules, run_tests.ROOT / "src"):
        print(f"not counted: src/{name}, which this build leaves out")
    if low:
        print(f"below {minimum:g} %: {', '.join(low)}")
    return 1 if tally.finish() or low else 0


if __name__ == "__main__":
    sys.exit(main())
