# SPDX-License-Identifier: Apache-2.0
"""The packages of clients.txt, which tests talk to the server with and judge answers by: from PyPI, once."""

import fcntl
import os
import site
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CLIENTS = os.path.join(ROOT, "build/clients")
WANTED = os.path.join(ROOT, "tests/e2e/clients.txt")


def read(path):
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as file:
        return file.read()


def install():
    for command in ([sys.executable, "-m", "venv", CLIENTS],
                    [os.path.join(CLIENTS, "bin/python"), "-m", "pip", "install", "--quiet", "-r", WANTED]):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(f"the clients cannot be installed: {' '.join(command)}\n{done.stdout}")


def use():
    """Makes `import openai`, `import jsonschema` and the like work, or says why not."""
    stamp = os.path.join(CLIENTS, "installed.txt")
    os.makedirs(CLIENTS, exist_ok=True)
    with open(os.path.join(CLIENTS, "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run at the same time
        if read(stamp) != read(WANTED):
            install()
            with open(stamp, "w", encoding="utf-8") as file:
                file.write(read(WANTED))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folder = os.path.join(CLIENTS, "lib", version, "site-packages")
    site.addsitedir(folder)
    sys.path.insert(0, folder)  # before what this Python has of them, which may be older
