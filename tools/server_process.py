# SPDX-License-Identifier: Apache-2.0
"""A server that a tool or a test starts: ready when the block begins, gone when it ends."""

import contextlib
import re
import signal
import subprocess
import threading

LISTENING = re.compile(r"event=listening url=(\S+)")  # what longspec serve says


class ServerProcess:
    """What it says is read all the time: a program that nobody listens to stops at a full pipe.

    `ready` is looked for in each line; its first group is the URL. Raises RuntimeError with what the program said if it
    ends, or is silent for `seconds`, before that.
    """

    def __init__(self, command, ready=LISTENING, seconds=120):
        self.ready, self.url, self.log = ready, None, []
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, errors="replace")
        self.listening = threading.Event()
        self.reader = threading.Thread(target=self.read_log, daemon=True)
        self.reader.start()
        if not self.listening.wait(seconds) or self.url is None:
            self.process.kill()
            self.close()
            raise RuntimeError("the server did not start: " + "".join(self.log).strip())

    def read_log(self):
        for line in self.process.stdout:
            self.log.append(line)
            if self.url is None and (match := self.ready.search(line)):
                self.url = match[1]
                self.listening.set()
        self.listening.set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self.close()

    def close(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.reader.join(10)
        self.process.stdout.close()
