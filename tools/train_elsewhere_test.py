# SPDX-License-Identifier: Apache-2.0
"""train_elsewhere.py, a folder standing in for the other machine: what is sent arrives in pieces, steps run once, what
they made comes back in slices, and a machine that forgot everything is told it again."""

import contextlib
import io
import json
from pathlib import Path
import random
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(Path(__file__).parent))
import train_elsewhere

COMMAND = ("echo job >>{jobs} && rm -rf {there} && cp -r {{folder}} {there} && cd {there} && "
           "timeout {{seconds}} sh go.sh && cp -r out/. {{out}}")


class TrainElsewhereTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.jobs, self.store = self.root / "jobs", self.root / "store"
        self.model = self.root / "model.bin"
        self.model.write_bytes(random.Random(1).randbytes(250_000))
        texts = self.root / "texts" / "deep"
        texts.mkdir(parents=True)
        (texts / "a.txt").write_text("a text", encoding="utf-8")
        command = COMMAND.format(jobs=self.jobs, there=self.root / "there")
        self.plan = {
            "command": command, "store": str(self.store), "most_sent": 100_000, "most_seconds": 60, "most_files": 6,
            "most_bytes": 40_000,
            "send": {"model": str(self.model), "texts": str(self.root / "texts"), "before": f"{self.root}/none?"},
            "steps": [{"name": "one", "seconds": 20, "bring": ["made", "never"],
                       "run": ["cat texts/deep/a.txt model >made", "echo round {round} >>log"]},
                      {"name": "two", "seconds": 20, "run": "mkdir -p d && wc -c <made >d/size",
                       "bring": ["d/size", "log"]}]}

    def run_plan(self, *arguments):
        path = self.root / "plan.json"
        path.write_text(json.dumps(self.plan), encoding="utf-8")
        said, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
            status = train_elsewhere.main([str(path), *arguments])
        return status, said.getvalue() + errors.getvalue()

    def came_back(self, name):
        return (self.root / "plan" / "came-back" / name).read_bytes()

    def n_jobs(self):
        return len(self.jobs.read_text(encoding="utf-8").split()) if self.jobs.exists() else 0

    def test_everything_arrives_and_comes_back(self):
        status, said = self.run_plan()
        self.assertEqual(status, 0, said)
        self.assertEqual(self.came_back("made"), b"a text" + self.model.read_bytes())
        self.assertEqual(int(self.came_back("d/size")), 250_006)
        self.assertEqual(self.came_back("log"), b"round 1\n")
        for job in (self.root / "there" / "pieces").iterdir():
            self.assertLessEqual(job.stat().st_size, 100_000)
        # Three of pieces, the last of which runs the steps, and as many as slices of two a job take.
        self.assertEqual(self.n_jobs(), 3 + 4)
        status, said = self.run_plan()
        self.assertEqual((status, self.n_jobs()), (0, 7), said)

    def test_a_next_round_sends_only_what_is_new(self):
        self.run_plan()
        before = self.n_jobs()
        self.plan["send"]["before"] = str(self.root / "plan" / "came-back" / "log") + "?"
        self.plan["steps"][1]["run"] += "; cat before >>log"
        self.run_plan("--again")
        status, said = self.run_plan()
        self.assertEqual(status, 0, said)
        self.assertIn("1 of 1 missing pieces; runs one, two", said)
        self.assertEqual(self.came_back("log"), b"round 1\nround 2\nround 1\n")
        self.assertLess(self.n_jobs() - before, 7)

    def test_a_machine_that_forgot_is_told_again(self):
        self.run_plan()
        shutil.rmtree(self.store)
        self.run_plan("--again")
        status, said = self.run_plan()
        self.assertEqual(status, 0, said)
        self.assertIn("4 missing pieces", said)
        self.assertEqual(self.came_back("made"), b"a text" + self.model.read_bytes())
        self.assertEqual(self.came_back("log"), b"round 2\n")

    def test_jobs_may_be_run_by_hand(self):
        del self.plan["command"]
        self.assertEqual(self.run_plan()[0], 1)
        for _ in range(20):
            status, said = self.run_plan("--next")
            self.assertEqual(status, 0, said)
            if "all is done" in said:
                break
            there, out = self.root / "there", self.root / "elsewhere"
            for folder in (there, out):
                shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(self.root / "plan" / "job", there)
            done = train_elsewhere.subprocess.run(["sh", "go.sh"], cwd=there, check=False, capture_output=True,
                                                  env={"OUT": str(out), "PATH": "/usr/bin:/bin"})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertLessEqual(len(list(out.iterdir())), 6)
            self.assertEqual(self.run_plan("--came-back", str(out))[0], 0)
        self.assertEqual(self.came_back("made"), b"a text" + self.model.read_bytes())

    def test_a_step_that_is_interrupted_keeps_what_it_made(self):
        self.plan["steps"] = [{"name": "long", "seconds": 1, "bring": ["made"],
                               "run": "trap 'echo saved >made; kill $!; exit 130' INT; sleep 30 & wait"}]
        status, said = self.run_plan()
        self.assertEqual(status, 0, said)
        self.assertEqual(self.came_back("made"), b"saved\n")

    def test_what_cannot_be_is_said(self):
        self.plan["send"]["model"] = str(self.root / "nothing")
        self.assertIn("is to be sent and is not there", self.run_plan()[1])
        self.plan["steps"][0]["seconds"] = 100
        self.assertIn("step one takes more seconds than a command may", self.run_plan()[1])
        self.plan["speed"] = 1
        self.assertIn("unknown key 'speed'", self.run_plan()[1])


if __name__ == "__main__":
    unittest.main()
