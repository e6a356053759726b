#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The code in README.md and in the how-to pages must work, and the commands in all pages must exist.

  check_readme.py BUILD

```cpp blocks with a main() are built against an installation and run (with SmolLM2 as the argument, if it is
there); those without are compiled as the body of a function. ```sh blocks are not run: each `make X` must name a target
of the Makefile, each `longspec SUBCOMMAND --option` what the program's help lists. Measurements are of their day, so
their commands are not looked at.
"""

from pathlib import Path
import re
import shlex
import sys
import tempfile

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "install"))
from installation import MODEL, ROOT, SKIPPED, Failure, build_programs, exit_status, install, run  # noqa: E402

FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELL = {"sh", "bash", "shell", "console"}
SEPARATORS = {"|", "||", "&&", ";", "&", ">", ">>", "<", "2>"}


def blocks(path):
    """(line, language, text) of each fenced block."""
    text = path.read_text(encoding="utf-8")
    return [(text[:match.start()].count("\n") + 1, match[1], match[2]) for match in FENCE.finditer(text)]


# --- Commands ---

def shell_words(text):
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(lexer)


def command_lines(text):
    """The words of each line of a shell block; a line goes on to where its quotes close."""
    open_line = ""
    for line in text.replace("\\\n", " ").split("\n"):
        line = open_line + re.sub(r"^\s*\$ ", "", line)
        try:
            yield shell_words(line)
            open_line = ""
        except ValueError:  # no closing quotation
            open_line = line + "\n"
    if open_line:
        raise Failure(f"a quote never closes: {open_line.strip()}")


def commands(text):
    """Each simple command of a shell block as its words."""
    for line in command_lines(text):
        words = []
        for word in line:
            if word in SEPARATORS:
                yield words
                words = []
            else:
                words.append(word)
        yield words


def without_environment(words):
    while words and (re.match(r"\w+=", words[0]) or words[0] in ("sudo", "time")):
        words = words[1:]
    return words


def make_targets():
    return set(re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def unknown_targets(words):
    known = make_targets()
    named = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return [f"the Makefile has no target {name}" for name in named if name not in known]


class Help:
    """What `longspec [SUBCOMMAND] --help` says."""

    def __init__(self, program):
        self.program, self.texts = program, {}

    def text(self, *subcommand):
        if subcommand not in self.texts:
            self.texts[subcommand] = run([self.program, *subcommand, "--help"])
        return self.texts[subcommand]

    def knows(self, word, *subcommand):
        return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", self.text(*subcommand)) is not None

    def unknown(self, words):
        """What of a longspec command line its help does not list."""
        subcommand = [word for word in words[1:2] if not word.startswith("-")]
        if subcommand and not self.knows(subcommand[0]):
            return [f"longspec has no subcommand {subcommand[0]}"]
        options = [word.split("=")[0] for word in words[1 + len(subcommand):] if re.match(r"--?[a-zA-Z]", word)]
        where = " ".join(["longspec", *subcommand])
        return [f"{where} has no option {option}" for option in options if not self.knows(option, *subcommand)]


def check_commands(path, program_help):
    for line, language, text in blocks(path):
        if language not in SHELL:
            continue
        for words in map(without_environment, commands(text)):
            problems = []
            if words and words[0] == "make":
                problems = unknown_targets(words)
            elif words and Path(words[0]).name == "longspec":
                problems = program_help.unknown(words)
            for problem in problems:
                yield f"{path.relative_to(ROOT)}:{line}: {problem}"


# --- C++ ---

def write_sources(paths, work):
    """The C++ blocks as files: (programs, snippets)."""
    programs, snippets = [], []
    for path in paths:
        page = path.relative_to(ROOT)
        for line, language, text in blocks(path):
            if language not in ("cpp", "c++"):
                continue
            file = work / f"{re.sub(r'[^a-z]', '_', page.stem.lower())}_{line}.cc"
            if re.search(r"\bint main\(", text):
                file.write_text(f'#line {line + 1} "{page}"\n{text}', encoding="utf-8")
                programs.append(file)
            else:
                begin = f'#include "longspec/engine.h"\nvoid Snippet{line}() {{\n#line {line + 1} "{page}"\n'
                file.write_text(f"{begin}{text}}}\n", encoding="utf-8")
                snippets.append(file)
    return programs, snippets


def check_code(paths, prefix, work):
    programs, snippets = write_sources(paths, work)
    if not programs and not snippets:
        return 0
    folder = build_programs(prefix, work / "build", programs, snippets)
    if MODEL.exists():
        for source in programs:
            if not run([folder / source.stem, MODEL]).strip():
                raise Failure(f"the program of {source.stem} (page and line) printed nothing")
    return len(programs) + len(snippets)


def check(build):
    readme = ROOT / "README.md"
    if not readme.exists():
        print("there is no README.md yet")
        return SKIPPED
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        if not install(build, work / "prefix"):
            print("nothing is installed yet")
            return SKIPPED
        program_help = Help(work / "prefix" / "bin" / "longspec")
        how_to = sorted((ROOT / "docs" / "how-to").glob("*.md"))
        documents = [readme, ROOT / "HACKING.md", *sorted((ROOT / "docs").glob("*.md")), *how_to,
                     *sorted((ROOT / "models").glob("*/README.md"))]
        problems = [problem for path in documents if path.exists() for problem in check_commands(path, program_help)]
        print("\n".join(problems))
        code = check_code([readme, *how_to], work / "prefix", work)
        print(f"{code} blocks of C++ in README.md and docs/how-to work")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(exit_status(lambda: check(Path(sys.argv[1]).resolve())))
