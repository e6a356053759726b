#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that a module includes only lower floors, and that CMake's DEPS say the same as the includes.

  check_layers.py [ROOT]

Rules (docs/architecture.md):
  1. A library file of src/M includes only M itself and modules of lower floors.
  2. Every included module is reachable through M's DEPS; tests may use TEST_DEPS as well and have no floor.
  3. Every direct DEPS is on a lower floor and is included by the module; likewise TEST_DEPS by its tests.
  4. Files of src/ are named from src/ ("kv/kv_cache.h"), never relative to the including file.
  5. Public headers include only public headers; examples include only them. Each belongs to a module, and including it
     counts as including that module.
"""

from pathlib import Path
import re
import sys

FLOORS = (
    ("base", "json"),
    ("tensor", "tree", "tokenizer", "jinja", "chart", "chat", "pattern", "gzip"),
    ("formats", "kernels", "grammar"),
    ("attention", "sampling", "cuda"),
    ("kv", "verify", "network"),
    ("model",),
    ("draft", "gpu"),
    ("draft_text", "policy"),
    ("draft_model",),
    ("decode",),
    ("engine", "lab"),
    ("api",),
    ("server", "bench", "eval", "features"),
    ("http",),
    ("cli",),
)
FLOOR = {module: floor for floor, modules in enumerate(FLOORS) for module in modules}
# The trainer stands beside the tower: nothing includes it, and it sees only these.
SIDE = {"train": {"base", "tensor", "formats", "kernels", "tokenizer", "tree", "network"}}
# The module a public header belongs to; what is declared in those of base needs no library.
PUBLIC = {
    "longspec/status.h": "base",
    "longspec/options.h": "base",
    "longspec/infill.h": "base",
    "longspec/stats.h": "base",
    "longspec/version.h": "base",
    "longspec/generation.h": "base",
    "longspec/engine.h": "engine",
    "longspec/scheduler.h": "engine",
}

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
SOURCES = {".h", ".cc", ".cu", ".cuh", ".inc"}


def is_test(path):
    return path.stem.endswith(("_test", "_fuzz", "_bench")) or "testing" in path.parts


def includes_of(path):
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if match := INCLUDE.match(line):
                yield number, match.group(1)


def source_files(folder):
    return sorted(path for path in folder.rglob("*") if path.suffix in SOURCES)


class Module:
    """What a module's CMakeLists.txt declares; `line` is that of the declaration."""

    def __init__(self, name, cmake, line, deps, test_deps):
        self.name, self.cmake, self.line = name, cmake, line
        self.deps, self.test_deps = deps, test_deps


def parse_module(cmake):
    """The longspec_module(...) of a CMakeLists.txt, or None."""
    text = re.sub(r"#[^\n]*", "", cmake.read_text(encoding="utf-8"))
    match = re.search(r"\blongspec_module\s*\(([^)]*)\)", text)
    if not match:
        return None
    words = match.group(1).split()
    lists = {"DEPS": [], "TEST_DEPS": []}
    current = None
    for word in words[1:]:
        if word in ("SOURCES", "UNITY", "ALONE", "COLD", "DEPS", "LIBS", "TEST_DEPS", "TEST_LIBS"):
            current = lists.get(word)
        elif current is not None:
            current.append(word)
    return Module(words[0], cmake, text[:match.start()].count("\n") + 1, lists["DEPS"], lists["TEST_DEPS"])


class Checker:
    def __init__(self, root):
        self.root = root
        self.errors = []
        self.folders = sorted(path.name for path in (root / "src").iterdir() if path.is_dir())
        self.modules = {}
        for name in self.folders:
            cmake = root / "src" / name / "CMakeLists.txt"
            if cmake.exists() and (module := parse_module(cmake)):
                self.modules[name] = module

    def error(self, path, line, message):
        self.errors.append(f"{path.relative_to(self.root)}:{line}: {message}")

    def closure(self, names):
        reached, pending = set(), list(names)
        while pending:
            name = pending.pop()
            if name not in reached:
                reached.add(name)
                pending += self.modules[name].deps if name in self.modules else []
        return reached

    def may_include(self, module, other):
        if module in SIDE:
            return other in SIDE[module]
        return other in FLOOR and FLOOR[other] < FLOOR[module]

    def check_use(self, path, line, module, other, reachable):
        """A file of `module` includes something of `other`."""
        if not is_test(path) and not self.may_include(module, other):
            self.error(path, line, f"{module} (floor {FLOOR.get(module, 'side')}) must not include {other} "
                                   f"(floor {FLOOR.get(other, 'side')}): only lower floors")
        elif other in self.modules and reachable is not None and other not in reachable:
            lists = "TEST_DEPS" if is_test(path) else "DEPS"
            self.error(path, line, f"{module} includes {other}, which its {lists} do not reach; add it in "
                                   f"src/{module}/CMakeLists.txt")

    def check_include(self, path, line, module, target, reachable):
        """One #include "target" of a file of `module`. Returns the module it names, if another one."""
        folder = target.split("/")[0]
        other = PUBLIC.get(target) if folder == "longspec" else folder
        if other is None:
            self.error(path, line, f"{target} belongs to no module; name one in tools/check_layers.py")
        elif folder != "longspec" and (folder not in self.folders or "/" not in target):
            if (path.parent / target).exists():
                self.error(path, line, f'"{target}" must be named from src/')
            return None
        elif other != module and (folder != "longspec" or FLOOR[other] > 0):
            self.check_use(path, line, module, other, reachable)
        return other

    def check_declared(self, module, used, test_used):
        for dep in module.deps + module.test_deps:
            if dep not in self.folders:
                self.error(module.cmake, module.line, f"{module.name}: there is no module {dep}")
        for dep in module.deps:
            if dep in self.folders and not self.may_include(module.name, dep):
                self.error(module.cmake, module.line, f"{module.name}: DEPS {dep} is not on a lower floor")
            elif dep in self.folders and dep not in used:
                self.error(module.cmake, module.line, f"{module.name}: DEPS {dep} is not included by any of its files")
        for dep in module.test_deps:
            if dep in self.folders and dep not in test_used:
                self.error(module.cmake, module.line, f"{module.name}: TEST_DEPS {dep} is not included by any test")

    def check_module(self, name):
        if name not in FLOOR and name not in SIDE:
            self.error(self.root / "src" / name, 0, f"{name} has no floor; give it one in tools/check_layers.py")
            return
        module = self.modules.get(name)
        reachable = self.closure(module.deps) if module else None
        test_reachable = self.closure(module.deps + module.test_deps) if module else None
        used, test_used = set(), set()
        for path in source_files(self.root / "src" / name):
            test = is_test(path)
            for line, target in includes_of(path):
                other = self.check_include(path, line, name, target, test_reachable if test else reachable)
                (test_used if test else used).add(other)
        if module:
            self.check_declared(module, used, test_used)

    def check_public_files(self):
        for folder in ("include", "examples"):
            if not (self.root / folder).exists():
                continue
            for path in source_files(self.root / folder):
                for line, target in includes_of(path):
                    if not target.startswith("longspec/"):
                        self.error(path, line, f'"{target}" is not a public header; '
                                               'only include/longspec may be used here')

    def run(self):
        for name in self.folders:
            self.check_module(name)
        self.check_public_files()
        return self.errors


def main(arguments):
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    checker = Checker(root.resolve())
    errors = checker.run()
    for error in errors:
        print(error)
    if not errors:
        print(f"{len(checker.folders)} modules keep to their floors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
