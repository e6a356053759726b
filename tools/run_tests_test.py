# SPDX-License-Identifier: Apache-2.0
"""The runner must count what programs say, and above all notice what they do not live to say."""

import contextlib
import functools
import io
import os
import json
from pathlib import Path
import sys
import tempfile
import unittest
from unittest import mock

import run_tests

REPORT = {"testsuites": [{"name": "A", "testsuite": [
    {"name": "Good", "status": "RUN", "result": "COMPLETED"},
    {"name": "Bad", "status": "RUN", "result": "COMPLETED", "failures": [{"failure": "1 != 2"}]},
    {"name": "Absent", "status": "RUN", "result": "SKIPPED"},
    {"name": "DISABLED_Off", "status": "NOTRUN", "result": "SUPPRESSED"}]}]}

PYTHON = """import unittest
class T(unittest.TestCase):
    def test_a(self): pass
    def test_b(self): self.assertEqual(1, 2)
    def test_c(self): self.skipTest("x")
    def test_d(self): raise OSError("no")
unittest.main()
"""
# Stands for a GoogleTest program: takes its report's path as they do.
WRITES_REPORT = """#!/bin/sh
path=${1#--gtest_output=json:}
cat > "$path" <<'END'
%s
END
exit %d
"""
CRASHES = """#!/bin/sh
echo '[ RUN      ] A.Good'
echo '[       OK ] A.Good (0 ms)'
echo '[ RUN      ] A.Fatal'
echo 'runtime error: shift by 99'
kill -ABRT $$
"""


class RunTestsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def program(self, text):
        path = Path(self.folder.name, "fake_test")
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    def run_program(self, text):
        return run_tests.run_googletest("x", [self.program(text)], {})

    def finish(self, *results):
        tally = run_tests.Tally()
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            for result in results:
                tally.add("x", *result, 0.0)
            status = tally.finish()
        return status, shown.getvalue().rstrip("\n").split("\n")[-1]

    def test_a_report_is_counted(self):
        passed, failures, skipped = self.run_program(WRITES_REPORT % (json.dumps(REPORT), 1))
        self.assertEqual((passed, failures, skipped), (1, [("A.Bad", "1 != 2")], 1))

    def test_the_slowest_are_named_and_forgotten(self):
        slow = run_tests.SlowTests()
        cases = [{"name": name, "time": time}
                 for name, time in (("Short", "0.2s"), ("Long", "31.4s"), ("Middling", "5s"))]
        slow.add("ci/a_test", {"testsuites": [{"name": "A", "testsuite": cases}]})
        self.assertEqual(slow.take(), "ci/a_test A.Long 31 s, ci/a_test A.Middling 5 s")
        self.assertEqual(slow.take(), "")

    def test_a_crash_is_one_failure_with_its_name_and_output(self):
        passed, failures, skipped = self.run_program(CRASHES)
        self.assertEqual((passed, skipped, len(failures)), (1, 0, 1))
        self.assertEqual(failures[0][0], "A.Fatal")
        self.assertIn("runtime error: shift by 99", failures[0][1])
        self.assertIn("killed by signal 6", failures[0][1])

    def test_a_failure_at_exit_counts(self):
        clean = {"testsuites": [{"name": "A", "testsuite": [{"name": "Good", "status": "RUN", "result": "COMPLETED"}]}]}
        passed, failures, _ = self.run_program(WRITES_REPORT % (json.dumps(clean), 23))
        self.assertEqual((passed, [name for name, _ in failures]), (1, ["(at exit)"]))

    def test_a_program_that_cannot_start_counts(self):
        passed, failures, _ = run_tests.run_googletest("x", [Path(self.folder.name, "absent_test")], {})
        self.assertEqual((passed, len(failures)), (0, 1))

    def test_python_tests_are_counted(self):
        path = self.program(PYTHON)
        status, output = run_tests.run([sys.executable, str(path)])
        passed, failures, skipped = run_tests.parse_unittest(output, status)
        self.assertEqual((passed, len(failures), skipped), (1, 2, 1))
        self.assertIn("1 != 2", "".join(text for _, text in failures))

    def test_python_tests_that_do_not_start_fail(self):
        passed, failures, _ = run_tests.parse_unittest("SyntaxError: invalid syntax", 1)
        self.assertEqual((passed, len(failures)), (0, 1))

    def test_stages_outside_the_default_run_only_if_named(self):
        ran = []
        stages = {name: functools.partial(lambda name, tally: ran.append(name), name)
                  for name in ("usual", "watched", "special")}
        with mock.patch.multiple(run_tests, STAGES=stages, DEFAULT_STAGES=(stages["usual"],),
                                 ALL_STAGES=(stages["usual"], stages["watched"])), \
                contextlib.redirect_stdout(io.StringIO()):
            for arguments, expected in (([], ["usual"]), (["all"], ["usual", "watched"]), (["special"], ["special"]),
                                        (["special", "all"], ["usual", "watched", "special"])):
                ran.clear()
                run_tests.main(arguments)
                self.assertEqual(ran, expected)

    def test_all_leaves_out_none_that_runs_without_it(self):
        self.assertLess(set(run_tests.DEFAULT_STAGES), set(run_tests.ALL_STAGES))

    def test_the_trainer_is_left_out_or_fails_without_libtorch(self):
        ran = []

        def fetch(command, *_):
            ran.append(command[0])
            return 1, "no network"

        with (contextlib.redirect_stdout(io.StringIO()),
              mock.patch.multiple(run_tests, run=fetch, build=lambda *_: True)):
            left_out, failed = run_tests.Tally(), run_tests.Tally()
            with mock.patch.dict("os.environ", LONGSPEC_SKIP_TRAINER="1"):
                run_tests.trainer(left_out)
                run_tests.libtorch.cache_clear()
            self.assertEqual((ran, left_out.failed), ([], []))
            with mock.patch.dict("os.environ"):
                os.environ.pop("LONGSPEC_SKIP_TRAINER", None)
                run_tests.trainer(failed)
            self.assertEqual((ran, failed.failed), (["tools/setup_trainer.sh"], ["LibTorch for the trainer"]))

    def test_every_fuzz_target_has_the_whole_time(self):
        fuzzed = []

        def fuzzer(command, timeout):
            fuzzed.append(command)
            return (1, "crashed") if "bad" in command[0] else (0, "stat::number_of_executed_units: 7")

        tally = run_tests.Tally()
        with (tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()),
              mock.patch.dict("os.environ", LONGSPEC_FUZZ_SECONDS="31"),
              mock.patch.multiple(run_tests, BUILD=Path(folder), run=fuzzer, make=lambda *_: True,
                                  targets_of=lambda *_: ["fuzz/a_fuzz", "fuzz/bad_fuzz", "fuzz/c_fuzz"])):
            run_tests.fuzz(tally)
        self.assertEqual((tally.passed, tally.failed), (2, ["fuzz/bad_fuzz"]))
        self.assertEqual(sorted(Path(command[0]).name for command in fuzzed), ["a_fuzz", "bad_fuzz", "c_fuzz"])
        self.assertTrue(all("-max_total_time=31" in command for command in fuzzed))

    def ahead(self, **commands):
        """One whose builds are these shell commands, by stage."""
        ahead = run_tests.Ahead()
        self.addCleanup(ahead.end)
        ahead.command = lambda stage: ["sh", "-c", commands[stage]]
        ahead.begin(commands)
        return ahead

    def built(self, ahead, stage):
        """(whether all was built, what was shown, what counts as failed)"""
        tally, shown = run_tests.Tally(), io.StringIO()
        with contextlib.redirect_stdout(shown):
            done = ahead.built(stage, tally)
        return done, shown.getvalue(), tally.failed

    def test_builds_ahead_are_shown_and_counted_where_they_are_waited_for(self):
        begun = Path(self.folder.name, "begun")
        ahead = self.ahead(ci="echo one", dev=f"touch {begun}; echo two; exit 3", tsan="echo three")
        done, shown, failed = self.built(ahead, "ci")
        self.assertEqual((done, failed), (True, []))
        self.assertIn("one\n", shown)
        self.assertFalse(begun.exists())  # what compares times comes first
        ahead.go_on()
        self.assertIn("three\n", self.built(ahead, "tsan")[1])
        done, shown, failed = self.built(ahead, "dev")
        self.assertEqual((done, failed), (False, ["build of dev"]))
        self.assertIn("two\n", shown)

    def test_a_build_that_was_not_begun_runs_when_it_is_asked_for(self):
        with mock.patch.dict(run_tests.BUILDS, dev=lambda: False):
            self.assertEqual(self.built(self.ahead(), "dev")[::2], (False, ["build of dev"]))
        with mock.patch.dict(run_tests.BUILDS, dev=lambda: True):
            self.assertEqual(self.built(self.ahead(), "dev")[::2], (True, []))

    def test_a_build_ahead_that_cannot_begin_fails(self):
        ahead = run_tests.Ahead()
        ahead.command = lambda stage: ["/nonexistent/builder", stage]
        ahead.begin(["ci"])
        done, shown, failed = self.built(ahead, "ci")
        self.assertEqual((done, failed), (False, ["build of ci"]))
        self.assertIn("/nonexistent/builder", shown)

    def test_builds_ahead_end_with_the_run(self):
        ahead = self.ahead(ci="exec sleep 600", dev="exec sleep 600")
        ahead.end()
        self.assertFalse(ahead.results["ci"].result(timeout=60))
        self.assertTrue(ahead.results["dev"].cancelled() or not ahead.results["dev"].result(timeout=60))

    def test_the_last_line(self):
        self.assertEqual(self.finish((2, [], 0)), (0, "2 passed, 0 failed"))
        self.assertEqual(self.finish((2, [], 3)), (0, "2 passed, 0 failed, 3 skipped"))
        self.assertEqual(self.finish((2, [], 0), (0, [("T", "why")], 0)), (1, "2 passed, 1 failed"))

    def test_nothing_run_is_a_failure(self):
        self.assertEqual(self.finish(), (1, "0 passed, 0 failed"))
        self.assertEqual(self.finish((0, [], 4)), (1, "0 passed, 0 failed, 4 skipped"))


if __name__ == "__main__":
    unittest.main()
