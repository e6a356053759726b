#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints what a decoding step takes with all keys and values in memory, half of them, and a tenth of them.

    tools/measure_offload.py -m MODEL --folder /mnt/nvme/tmp [--depth 65536,131072] [--share 1,0.5,0.1]
        [--run-with 'systemd-run --scope -p MemoryMax=1200M'] [--longspec build/release/longspec] [-- OPTION ...]

Drives `longspec bench --sweep` (a made-up context, so nothing is evaluated beforehand) with --kv-offload and
--kv-memory, one process for each line of a Markdown table. The file of keys and values may stay in the system's page
cache as far as there is room: --run-with is put before the command, to say how much memory there is. "Read" is what the
whole process read from disks, the model file too. Options of the model come after -- (-t 2, -ctk q8_0).
"""

import argparse
import json
import os
import shlex
import subprocess
import sys

MIB = 1 << 20


def numbers(kind):
    return lambda text: [kind(part) for part in text.split(",")]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--folder", required=True, help="where the file of keys and values is made")
    parser.add_argument("--depth", type=numbers(int), default=[65536, 131072], help="keys, separated by commas")
    parser.add_argument("--share", type=numbers(float), default=[1.0, 0.5, 0.1], help="shares of them in memory")
    parser.add_argument("--run-with", default="",
                        help="a command that runs longspec, such as one that limits its memory")
    parser.add_argument("--longspec", default="build/release/longspec")
    split = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:split])
    options.bench = arguments[split + 1:]
    wrong = [share for share in options.share if not 0 <= share <= 1]
    if wrong:
        parser.error(f"--share {wrong[0]}: must be from 0 to 1")
    return options


def run(command):
    """(standard output, bytes read from disks). Ends the program if the command fails."""
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
    except OSError as error:
        sys.exit(f"measure_offload: {command[0]}: {error.strerror}")
    output = process.stdout.read()
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"measure_offload: {shlex.join(command)}: exit status {process.returncode}")
    return output.decode(), usage.ru_inblock * 512


def kv_bytes(options, depth):
    """Of keys and values of so many positions, as the memory plan has them."""
    text, _ = run([options.longspec, "info", "-m", options.model, "--json", "--ctx-size", str(depth), *options.bench])
    memory = json.loads(text)["memory"]
    return memory["kv_at_context"] + memory["kv_in_file"]


def measure(options, depth, share, whole):
    """(ms of a step of one row, bytes read from disks)."""
    command = [*shlex.split(options.run_with), options.longspec, "bench", "-m", options.model, "--sweep", "--json",
               "--rows", "1", "--depth", str(depth), *options.bench]
    if share < 1:
        command += ["--kv-offload", options.folder, "--kv-memory", str(int(whole * share) // MIB)]
    text, read = run(command)
    steps = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return next(step["ms"] for step in steps if step["test"] == "decode" and step["depth"] == depth), read


def main(arguments):
    options = parse(arguments)
    print("| keys | keys and values, MiB | in memory, MiB | step, ms | tokens/s | of the first line's | read, MiB |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for depth in options.depth:
        whole = kv_bytes(options, depth)
        first = None
        for share in options.share:
            ms, read = measure(options, depth, share, whole)
            first = first or ms
            print(f"| {depth:,} | {whole / MIB:,.0f} | {int(whole * share) // MIB:,} | {ms:.2f} | {1000 / ms:.2f} "
                  f"| {first / ms:.2f} | {read / MIB:,.0f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
