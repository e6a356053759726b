# SPDX-License-Identifier: Apache-2.0
"""For tests of tools that talk to a server: one of socketserver's that runs beside a test and ends with it."""

import threading


def serve(test, server):
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    test.addCleanup(thread.join)
    test.addCleanup(server.server_close)
    test.addCleanup(server.shutdown)
