# SPDX-License-Identifier: Apache-2.0
"""What the tools that fetch something with pip share."""

import hashlib
import subprocess
import sys

BLOCK = 1 << 20
# What pip says where it gets no answer, in lower case.
NETWORK = ("connection", "resolve", "timed out", "network", "retrying", "no matching distribution")


class Failure(Exception):
    """A one-line reason, for the user."""


def pip_command(work):
    """pip of this Python, or of a virtual environment where Python came without it."""
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0:
        return [sys.executable, "-m", "pip"]
    environment = work / "venv"
    made = subprocess.run([sys.executable, "-m", "venv", str(environment)], capture_output=True, check=False)
    if made.returncode != 0:
        raise Failure("pip is missing and no virtual environment can be made; install python3-pip "
                      "(tools/setup.sh model)")
    return [str(environment / "bin" / "python"), "-m", "pip"]


def reason_of(output):
    """Why pip failed, from all that it said."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if any("No space left" in line for line in lines):
        return "the disk is full"
    last = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "no message")
    if any(word in line.lower() for line in lines for word in NETWORK):
        return f"is there a network? pip said: {last}"
    return f"pip said: {last}"


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def check_sha256(path, expected, what):
    actual = sha256(path)
    if actual != expected:
        raise Failure(f"{what} has SHA-256 {actual}, but {expected} is right; nothing was installed")
