#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Answers under JSON schemas: whether they are valid, by a validator that is not ours, and what the form costs.

Asks a server for answers under each schema of check_schemas.jsonl, with speculation and without, and for answers of the
same lengths without a schema. Prints how many are valid, and tokens a second beside those of the unconstrained ones.
Status 1 if an answer is not valid, was cut short, or depends on speculation. Needs jsonschema (PyPI).

    python3 tools/check_schemas.py -m models/SmolLM2-135M-Instruct.Q4_1.gguf --answers 200
"""

import argparse
import contextlib
import json
import os
import sys
import urllib.error
import urllib.request

from server_process import ServerProcess

try:
    import jsonschema
except ImportError:
    jsonschema = None

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SCHEMAS = os.path.join(ROOT, "tools/check_schemas.jsonl")
MOST_TOKENS = 4000  # more than any of the schemas lets an answer have, with all the white space between its signs


def read_schemas(path=SCHEMAS):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def complaint(schema, text):
    """Why the text is no answer under the schema; empty: it is one."""
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"not JSON: {error}"
    checker = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    errors = [error.message for error in checker.iter_errors(value)]
    return errors[0] if errors else ""


class Server:
    """One that runs."""

    def __init__(self, url):
        self.url = url

    def ask(self, ask, seed, **fields):
        """A choice of a chat, and its timings."""
        body = {"messages": [{"role": "user", "content": ask}], "temperature": 0.7, "seed": seed, **fields}
        request = urllib.request.Request(self.url + "/v1/chat/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=600) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"status {error.code}: {error.read(500).decode(errors='replace')}") from error
        return answer["choices"][0], answer["timings"], answer.get("speculation", {})


class Sum:
    def __init__(self):
        self.tokens, self.ms, self.rounds = 0, 0.0, 0

    def add(self, timings, speculation):
        self.tokens += timings["predicted_n"]
        self.ms += timings["predicted_ms"]
        self.rounds += speculation.get("rounds") or timings["predicted_n"]

    def per_second(self):
        return 1000 * self.tokens / self.ms if self.ms else 0.0


def check(server, schemas, n_answers, speeds, tell):
    """({kind: Sum}, number of valid answers, complaints)"""
    sums = {(form, guesses): Sum() for form in ("schema", "free") for guesses in (True, False)}
    n_valid, bad = 0, []
    for i in range(n_answers):
        entry = schemas[i % len(schemas)]
        seed = i // len(schemas)
        form = {"response_format": {"type": "json_schema",
                                    "json_schema": {"name": entry["name"], "schema": entry["schema"]}},
                "max_tokens": MOST_TOKENS}
        choice, timings, speculation = server.ask(entry["ask"], seed, **form)
        sums["schema", True].add(timings, speculation)
        text = choice["message"]["content"]
        wrong = complaint(entry["schema"], text) if choice["finish_reason"] == "stop" else "cut short"
        n_valid += not wrong
        if wrong:
            bad.append(f"{entry['name']}, seed {seed}: {wrong}: {text}")
        if speeds:
            plain, timings, speculation = server.ask(entry["ask"], seed, speculative=False, **form)
            sums["schema", False].add(timings, speculation)
            if plain["message"]["content"] != text:
                bad.append(f"{entry['name']}, seed {seed}: another text without speculation")
            free = {"max_tokens": timings["predicted_n"], "ignore_eos": True}
            for guesses in (True, False):
                _, timings, speculation = server.ask(entry["ask"], seed, speculative=guesses, **free)
                sums["free", guesses].add(timings, speculation)
        tell(f"\r{i + 1} of {n_answers} answers, {n_valid} valid")
    tell("\n")
    return sums, n_valid, bad


def show(sums, n_valid, n_answers, speeds):
    print(f"valid answers  {n_valid} of {n_answers}")
    if not speeds:
        return
    print(f"{'tokens/s':15}{'with a schema':>15}{'without':>10}{'ratio':>8}{'tokens a pass':>16}{'without':>10}")
    for guesses, name in ((False, "plain"), (True, "speculation")):
        form, free = sums["schema", guesses], sums["free", guesses]
        ratio = form.per_second() / free.per_second() if free.ms else float("nan")
        print(f"{name:15}{form.per_second():15.1f}{free.per_second():10.1f}{ratio:8.3f}"
              f"{form.tokens / max(1, form.rounds):16.2f}{free.tokens / max(1, free.rounds):10.2f}")
    gains = [sums[kind, True].per_second() / max(1e-9, sums[kind, False].per_second()) for kind in ("schema", "free")]
    print(f"speculation is {gains[0]:.2f} times as fast with a schema, {gains[1]:.2f} times without")


def main(argv=None):
    parser = argparse.ArgumentParser(description="Whether answers under JSON schemas are valid, and what they cost.")
    parser.add_argument("-m", "--model", help="the model's file; a server is started")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/longspec"), help="the program")
    parser.add_argument("--url", help="of a server that runs already, instead of a model")
    parser.add_argument("--answers", type=int, default=200)
    parser.add_argument("--no-speeds", action="store_true", help="only whether they are valid")
    parser.add_argument("serve_args", nargs="*", metavar="-- OPTION", help="options for the server")
    options = parser.parse_args(argv)
    if jsonschema is None:
        print("check_schemas: needs jsonschema: pip install jsonschema", file=sys.stderr)
        return 2
    if bool(options.model) == bool(options.url):
        print("check_schemas: give either -m or --url", file=sys.stderr)
        return 2
    tell = (lambda text: print(text, end="", file=sys.stderr, flush=True)) if sys.stderr.isatty() else lambda _: None
    try:
        with contextlib.ExitStack() as stack:
            url = options.url
            if not url:
                url = stack.enter_context(ServerProcess([
                    options.bin, "serve", "-m", options.model, "--port", "0", "--parallel", "1", "--no-progress",
                    *options.serve_args])).url
            sums, n_valid, bad = check(Server(url), read_schemas(), options.answers, not options.no_speeds, tell)
    except (OSError, RuntimeError) as error:
        print(f"check_schemas: {error}", file=sys.stderr)
        return 1
    show(sums, n_valid, options.answers, not options.no_speeds)
    for line in bad:
        print(f"check_schemas: {line}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
