#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes which prompts llama.cpp's server makes of texts with holes: tests/golden/infill.jsonl.

  tools/make_infill_golden.py --server PATH/llama-server -m models/Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf \\
      -o tests/golden/infill.jsonl

Any model with the same vocabulary will do. The file's first line has pieces of text, each under a letter; a text is the
pieces of its letters. Each further line is a list: the sizes of the batch and of the context that the server was
started with; the letters of a prefix, a suffix and a prompt (null: the request has none); a list of chunks, the letter
of a file's name (null: it has none) and of a text each (null: no list); how many tokens the prompt has, and a hash of
them. They are those that a slot's file lists which is saved after the request.
"""

import argparse
import json
import os
from pathlib import Path
import random
import socket
import string
import struct
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

# Of a batch and of a context, with the share of requests.
SIZES = [((64, 256), 0.5), ((256, 2048), 0.3), ((2048, 4096), 0.2)]
PIECES = ["int add(int a, int b) {\n", "  return a + b;\n", "}\n", "\n", "\n\n", "    for item in items:\n",
          "\tif (x == 0) {\n", "// größer, 大きい\n", "print(f\"{name!r}: {value}\")\n", "#include <vector>\n",
          "  std::vector<int> v{1, 2, 3};\n", "<|fim_middle|>", "\r\n", "def main() -> None:\n",
          "        self.assertEqual(a, b)\n", "x = [i ** 2 for i in range(100)]\n", "  // TO" "DO: 12345\n",
          "</div>\n", "SELECT * FROM t WHERE a = 'b';\n", "    ", "π ≈ 3.14159", "emoji 😀 end", " ", "  ", "\t\t",
          "ret", "return ", "self.", "_name", "Count", "HTTPServer2", "0x7fff'ffffULL", "1.5e-10", "1234567890",
          " == ", "!=", "&&", "->", "...", "\"", "'t", "don't", "(", ");\n", "{}", "<|endoftext|>",
          "<|im_start|>user\n", "<|file_sep|>", "한국어", "العربية", "e\u0301a", "👩‍👩‍👧", "\u00a0", "\u3000",
          "fn f<'a>(x: &'a str) -> Option<u8> {\n", "let y = x?.map(z => z + 1) ?? 0;\n", "@property\n",
          "$HOME/.config", "https://example.org/a?b=c&d=%20", "\\n\\t\\\\", "     \n", "lorem ipsum dolor sit amet, "]
NAMES = ["a.c", "src/engine/answer.cc", "", "größe.py", "<|file_sep|>"]
LETTERS = string.ascii_letters + string.digits


def letters(rng, most):
    return "".join(rng.choice(LETTERS[:len(PIECES)]) for _ in range(rng.randrange(most + 1)))


def random_request(rng):
    """[prefix, suffix, prompt, chunks]"""
    chunks = [[rng.choice(LETTERS[:len(NAMES)]) if rng.random() < 0.8 else None, letters(rng, 8)]
              for _ in range(rng.choice([0, 0, 0, 1, 2, 4]))]
    return [letters(rng, rng.choice([4, 20, 30])), letters(rng, rng.choice([2, 10, 16])),
            letters(rng, 3) if rng.random() < 0.8 else None, chunks if chunks or rng.random() < 0.3 else None]


def text_of(spelled, pieces):
    return "".join(pieces[LETTERS.index(letter)] for letter in spelled)


def body_of(prefix, suffix, prompt, chunks):
    body = {"input_prefix": text_of(prefix, PIECES), "input_suffix": text_of(suffix, PIECES)}
    if prompt is not None:
        body["prompt"] = text_of(prompt, PIECES)
    if chunks is not None:
        body["input_extra"] = [{"text": text_of(text, PIECES)} |
                               ({} if name is None else {"filename": text_of(name, NAMES)}) for name, text in chunks]
    return body


def hash_of(tokens):
    """FNV-1a of their bytes, 4 of each."""
    value = 0xcbf29ce484222325
    for byte in struct.pack(f"<{len(tokens)}i", *tokens):
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return f"{value:016x}"


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


def record(args, rng, batch, context, n):
    """Lines of n requests."""
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
                for _ in range(n):
                    request = random_request(rng)
                    tokens = tokens_of(url, folder, body_of(*request))
                    yield [batch, context, *request, len(tokens), hash_of(tokens)]
            finally:
                server.terminate()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--server", required=True, help="llama-server")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-o", "--out", required=True)
    parser.add_argument("-n", type=int, default=1000, help="requests")
    args = parser.parse_args()
    rng = random.Random(1)

    def dump(line):
        return json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n"

    with open(args.out, "w", encoding="utf-8") as out:
        out.write(dump({"pieces": dict(zip(LETTERS, PIECES)), "names": dict(zip(LETTERS, NAMES))}))
        for (batch, context), share in SIZES:
            for line in record(args, rng, batch, context, round(args.n * share)):
                out.write(dump(line))


if __name__ == "__main__":
    main()
