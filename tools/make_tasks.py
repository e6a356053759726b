#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what tools/compare_tasks.py asks: tasks that people have, as requests to a server, one JSON object a line.

  tools/make_tasks.py --data FOLDER --out tasks.jsonl

FOLDER holds FAMILY.jsonl.gz files as `longspec eval` reads them (docs/how-to/evaluate.md). Texts are taken in their
order, of as many kinds (languages of code, sources of reports) as there are.
"""

import argparse
import gzip
import json
from pathlib import Path
import sys

CHARS_A_TOKEN = 4
FIM = "<|fim_prefix|>{prefix}<|fim_suffix|>{suffix}<|fim_middle|>"
HOLE_CHARS = 240  # of the middle that is to be filled in; it ends with a line
SCHEMA = {
    "type": "object", "additionalProperties": False, "required": ["title", "agency", "years", "findings"],
    "properties": {
        "title": {"type": "string", "maxLength": 120}, "agency": {"type": "string"},
        "years": {"type": "array", "items": {"type": "integer"}, "maxItems": 8},
        "findings": {"type": "array", "minItems": 2, "maxItems": 5, "items": {
            "type": "object", "additionalProperties": False, "required": ["topic", "quote"],
            "properties": {"topic": {"type": "string"}, "quote": {"type": "string"}}}}}}


def read_family(folder, family):
    with gzip.open(folder / f"{family}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def of_length(examples, tokens, kind=lambda example: None):
    """Those of about so many tokens, their kinds in turn."""
    by_kind = {}
    for example in examples:
        if 0.7 * tokens < len(example["prompt_text"]) / CHARS_A_TOKEN < 1.4 * tokens:
            by_kind.setdefault(kind(example), []).append(example)
    turns = max((len(each) for each in by_kind.values()), default=0)
    return [each[turn] for turn in range(turns) for each in by_kind.values() if turn < len(each)]


def chat(text, **fields):
    return {"messages": [{"role": "user", "content": text}], **fields}


def with_document(question, text):
    return chat(f"{question}\n\n{text}")


# --- One function a kind of task: the body of a request. A body with "messages" is a chat. ---

def go_on(example):
    return {"prompt": example["prompt_text"]}


def fill_in(example):
    hole = example["reference"].index("\n", HOLE_CHARS) + 1
    return {"prompt": FIM.format(prefix=example["prompt_text"], suffix=example["reference"][hole:])}


def edit(example):
    code = example["prompt_text"][-2400:]
    code = code[code.index("\n") + 1:] + example["reference"].rsplit("\n", 1)[0]
    return with_document("Add a comment of one line before every function of this code that says what it does. Change "
                         "nothing else. Answer with the whole code.", f"```{example['language']}\n{code}\n```")


def question(example):
    return with_document("Which problems does this report name, and what does it recommend? Answer in a list; quote "
                         "the report where you can.", example["prompt_text"])


def summary(example):
    return with_document("Write a summary of this report in about 150 words.", example["prompt_text"])


def instructed(example):
    return with_document(example["instruction"], example["prompt_text"])


def talk(example):
    return chat(example["prompt_text"])


def by_schema(example):
    format_ = {"type": "json_schema", "json_schema": {"name": "report", "strict": True, "schema": SCHEMA}}
    return {**with_document("Fill in the form about this report.", example["prompt_text"]), "response_format": format_}


LANGUAGE = lambda example: example["language"]
# Name, family, tokens (0: any), what tells kinds apart, the request.
TASKS = (
    *(("go on with a file", "code_completion", length, LANGUAGE, go_on) for length in (1000, 4000, 8000, 16000)),
    ("fill in the middle", "code_completion", 2000, LANGUAGE, fill_in),
    ("edit a file", "code_completion", 1000, LANGUAGE, edit),
    *(("question about a report", "gov_report", length, None, question) for length in (4000, 16000, 30000)),
    *(("summary of a report", "gov_report", length, None, summary) for length in (4000, 16000)),
    *(("summary of a meeting", "meeting_qmsum", length, None, instructed) for length in (4000, 16000)),
    ("chat", "mt_bench", 0, lambda example: example["category"], talk),
    ("JSON by a schema", "gov_report", 1000, None, by_schema),
)


def make_tasks(folder, prompts):
    for name, family, tokens, kind, body in TASKS:
        examples = read_family(folder, family)
        if tokens:
            examples = of_length(examples, tokens, kind or (lambda example: None))
        else:
            examples = list({kind(example): example for example in reversed(examples)}.values())[::-1]
        for example in examples[:prompts]:
            yield {"task": name, "tokens": tokens, "source": example["id"], "body": body(example)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of FAMILY.jsonl.gz files")
    parser.add_argument("--prompts", type=int, default=3, help="of each task and length (default: 3)")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    try:
        lines = [json.dumps(task) + "\n" for task in make_tasks(options.data, options.prompts)]
        options.out.write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        print(f"make_tasks: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    print(f"{len(lines)} tasks in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
