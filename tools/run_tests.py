#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds and runs the tests; the last line is `N passed, N failed` (and `, N skipped` if some were).

  run_tests.py [STAGE...]       if none is named: checks ci trainer installed, which are all tests
  run_tests.py all              these, under sanitizers, and for cards: checks ci trainer dev tsan fuzz installed cuda
  run_tests.py --build STAGE... builds what the tests of these stages need, and runs nothing

  checks     programs that read the tree: floors, texts, format, the tools' own tests, what must not compile
  ci         every test of the optimised build, warnings as errors
  trainer    longspec-train and its tests; fetches LibTorch into .venv when it is not there (LONGSPEC_SKIP_TRAINER
             leaves all out)
  dev        the tests of ci under AddressSanitizer and UBSan, without the slow tests and those of DEV_LEFT_OUT
  tsan       the modules that share memory between threads under ThreadSanitizer, without the slow tests
  fuzz       every fuzz target of dev for LONGSPEC_FUZZ_SECONDS (10; 0 leaves them out; those of requests three times
             as long), as many at a time as there are cores
  installed  a consumer of the installed library, the code of README.md, and instruction counts
  real       the coder models, which people use (make model, make model MODEL=coder-0.5b), and Gemma: facts of others,
             self-check, long prompts; only if named, and skipped without them
  cuda       where nvcc is: kernels compiled for one kind of card; if named for all kinds, and the programs are linked
  arm        the modules below the engine, cross-compiled for AArch64, under emulation and without the slow tests;
             only if named

Each GoogleTest case, Python test, fuzz target and check counts as one test; so does a build that fails and a program
that crashes. Exit status 0 only if at least one test ran and none failed.

Stages run one after another; what later ones need is built and fetched beside them, with what they leave of the
processors.
"""

from concurrent.futures import ThreadPoolExecutor
import functools
import glob
import json
import os
from pathlib import Path
import queue
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PROGRAM_TIMEOUT_S = 1200
# Costs of passes that tests measure are none of the user's.
TEST_ENVIRONMENT = {"XDG_CACHE_HOME": str(BUILD / "cache")}
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
CODER = ROOT / "models" / "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf"
SKIPPED = 77  # exit status of a check that has nothing to check
CONFIGURED = ["build.ninja"]  # what to build so that a preset is configured and nothing is compiled
# Every instruction of the kernels, and a CPU that lacks those of the fast table.
EMULATOR = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-cpu")
EMULATED_CPU, OLD_EMULATED_CPU = "max", "cortex-a72"
# What shares memory between threads, and the tests of it that only repeat for other values what one thread computes.
TSAN_PROGRAMS = {
    "base_test": (), "server_test": (), "http_test": (),
    "grammar_test": ("JsonSchema.HostileOnesAreRefused", "GrammarTest.HostileOnesEndWithinTheirTime",
                     "GrammarTest.AChainOfReferences*", "GrammarTest.RandomAnswersParse"),
    "model_test": ("LayerPrefix.RowsRunAhead*", "NotFinite.*", "WeightsCacheTest.*"),
    "decode_test": ("TinyModel.EveryDrafter*", "TinyModel.QuantisedCaches", "EveryDrafter.*", "Law.*",
                    "TrainingFree.*"),
}
# Long sums of one thread that touch no memory which shorter tests do not, and comparisons of times.
DEV_LEFT_OUT = {"recorded_test": ("PolicyOnRecordings.*",),
                "engine_test": ("Schedule.TheTableOf*", "Schedule.EverybodyEndsWhere*",
                                "DraftModelTest.EveryWayOfSamplingLeavesTheTextAsItIs",
                                "EngineOnCard.TextsAreTheCpus", "EngineOnCard.CachesOfAllTypesAreTheCpus"),
                "cli_test": ("Options.WhatHasNoEffectIsRefusedByName",),
                "decode_test": ("TinyModel.EveryDrafterUnderEveryWayOfSampling",),
                "kernels_test": ("*/GumbelTest.NearlyEqualKeys*", "*/GumbelTest.*ForManySeeds/*",
                                 "*/GumbelTest.*ForVocabularies/*",
                                 "*/GumbelTest.EqualsTheReferenceForEveryLength/cuda*",
                                 "GumbelCasesTest.*", "GumbelReferenceTest.AnyTokenIsDrawn*",
                                 "*/MatmulTest.RowsAndGroupsAreIndependent/cuda*"),
                "bench_test": ("BenchTest.SelfcheckCatchesKernels*",), "model_test": ("NotFinite.OneBrokenWeight*",),
                "attention_test": ("Attention.KeysSummedTogetherCutAnywhere",),
                "draft_test": ("OptTree.IsTheBestOfAllExploredNodes",),
                "eval_test": ("EveryDraftersProposals.AreTheSameInAnEvaluation",
                              "EveryDraftersProposals.AreTheSameInAFork",
                              "EveryDraftersProposals.AreTheSameInABatchThatSharesABeginning"),
                "draft_text_test": ("*.*ATokenCosts*", "NgramPriorTest.NodesMayHaveManyChildren",
                                    "*.CountsWhatAScanCounts"),
                "draft_model_test": ("EagleExtended.WithRoomForEverything*", "EagleExtended.BelowTheGate*",
                                     "EagleExtended.ItSeesTheNaiveChoice", "EagleDrafters.SameBits*",
                                     "LongspecDrafterTest.SameBits*", "LmDrafterTest.SameTokens*",
                                     "LongspecTree.BeamsAreTheSpecifications",
                                     "DraftsOnCard.OfTokens*", "DraftsOnCard.OfPartsOfTheCache*",
                                     "EagleMemory.ABeginningThatAnother*", "EagleTree.ReducedHeads*",
                                     "DraftsTogether.DraftsOfStates*", "DraftsTogether.DraftsOfALanguageModel*",
                                     "*EveryHead.TheTextIsThatOfPlainDecodingInBatchesToo*")}
# Tests of the optimised build that compare times: they have the machine for themselves.
TIMED_TESTS = {"draft_text_test": ("*.*ATokenCosts*",)}
# What strangers send to a server: three times as long.
FUZZ_LONGER = ("openai_request_fuzz", "other_request_fuzz")
# Longest first: what is begun last is short, and no core waits for it.
LONG = ("test_cli.py", "test_kept_schemas.py", "kernels_test", "test_server_faults.py", "golden_test",
        "draft_model_test", "engine_test", "test_server.py", "attention_test", "decode_test", "model_test",
        "test_draft_models.py", "test_agents.py", "grammar_test", "bench_test", "test_page.py", "eval_test",
        "cli_test", "test_features.py", "verify_test", "recorded_test", "test_dice.py", "test_recorded.py",
        "server_test", "draft_text_test", "tokenizer_test", "test_sessions.py", "test_structured_output.py")
CHECKS = (
    ("floors", [sys.executable, "tools/check_layers.py"]),
    ("texts", [sys.executable, "tools/check_texts.py"]),
    ("format", [sys.executable, "tools/check_format.py"]),
    ("evidence of kernels on a card", [sys.executable, "tools/kernel_evidence.py"]),
    ("misuse does not compile", [sys.executable, "tests/compile_fail/check_compile_fail.py"]),
)
INSTALLED_CHECKS = (
    ("installed library", [sys.executable, "tests/install/check_install.py", "build/ci"]),
    ("README", [sys.executable, "tests/readme/check_readme.py", "build/ci"]),
    ("instruction counts", [sys.executable, "tests/instructions/check_instructions.py", "build/ci"]),
)


class Tally:
    """Counts results, shows each program's, and shows at once what failed."""

    def __init__(self):
        self.passed, self.skipped = 0, 0
        self.failed = []

    def add(self, name, passed, failures, skipped, seconds):
        """`failures` is a list of (test name, output)."""
        self.passed += passed
        self.skipped += skipped
        self.failed += [f"{name}: {test}" if test else name for test, _ in failures]
        counts = [f"{passed} passed"] if passed or not (failures or skipped) else []
        counts += [f"{len(failures)} failed"] if failures else []
        counts += [f"{skipped} skipped"] if skipped else []
        print(f"  {name:<40} {', '.join(counts)} ({seconds:.1f} s)", flush=True)
        for test, output in failures:
            print(f"--- FAILED {name} {test}\n{output.rstrip()}\n---", flush=True)

    def finish(self):
        if self.failed:
            print("\nfailed:")
            for name in self.failed:
                print(f"  {name}")
        line = f"{self.passed} passed, {len(self.failed)} failed"
        print(line + (f", {self.skipped} skipped" if self.skipped else ""), flush=True)
        return 0 if self.passed > 0 and not self.failed else 1


def tail(text, lines=100):
    kept = text.splitlines()
    return "\n".join(["[...]"] * (len(kept) > lines) + kept[-lines:])


def run(command, environment=None, timeout=PROGRAM_TIMEOUT_S, core=None):
    """(exit status, output). A time-out is status 124; a program that cannot start, 127. `core`: the only one that it
    may use."""
    try:
        if core is not None:
            command = ["taskset", "--cpu-list", str(core), *command]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, check=False)
        return done.returncode, done.stdout.decode("utf-8", "replace")
    except subprocess.TimeoutExpired as late:
        return 124, (late.stdout or b"").decode("utf-8", "replace") + f"\nstopped after {timeout} s"
    except OSError as error:
        return 127, str(error)


def cores():
    return len(os.sched_getaffinity(0))


def ending(status):
    return f"killed by signal {-status}" if status < 0 else f"exit status {status}"


class SlowTests:
    """The tests that took longest, by stage: where to look when a stage grows."""

    SHOWN, LEAST_S = 8, 3.0

    def __init__(self):
        self.found = []  # (seconds, name); threads append

    def add(self, program, report):
        """Of GoogleTest's JSON."""
        for suite in report.get("testsuites", []):
            for case in suite.get("testsuite", []):
                seconds = float(case.get("time", "0s").rstrip("s"))
                if seconds >= self.LEAST_S:
                    self.found.append((seconds, f"{program} {suite['name']}.{case['name']}"))

    def take(self):
        """A line, or nothing; the next stage begins anew."""
        slowest, self.found = sorted(self.found, reverse=True)[:self.SHOWN], []
        return ", ".join(f"{name} {seconds:.0f} s" for seconds, name in slowest)


SLOW_TESTS = SlowTests()


# --- GoogleTest ---

def parse_report(report):
    """GoogleTest's JSON as (passed, [(test, output)], skipped)."""
    passed, skipped, failures = 0, 0, []
    for suite in report.get("testsuites", []):
        for case in suite.get("testsuite", []):
            name = f"{suite['name']}.{case['name']}"
            if case.get("failures"):
                failures.append((name, "\n".join(failure["failure"] for failure in case["failures"])))
            elif case.get("result") == "SKIPPED":
                skipped += 1
            elif case.get("status") == "RUN":
                passed += 1
    return passed, failures, skipped


def parse_output(output, status):
    """What a program that died did before: its last test that began and did not end is the one that failed."""
    ended = {"OK": [], "FAILED": [], "SKIPPED": []}
    running = "(no test was running)"
    for match in re.finditer(r"^\[ +(RUN|OK|FAILED|SKIPPED) +\] ([\w/]+\.[\w/]+)", output, re.MULTILINE):
        if match[1] == "RUN":
            running = match[2]
        elif match[2] == running:
            ended[match[1]].append(match[2])
            running = "(no test was running)"
    failures = [(test, "see above") for test in ended["FAILED"]]
    failures.append((running, f"{tail(output)}\n{ending(status)}"))
    return len(ended["OK"]), failures, len(ended["SKIPPED"])


def run_googletest(name, command, environment, core=None):
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        status, output = run([*map(str, command), f"--gtest_output=json:{report}"],
                             {**TEST_ENVIRONMENT, **environment}, core=core)
        try:
            parsed = json.loads(report.read_text(encoding="utf-8"))
            passed, failures, skipped = parse_report(parsed)
        except (OSError, ValueError):
            return parse_output(output, status)
    SLOW_TESTS.add(name, parsed)
    if status != 0 and not failures:  # a sanitizer's report at exit, for one
        failures.append(("(at exit)", f"{tail(output)}\n{ending(status)}"))
    return passed, failures, skipped


# --- Python's unittest ---

def parse_unittest(output, status):
    """What `python3 -m unittest` printed as (passed, [(test, output)], skipped)."""
    ran = re.search(r"^Ran (\d+) tests? in", output, re.MULTILINE)
    if not ran:
        return 0, [("", f"{tail(output)}\n{ending(status)}")], 0
    skips = re.search(r"^(?:OK|FAILED) \(.*?skipped=(\d+)", output, re.MULTILINE)
    skipped = int(skips[1]) if skips else 0
    sections = re.split(r"^={70}\n", output, flags=re.MULTILINE)[1:]
    failures = [(section.split("\n", 1)[0], tail(section)) for section in sections]
    tests = {re.sub(r" [\[(].*", "", name) for name, _ in failures}  # subtests belong to one test
    if status != 0 and not failures:
        failures.append(("", f"{tail(output)}\n{ending(status)}"))
    return max(0, int(ran[1]) - skipped - len(tests)), failures, skipped


def result_of_unittest(name, path, environment, core=None):
    """What Tally.add wants to know."""
    began = time.monotonic()
    status, output = run([sys.executable, path], {**TEST_ENVIRONMENT, **environment}, core=core)
    passed, failures, skipped = parse_unittest(output, status)
    return name, passed, failures, skipped, time.monotonic() - began


# --- Stages ---

def make(preset, targets):
    """Shows ninja's progress. True if all was built."""
    if targets != CONFIGURED:
        print(f"building {preset}", flush=True)
    return subprocess.run(["tools/build.sh", preset, *targets], cwd=ROOT, stdin=subprocess.DEVNULL,
                          check=False).returncode == 0


def build(preset, targets, tally):
    """As make(); what could not be built counts as a test that failed."""
    return whether_built(preset, functools.partial(make, preset, targets), tally)


def whether_built(name, work, tally):
    began = time.monotonic()
    done = work()
    if not done:
        tally.add(f"build of {name}", 0, [("", "see the compiler's messages above")], 0, time.monotonic() - began)
    return done


def targets_of(preset, pattern):
    """Ninja's outputs of a configured preset that match."""
    _, output = run(["ninja", "-C", str(BUILD / preset), "-t", "targets", "all"])
    return sorted(set(re.findall(rf"^({pattern}): ", output, re.MULTILINE)))


def run_program(name, command, environment, tally):
    tally.add(*result_of(name, command, environment))


def result_of(name, command, environment, core=None):
    """What Tally.add wants to know."""
    began = time.monotonic()
    passed, failures, skipped = run_googletest(name, command, environment, core)
    return name, passed, failures, skipped, time.monotonic() - began


def longest_first(programs):
    rank = {name: i for i, name in enumerate(LONG)}
    return sorted(programs, key=lambda program: (rank.get(Path(program).name, len(rank)), program))


def add_all(result_of_one, items, at_once, tally):
    """Runs so many at once, in this order."""
    with ThreadPoolExecutor(at_once) as pool:
        for result in pool.map(result_of_one, items):
            tally.add(*result)


def add_all_on_cores(items, tally):
    """As many functions at once as there are cores, in this order, each for a core of its own, which is its argument.
    Programs that take a thread for each core wait for each other where several do so on the same cores."""
    free = queue.SimpleQueue()
    for core in sorted(os.sched_getaffinity(0)):
        free.put(core)

    def run_one(item):
        core = free.get()
        try:
            return item(core)
        finally:
            free.put(core)

    add_all(run_one, items, cores(), tally)


def result_of_program(preset, environment, left_out, program, core=None):
    """`left_out`: GoogleTest patterns by the program's name."""
    path = BUILD / preset / program
    patterns = left_out.get(path.name, ())
    options = [f"--gtest_filter=-{':'.join(patterns)}"] if patterns else []
    return result_of(f"{preset}/{path.name}", [path, *options], environment, core)


def result_of_end_to_end(preset, environment, path, core=None):
    """Tests of the program as its users run it."""
    everywhere = {"LONGSPEC_BIN": str(BUILD / preset / "longspec"), **environment}
    return result_of_unittest(f"{preset}/{Path(path).name}", path, everywhere, core)


def run_everything(preset, tally, left_out, of_programs, of_end_to_end):
    """Programs and what runs the program as its users do, together: one queue has one end to wait for. The last two are
    the environments of either."""
    programs = targets_of(preset, r"tests/\w+_test")
    scripts = glob.glob("tests/e2e/test_*.py", root_dir=ROOT)
    add_all_on_cores([functools.partial(result_of_end_to_end, preset, of_end_to_end, name) if name in scripts else
                      functools.partial(result_of_program, preset, of_programs, left_out, name)
                      for name in longest_first([*programs, *scripts])], tally)


def result_of_check(name, command):
    """What Tally.add wants to know."""
    began = time.monotonic()
    status, output = run(command)
    seconds = time.monotonic() - began
    failures = [] if status in (0, SKIPPED) else [("", f"{tail(output)}\n{ending(status)}")]
    return name, int(status == 0), failures, int(status == SKIPPED), seconds


def checks(tally):
    print("checks", flush=True)
    named = sorted(glob.glob("tools/*_test.py", root_dir=ROOT))
    # load_test.py is a tool, which has a test
    tests = [path for path in named if path.replace(".py", "_test.py") not in named]
    work = [functools.partial(result_of_check, *check) for check in CHECKS]
    work += [functools.partial(result_of_unittest, path, path, {}) for path in tests]
    add_all(lambda result: result(), work, cores(), tally)


def run_alone(tally):
    """What compares times, and what is kept of times: with nothing beside."""
    for name, patterns in TIMED_TESTS.items():
        run_program(f"ci/{name}, timed", [BUILD / "ci" / "tests" / name, f"--gtest_filter={':'.join(patterns)}"], {},
                    tally)
    # Costs that were measured while others ran are not kept: each process would measure them again.
    if MODEL.exists():
        run([str(BUILD / "ci" / "longspec"), "run", "-m", str(MODEL), "-p", "Hello", "-n", "1"], TEST_ENVIRONMENT,
            core=min(os.sched_getaffinity(0)))


def ci(tally):
    if AHEAD.built("ci", tally):
        run_alone(tally)
        AHEAD.go_on()
        run_everything("ci", tally, TIMED_TESTS, {}, {})


def configure_trainer(wanted):
    """The trainer is built beside the rest of ci, whose objects it needs, and only here. True if that worked."""
    python = ROOT / os.environ.get("LONGSPEC_VENV", ".venv") / "bin" / "python"
    status, output = run(["cmake", str(BUILD / "ci"), f"-DLONGSPEC_BUILD_TRAINER={'ON' if wanted else 'OFF'}",
                          f"-DLONGSPEC_TRAINER_PYTHON={python}"])
    if status != 0:
        print(tail(output), flush=True)
    return status == 0


def wants_trainer():
    return not os.environ.get("LONGSPEC_SKIP_TRAINER")


@functools.cache
def libtorch():
    """Fetching it, which takes no processor and goes on beside other stages: a future of (exit status, output)."""
    return ThreadPoolExecutor(1).submit(run, ["tools/setup_trainer.sh", "--fetch"])


@functools.cache
def clients():
    """Fetches the clients that tests talk to the server with, as libtorch() does. A test that lacks one says why."""
    return ThreadPoolExecutor(1).submit(run, [sys.executable, "tests/e2e/client_packages.py"])


def trainer(tally):
    if not wants_trainer() or not build("ci", CONFIGURED, tally):
        return
    began = time.monotonic()
    status, output = libtorch().result()
    if status != 0 or not configure_trainer(True):
        tally.add("LibTorch for the trainer", 0, [("", tail(output))], 0, time.monotonic() - began)
        return
    programs = [BUILD / "ci" / "longspec-train", BUILD / "ci" / "longspec-write"]
    try:
        if build("ci", ["tests/train_test", "longspec", *(program.name for program in programs)], tally):
            work = [functools.partial(result_of, "ci/train_test", [BUILD / "ci" / "tests" / "train_test"], {}),
                    functools.partial(result_of_unittest, "ci/longspec-train", "tests/e2e/test_training.py",
                                      {"LONGSPEC_BIN": str(BUILD / "ci" / "longspec")})]
            add_all_on_cores(work, tally)
    finally:  # what other stages find is never an older trainer
        configure_trainer(False)
        for program in programs:
            program.unlink(missing_ok=True)


def make_some(preset, pattern, wanted=lambda name: True):
    """Builds those of a preset's targets that match. True if there are some and all were built."""
    if not make(preset, CONFIGURED):
        return False
    targets = [target for target in targets_of(preset, pattern) if wanted(Path(target).name)]
    return bool(targets) and make(preset, targets)


def dev(tally):
    if AHEAD.built("dev", tally):
        # Thirty frames of who asked for memory, which is the default, take a tenth of the time.
        environment = {"LONGSPEC_SKIP_SLOW": "1",
                       "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "malloc_context_size=12")}
        # SmolLM2 takes minutes here; what the program does with bad input takes none.
        run_everything("dev", tally, DEV_LEFT_OUT, environment, {"LONGSPEC_MODEL": "/nonexistent", **environment})


def tsan(tally):
    if AHEAD.built("tsan", tally):
        environment = {"LONGSPEC_SKIP_SLOW": "1"}
        if re.search(r"^flags\b.*\bavx2\b", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE):
            # Of wider instructions nothing is watched (src/kernels/CMakeLists.txt).
            environment["LONGSPEC_KERNELS"] = "avx2"
        # Not each on a core of its own: threads that share a core are never in the same place at once.
        add_all(functools.partial(result_of_program, "tsan", environment, TSAN_PROGRAMS),
                longest_first(f"tests/{name}" for name in TSAN_PROGRAMS), cores(), tally)


def fuzz_inputs(program):
    """Corpora for src/M/x_fuzz.cc: folders fuzz_* or *_corpus of src/M/testdata whose name shares a word with x."""
    source = next(iter(ROOT.glob(f"src/*/{program}.cc")), None)
    if source is None:
        return []
    words = set(program.removesuffix("_fuzz").split("_"))
    folders = sorted(path for path in (source.parent / "testdata").glob("*") if path.is_dir())
    named = [(path, path.name.removeprefix("fuzz_").removesuffix("_corpus")) for path in folders]
    return [path for path, name in named if name != path.name and words & set(name.split("_"))]


def fuzz_one(path, seconds):
    """What Tally.add wants to know."""
    if path.name in FUZZ_LONGER:
        seconds *= 3
    artifacts = BUILD / "dev" / "artifacts"
    artifacts.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as corpus:  # finds go to the first folder; the others are only read
        status, output = run([str(path), f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=4096",
                              "-print_final_stats=1", f"-artifact_prefix={artifacts}/{path.name}-", corpus,
                              *map(str, fuzz_inputs(path.name))], timeout=seconds + 300)
    runs = re.search(r"number_of_executed_units: (\d+)", output)
    if status == 0 and runs and int(runs[1]) > 0:
        return f"fuzz/{path.name} ({runs[1]} inputs)", 1, [], 0, time.monotonic() - began
    return f"fuzz/{path.name}", 0, [("", f"{tail(output)}\n{ending(status)}")], 0, time.monotonic() - began


def fuzz_seconds():
    return int(os.environ.get("LONGSPEC_FUZZ_SECONDS", "10"))


def fuzz(tally):
    seconds = fuzz_seconds()
    if seconds > 0 and AHEAD.built("fuzz", tally):
        programs = targets_of("dev", r"fuzz/\w+_fuzz")
        longer_first = sorted(programs, key=lambda program: Path(program).name not in FUZZ_LONGER)
        add_all(lambda program: fuzz_one(BUILD / "dev" / program, seconds), longer_first, cores(), tally)


def installed(tally):
    if build("ci", [], tally):
        add_all(lambda check: result_of_check(*check), INSTALLED_CHECKS, cores(), tally)


def real(tally):
    if not CODER.exists():
        print(f"{CODER} is not there: make model fetches it", flush=True)
    if build("ci", ["longspec", "tests/golden_test"], tally):
        program = BUILD / "ci" / "tests" / "golden_test"
        run_program("real/golden_test", [program, "--gtest_filter=Real/*:GemmaGolden.*:ToolSet.*"],
                    {"LONGSPEC_REAL": "1"}, tally)
        tally.add(*result_of_unittest("real/test_coder.py", "tests/real/test_coder.py",
                                      {"LONGSPEC_BIN": str(BUILD / "ci" / "longspec")}))


def cuda(tally):
    """All of it takes many minutes, and what a change breaks it breaks for the newest kind."""
    is_named = "cuda" in sys.argv[1:]
    result = result_of_check("device code",
                             [sys.executable, "tools/check_device_code.py", *(["80", "90"] if is_named else ["90"])])
    tally.add(*result)
    has_nvcc = not result[3]
    if is_named and has_nvcc and build("cuda", ["cuda_check", "kernels_cuda_test", "gpu_cuda_test"], tally):
        build("cuda-release", ["longspec"], tally)


def arm(tally):
    if not build("arm", CONFIGURED, tally):
        return
    programs = targets_of("arm", r"tests/\w+_test")
    if not programs or not build("arm", programs, tally):
        return
    environment = {"LONGSPEC_SKIP_SLOW": "1"}
    for program in programs:
        path = BUILD / "arm" / program
        run_program(f"arm/{path.name}", [*EMULATOR, EMULATED_CPU, path], environment, tally)
    run_program("arm/kernels_test on an older CPU",
                [*EMULATOR, OLD_EMULATED_CPU, BUILD / "arm" / "tests" / "kernels_test",
                 "--gtest_filter=DispatchTest.*"], environment, tally)


DEFAULT_STAGES = (checks, ci, trainer, installed)
ALL_STAGES = (checks, ci, trainer, dev, tsan, fuzz, installed, cuda)  # what `all` names
STAGES = {stage.__name__: stage for stage in (*ALL_STAGES, real, arm)}


# What is built for a stage before its tests run; the trainer is not, as it is configured anew in the folder of ci.
BUILDS = {
    "ci": lambda: make("ci", []),
    "dev": lambda: make_some("dev", r"tests/\w+_test|longspec|tools/make_tiny_model"),
    "tsan": lambda: make_some("tsan", r"tests/\w+_test", lambda name: name in TSAN_PROGRAMS),
    "fuzz": lambda: fuzz_seconds() <= 0 or make_some("dev", r"fuzz/\w+_fuzz"),
}


class Ahead:
    """Builds what later stages need, one after another, with what others leave of the processors: tests wait for
    connections, for each other, and in the end for the longest of them; a build waits for its last files."""

    def __init__(self):
        self.lines, self.results = {}, {}  # by stage: what is shown, a future
        self.used = 0.0  # seconds of processors
        self.quiet_over = threading.Event()
        self.is_over = False
        self.process = None

    def begin(self, stages):
        """In this order. All but ci's wait for go_on()."""
        self.lines = {stage: queue.SimpleQueue() for stage in stages}
        pool = ThreadPoolExecutor(1)
        self.results = {stage: pool.submit(self.run, stage) for stage in stages}
        pool.shutdown(wait=False)

    def go_on(self):
        """Nothing that compares times is still to come."""
        self.quiet_over.set()

    def end(self):
        """Nobody waits for what is not built."""
        self.is_over = True
        for result in self.results.values():
            result.cancel()
        if self.process is not None:
            self.process.terminate()
        self.quiet_over.set()

    def command(self, stage):
        return ["nice", "-n", "19", sys.executable, __file__, "--build", stage]

    def run(self, stage):
        show = self.lines[stage].put
        try:
            if stage != "ci":
                self.quiet_over.wait()
            if self.is_over:
                return False
            began = time.monotonic()
            with subprocess.Popen(self.command(stage), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, errors="replace") as self.process:
                if self.is_over:  # since it was asked
                    self.process.terminate()
                for line in self.process.stdout:
                    show(line.rstrip("\n"))
                _, status, usage = os.wait4(self.process.pid, 0)
                self.process.returncode = os.waitstatus_to_exitcode(status)
            seconds = usage.ru_utime + usage.ru_stime
            self.used += seconds
            show(f"built for {stage} beside others: {(time.monotonic() - began) / 60:.1f} minutes, {seconds / 60:.1f} "
                 "of processors")
            return self.process.returncode == 0
        except OSError as error:
            show(str(error))
            return False
        finally:
            show(None)

    def built(self, stage, tally):
        """Waits for a build that was begun, and shows what it says; one that was not runs now. True if all was
        built."""
        return whether_built(stage, functools.partial(self.wait, stage) if stage in self.lines else BUILDS[stage],
                             tally)

    def wait(self, stage):
        for line in iter(self.lines[stage].get, None):
            print(line, flush=True)
        return self.results[stage].result()


AHEAD = Ahead()


def processor_seconds():
    """What the programs took that ended, but for those of builds ahead."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime - AHEAD.used


def build_only(stages):
    """Status 0 if all was built."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends ninja, too
    for name in stages:
        if name in BUILDS and not BUILDS[name]():
            return 1
    return 0


def main(arguments):
    only_build = arguments[:1] == ["--build"]
    if only_build:
        arguments = arguments[1:]
    unknown = [name for name in arguments if name not in STAGES and name != "all"]
    if unknown:
        print(f"run_tests: unknown stage '{unknown[0]}'; known: all {' '.join(STAGES)}", file=sys.stderr)
        return 2
    stages = {name: stage for name, stage in STAGES.items()
              if name in arguments or (not arguments and stage in DEFAULT_STAGES)
              or ("all" in arguments and stage in ALL_STAGES)}
    if only_build:
        return build_only(stages)
    tally = Tally()
    if trainer in stages.values() and wants_trainer():
        libtorch()
    if ci in stages.values() or dev in stages.values():
        clients()
    try:
        run_stages(stages, tally)
    finally:
        AHEAD.end()
    return tally.finish()


def run_stages(stages, tally):
    # The first one's build is shown as it goes.
    AHEAD.begin([name for name in list(stages)[1:] if name in BUILDS])
    if ci not in stages.values():
        AHEAD.go_on()
    for name, stage in stages.items():
        began, used = time.monotonic(), processor_seconds()
        stage(tally)
        AHEAD.go_on()
        minutes, of_processors = (time.monotonic() - began) / 60, (processor_seconds() - used) / 60
        if slowest := SLOW_TESTS.take():
            print(f"slowest: {slowest}")
        print(f"{name}: {minutes:.1f} minutes, {of_processors:.1f} of processors", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
