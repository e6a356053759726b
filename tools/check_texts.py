#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what no compiler does: licence lines, links and lines of Markdown, pages that comments cite, syntax of
scripts, leftovers.

  check_texts.py [ROOT]
"""

import ast
from pathlib import Path
import re
import subprocess
import sys

SPDX = "SPDX-License-Identifier: Apache-2.0"
CODE = {".h", ".cc", ".cu", ".cuh", ".py", ".sh"}
# A marker of unfinished work, spelled so that this file does not hold it.
LEFTOVER = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")
# A page that a comment names.
CITATION = re.compile(r"(?<![\w/.-])[\w/-]+\.md\b")
WRITTEN = {"report.md"}  # pages that programs write
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
MAX_LINES = 1000
MAX_LINE = 120  # characters, of pages and scripts; clang-format has C++'s


def tracked(root):
    """Files that git knows or would add; never what was built. Without git (an archive), all but build/ and models/."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root,
                            capture_output=True, check=False)
    if listed.returncode == 0:
        names = set(listed.stdout.decode("utf-8").split("\0")) - {""}
    else:
        names = {str(path.relative_to(root)) for path in root.rglob("*")}
        names = {name for name in names if name.split("/")[0] not in ("build", "models", "third_party", ".git")}
    return [root / name for name in sorted(names) if (root / name).is_file()]


def interpreter(path, text):
    if path.suffix in (".sh", ".py"):
        return path.suffix[1:]
    first = text.split("\n", 1)[0]
    return next((kind for kind in ("python3", "bash", "sh") if first.startswith("#!") and first.endswith(kind)), None)


def check_script(path, text):
    kind = interpreter(path, text)
    if kind in ("py", "python3"):
        try:
            ast.parse(text, filename=str(path))
        except SyntaxError as error:
            yield error.lineno, error.msg
    elif kind in ("sh", "bash"):
        done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            yield 1, done.stderr.strip().split("\n")[0]


def cited_pages(line, is_script):
    """The pages that the comment of a line names; links to other places are not pages."""
    comment = re.search(r"^\s*#.*" if is_script else r"//.*", line)
    return CITATION.findall(comment[0]) if comment and "://" not in line else []


def check_code(path, text, pages):
    if SPDX not in "\n".join(text.split("\n")[:3]):
        yield 1, f"one of the first lines must say: {SPDX}"
    if (lines := text.count("\n")) > MAX_LINES:
        yield lines, f"{lines} lines; more than {MAX_LINES} ask for a split"
    is_script = interpreter(path, text) is not None
    for number, line in enumerate(text.split("\n"), 1):
        if match := LEFTOVER.search(line):
            yield number, f"{match[1]}: finish it or open an issue"
        for page in cited_pages(line, is_script):
            if page not in WRITTEN and not any(f"/{name}".endswith(f"/{page}") for name in pages):
                yield number, f"cites {page}, a page that is not here"


def without_code(text):
    """Fenced blocks become empty lines."""
    return re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)


def anchors(text):
    """The names by which headings of a page can be linked to."""
    headings = re.findall(r"^#+ +(.*?) *$", without_code(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_link(path, text, target):
    name, _, part = target.partition("#")
    if "://" in name or name.startswith("mailto:"):
        return None
    page = path.parent / name if name else path
    if not page.exists():
        return f"link to {name}, which does not exist"
    if part and page.suffix == ".md":
        if part not in anchors(page.read_text(encoding="utf-8") if name else text):
            return f"link to {target}, a heading that does not exist"
    return None


def check_markdown(path, text):
    prose = without_code(text)
    for link in LINK.finditer(prose):
        if message := check_link(path, text, link[1]):
            yield prose.count("\n", 0, link.start()) + 1, message


def check_line_lengths(text):
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > MAX_LINE:
            yield number, f"{len(line)} characters; a line has at most {MAX_LINE}"


def check_file(path, pages=()):
    """`pages`: the names of all pages, which comments may cite."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    script = interpreter(path, text)
    if path.suffix in CODE or script:
        yield from check_code(path, text, pages)
    if script:
        yield from check_script(path, text)
    if path.suffix == ".md":
        yield from check_markdown(path, text)
    if path.suffix == ".md" or script:
        yield from check_line_lengths(text)
    if (path.suffix in CODE | {".md", ".txt", ".cmake"} or script) and text and not text.endswith("\n"):
        yield text.count("\n") + 1, "the last line does not end"


def main(arguments):
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    errors, checked = 0, 0
    paths = tracked(root)
    pages = [str(path.relative_to(root)) for path in paths if path.suffix == ".md"]
    for path in paths:
        if "testdata" in path.parts or "golden" in path.parts:
            continue
        checked += 1
        for line, message in check_file(path, pages):
            errors += 1
            print(f"{path.relative_to(root)}:{line}: {message}")
    if not errors:
        print(f"{checked} files are in order")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
