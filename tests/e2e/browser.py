# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven by chromedriver's WebDriver protocol: what a test of a page needs of it."""

import base64
import contextlib
import http.client
import json
import os
import re
import shutil
import subprocess
import tempfile
import time

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's name of a reference
ENTER, ESCAPE, TAB = "\ue007", "\ue00c", "\ue004"


def missing():
    """Why there is no browser here; empty: there is one."""
    for name, package in (("chromium", "chromium"), ("chromedriver", "chromium-driver")):
        if shutil.which(name) is None:
            return f"{name} is not installed (Debian: {package})"
    return ""


class Browser:
    def __init__(self, timeout=60):
        self.timeout = timeout
        self.folder = tempfile.TemporaryDirectory()
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       text=True)
        self.port = None
        for line in self.driver.stdout:
            if match := re.search(r"started successfully on port (\d+)", line):
                self.port = int(match[1])
                break
        arguments = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900",
                     f"--user-data-dir={self.folder.name}"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")
        self.session = ""
        made = self.send("POST", "/session", {"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments}, "goog:loggingPrefs": {"browser": "ALL"}}}})
        self.session = f"/session/{made['sessionId']}"

    def close(self):
        with contextlib.suppress(Exception):
            self.send("DELETE", "")
        self.driver.terminate()
        self.driver.wait(30)
        self.driver.stdout.close()
        self.folder.cleanup()

    def send(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        with contextlib.closing(connection):
            data = json.dumps(body if body is not None else {}) if method == "POST" else None
            connection.request(method, getattr(self, "session", "") + path, data, {"Content-Type": "application/json"})
            value = json.loads(connection.getresponse().read())["value"]
        if isinstance(value, dict) and "error" in value:
            raise AssertionError(f"{method} {path}: {value['error']}: {value['message'][:500]}")
        return value

    def open(self, url):
        self.send("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        """The value of a script's `return`."""
        return self.send("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def devtools(self, command, **parameters):
        return self.send("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def wait(self, script, *arguments):
        """Until the script returns something that is true, which it returns."""
        deadline = time.monotonic() + self.timeout
        while not (value := self.run(script, *arguments)):
            if time.monotonic() > deadline:
                raise AssertionError(f"in {self.timeout} s there was no: {script}\n" + self.run(
                    "return document.body.innerText"))
            time.sleep(0.02)
        return value

    def find(self, selector):
        return self.send("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def type(self, selector, text):
        self.send("POST", f"/element/{self.find(selector)}/value", {"text": text})

    def press(self, key):
        """On whatever has the focus."""
        actions = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self.send("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def click(self, selector):
        self.send("POST", f"/element/{self.find(selector)}/click")

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.send("GET", "/screenshot")))

    def complaints(self):
        """What the browser's console calls severe since the last time."""
        entries = self.send("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    def show_as(self, width, height, scheme):
        """A window of this size that prefers "light" or "dark"."""
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                      mobile=False)
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
