#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each *.cc here must compile as it stands, and must not with -DMISUSE, for the reason its `// EXPECT:` line states.

The first half shows that the second fails for the misuse and nothing else.
"""

from concurrent.futures import ThreadPoolExecutor
import os
from pathlib import Path
import re
import subprocess
import sys

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror=unused-result", f"-I{ROOT}/include",
         f"-I{ROOT}/src"]


def compile_file(path, *flags):
    command = [os.environ.get("CXX", "c++"), *FLAGS, *flags, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    return done.returncode == 0, done.stderr


def check(path):
    """The reason why the file does not show what it should, or None."""
    expected = re.search(r"^// EXPECT: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    if not expected:
        return "has no `// EXPECT: regular expression` line"
    good, messages = compile_file(path)
    if not good:
        return f"does not compile without MISUSE:\n{messages}"
    good, messages = compile_file(path, "-DMISUSE")
    if good:
        return "compiles with MISUSE"
    if not re.search(expected[1], messages):
        return f"fails with MISUSE, but not by /{expected[1]}/:\n{messages}"
    return None


def main():
    files = sorted(HERE.glob("*.cc"))
    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, reason in zip(files, pool.map(check, files)):
            if reason:
                failed += 1
                print(f"{path.relative_to(ROOT)}: {reason}")
    print(f"{len(files) - failed} of {len(files)} misuses are refused")
    return 1 if failed or not files else 0


if __name__ == "__main__":
    sys.exit(main())
