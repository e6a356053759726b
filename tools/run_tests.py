#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds and runs the tests; the last line is `N passed, N failed` (and `, N skipped` if some were).

  run_tests.py [STAGE...]       if none is named: checks ci trainer dev tsan fuzz installed

  checks     programs that read the tree: floors, texts, format, the tools' own tests, what must not compile
  ci         every test of the optimised build, warnings as errors
  trainer    longspec-train and its tests; fetches LibTorch into .venv when it is not there (LONGSPEC_SKIP_TRAINER
             leaves all out)
  dev        the tests of ci under AddressSanitizer and UBSan, without the slow tests and those of DEV_LEFT_OUT
  tsan       the modules that share memory between threads under ThreadSanitizer, without the slow tests
  fuzz       every fuzz target of dev for LONGSPEC_FUZZ_SECONDS (20; 0 leaves them out; those of requests three times
             as long), as many at a time as there are cores
  installed  a consumer of the installed library, the code of README.md, and instruction counts
  real       the coder models, which people use (make model, make model MODEL=coder-0.5b), and Gemma: facts of others,
             self-check, long prompts; only if named, and skipped without them
  arm        the modules below the engine, cross-compiled for AArch64, under emulation and without the slow tests;
             only if named

Each GoogleTest case, Python test, fuzz target and check counts as one test; so does a build that fails and a program
that crashes. Exit status 0 only if at least one test ran and none failed.
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
import subprocess
import sys
import tempfile
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
                                "DraftModelTest.EveryWayOfSamplingLeavesTheTextAsItIs"),
                "kernels_test": ("*/GumbelTest.NearlyEqualKeys*", "*/GumbelTest.*ForManySeeds/*",
                                 "GumbelCasesTest.*", "GumbelReferenceTest.AnyTokenIsDrawn*",
                                 "*/MatmulTest.RowsAndGroupsAreIndependent/cuda*"),
                "bench_test": ("BenchTest.SelfcheckCatchesKernels*",), "model_test": ("NotFinite.OneBrokenWeight*",),
                "attention_test": ("Attention.KeysSummedTogetherCutAnywhere",),
                "draft_test": ("OptTree.IsTheBestOfAllExploredNodes",),
                "eval_test": ("EveryDraftersProposals.AreTheSameInAnEvaluation", "EveryDraftersProposals.AreTheSameInAFork",
                              "EveryDraftersProposals.AreTheSameInABatchThatSharesABeginning"),
                "draft_text_test": ("*.*ATokenCosts*", "NgramPriorTest.NodesMayHaveManyChildren",
                                    "*.CountsWhatAScanCounts"),
                "draft_model_test": ("EagleExtended.WithRoomForEverything*", "EagleExtended.BelowTheGate*",
                                     "EagleExtended.ItSeesTheNaiveChoice", "EagleDrafters.SameBits*",
                                     "LongspecDrafterTest.SameBits*", "LmDrafterTest.SameTokens*",
                                     "LongspecTree.BeamsAreTheSpecifications",
                                     "EagleMemory.ABeginningThatAnother*", "EagleTree.ReducedHeads*",
                                     "DraftsTogether.DraftsOfStates*", "DraftsTogether.DraftsOfALanguageModel*",
                                     "*EveryHead.TheTextIsThatOfPlainDecodingInBatchesToo*")}
# Tests of the optimised build that compare times: they have the machine for themselves.
TIMED_TESTS = {"draft_text_test": ("*.*ATokenCosts*",)}
# What strangers send to a server: three times as long.
FUZZ_LONGER = ("openai_request_fuzz", "other_request_fuzz")
# Longest first: what is begun last is short, and no core waits for it.
LONG = ("engine_test", "draft_model_test", "kernels_test", "model_test", "golden_test", "attention_test", "decode_test",
        "eval_test", "test_cli.py", "test_server_faults.py", "test_server.py", "test_draft_models.py",
        "test_structured_output.py", "test_kept_schemas.py", "test_batch.py", "test_sessions.py", "test_dice.py")
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

def build(preset, targets, tally):
    """Shows ninja's progress. True if all was built."""
    if targets != CONFIGURED:
        print(f"building {preset}", flush=True)
    began = time.monotonic()
    status = subprocess.run(["tools/build.sh", preset, *targets], cwd=ROOT, stdin=subprocess.DEVNULL,
                            check=False).returncode
    if status != 0:
        tally.add(f"build of {preset}", 0, [("", "see the compiler's messages above")], 0, time.monotonic() - began)
    return status == 0


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


def add_all_on_cores(result_of_one, items, tally):
    """As many at once as there are cores, each on one of its own, which `result_of_one` is given as well. Programs
    that take a thread for each core wait for each other where several do so on the same cores."""
    free = queue.SimpleQueue()
    for core in sorted(os.sched_getaffinity(0)):
        free.put(core)

    def run_one(item):
        core = free.get()
        try:
            return result_of_one(item, core)
        finally:
            free.put(core)

    add_all(run_one, items, cores(), tally)


def run_programs(preset, programs, environment, tally, left_out=None, own_cores=True):
    """`left_out`: GoogleTest patterns by the program's name."""
    def run_one(program, core):
        path = BUILD / preset / program
        patterns = (left_out or {}).get(path.name, ())
        options = [f"--gtest_filter=-{':'.join(patterns)}"] if patterns else []
        return result_of(f"{preset}/{path.name}", [path, *options], environment, core)

    if own_cores:
        add_all_on_cores(run_one, longest_first(programs), tally)
    else:
        add_all(lambda program: run_one(program, None), longest_first(programs), cores(), tally)


def result_of_check(name, command):
    """What Tally.add wants to know."""
    began = time.monotonic()
    status, output = run(command)
    seconds = time.monotonic() - began
    failures = [] if status in (0, SKIPPED) else [("", f"{tail(output)}\n{ending(status)}")]
    return name, int(status == 0), failures, int(status == SKIPPED), seconds


def run_check(name, command, tally):
    tally.add(*result_of_check(name, command))


def checks(tally):
    print("checks", flush=True)
    named = sorted(glob.glob("tools/*_test.py", root_dir=ROOT))
    # load_test.py is a tool, which has a test
    tests = [path for path in named if path.replace(".py", "_test.py") not in named]
    work = [functools.partial(result_of_check, *check) for check in CHECKS]
    work += [functools.partial(result_of_unittest, path, path, {}) for path in tests]
    add_all(lambda result: result(), work, cores(), tally)


def run_end_to_end(preset, environment, tally):
    """Tests of the program as its users run it."""
    everywhere = {"LONGSPEC_BIN": str(BUILD / preset / "longspec"), **environment}
    add_all_on_cores(lambda path, core: result_of_unittest(f"{preset}/{Path(path).name}", path, everywhere, core),
                     longest_first(glob.glob("tests/e2e/test_*.py", root_dir=ROOT)), tally)


def ci(tally):
    if build("ci", [], tally):
        programs = targets_of("ci", r"tests/\w+_test")
        run_programs("ci", programs, {}, tally, TIMED_TESTS)
        for program in programs:
            path = BUILD / "ci" / program
            if timed := TIMED_TESTS.get(path.name):
                run_program(f"ci/{path.name}, timed", [path, f"--gtest_filter={':'.join(timed)}"], {}, tally)
        # Costs are kept where they were measured with nothing beside: else each process measures them again.
        if MODEL.exists():
            run([str(BUILD / "ci" / "longspec"), "run", "-m", str(MODEL), "-p", "Hello", "-n", "1"], TEST_ENVIRONMENT,
                core=min(os.sched_getaffinity(0)))
        run_end_to_end("ci", {}, tally)


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
            add_all_on_cores(lambda result, core: result(core=core), work, tally)
    finally:  # what other stages find is never an older trainer
        configure_trainer(False)
        for program in programs:
            program.unlink(missing_ok=True)


def sanitized(preset, wanted, tally, left_out=None, own_cores=True):
    """True if all that is wanted was built."""
    if not build(preset, CONFIGURED, tally):
        return False
    targets = [target for target in targets_of(preset, r"tests/\w+_test|longspec|tools/make_tiny_model")
               if wanted(Path(target).name)]
    if not targets or not build(preset, targets, tally):
        return False
    programs = [target for target in targets if target.endswith("_test")]
    run_programs(preset, programs, {"LONGSPEC_SKIP_SLOW": "1"}, tally, left_out, own_cores)
    return True


def dev(tally):
    if sanitized("dev", lambda name: True, tally, DEV_LEFT_OUT):
        # SmolLM2 takes minutes here; what the program does with bad input takes none.
        run_end_to_end("dev", {"LONGSPEC_MODEL": "/nonexistent", "LONGSPEC_SKIP_SLOW": "1"}, tally)


def tsan(tally):
    # Threads that share a core are never in the same place at once.
    sanitized("tsan", lambda name: name in TSAN_PROGRAMS, tally, TSAN_PROGRAMS, own_cores=False)


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


def fuzz(tally):
    seconds = int(os.environ.get("LONGSPEC_FUZZ_SECONDS", "20"))
    if seconds <= 0 or not build("dev", CONFIGURED, tally):
        return
    programs = targets_of("dev", r"fuzz/\w+_fuzz")
    if programs and build("dev", programs, tally):
        longer_first = sorted(programs, key=lambda program: Path(program).name not in FUZZ_LONGER)
        add_all(lambda program: fuzz_one(BUILD / "dev" / program, seconds), longer_first, cores(), tally)


def installed(tally):
    if build("ci", [], tally):
        for name, command in INSTALLED_CHECKS:
            run_check(name, command, tally)


def real(tally):
    if not CODER.exists():
        print(f"{CODER} is not there: make model fetches it", flush=True)
    if build("ci", ["longspec", "tests/golden_test"], tally):
        program = BUILD / "ci" / "tests" / "golden_test"
        run_program("real/golden_test", [program, "--gtest_filter=Real/*:GemmaGolden.*:ToolSet.*"],
                    {"LONGSPEC_REAL": "1"}, tally)
        tally.add(*result_of_unittest("real/test_coder.py", "tests/real/test_coder.py",
                                      {"LONGSPEC_BIN": str(BUILD / "ci" / "longspec")}))


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


DEFAULT_STAGES = (checks, ci, trainer, dev, tsan, fuzz, installed)
STAGES = {stage.__name__: stage for stage in (*DEFAULT_STAGES, real, arm)}


def processor_seconds():
    """What the programs took that ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main(arguments):
    unknown = [name for name in arguments if name not in STAGES]
    if unknown:
        print(f"run_tests: unknown stage '{unknown[0]}'; known: {' '.join(STAGES)}", file=sys.stderr)
        return 2
    tally = Tally()
    stages = {name: stage for name, stage in STAGES.items()
              if name in arguments or (not arguments and stage in DEFAULT_STAGES)}
    if trainer in stages.values() and wants_trainer():
        libtorch()
    for name, stage in stages.items():
        began, used = time.monotonic(), processor_seconds()
        stage(tally)
        minutes, of_processors = (time.monotonic() - began) / 60, (processor_seconds() - used) / 60
        if slowest := SLOW_TESTS.take():
            print(f"slowest: {slowest}")
        print(f"{name}: {minutes:.1f} minutes, {of_processors:.1f} of processors", flush=True)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
