# SPDX-License-Identifier: Apache-2.0
"""pip is this Python's, or one of a virtual environment, or what is missing is said."""

from pathlib import Path
import subprocess
import sys
import unittest
from unittest import mock

import fetching

WORK = Path("/work")


class PipCommandTest(unittest.TestCase):
    def command(self, works):
        """With only these modules of Python working."""
        def run(command, **_):
            return subprocess.CompletedProcess(command, 0 if command[2] in works else 1)
        with mock.patch.object(fetching.subprocess, "run", run):
            return fetching.pip_command(WORK)

    def test_of_this_python(self):
        self.assertEqual(self.command(("pip", "venv")), [sys.executable, "-m", "pip"])

    def test_of_an_environment(self):
        self.assertEqual(self.command(("venv",)), ["/work/venv/bin/python", "-m", "pip"])

    # Where neither way of fetching is there, the message says what to install.
    def test_neither(self):
        with self.assertRaisesRegex(fetching.Failure, r"install python3-pip \(tools/setup.sh model\)$"):
            self.command(())


if __name__ == "__main__":
    unittest.main()
