#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The server's page in a headless Chromium: a conversation with a dropped document, by hand and by keyboard.

Needs the program and make_tiny_model, as test_server.py does, and Debian's chromium and chromium-driver; skipped
without them. LONGSPEC_SCREENSHOTS names a folder for pictures, which are worth a look after a change.
"""

import json
import os
import unittest

import browser
import test_server as serving

DOCUMENT = "\n".join(f"Line {i}: the sea, the sky and the land <b>&amp;</b>." for i in range(12))
SEED = "7"


def setUpModule():
    if reason := browser.missing():
        raise unittest.SkipTest(reason)
    serving.setUpModule()


def tearDownModule():
    serving.tearDownModule()


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # One drafter and no policy: who guesses does not depend on how fast the machine is.
        cls.server = serving.Server("--alias", "little", "--spec-type", "ppm")
        cls.addClassCleanup(cls.server.__exit__)
        cls.browser = browser.Browser(serving.TIMEOUT)
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        self.browser.show_as(1280, 900, "light")
        self.browser.open(self.server.url + "/")
        self.browser.wait("return document.getElementById('model').textContent.includes('tokens of context')")
        self.set("temperature", "0.7")
        self.set("most", "48")
        self.set("seed", SEED)

    def tearDown(self):
        self.assertEqual(self.browser.complaints(), [])

    def set(self, name, value):
        self.browser.run("const e = document.getElementById(arguments[0]); e.value = arguments[1];"
                         "e.dispatchEvent(new Event('change'))", name, value)

    def drop(self, name, text):
        self.browser.run("""
            const transfer = new DataTransfer();
            transfer.items.add(new File([arguments[1]], arguments[0], {type: "text/plain"}));
            const event = type => new DragEvent(type, {bubbles: true, cancelable: true, dataTransfer: transfer});
            document.getElementById("composer").dispatchEvent(event("dragover"));
            document.getElementById("composer").dispatchEvent(event("drop"));""", name, text)

    def wait_for_status(self, text):
        self.browser.wait("return document.getElementById('status').textContent === arguments[0] && "
                          "document.getElementById('stop').hidden", text)

    def texts(self, role):
        return self.browser.run("return [...document.querySelectorAll(`article.${arguments[0]} .text`)]"
                                ".map(e => e.textContent)", role)

    def ask(self, text):
        self.browser.type("#input", text + browser.ENTER)

    def picture(self, name):
        if folder := os.environ.get("LONGSPEC_SCREENSHOTS"):
            self.browser.screenshot(os.path.join(folder, name + ".png"))

    def answer_to(self, messages, **fields):
        body = {"messages": messages, "temperature": 0.7, "max_tokens": 48, "seed": int(SEED), **fields}
        return self.server.post("/v1/chat/completions", body)["choices"][0]["message"]["content"]

    def test_a_conversation_about_a_dropped_document(self):
        self.drop("notes.txt", DOCUMENT)
        n_tokens = len(self.server.post("/tokenize", {"content": DOCUMENT, "parse_special": False})["tokens"])
        self.browser.wait("return document.querySelector('#documents .chip')?.textContent"
                          ".includes(arguments[0] + ' tokens')", f"{n_tokens:,}")
        self.ask("What is in it?")
        self.wait_for_status("Done.")
        first, = self.texts("assistant")
        question = f"Document notes.txt:\n\n{DOCUMENT}\n\nWhat is in it?"
        messages = [{"role": "user", "content": question}]
        self.assertEqual(first, self.answer_to(messages))
        self.assertTrue(first)
        self.assertEqual(self.texts("user"), ["What is in it?"])
        # The second question goes on from there, and its prompt's beginning is known.
        self.ask("And what else?")
        self.wait_for_status("Done.")
        messages += [{"role": "assistant", "content": first}, {"role": "user", "content": "And what else?"}]
        self.assertEqual(self.texts("assistant")[1], self.answer_to(messages))
        facts = self.browser.run("return [...document.querySelectorAll('article.assistant .facts')]"
                                 ".map(e => e.textContent)")
        self.assertIn("tokens of the prompt were known", facts[1])
        self.assertRegex(facts[1], r"\d+ tokens · [\d.,]+ tokens/s · first after [\d.]+ s")
        # Nothing came from elsewhere, and nothing of a document became an element.
        urls = self.browser.run("return performance.getEntriesByType('resource').map(e => e.name)")
        self.assertTrue(all(url.startswith(self.server.url + "/") for url in urls), urls)
        self.assertEqual(self.browser.run("return document.querySelectorAll('.text b').length"), 0)
        self.picture("conversation-light")

    def test_guesses_are_marked_and_compared(self):
        self.set("temperature", "0")  # random weights soon repeat themselves
        self.set("most", "200")
        self.ask("the sea the sea the sea")
        self.wait_for_status("Done.")
        text, = self.texts("assistant")
        # Which drafter guesses what may differ from run to run; the text may not.
        marked = self.browser.run("return [...document.querySelectorAll('.text span')]"
                                  ".map(e => e.title).filter(t => t)")
        self.assertTrue(marked)
        self.assertEqual(self.browser.run("return [...document.querySelectorAll('#legend span')]"
                                          ".map(e => e.textContent).sort()"),
                         sorted(set(marked)))
        whole = self.server.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "the sea the sea the sea"}], "temperature": 0, "max_tokens": 200,
            "seed": int(SEED), "return_token_source": True})["choices"][0]
        self.assertEqual(whole["message"]["content"], text)
        self.assertTrue(any(whole["token_sources"]))
        self.picture("marks")
        self.browser.click(".check")
        self.wait_for_status("Compared.")
        verdict = self.browser.run("return document.querySelector('.verdict').textContent")
        self.assertRegex(verdict, r"^✓ The same text\. [\d.,]+ tokens/s with guesses, [\d.,]+ without$")
        self.assertIn("tokens a second", self.browser.run("return document.getElementById('plain-note').textContent"))
        self.assertEqual(self.browser.run("return document.querySelectorAll('#speed .reference').length"), 1)
        self.assertGreater(len(self.browser.run("return document.querySelector('#speed path').getAttribute('d')")), 10)
        # With speculation off nothing is marked, and the text is the same.
        self.browser.click("#new")
        self.browser.click("#speculation")
        self.ask("the sea the sea the sea")
        self.wait_for_status("Done.")
        self.assertEqual(self.texts("assistant"), [text])
        self.assertEqual(self.browser.run("return [...document.querySelectorAll('.text span')]"
                                          ".filter(e => e.title).length"), 0)

    def test_an_answer_is_stopped_by_keyboard(self):
        self.set("most", "3500")
        self.ask("the sky")
        self.browser.wait("return document.querySelector('article.assistant .text').textContent.length > 20")
        self.browser.press(browser.ESCAPE)
        self.browser.wait("return document.getElementById('stop').hidden")
        self.server.wait_for_rest()
        # What can be done by hand can be reached from the message by the Tab key.
        reached = []
        for _ in range(14):
            self.browser.press(browser.TAB)
            reached.append(self.browser.run("return document.activeElement.id"))
        self.assertEqual([name for name in dict.fromkeys(reached)
                          if name in ("attach", "send", "speculation", "marks", "seed", "key")],
                         ["attach", "send", "speculation", "marks", "seed", "key"])

    def test_mistakes_are_said(self):
        self.drop("picture.bin", "a\0b")
        self.browser.wait("return document.getElementById('status').textContent === 'picture.bin is no text.'")
        self.set("temperature", "9")
        self.ask("the sky")
        self.browser.wait("return document.querySelector('article.assistant .error')"
                          "?.textContent.includes('from 0 to 2')")
        self.assertEqual(self.browser.run("return document.getElementById('input').value"), "the sky")
        complaints = self.browser.complaints()  # the browser tells of the status
        self.assertTrue(all("400" in line for line in complaints), complaints)

    def test_the_servers_state(self):
        self.browser.wait("return /^0 of 64 slots busy$/.test(document.getElementById('slots-text').textContent)")
        self.assertEqual(self.browser.run("return document.querySelectorAll('#slots i').length"), 64)
        self.assertIn("memory for keys and values", self.browser.run(
            "return document.getElementById('memory-text').textContent"))

    def test_wide_and_narrow_light_and_dark(self):
        self.drop("notes.txt", DOCUMENT)
        self.browser.wait("return document.querySelector('#documents .chip')?.textContent.includes('tokens')")
        self.ask("the sea the sea the sea, and what is in it?")
        self.wait_for_status("Done.")
        self.browser.click(".check")
        self.wait_for_status("Compared.")
        for scheme in ("light", "dark"):
            backgrounds = set()
            for size, (width, height) in (("wide", (1280, 900)), ("narrow", (390, 844))):
                self.browser.show_as(width, height, scheme)
                self.picture(f"{size}-{scheme}")
                over = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
                self.assertLessEqual(self.browser.run(over), 0, (size, scheme))
                backgrounds.add(self.browser.run("return getComputedStyle(document.body).backgroundColor"))
                if size == "narrow":
                    shown = "return getComputedStyle(document.getElementById('panel')).display !== 'none'"
                    self.assertFalse(self.browser.run(shown))
                    self.browser.click("#panel-button")
                    self.assertTrue(self.browser.run(shown))
                    self.assertLessEqual(self.browser.run(over), 0)
                    self.picture(f"panel-{scheme}")
                    self.browser.click("#panel-button")
            brightness = sum(json.loads("[" + backgrounds.pop()[4:-1] + "]"))
            self.assertEqual(brightness > 380, scheme == "light")


if __name__ == "__main__":
    unittest.main()
