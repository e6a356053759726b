# SPDX-License-Identifier: Apache-2.0
"""device_check.sh runs every suite that is built for a card, says what does not hold, and refuses programs of other
sources. No card: programs are stubs."""

import hashlib
import os
from pathlib import Path
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = Path(__file__).resolve().parent.parent
PARTS = ["proof of kernels", "proof of models", "proof of the program", "proof that no thread", "steps", "llama.cpp",
         "attention of torch", "a table of a paper"]
PROGRAMS = (*(f"build/cuda/programs/{name}" for name in ("kernels_cuda_test", "gpu_cuda_test", "cuda_check")),
            "build/cuda-release/longspec")
# Says the same whatever it is asked for, but that something fails or differs.
STUB = """#!/bin/sh
case "$*" in
  --digest) echo {digest} ;;
  *"$FAILS"*) exit 1 ;;
  *"$DIFFERS"*) echo another ;;
  *) echo "once upon a time" ;;
esac
"""


class DryRunTest(unittest.TestCase):
    def setUp(self):
        self.plan = subprocess.run(["sh", ROOT / "tools" / "device_check.sh", "--dry-run"], cwd="/", text=True,
                                   stdout=subprocess.PIPE, check=True).stdout

    def test_what_is_right_comes_before_what_it_costs(self):
        parts = re.findall(r"^--- (.*)$", self.plan, re.MULTILINE)
        self.assertEqual(len(parts), len(PARTS))
        for part, expected in zip(parts, PARTS):
            self.assertTrue(part.startswith(expected), part)

    def test_every_suite_of_the_programs_is_run(self):
        cmake = (ROOT / "src/cuda/CMakeLists.txt").read_text(encoding="utf-8").replace("${kernels}", "../kernels")
        for program in ("kernels_cuda_test", "gpu_cuda_test"):
            sources = re.search(rf"add_executable\({program} ([^)]*)\)", cmake)[1].split()
            filters = re.findall(rf"{program} --gtest_filter=\*(\w+)\*", self.plan)
            # Tests of the reference itself need no card.
            kinds = "TEST_P" if program == "kernels_cuda_test" else "TEST(?:_F|_P)?"
            suites = set()
            for source in sources:
                path = ROOT / "src/cuda" / source
                if path.suffix == ".cc":
                    suites |= set(re.findall(rf"^{kinds}\((\w+),", path.read_text(encoding="utf-8"), re.MULTILINE))
            self.assertGreater(len(suites), 3)
            for suite in suites:
                self.assertTrue(any(name in suite for name in filters), f"{program}: nothing runs {suite}")


class RunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        folders = {str(Path(name).parent) for name in PROGRAMS}
        for name in ("tools", "src/kernels/gpu", "src/cuda", "data/demo", *folders):
            (self.root / name).mkdir(parents=True)
        shutil.copy(ROOT / "tools" / "device_check.sh", self.root / "tools")
        for name in ("src/kernels/gpu/a.h", "src/cuda/device_cta.h", "data/demo/report.txt", "model.gguf"):
            (self.root / name).write_text(f"{name}\n", encoding="utf-8")
        self.write_programs(hashlib.sha256(b"src/kernels/gpu/a.h\nsrc/cuda/device_cta.h\n").hexdigest()[:16])

    def write_programs(self, digest):
        for name in PROGRAMS:
            path = self.root / name
            path.write_text(STUB.format(digest=digest), encoding="utf-8")
            path.chmod(0o755)

    def check(self, **environment):
        """(exit status, what it says)."""
        done = subprocess.run(["sh", "tools/device_check.sh", "out"], cwd=self.root, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={"PATH": os.environ["PATH"], "LONGSPEC_CHECK_MODEL": "model.gguf", "FAILS": "nothing",
                                   "DIFFERS": "nothing", **environment})
        return done.returncode, done.stdout

    def test_all_is_well(self):
        status, said = self.check()
        self.assertEqual(status, 0, said)
        self.assertIn(": proved", said)
        self.assertIn("DraftsOnCard: exit 0", said)

    def test_a_suite_that_fails(self):
        status, said = self.check(FAILS="DraftsOnCard")
        self.assertEqual(status, 1)
        self.assertIn("DraftsOnCard: exit 1", said)
        self.assertIn(": not proved", said)

    def test_another_text_on_the_card(self):
        status, said = self.check(DIFFERS="cuda:0 --no-progress --no-chat -n 64 -f data/demo/repository.txt -c 8192 "
                                          "--stats-file out/offload")
        self.assertEqual(status, 1)
        self.assertIn("offload-cuda:0", said)

    def test_what_only_measures_cannot_fail_it(self):
        self.assertEqual(self.check(FAILS="bench -m")[0], 0)

    def test_programs_of_other_bodies_are_refused(self):
        self.write_programs("0123456789abcdef")
        status, said = self.check()
        self.assertEqual(status, 2)
        self.assertIn("was built of bodies with digest 0123456789abcdef", said)

    def test_a_program_that_is_missing(self):
        (self.root / PROGRAMS[1]).unlink()
        status, said = self.check()
        self.assertEqual(status, 2)
        self.assertIn("gpu_cuda_test is missing; make CUDA=1 builds it", said)


if __name__ == "__main__":
    unittest.main()
