# SPDX-License-Identifier: Apache-2.0
"""setup_trainer.sh installs what is missing, whatever an earlier run got to. No network: pip is a stub that notes what
it is asked for."""

import os
from pathlib import Path
import shutil
import subprocess
import sys
import tempfile
import unittest

TORCH = {"Name": "torch", "Version": "9.1",
         "Requires-Dist": 'cuda-toolkit[cudart,cupti,nvrtc]==13.0.2; sys_platform != ""'}
TOOLKIT = {"Name": "cuda-toolkit", "Version": "13.0.2"}
# What `python -m pip install` leaves of torch; all else is Python, with no packages but those of the test.
PYTHON = """#!/bin/sh
if [ "$1 $2" = "-m pip" ]; then
  echo "$*" >>"{root}/asked"
  case "$*" in *torch) cp -r "{root}/wheel/." "{root}/site" ;; esac
  exit 0
fi
PYTHONPATH="{root}/site" exec "{python}" -S "$@"
"""


def record(folder, package):
    info = folder / f"{package['Name'].replace('-', '_')}-{package['Version']}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1"] + [f"{key}: {value}" for key, value in package.items()]
    (info / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")


class SetupTrainerTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name in ("tools", "venv/bin", "site", "wheel"):
            (self.root / name).mkdir(parents=True)
        shutil.copy(Path(__file__).parent / "setup_trainer.sh", self.root / "tools")
        record(self.root / "wheel", TORCH)
        self.script("tools/setup.sh", "#!/bin/sh\n")
        self.script("venv/bin/pip", "#!/bin/sh\n")
        self.script("venv/bin/python", PYTHON.format(root=self.root, python=sys.executable))

    def script(self, name, text):
        (self.root / name).write_text(text, encoding="utf-8")
        (self.root / name).chmod(0o755)

    def run_script(self, *arguments):
        environment = dict(os.environ, LONGSPEC_VENV=str(self.root / "venv"))
        return subprocess.run([str(self.root / "tools/setup_trainer.sh"), *arguments], capture_output=True, text=True,
                              env=environment, check=False)

    def asked(self):
        done = self.run_script("--fetch")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        log = self.root / "asked"
        return log.read_text(encoding="utf-8").splitlines() if log.exists() else []

    def test_installs_torch_and_what_its_library_is_linked_with(self):
        self.assertEqual(self.asked(), ["-m pip install --quiet --no-compile --no-deps torch",
                                        "-m pip install --quiet --no-compile cuda-toolkit[cudart,cupti]==13.0.2"])

    def test_goes_on_after_torch(self):
        record(self.root / "site", TORCH)
        self.assertEqual(self.asked(), ["-m pip install --quiet --no-compile cuda-toolkit[cudart,cupti]==13.0.2"])

    def test_half_of_torch_is_not_torch(self):
        (self.root / "site" / "torch").mkdir()
        (self.root / "site" / "torch" / "__init__.py").touch()
        self.assertEqual(len(self.asked()), 2)

    def test_does_nothing_where_all_is_there(self):
        record(self.root / "site", TORCH)
        record(self.root / "site", TOOLKIT)
        self.assertEqual(self.asked(), [])

    def test_a_torch_without_cuda_needs_nothing_else(self):
        record(self.root / "site", {"Name": "torch", "Version": "9.1+cpu"})
        self.assertEqual(self.asked(), [])

    def test_unknown_options_are_refused(self):
        done = self.run_script("--gpu")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, "setup_trainer: unknown option '--gpu'; known: --cuda, --fetch\n")


if __name__ == "__main__":
    unittest.main()
