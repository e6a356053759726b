#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs a build tree, then builds and runs a consumer that knows nothing else; every public header stands alone.

  check_install.py BUILD
"""

from pathlib import Path
import sys
import tempfile

from installation import MODEL, ROOT, SKIPPED, build_programs, exit_status, install, run


def check(build):
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        prefix = work / "prefix"
        if not install(build, prefix):
            print("nothing is installed yet")
            return SKIPPED
        headers = []
        for header in sorted((prefix / "include" / "longspec").glob("*.h")):
            alone = work / f"{header.stem}_alone.cc"
            include = f'#include "longspec/{header.name}"\n'
            alone.write_text(include + include, encoding="utf-8")
            headers.append(alone)
        programs = build_programs(prefix, work / "build", [ROOT / "tests" / "install" / "consumer.cc"], headers)
        run([programs / "consumer", *([MODEL] if MODEL.exists() else [])])
        program = prefix / "bin" / "longspec"
        if program.exists():
            run([program, "--help"])
        print(f"{len(headers)} public headers stand alone; the consumer runs")
    return 0


if __name__ == "__main__":
    sys.exit(exit_status(lambda: check(Path(sys.argv[1]).resolve())))
