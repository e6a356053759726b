#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The trainer as users stop it, kill it and let its disk run full; texts that are written beside it, from beginnings to
a draft; and features on a full disk.

Needs the program ($LONGSPEC_BIN, default build/release/longspec) and SmolLM2 ($LONGSPEC_MODEL); most of it
the trainer's programs beside the program. Tests whose needs are not met are skipped.
"""

import json
import os
import resource
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("LONGSPEC_BIN", os.path.join(ROOT, "build/release/longspec"))
MODEL = os.environ.get("LONGSPEC_MODEL", os.path.join(ROOT, "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
TRAINER = os.path.join(os.path.dirname(BIN), "longspec-train")
WRITER = os.path.join(os.path.dirname(BIN), "longspec-write")
STEPS, KILLS = 16, 4


def run(*command, largest_file=None):
    """`largest_file`: no file may grow beyond as many bytes, as on a full disk."""
    def limit():
        if largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False,
                          preexec_fn=limit)


def write_text(folder):
    path = os.path.join(folder, "text.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        for i in range(6):
            file.write(json.dumps({"text": f"The {i} brown foxes jump over the lazy dog. " * (3 + 2 * i)}) + "\n")
    return path


def make_features(folder, output, **limits):
    return run(BIN, "features", "-m", MODEL, "-i", write_text(folder), "-o", output, "--length", "64", "--min-length",
               "8", **limits)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def signalled(command, number, until):
    """The exit status after the signal, which is sent as soon as until() holds, and stderr."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True) as process:
        end = time.monotonic() + 300
        while process.poll() is None and not until() and time.monotonic() < end:
            time.sleep(0.001)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=300)
        return process.returncode, stderr


def stamp(path):
    """When the file was written to; None without one."""
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return None


class TestCase(unittest.TestCase):
    def expect_error(self, result, code, *parts):
        """One line on stderr says what is wrong."""
        self.assertEqual(result.returncode, code, result.stderr)
        errors = [line for line in result.stderr.splitlines() if "error:" in line]
        self.assertEqual(len(errors), 1, result.stderr)
        for part in parts:
            self.assertIn(part, errors[0])


@unittest.skipUnless(os.path.exists(BIN) and os.path.exists(MODEL), "needs the program and SmolLM2")
class FeaturesOnAFullDisk(TestCase):
    def test_the_shard_is_named_and_the_run_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            output = os.path.join(folder, "features")
            self.expect_error(make_features(folder, output, largest_file=20000), 5, "features-00000.safetensors",
                              "cannot be written")
            self.assertEqual(os.listdir(output), [])
            made = make_features(folder, output)
            self.assertEqual(made.returncode, 0, made.stderr)
            self.assertEqual(os.listdir(output), ["features-00000.safetensors"])


@unittest.skipUnless(os.path.exists(TRAINER) and os.path.exists(MODEL), "needs the trainer and SmolLM2")
class Training(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.shared.cleanup)
        cls.features = os.path.join(cls.shared.name, "features")
        made = make_features(cls.shared.name, cls.features)
        assert made.returncode == 0, made.stderr
        cls.whole = os.path.join(cls.shared.name, "whole")
        trained = run(*cls.command(cls.whole))
        assert trained.returncode == 0, trained.stderr
        cls.summary = trained.stdout

    @classmethod
    def command(cls, output, *more):
        return (TRAINER, "-m", MODEL, "-f", cls.features, "-o", output, "--batch", "4", "--steps", str(STEPS),
                "--draft-vocab", "256", "--ff", "64", "--checkpoint-every", "1", "--threads", "2", "--lr", "0.001",
                *more)

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.output = os.path.join(self.folder.name, "draft")
        self.log = os.path.join(self.folder.name, "log.jsonl")

    def expect_the_whole_run(self, whole=None, command=None):
        """Called once more, the run ends as one that nothing happened to."""
        whole = whole or self.whole
        trained = run(*(command or self.command(self.output)))
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertEqual(sorted(os.listdir(self.output)), sorted(os.listdir(whole)))
        self.assertIn("checkpoint.bin", os.listdir(whole))
        for name in os.listdir(self.output):
            self.assertTrue(read(os.path.join(self.output, name)) == read(os.path.join(whole, name)), name)

    def start_and_signal(self, number, until, command=None):
        """The exit status after the signal, which is sent as soon as until() holds, and stderr."""
        return signalled((*(command or self.command(self.output)), "--log", self.log), number, until)

    def steps_logged(self):
        return read(self.log).count(b'"loss"') if os.path.exists(self.log) else 0

    def test_what_it_prints(self):
        self.assertRegex(self.summary,
                         rf"draft model after {STEPS} steps, mean loss \d\.\d+\n\d+ tokens, \d+ tokens/s; ")

    def test_killed_while_it_saves(self):
        torn = 0
        for i in range(KILLS):
            name = ("checkpoint.bin.tmp", "model.safetensors.tmp")[i % 2]
            path = os.path.join(self.output, name)
            before, left = self.steps_logged(), stamp(path)

            def half_written(path=path, before=before, left=left):  # not what the kill before left
                return self.steps_logged() > before and stamp(path) not in (None, left)

            status, stderr = self.start_and_signal(signal.SIGKILL, half_written)
            self.assertEqual(status, -signal.SIGKILL, stderr)
            torn += os.path.exists(path)
        self.assertGreater(torn, 0, "no kill came while a file was written")
        self.expect_the_whole_run()

    def test_other_kinds_that_are_killed(self):
        """In the middle of steps, and while it saves what it has."""
        features = os.path.join(self.folder.name, "all")
        made = run(BIN, "features", "-m", MODEL, "-i", write_text(self.folder.name), "-o", features, "--length", "64",
                   "--min-length", "8", "--keep", "final,hidden:1,hidden:14,hidden:26")
        self.assertEqual(made.returncode, 0, made.stderr)
        for kind, more in (("eagle3", ["--ff", "64", "--simulate", "2"]), ("lm", ["--layers", "29"])):
            with self.subTest(kind=kind):
                self.output = os.path.join(self.folder.name, kind)
                self.log = self.output + ".jsonl"
                whole = self.output + "-whole"

                def command(output, options=("--kind", kind, *more)):
                    return (TRAINER, "-m", MODEL, "-f", features, "-o", output, "--batch", "4", "--draft-vocab", "256",
                            "--checkpoint-every", "1", "--threads", "2", "--lr", "0.001", "--steps", "6", *options)

                trained = run(*command(whole))
                self.assertEqual(trained.returncode, 0, trained.stderr)
                path = os.path.join(self.output, "checkpoint.bin.tmp")
                for until in (lambda: self.steps_logged() >= 2,  # the log has those of both runs
                              lambda path=path: self.steps_logged() >= (3 if os.path.exists(path) else 5)):
                    status, stderr = self.start_and_signal(signal.SIGKILL, until, command(self.output))
                    self.assertEqual(status, -signal.SIGKILL, stderr)
                self.expect_the_whole_run(whole, command(self.output))

    # Stopped early and stopped late, training goes on from its state and ends in the weights of a run in one go.
    def test_interrupted(self):
        for stop in (3, 9):
            status, stderr = self.start_and_signal(signal.SIGINT, lambda stop=stop: self.steps_logged() >= stop)
            self.assertEqual(status, 130, stderr)
            self.assertIn(f"interrupted; the state is saved in {self.output}", stderr.splitlines()[-1])
            self.assertTrue(os.path.exists(os.path.join(self.output, "checkpoint.bin")))
        self.expect_the_whole_run()

    # A state that cannot be written is said, and the one before it stays whole.
    def test_full_disk(self):
        first = run(*self.command(self.output), largest_file=1 << 20)
        self.expect_error(first, 4, os.path.join(self.output, "checkpoint.bin") + ": cannot be written")
        status, stderr = self.start_and_signal(signal.SIGINT, lambda: self.steps_logged() >= 3)
        self.assertEqual(status, 130, stderr)
        saved = read(os.path.join(self.output, "checkpoint.bin"))
        again = run(*self.command(self.output), largest_file=1 << 20)
        self.expect_error(again, 4, os.path.join(self.output, "checkpoint.bin") + ": cannot be written")
        self.assertEqual(read(os.path.join(self.output, "checkpoint.bin")), saved)
        self.expect_the_whole_run()

    def test_a_log_that_cannot_be_written(self):
        full = run(*self.command(self.output, "--log", "/dev/full"))
        self.expect_error(full, 4, "--log /dev/full: cannot be written: No space left on device; the state is saved in "
                          + self.output)
        missing = run(*self.command(self.output, "--log", os.path.join(self.folder.name, "no", "log")))
        self.expect_error(missing, 5, "no/log: cannot be written")
        self.expect_the_whole_run()

    def test_every_kind(self):
        """Of SmolLM2: two steps, what is left of them, and the error where features lack what is needed."""
        features = os.path.join(self.folder.name, "all")
        made = run(BIN, "features", "-m", MODEL, "-i", write_text(self.folder.name), "-o", features, "--length", "64",
                   "--min-length", "8", "--keep", "final,hidden:1,hidden:4,hidden:14,hidden:26,hidden:29",
                   "--keep-type", "bf16")
        self.assertEqual(made.returncode, 0, made.stderr)
        kinds = {"eagle": [], "beagle": ["--simulate", "4"], "exit": ["--layers", "4"], "eagle3": ["--simulate", "2"],
                 "medusa": [], "tokenswift": [], "lm": ["--layers", "0,29"], "longspec": ["--own-keys"]}
        for kind, more in kinds.items():
            with self.subTest(kind=kind):
                output = os.path.join(self.folder.name, kind)
                trained = run(TRAINER, "-m", MODEL, "-f", features, "-o", output, "--batch", "4", "--steps", "2",
                              "--distill", "1", "--kind", kind, "--validate", features, "--draft-vocab", "256", *more)
                self.assertEqual(trained.returncode, 0, trained.stderr)
                self.assertIn("top-1/top-4 by lag", trained.stderr)
                with open(os.path.join(output, "config.json"), encoding="utf-8") as file:
                    self.assertEqual(json.load(file)["longspec_draft"], kind)
                self.assertEqual(os.path.exists(os.path.join(output, "model.gguf")), kind == "lm")
        # The layers of an lm alone are a draft for their target.
        small = os.path.join(self.folder.name, "small.gguf")
        made = run(BIN, "convert", os.path.join(self.folder.name, "lm", "model.gguf"), small, "--type", "q4_1")
        self.assertEqual(made.returncode, 0, made.stderr)
        texts = [run(BIN, "run", "-m", MODEL, "-p", "The sea is", "-n", "12", "--temp", "0", *draft).stdout
                 for draft in ([], ["-md", small, "--spec-type", "lm"])]
        self.assertEqual(texts[0], texts[1])
        self.assertTrue(texts[0])
        lacking = run(TRAINER, "-m", MODEL, "-f", self.features, "-o", self.output, "--batch", "4", "--kind", "eagle")
        self.expect_error(lacking, 2, "holds kv, and this kind of draft needs final too")
        for options, error in ((["--kind", "medusa", "--window", "64"], "--window: not an option of --kind medusa"),
                               (["--schedule", "wsd", "--warmup", "0.2"], "--warmup: of --schedule cosine"),
                               (["--decay", "0.2"], "--decay: of --schedule wsd"),
                               (["--heads", "-2"], "--heads"),
                               (["--positions", "far"], "must be one of anchor-offset, gaps, plain, not")):
            self.expect_error(run(TRAINER, "-m", MODEL, "-f", features, "-o", self.output, *options), 2, error)


@unittest.skipUnless(all(os.path.exists(path) for path in (TRAINER, WRITER, MODEL)),
                     "needs the trainer's programs and SmolLM2")
class Writing(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.shared.cleanup)
        cls.beginnings = os.path.join(cls.shared.name, "beginnings")
        made = run(BIN, "features", "-m", MODEL, "-i", write_text(cls.shared.name), "-o", cls.beginnings, "--length",
                   "32", "--keep", "none", "--write", "16", "--write-later")
        assert made.returncode == 0, made.stderr
        cls.whole = os.path.join(cls.shared.name, "whole")
        written = run(*cls.command(cls.whole))
        assert written.returncode == 0, written.stderr
        cls.summary = written.stdout

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.texts = os.path.join(self.folder.name, "texts")

    @classmethod
    def command(cls, output, *more):
        """Of one thread: beside other tests, several wait for each other most of the time."""
        return ("env", "OMP_NUM_THREADS=1", WRITER, "-m", MODEL, "-f", cls.beginnings, "-o", output, "--device", "cpu",
                "--write", "6", "--write-temps", "0,0.8", "--at-once", "2", *more)

    @staticmethod
    def shards(folder):
        return {name: read(os.path.join(folder, name)) for name in os.listdir(folder)}

    def test_stopped_and_trained_on(self):
        self.assertRegex(self.summary, r"whole: \d+ tokens in 6 texts, 3 shards\n$")
        first = os.path.join(self.texts, "features-00000.safetensors")
        status, stderr = signalled(self.command(self.texts), signal.SIGINT, lambda: os.path.exists(first))
        self.assertEqual(status, 130, stderr)
        self.assertIn("longspec-write: error: interrupted; what is complete is kept in ", stderr.splitlines()[-1])
        self.assertLess(len(self.shards(self.texts)), 3)
        self.expect_error(run(*self.command(self.texts, "--write-seed", "2")), 2, "texts: holds texts of another model")
        again = run(*self.command(self.texts))
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(again.stdout.split(": ")[1], self.summary.split(": ")[1])
        self.assertTrue(self.shards(self.texts) == self.shards(self.whole))  # not shown: bytes
        trained = run(TRAINER, "-m", MODEL, "-f", self.texts, "-o",
                      os.path.join(self.folder.name, "draft"), "--kind", "exit", "--distill", "1", "--draft-vocab",
                      "256", "--batch", "2", "--steps", "1")
        self.assertEqual(trained.returncode, 0, trained.stderr)

    def test_killed_and_started_again(self):
        """Before the first shard, behind it, and while the next one is written or will be soon."""
        folder = self.texts
        kept = {}
        for n, until in enumerate((lambda: os.path.isdir(folder),
                                   lambda: os.path.exists(os.path.join(folder, "features-00000.safetensors")),
                                   lambda: any(name.startswith("features-00001") for name in os.listdir(folder)))):
            status, stderr = signalled(self.command(self.texts), signal.SIGKILL, until)
            self.assertEqual(status, -signal.SIGKILL, stderr)
            complete = {name: data for name, data in self.shards(self.texts).items() if name.endswith(".safetensors")}
            self.assertTrue(all(complete[name] == data for name, data in kept.items()), n)
            kept = complete
        self.assertLess(len(kept), 3)
        again = run(*self.command(self.texts))
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertTrue(self.shards(self.texts) == self.shards(self.whole))  # not shown: bytes

    def test_errors_are_one_line(self):
        for options, code, error in ((("--at-once", "0"), 2, "--at-once: must be at least 1"),
                                     (("--device", "gpu"), 2, "--device gpu: must be cpu, cuda or cuda:N"),
                                     (("--write", "many"), 2, "--write"),
                                     (("--write", "8192"), 2, "--write 8192: no beginning leaves as much room"),
                                     (("--model", MODEL + "x"), 3, MODEL + "x")):
            self.expect_error(run(*self.command(self.texts, *options)), code, error)


if __name__ == "__main__":
    unittest.main()
