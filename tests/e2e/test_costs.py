#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What passes cost on this machine is measured behind an answer, and nobody has to wait for it.

Needs the program ($LONGSPEC_BIN, default build/release/longspec) and a model ($LONGSPEC_MODEL, default the one that
`make model MODEL=smollm2` fetches).
"""

import os
import signal
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("LONGSPEC_BIN", os.path.join(ROOT, "build/release/longspec"))
MODEL = os.environ.get("LONGSPEC_MODEL", os.path.join(ROOT, "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
TIMEOUT = 300
OK, INTERRUPTED = 0, 130


@unittest.skipUnless(os.access(BIN, os.X_OK), f"no program at {BIN}")
@unittest.skipUnless(os.path.exists(MODEL), "needs SmolLM2 (make model MODEL=smollm2)")
@unittest.skipIf("LONGSPEC_SKIP_SLOW" in os.environ, "slow")
class Costs(unittest.TestCase):
    def kept(self, interrupts):
        """The files of costs that a run leaves, which is interrupted when its answer has ended."""
        with tempfile.TemporaryDirectory() as folder:
            process = subprocess.Popen([BIN, "run", "-m", MODEL, "--no-chat", "-p", "Once upon a time", "-n", "3"],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       env={**os.environ, "XDG_CACHE_HOME": folder})
            with process:
                self.assertTrue(any(b"eval time" in line for line in process.stderr))
                if interrupts:
                    process.send_signal(signal.SIGINT)
                self.assertNotEqual(process.stdout.read(), b"")
                self.assertIn(process.wait(TIMEOUT), (OK, INTERRUPTED) if interrupts else (OK,))
            return [name for *_, names in os.walk(folder) for name in names if name.endswith(".costs")]

    def test_ctrl_c_ends_measuring_at_once(self):
        self.assertEqual(len(self.kept(False)), 1)
        self.assertEqual(self.kept(True), [])


if __name__ == "__main__":
    unittest.main()
