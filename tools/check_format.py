#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that clang-format would change no C++ file; `make format` puts right what it names.

  check_format.py [ROOT]

Of version 14 only, as versions differ in what they would change: without it, the check is skipped (exit status 77).
"""

from concurrent.futures import ThreadPoolExecutor
import os
from pathlib import Path
import re
import shutil
import subprocess
import sys

PROGRAM = "clang-format-14"
STYLE = Path(__file__).resolve().parent.parent / ".clang-format"
FOLDERS = ("src", "include", "tests", "examples", "tools")
SKIPPED = 77
TOGETHER = 16  # files a run of the program gets


def files_of(root):
    paths = [path for folder in FOLDERS for path in (root / folder).rglob("*") if path.suffix in (".cc", ".h")]
    return sorted(paths)


def misformatted(paths):
    """Of these files, those that would change, each with the first line."""
    done = subprocess.run([PROGRAM, f"--style=file:{STYLE}", "--dry-run", *map(str, paths)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    found = {}
    for path, line in re.findall(r"^(.+?):(\d+):\d+: (?:warning|error): .*clang-format", done.stdout, re.MULTILINE):
        found.setdefault(path, int(line))
    if done.returncode != 0 and not found:
        raise RuntimeError(f"{PROGRAM} ended with {done.returncode}\n{done.stdout}")
    return sorted(found.items())


def main(arguments):
    root = Path(arguments[0]).resolve() if arguments else STYLE.parent
    if shutil.which(PROGRAM) is None:
        print(f"there is no {PROGRAM}")
        return SKIPPED
    paths = files_of(root)
    batches = [paths[i:i + TOGETHER] for i in range(0, len(paths), TOGETHER)]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        wrong = [place for places in pool.map(misformatted, batches) for place in places]
    for path, line in wrong:
        print(f"{Path(path).relative_to(root)}:{line}: {PROGRAM} would change this file; run `make format`")
    if not wrong:
        print(f"{len(paths)} files are as {PROGRAM} writes them")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
