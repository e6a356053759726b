# SPDX-License-Identifier: Apache-2.0
"""What the tools that fetch something with pip share."""

import subprocess
import sys


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
