# SPDX-License-Identifier: Apache-2.0
"""Installs a build tree into a folder and builds programs against it, as a user would."""

from pathlib import Path
import shutil
import subprocess
import sys

ROOT = Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
SKIPPED = 77


class Failure(Exception):
    """What went wrong, for the report."""


def run(command, cwd=ROOT):
    done = subprocess.run([str(word) for word in command], cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", check=False, timeout=600)
    if done.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def install(build, prefix):
    """False if this tree has nothing to install yet."""
    run(["cmake", "--install", build, "--prefix", prefix])
    return any(prefix.glob("lib*/**/longspecConfig.cmake"))


def build_programs(prefix, work, programs, snippets=()):
    """Builds each of `programs` into the returned folder; `snippets` are only compiled."""
    configure = ["cmake", "-S", ROOT / "tests" / "install", "-B", work, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}",
                 f"-DPROGRAMS={';'.join(map(str, programs))}", f"-DSNIPPETS={';'.join(map(str, snippets))}"]
    if shutil.which("ccache"):
        configure.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    run(configure)
    run(["cmake", "--build", work])
    return work


def exit_status(check):
    """Runs `check` and turns its failure into a message."""
    try:
        return check()
    except Failure as failure:
        print(failure)
        return 1
    except subprocess.TimeoutExpired as late:
        print(f"{late.cmd}: stopped after {late.timeout} s", file=sys.stderr)
        return 1
