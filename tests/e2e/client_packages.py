# SPDX-License-Identifier: Apache-2.0
"""Clients from PyPI, each list installed once: those of clients.txt, which tests talk to the server with and judge
answers by, and aider with what it needs (aider.txt). Called as a program it installs both."""

import fcntl
import os
import site
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LISTS = os.path.join(ROOT, "tests/e2e")
CLIENTS = os.path.join(ROOT, "build/clients")
AIDER = os.path.join(ROOT, "build/aider")


def read(path):
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as file:
        return file.read()


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"the clients cannot be installed: {' '.join(command)}\n{done.stdout}")


def install_once(folder, list_name, *options):
    """A virtual environment with the packages of the list."""
    wanted, stamp = os.path.join(LISTS, list_name), os.path.join(folder, "installed.txt")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run at the same time
        if read(stamp) == read(wanted):
            return
        run([sys.executable, "-m", "venv", folder])
        # Without byte code: most of what is installed is never imported.
        run([os.path.join(folder, "bin/python"), "-m", "pip", "install", "--quiet", "--no-compile", *options, "-r",
             wanted])
        with open(stamp, "w", encoding="utf-8") as file:
            file.write(read(wanted))


def install_clients():
    install_once(CLIENTS, "clients.txt")


def use():
    """Makes `import openai`, `import jsonschema` and the like work, or says why not."""
    install_clients()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folder = os.path.join(CLIENTS, "lib", version, "site-packages")
    site.addsitedir(folder)
    sys.path.insert(0, folder)  # before what this Python has of them, which may be older


def aider():
    """The command that runs aider."""
    install_once(AIDER, "aider.txt", "--no-deps")
    return [os.path.join(AIDER, "bin/python"), "-m", "aider"]


if __name__ == "__main__":
    install_clients()
    aider()
