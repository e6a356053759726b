#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes which prompts llama.cpp's server makes of texts with holes: tests/golden/infill.jsonl.

  tools/make_infill_golden.py --server PATH/llama-server -m models/Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf \\
      -o tests/golden/infill.jsonl

Each line has a request of /infill, the sizes of the batch and of the context that the server was started with, and the
tokens of the prompt, which a slot's file lists that is saved after the request.
"""

import argparse
import json
import os
from pathlib import Path
import random
import socket
import struct
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

SIZES = [(64, 256), (256, 2048)]  # of a batch and of a context
LINES = ["int add(int a, int b) {", "  return a + b;", "}", "", "    for item in items:", "\tif (x == 0) {",
         "// größer, 大きい", "print(f\"{name!r}: {value}\")", "#include <vector>", "  std::vector<int> v{1, 2, 3};",
         "<|fim_middle|>", "\r",
         "def main() -> None:", "        self.assertEqual(a, b)", "x = [i ** 2 for i in range(100)]",
         "  // TO" "DO: 12345", "</div>", "SELECT * FROM t WHERE a = 'b';", "    ", "π ≈ 3.14159", "emoji 😀 end"]
NAMES = ["a.c", "src/engine/answer.cc", "", "größe.py", "<|file_sep|>"]
PROMPTS = ["", "", "    ", "  return ", "x", "\t\tif (", "<|file_sep|>", "größ",
           "  one two three four five six seven eight nine ten"]


def text(rng, most):
    return "\n".join(rng.choice(LINES) for _ in range(rng.randrange(most + 1)))


def request(rng):
    chunks = []
    for _ in range(rng.choice([0, 0, 1, 2, 4])):
        chunk = {"text": text(rng, 8)}
        if rng.random() < 0.8:
            chunk["filename"] = rng.choice(NAMES)
        chunks.append(chunk)
    body = {"input_prefix": text(rng, 16) + rng.choice(["", "\n"]),
            "input_suffix": rng.choice(["", "\n"]) + text(rng, 8)}
    if chunks or rng.random() < 0.5:
        body["input_extra"] = chunks
    if rng.random() < 0.8:
        body["prompt"] = rng.choice(PROMPTS)
    return body


def post(url, body):
    data = json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": "application/json"})) as response:
        return json.load(response)


def wait_until_ready(url):
    for _ in range(600):
        try:
            with urllib.request.urlopen(url + "/health") as response:
                if response.status == 200:
                    return
        except (urllib.error.URLError, ConnectionError):
            pass
        time.sleep(0.1)
    raise SystemExit("the server does not start")


def tokens_of(url, folder, body):
    # Nothing of the slot's earlier prompts may stay in it.
    post(url + "/infill", {**body, "n_predict": 1, "cache_prompt": False, "id_slot": 0})
    post(url + "/slots/0?action=save", {"filename": "slot"})
    data = (Path(folder) / "slot").read_bytes()
    # Behind magic, version and a size: -1, 1 and the number of tokens.
    begin, version, n_tokens = struct.unpack_from("<3i", data, 12)
    if (begin, version) != (-1, 1):
        raise SystemExit("the file of a slot has another form")
    return list(struct.unpack_from(f"<{n_tokens}i", data, 24))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--server", required=True, help="llama-server")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-o", "--out", required=True)
    parser.add_argument("-n", type=int, default=30, help="requests for each size")
    args = parser.parse_args()
    rng = random.Random(1)
    lines = []
    for batch, context in SIZES:
        with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
            free.close()
            url = f"http://127.0.0.1:{port}"
            command = [args.server, "-m", args.model, "--port", str(port), "-c", str(context), "-b", str(batch), "-ub",
                       str(batch), "-np", "1", "-t", str(os.cpu_count()), "--slot-save-path", folder]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
                try:
                    wait_until_ready(url)
                    for _ in range(args.n):
                        body = request(rng)
                        lines.append({"batch": batch, "context": context, "request": body,
                                      "tokens": tokens_of(url, folder, body)})
                finally:
                    server.terminate()
    with open(args.out, "w", encoding="utf-8") as out:
        for line in lines:
            out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
