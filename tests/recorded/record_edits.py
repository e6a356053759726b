#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes edits.jsonl.gz: what Qwen2.5-Coder-1.5B answers to the requests of an editor, a line for each.

  tests/recorded/record_edits.py build/ci/tests/record_edits MODEL -o tests/recorded/edits.jsonl.gz [--keep OLD]

- `middle, EVENT`: somebody types in files of this repository (tools/compare_completion.py), and the line is suggested;
- `copy`: a file is written again with three changes that the request asks for, and is its `prediction`;
- `next edit`: a window of 21 lines, written again in Sweep's form; the change before it is in the prompt;
- `next edit by people`: the same form, and the answer is what the history of this repository has there.

With --keep only guesses are made anew: answers are those of an older file, in the same order.
"""

import argparse
import gzip
import json
from pathlib import Path
import re
import subprocess
import sys

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from compare_completion import typing  # noqa: E402

TYPED = ["src/kv/chunk_pool.cc", "tools/check_texts.py", "src/policy/cost_model.cc"]
MIDDLES = 50  # the first ones
PLACES = 2
WINDOW = 21
COPIES = [
    ("src/policy/kalman_filter.cc", ["Rename the namespace `longspec` to `filters`, wherever it is named.",
                                     "Change the licence in the first line to MIT.",
                                     "Add the line `// Tested in kalman_filter_test.cc.` below the includes."]),
    ("src/base/running_mean.h", ["Rename the method `value` to `mean`.", "Change the licence to MIT.",
                                 "Add a public method `void Reset()` that sets all members to 0."]),
    ("tools/server_process.py", ["Change the licence in the first line to MIT.", "Rename the class to `ChildServer`.",
                                 "Add the line `import os` to the imports."]),
    ("src/policy/draft_time.h", ["Change the licence to MIT.", "Rename the namespace to `drafts`.",
                                 "Make the class `DraftTime` final."]),
]
EDITS = [  # a file, its window's first line, what was replaced above and by what
    ("src/policy/kalman_filter.cc", 20, "size_t", "int64_t"),
    ("src/kv/chunk_pool.cc", 20, "chunk", "block"),
    ("tools/compare_servers.py", 60, "options", "settings"),
    ("src/policy/draft_time.h", 20, "levels", "depth"),
]
SWEEP = ("<|file_sep|>{path}.diff\noriginal:\n{old}\nupdated:\n{new}\n<|file_sep|>original/{path}\n{before}\n"
         "<|file_sep|>current/{path}\n{now}\n<|file_sep|>updated/{path}\n")


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def middles():
    for path in TYPED:
        for request in typing(Path(path).name, read(path), PLACES):
            body = request.body
            yield {"family": "middle, " + request.event, "stop": body["stop"], "n_predict": body["n_predict"],
                   "infill": {"prefix": body["input_prefix"], "prompt": body["prompt"], "suffix": body["input_suffix"]}}


def copies():
    for path, changes in COPIES:
        text = read(path)
        asked = "".join(f"{i + 1}. {change}\n" for i, change in enumerate(changes))
        yield {"family": "copy", "prediction": text, "n_predict": 2048, "messages": [
            {"role": "user", "content": f"{asked}\nAnswer with the whole file only.\n\n{text}"}]}


def next_edits():
    for path, first, old, new in EDITS:
        lines = read(path).splitlines()
        window = lines[first:first + WINDOW]
        row = next(i for i, line in enumerate(lines) if re.search(rf"\b{old}\b", line))
        changed = re.sub(rf"\b{old}\b", new, lines[row])
        before = "\n".join(window)
        if first <= row < first + WINDOW:
            window[row - first] = changed
        yield {"family": "next edit", "n_predict": 1024, "stop": ["<|file_sep|>"],
               "prompt": SWEEP.format(path=path, old=lines[row], new=changed, before=before, now="\n".join(window))}


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def edits_by_people(most):
    """Small changes of the history: of a commit the first file that has one, every other commit."""
    found = 0
    for commit in git("log", "--format=%H", "--no-merges").split()[::9]:
        patch = git("show", "--format=", "--unified=0", "--diff-filter=M", commit, "--", "*.cc", "*.h", "*.py")
        path = re.search(r"^--- a/(.*)$", patch, re.M)
        hunk = re.search(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", patch, re.M)
        if not path or not hunk:
            continue
        path = path[1]
        old_row, n_old, new_row, n_new = (int(number) if number is not None else 1 for number in hunk.groups())
        if not 1 <= n_old <= 5 or not 1 <= n_new <= 6:
            continue
        old = git("show", f"{commit}^:{path}").splitlines()
        new = git("show", f"{commit}:{path}").splitlines()
        first = max(0, old_row - 9)
        window = old[first:first + WINDOW]
        if len(window) < WINDOW or "\n".join(new[:first]) != "\n".join(old[:first]):
            continue
        # The end of the window may have changed, too: it ends where the two files are the same again.
        last = next((last for last in range(first + WINDOW + n_new - n_old - 6, first + WINDOW + n_new - n_old + 7)
                     if last < len(new) and new[last:last + 3] == old[first + WINDOW:first + WINDOW + 3]), None)
        if last is None:
            continue
        before = "\n".join(window)
        yield {"family": "next edit by people", "answer": "\n".join(new[first:last]) + "\n",
               "prompt": SWEEP.format(path=path, old=old[old_row - 1], new=new[new_row - 1], before=before, now=before)}
        found += 1
        if found == most:
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--requests", type=Path, help="kept here; read, where they are there")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    if options.requests and options.requests.exists():
        requests = [json.loads(line) for line in options.requests.read_text(encoding="utf-8").splitlines()]
    else:
        requests = [*list(middles())[:MIDDLES], *copies(), *next_edits(), *edits_by_people(16)]
        if options.requests:
            options.requests.write_text("".join(json.dumps(r) + "\n" for r in requests), encoding="utf-8")
    if options.keep:
        with gzip.open(options.keep, "rt", encoding="utf-8") as file:
            for request, line in zip(requests, file):
                request["tokens"] = json.loads(line)["answers"][0]["tokens"]
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run([options.program, options.model], input=lines, stdout=subprocess.PIPE, text=True, check=True)
    with open(options.output, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as zipped:
        zipped.write(done.stdout.encode())


if __name__ == "__main__":
    main()
