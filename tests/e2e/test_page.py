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
SAMPLE = """# The sea

It is **wide**, *deep* and `salty`; see [its page](https://example.org/sea?depth=very) or https://example.org/sky.

## What it does

1. It rises
   - twice a day, with ~~the sun~~ the moon
   - and more where it is narrow
2. It falls
- [x] done
- [ ] to come

> So they say.
> > And others too.

| Sea | Depth in metres | What lives there, as far as anybody knows |
|:--|--:|:-:|
| North Sea | 95 | herring |
| Mediterranean | 1,500 | `octopus`, **tuna** |

```python
def depth(sea):
    return {"North Sea": 95, "Mediterranean": 1500}[sea]  # in metres, and in the mean over all of its parts
```

---

That is all."""


def setUpModule():
    if reason := browser.missing():
        raise unittest.SkipTest(reason)
    if "LONGSPEC_SKIP_SLOW" in os.environ:
        raise unittest.SkipTest("slow, and about the page's scripts")
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
        self.open(forget=True)
        self.set("temperature", "0.7")
        self.set("most", "48")
        self.set("seed", SEED)

    def tearDown(self):
        self.assertEqual(self.browser.complaints(), [])

    def open(self, forget=False):
        if self.browser.run("return location.origin") != self.server.url:
            self.browser.open(self.server.url + "/")
        if forget:
            self.browser.run("localStorage.clear(); sessionStorage.clear()")
        self.browser.open(self.server.url + "/")
        self.browser.wait("return document.getElementById('model').textContent.includes('tokens of context')")

    def show_text_as_it_is(self):
        if self.browser.run("return document.getElementById('markdown').checked"):
            self.browser.click("#markdown")

    def let_model_write(self, *pieces, pause=0, **fields):
        """The next answers are these texts, or deltas, instead of the server's; `bodies` keeps what was asked."""
        deltas = [piece if isinstance(piece, dict) else {"content": piece} for piece in pieces]
        self.browser.run("""
            const [deltas, pause] = arguments;
            const real = window.realFetch ??= window.fetch;
            window.bodies = [];
            window.fetch = (url, options) => {
              if (!url.endsWith("/chat/completions")) return real(url, options);
              window.bodies.push(JSON.parse(options.body));
              const event = json => "data: " + JSON.stringify(json) + "\\n\\n";
              return Promise.resolve(new Response(new ReadableStream({async start(stream) {
                options.signal.addEventListener("abort", () => stream.error(options.signal.reason));
                const send = json => stream.enqueue(new TextEncoder().encode(event(json)));
                for (const [i, delta] of deltas.entries()) {
                  if (pause && i) await new Promise(done => setTimeout(done, pause));
                  const {prompt_progress, token_sources, ...rest} = delta;
                  if (prompt_progress) send({choices: [], prompt_progress});
                  else send({choices: [{delta: rest, token_sources: token_sources ?? [null]}]});
                }
                if (pause) await new Promise(done => { window.letEnd = done; });
                send({choices: [{delta: {}, finish_reason: "stop"}],
                      timings: {predicted_n: 3, predicted_per_second: 10, draft_n: 0, cache_n: 0}});
                stream.close();
              }})));
            };""", deltas, pause)

    def rendered(self, *pieces):
        """The HTML of an answer's text, without the attributes that all of a kind have."""
        self.let_model_write(*pieces)
        self.browser.click("#new")
        self.ask("Write.")
        self.wait_for_status("Done.")
        return self.html()

    def grown(self, text):
        """The HTML of a text that came a character at a time, as `rendered`."""
        return self.html("""
            const source = new Source("", []), host = document.createElement("div"), rendering = new Rendering(host);
            for (const c of arguments[0]) {
              source.add(c, null);
              rendering.show(source, 0, source.text.length, true);
            }
            rendering.show(source, 0, source.text.length, false);""", text)

    def html(self, script="const host = document.querySelector('article.assistant > .text');", *arguments):
        return self.browser.run(script + """
            const copy = host.cloneNode(true);
            for (const e of copy.querySelectorAll("*"))
              for (const name of ["tabindex", "role", "aria-label", "rel", "target", "type"]) e.removeAttribute(name);
            return copy.innerHTML""", *arguments)

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
        return self.browser.run("return [...document.querySelectorAll(`article.${arguments[0]} > .text`)]"
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
        self.show_text_as_it_is()
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
        self.show_text_as_it_is()
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
        self.browser.wait("return document.querySelector('article.assistant > .text').textContent.length > 20")
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

    def test_markdown_is_shown_as_it_is_meant(self):
        code = '<div class="code"><div class="code-head"><span>{}</span><button class="copy-code">Copy</button></div>' \
               '<pre><code>{}</code></pre></div>'
        link = '<a href="{}">{}</a>'
        for text, expected in (
                ("# One\n## Two ##\nThree\n---\n\n---", "<h1>One</h1><h2>Two</h2><h2>Three</h2><hr>"),
                ("A\nline  \n\nanother", "<p>A\nline</p><p>another</p>"),
                ("- a\n  - b\n    1. c\n- d",
                 "<ul><li><p>a</p><ul><li><p>b</p><ol><li><p>c</p></li></ol></li></ul></li><li><p>d</p></li></ul>"),
                ("3. a\n\n4. b", '<ol start="3" class="loose"><li><p>a</p></li><li><p>b</p></li></ol>'),
                ("- [x] done", '<ul><li class="task"><span class="task">☑ </span><p>done</p></li></ul>'),
                ("> a\nb\n> > c", "<blockquote><p>a\nb</p><blockquote><p>c</p></blockquote></blockquote>"),
                ("**a *b* c** __d__ *e* snake_case_name 2 * 3 * 4 ~~f~~", "<p><strong>a <em>b</em> c</strong> "
                 "<strong>d</strong> <em>e</em> snake_case_name 2 * 3 * 4 <del>f</del></p>"),
                ("***a***", "<p><em><strong>a</strong></em></p>"),
                ("`a *b*` ``c ` d`` \\*e\\* \\(x\\) &lt;",
                 "<p><code>a *b*</code> <code>c ` d</code> *e* \\(x\\) &lt;</p>"),
                ("```cpp\nint a = 1 < 2;\n\n  b\n```\nc", code.format("cpp", "int a = 1 &lt; 2;\n\n  b") + "<p>c</p>"),
                ("- a\n  ~~~\n  b\n   c\n  ~~~", "<ul><li><p>a</p>" + code.format("", "b\n c") + "</li></ul>"),
                ("    a\n\n     b", code.format("", "a\n\n b")),
                ("|a|b|\n|:-:|--:|\n|`x|y`|**z**|\nc", '<div class="table"><table><thead><tr><th class="center">a</th>'
                 '<th class="right">b</th></tr></thead><tbody><tr><td class="center"><code>x|y</code></td>'
                 '<td class="right"><strong>z</strong></td></tr></tbody></table></div><p>c</p>'),
                ("[a *b*](https://c.d/e_f) and https://g.h/(i), ![j](http://k.l/)", "<p>"
                 + link.format("https://c.d/e_f", "a <em>b</em>")
                 + '<span class="address"> (https://c.d/e_f)</span> and '
                 + link.format("https://g.h/(i)", "https://g.h/(i)") + ", " + link.format("http://k.l/", "j")
                 + '<span class="address"> (http://k.l/)</span></p>'),
        ):
            with self.subTest(text):
                self.assertEqual(self.grown(text), expected)
        self.assertIn("<a href", self.rendered("See https://a.b/"))
        attributes = self.browser.run("const a = document.querySelector('.text a'); return [a.rel, a.target]")
        self.assertEqual(attributes, ["noopener noreferrer nofollow", "_blank"])

    def test_hostile_markdown_is_text(self):
        for text, expected in (
                ("<script>alert(1)</script><img src=x onerror=alert(1)>",
                 "<p>&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;</p>"),
                ("[a](javascript:alert(1)) [b](data:text/html,x) ![c](x.png) [d](//e.f)",
                 "<p>[a](javascript:alert(1)) [b](data:text/html,x) ![c](x.png) [d](//e.f)</p>"),
                ("```\"onload=alert(1)\n</code><script>", None),
                ("[a](https://b.c/\"onclick=\"alert(1))", None),
        ):
            html = self.rendered(text)
            if expected:
                self.assertEqual(html, expected)
            self.assertEqual(self.browser.run(
                "return [...document.querySelectorAll('.text *')].filter(e => ['script', 'img'].includes(e.localName) "
                "|| e.getAttributeNames().some(name => name.startsWith('on'))).length"), 0)
        # Time is linear in the text: each of these would take minutes otherwise.
        n = 5000
        for text in ("> " * n + "x", "[" * n, "![" * n, "[a](" * n, "[a](https://b" * n, "**a " * n, "*a **b " * n,
                     "_a*b~~" * n, "`" * n + "a`" * n, "- " * n + "x", "1. " * n, "#" * n, "- \n" * n, ">\n" * n,
                     "```\n" * (n + 1), "|a" * n + "\n" + "|-" * n + "\n" + "|b\n" * n, "|a|\n|-|\n" + "|b|\n" * n,
                     "https://a" + ")" * 20 * n, "a\n" * n, "* * " * n + "x", "\\" * n, "&" * n, "<" * n,
                     "".join(" " * (i % 400) + "- x\n" for i in range(n)), "<think>" * n, "</think>\n" * n):
            took, depth, shown = self.browser.run("""
                const source = new Source(arguments[0], [{end: arguments[0].length, source: null}]);
                const host = document.createElement("div"), began = performance.now();
                new Rendering(host).show(source, 0, source.text.length, true);
                new Rendering(host).show(source, 0, source.text.length, false);
                thoughtsIn(source.text);
                let depth = 0;
                for (let e = host; e; e = [...e.children].pop()) ++depth;
                return [performance.now() - began, depth, host.textContent.length]""", text)
            self.assertLess(took, 3000, text[:20])
            self.assertLess(depth, 64, text[:20])
            self.assertGreater(shown + (text[0] in "`->1#"), 0, text[:20])

    def test_rendering_goes_with_the_stream_and_keeps_its_elements(self):
        self.let_model_write({"content": "Some **te", "token_sources": ["ppm"]}, "xt** it\n\n```py\na = 1\n",
                             "b = 2\n", "-", pause=150)
        self.ask("Write.")
        self.browser.wait("return document.querySelector('.text strong')?.textContent === 'te'")
        self.assertEqual(self.browser.run("return [...document.querySelectorAll('.text span.guess')].map(e => "
                                          "[e.title, e.textContent])"), [["ppm", "Some "], ["ppm", "te"]])
        self.browser.wait("return document.querySelector('.text pre')?.textContent === 'a = 1'")
        self.browser.run("window.kept = [...document.querySelectorAll('.text p, .text pre, .copy-code')]")
        self.browser.wait("return document.querySelector('.text pre').textContent === 'a = 1\\nb = 2'")
        self.browser.wait("return Boolean(window.letEnd)")
        self.assertEqual(self.html().count("-<"), 0)  # what it will be is not decided
        self.browser.run("window.letEnd()")
        self.wait_for_status("Done.")
        self.assertIn("b = 2\n-</code>", self.html())
        self.assertTrue(self.browser.run("return window.kept.length === 3 && window.kept.every(e => e.isConnected)"))
        # A block's button copies the block.
        self.browser.devtools("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        self.browser.click(".copy-code")
        self.browser.wait("return document.querySelector('.copy-code').textContent === 'Copied'")
        self.assertEqual(self.browser.run("return navigator.clipboard.readText()"), "a = 1\nb = 2\n-")
        # The other way of showing has the same text and the same marks.
        self.show_text_as_it_is()
        self.assertEqual(self.texts("assistant"), ["Some **text** it\n\n```py\na = 1\nb = 2\n-"])
        self.assertEqual(self.browser.run("return document.querySelector('.text span.guess').textContent"), "Some **te")
        self.assertEqual(self.browser.run("return localStorage.getItem('longspec.markdown')"), "false")

    def test_markdown_wide_and_narrow(self):
        deltas = [{"content": word + " ", "token_sources": ["ppm" if i % 7 < 3 else "suffix" if i % 11 < 3 else None]}
                  for i, word in enumerate(SAMPLE.split(" "))]
        self.let_model_write({"reasoning_content": "First the list, *then* the table."}, *deltas)
        self.ask("What does the sea do?")
        self.wait_for_status("Done.")
        self.browser.run("document.querySelector('details.thoughts').open = true;"
                         " document.querySelector('#log').scrollTop = 0")
        for scheme in ("light", "dark"):
            for size, (width, height) in (("wide", (1280, 1500)), ("narrow", (390, 1700))):
                self.browser.show_as(width, height, scheme)
                self.picture(f"markdown-{size}-{scheme}")
                for over in ("document.documentElement", "document.getElementById('log')"):
                    self.assertLessEqual(self.browser.run(f"return {over}.scrollWidth - {over}.clientWidth"), 0, size)

    def test_thoughts_are_folded(self):
        for pieces in (("<thi", "nk>\nIt is *easy*.\n</th", "ink>\n\nYes."), ("It is *easy*.\n</think>\n\nYes.",),
                       ({"reasoning_content": "It is *easy*."}, "Yes.")):
            with self.subTest(pieces):
                self.assertEqual(self.rendered(*pieces), "<p>Yes.</p>")
                self.assertEqual(self.browser.run("""
                    const thoughts = document.querySelector("details.thoughts");
                    return [thoughts.open, thoughts.hidden, thoughts.querySelector("summary").textContent,
                            thoughts.querySelector(".text").innerHTML]"""),
                                 [False, False, "Thoughts", "<p>It is <em>easy</em>.</p>"])
        self.ask("Why?")
        self.wait_for_status("Done.")
        self.assertEqual(self.browser.run("return window.bodies[1].messages[1]"),
                         {"role": "assistant", "content": "Yes.", "reasoning_content": "It is *easy*."})

    def test_questions_are_edited_and_answers_written_again(self):
        self.let_model_write("One.")
        for question in ("a", "b", "c"):
            self.ask(question)
            self.wait_for_status("Done.")
        self.let_model_write("Two.")
        self.browser.run("document.querySelectorAll('.regenerate')[2].click()")
        self.wait_for_status("Done.")
        self.assertEqual(self.texts("assistant"), ["One.", "One.", "Two."])
        self.browser.run("document.querySelectorAll('.edit')[1].click()")
        self.browser.press(browser.ESCAPE)  # leaves all as it was
        self.assertEqual(self.texts("user"), ["a", "b", "c"])
        self.browser.run("document.querySelectorAll('.edit')[1].click()")
        self.assertEqual(self.browser.run("return document.activeElement.value"), "b")
        self.browser.type(".editor textarea", "b" + browser.ENTER)
        self.wait_for_status("Done.")
        self.assertEqual(self.texts("user"), ["a", "bb"])
        self.assertEqual(self.texts("assistant"), ["One.", "Two."])
        self.assertEqual(self.browser.run("return window.bodies.map(body => body.messages.map(one => one.content))"),
                         [["a", "One.", "b", "One.", "c"], ["a", "One.", "bb"]])

    def test_what_fails_costs_no_answer(self):
        self.let_model_write("One.")
        self.ask("a")
        self.wait_for_status("Done.")
        self.browser.run("window.fetch = url => Promise.reject(new Error('no server'))")
        for act in ("document.querySelector('.regenerate').click()",
                    "document.querySelector('.edit').click(); document.querySelector('.editor .main').click()"):
            self.browser.run(act)
            self.wait_for_status("no server")
            self.assertEqual((self.texts("user"), self.texts("assistant")[-1]), (["a"], "One."))
        self.assertEqual(self.browser.run("return document.getElementById('input').value"), "a")  # as edited
        self.open()
        self.assertEqual((self.texts("user"), self.texts("assistant")), (["a"], ["One."]))

    def titles(self):
        return self.browser.run("return [...document.querySelectorAll('#chat-list .open')].map(e => e.textContent)")

    def press(self, selector, index=0):
        self.browser.run("document.querySelectorAll(arguments[0])[arguments[1]].click()", selector, index)

    def test_conversations_are_kept(self):
        self.let_model_write({"content": "One.", "token_sources": ["ppm"]})
        self.drop("notes.txt", DOCUMENT)
        self.browser.wait("return document.querySelector('#documents .chip')?.textContent.includes('tokens')")
        self.ask("first")
        self.wait_for_status("Done.")
        self.browser.click("#new")
        self.ask("second")
        self.wait_for_status("Done.")
        self.assertEqual(self.titles(), ["second", "first"])
        self.press("#chat-list .open", 1)
        self.browser.wait("return document.querySelector('article.user .chip')")
        self.open()
        # A tab has open what it had.
        self.assertEqual((self.texts("user"), self.texts("assistant")), (["first"], ["One."]))
        self.assertEqual(self.browser.run("return document.querySelector('.text span.guess').title"), "ppm")
        self.assertEqual(self.browser.run("return document.querySelector('[aria-current]').textContent"), "first")
        self.let_model_write("Two.")
        self.ask("more")
        self.wait_for_status("Done.")
        self.assertEqual([one["content"] for one in self.browser.run("return window.bodies[0].messages")],
                         [f"Document notes.txt:\n\n{DOCUMENT}\n\nfirst", "One.", "more"])
        self.assertEqual(self.titles(), ["first", "second"])
        self.picture("chats")
        self.press("#chat-list .rename")
        self.browser.type("#chat-list input", "!" + browser.ENTER)
        self.assertEqual(self.titles(), ["!", "second"])
        self.press("#chat-list .drop", 1)
        self.assertEqual(self.titles(), ["!", "second"])  # asks first
        self.press("#chat-list .drop", 1)
        self.assertEqual(self.titles(), ["!"])
        self.press("#chat-list .drop")
        self.press("#chat-list .drop")
        self.browser.wait("return !document.querySelector('#chat-list li')")
        self.assertEqual(self.texts("user"), [])
        kept = self.browser.run("return Object.keys(localStorage).filter(k => k.startsWith('longspec.chat.'))")
        self.assertEqual(kept, [])

    def test_an_answer_that_is_left_stays_where_it_belongs(self):
        self.let_model_write("One.", " Two.", pause=100)
        self.ask("first")
        self.browser.wait("return document.querySelector('article.assistant > .text')?.textContent === 'One.'")
        self.browser.click("#new")
        self.browser.wait("return !document.querySelector('article')")
        self.let_model_write("Three.")
        self.ask("second")
        self.wait_for_status("Done.")
        self.assertEqual([one["content"] for one in self.browser.run("return window.bodies[0].messages")], ["second"])
        self.press("#chat-list .open", 1)
        self.browser.wait("return document.querySelector('article.assistant')")
        self.assertEqual(self.texts("user"), ["first"])
        self.assertTrue(self.texts("assistant")[0].startswith("One."))

    def test_the_oldest_conversation_makes_room(self):
        self.let_model_write("x" * 1000)
        for question in ("first", "second"):
            self.browser.click("#new")
            self.ask(question)
            self.wait_for_status("Done.")
        self.browser.run("""
            let n = 1 << 20;
            for (let i = 0; n > 100; ++i) {
              try { localStorage.setItem("other" + i, "x".repeat(n)); } catch { n >>= 1; }
            }""")
        self.browser.click("#new")
        self.ask("third")
        self.browser.wait("return document.getElementById('status').textContent === arguments[0]",
                          "Done. The browser's room was full; gone for it: first.")
        self.assertEqual(self.titles(), ["third", "second"])
        # One that would fit nowhere takes nobody's room.
        self.let_model_write("\1" * 700_000)  # each is six characters as it is kept
        self.browser.click("#new")
        self.ask("fourth")
        self.browser.wait("return document.getElementById('status').textContent.includes('too large to be kept')")
        self.browser.run("localStorage.clear()")

    def test_a_prompts_progress(self):
        progress = {"total": 9000, "cache": 1000, "processed": 3000, "time_ms": 4000}
        self.let_model_write({"prompt_progress": progress}, "x", pause=600)
        self.ask("Long?")
        self.browser.wait("return document.getElementById('status').textContent === arguments[0]",
                          "Prompt: 9,000 tokens, 1,000 known, 2,000 computed, about 12 s left")
        self.assertEqual(self.browser.run("return document.querySelector('[role=progressbar]').getAttribute("
                                          "'aria-valuenow')"), "33")
        self.browser.wait("return Boolean(window.letEnd)")
        self.browser.run("window.letEnd()")
        self.wait_for_status("Done.")

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
                    for side in ("panel", "chats"):
                        self.browser.click(f"#{side}-button")
                        self.assertTrue(self.browser.run(shown.replace("panel", side)))
                        self.assertLessEqual(self.browser.run(over), 0)
                        self.picture(f"{side}-{scheme}")
                        self.browser.click(f"#{side}-button")
            brightness = sum(json.loads("[" + backgrounds.pop()[4:-1] + "]"))
            self.assertEqual(brightness > 380, scheme == "light")


if __name__ == "__main__":
    unittest.main()
