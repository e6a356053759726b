#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that start, that do not, and that say much."""

import sys
import time
import unittest

from server_process import ServerProcess

READY = "print('time=0 event=listening url=http://127.0.0.1:1234', flush=True)\n"
WAIT = "import time; time.sleep(60)\n"


def server(program, **options):
    return ServerProcess([sys.executable, "-c", program], **options)


class Processes(unittest.TestCase):
    def test_one_that_is_ready(self):
        with server(READY + WAIT) as running:
            self.assertEqual(running.url, "http://127.0.0.1:1234")
            self.assertIsNone(running.process.poll())
        self.assertIsNotNone(running.process.returncode)

    def test_one_that_says_more_than_a_pipe_holds_goes_on(self):
        talkative = READY + ("import sys\nfor i in range(4000): print('a line of the log ' * 4, file=sys.stderr)\n"
                             "print('done')")
        with server(talkative) as running:
            self.assertEqual(running.process.wait(60), 0)
        self.assertEqual(running.log[-1], "done\n")
        self.assertEqual(len(running.log), 4002)

    def test_one_that_does_not_start(self):
        with self.assertRaisesRegex(RuntimeError, "did not start: no such model"):
            server("print('no such model')")
        began = time.monotonic()
        with self.assertRaisesRegex(RuntimeError, "did not start"):
            server(WAIT, seconds=0.1)
        self.assertLess(time.monotonic() - began, 50)  # it was not waited for


if __name__ == "__main__":
    unittest.main()
