#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program as users meet it: options, errors, exit status, output.

Needs the program ($LONGSPEC_BIN, default build/release/longspec) and, for most tests, a model ($LONGSPEC_MODEL, default
models/SmolLM2-135M-Instruct.Q4_1.gguf); tests whose needs are not met are skipped.
"""

import json
import os
import pty
import re
import resource
import select
import signal
import subprocess
import tempfile
import time
import unittest

from test_draft_models import write_draft

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("LONGSPEC_BIN", os.path.join(ROOT, "build/release/longspec"))
MODEL = os.environ.get("LONGSPEC_MODEL", os.path.join(ROOT, "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
TIMEOUT = 120

OK, FAILURE, USAGE, BAD_MODEL, RESOURCES, OUTPUT, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130


def longspec(*args, stdin=b"", stdout=subprocess.PIPE, env=None, timeout=TIMEOUT, largest_file=None,
             most_memory=None):
    def limit():
        for name, most in ((resource.RLIMIT_FSIZE, largest_file), (resource.RLIMIT_AS, most_memory)):
            if most is not None:
                resource.setrlimit(name, (most, most))
    return subprocess.run([BIN, *args], input=stdin, stdout=stdout, stderr=subprocess.PIPE, timeout=timeout,
                          env={**os.environ, **(env or {})}, check=False,
                          preexec_fn=None if largest_file is None and most_memory is None else limit)


@unittest.skipUnless(os.access(BIN, os.X_OK), f"no program at {BIN}")
class CliTestCase(unittest.TestCase):
    def expect_error(self, result, code, *parts):
        """One line on stderr that begins with the program's name, and nothing on stdout."""
        stderr = result.stderr.decode("utf-8", "replace")
        self.assertEqual(result.returncode, code, stderr)
        lines = [line for line in stderr.splitlines() if line.startswith("longspec: error: ")]
        self.assertEqual(len(lines), 1, stderr)
        self.assertEqual(stderr.splitlines()[-1], lines[0], stderr)
        for part in parts:
            self.assertIn(part, lines[0])
        self.assertFalse(result.stdout, result.stdout)


class Usage(CliTestCase):
    def test_help_lists_options_and_exit_codes(self):
        for command in ([], ["run"], ["chat"], ["info"], ["tokenize"], ["perplexity"]):
            result = longspec(*command, "--help")
            self.assertEqual(result.returncode, OK)
            self.assertIn(b"Exit status: 0 success; 1 generation failed; 2 usage", result.stdout)
            self.assertEqual(result.stderr, b"")
        for option in (b"--ctx-size", b"--spec-type", b"--temp", b"--stats-file", b"--rope-scaling", b"--logit-bias",
                       b"--weights-cache DIR"):
            self.assertIn(option, longspec("run", "--help").stdout)

    # One line for scripts: the name and three numbers.
    def test_version(self):
        self.assertRegex(longspec("--version").stdout, rb"^longspec \d+\.\d+\.\d+\n$")

    def test_no_or_unknown_command(self):
        self.expect_error(longspec(), USAGE, "no command", "run, chat, batch, serve, info, tokenize")
        # An empty variable of a script does not open a server to everybody.
        self.expect_error(longspec("serve", "-m", "x.gguf", "--api-key", ","), USAGE, "--api-key: has no key in it")
        self.expect_error(longspec("serve", "-m", "x.gguf", "--api-key=", "--no-webui"), USAGE,
                          "--api-key: has no key in it")
        self.expect_error(longspec("serve", "-m", "x.gguf", "--api-key-file="), USAGE, "--api-key-file: is empty")
        self.expect_error(longspec("fly"), USAGE, "'fly'", "run, chat")
        self.expect_error(longspec("--fly"), USAGE, "--fly")

    # What an option cannot be is refused by the option's name, before the model is opened.
    def test_bad_options(self):
        run = ("run", "-m", "unused.gguf", "-p", "hi")
        cases = [
            (("--colour",), "--colour"),
            (("-xyz", "5"), "-xyz"),
            (("--lora", "a.gguf"), "--lora: is not supported"),
            (("--spec-type", "longspec"), "--spec-draft-model"),
            (("--spec-type", "longspec", "-md", "draft.gguf", "--spec-draft-weights", "q9"), "--spec-draft-weights q9"),
            (("-n", "many"), "--predict"),
            (("-n", "-2"), "--predict"),
            (("-c", "-1"), "--ctx-size"),
            (("-t", "-2"), "--threads"),
            (("-b", "0"), "--batch-size"),
            (("-s", "1.5"), "--seed"),
            (("--temp", "warm"), "--temp"),
            (("--top-p", "2"), "--top-p"),
            (("--logit-bias", "x"), "--logit-bias"),
            (("-ctk", "q9_0"), "--cache-type-k"),
            (("-ctv", "q5_1"), "f32,f16,bf16,q8_0,q4_0,bf16-amx,i8"),
            (("--bf16-weights", "f16"), "f32,bf16,bf16-amx"),
            (("--attn-implementation", "lazy"), "flash,eager"),
            (("--rope-scaling", "spiral"), "--rope-scaling"),
            (("--spec-type", "magic"), "ngram"),
            (("--spec-draft-n-max", "1000"), "--spec-draft-n-max"),
            (("--spec-draft-n-min", "9", "--spec-draft-n-max", "3"), "--spec-draft-n-min"),
            (("--spec-tree", "bush"), "--spec-tree"),
            (("--spec-policy", "bold"), "adaptive, fixed"),
            (("--spec-dice", "maybe"), "--spec-dice"),
            (("--spec-ppm-min-prob", "2"), "--spec-ppm-min-prob"),
            (("--spec-type", "ngram,magic"), "magic"),
            (("-n",), "--predict"),
            (("--stats-file=", "--json"), "--stats-file: is empty"),
            (("--session", ""), "--session: is empty"),
            (("-f", "-", "-jf", "-"), "--file -: standard input"),
            (("-f", "-", "--grammar-file", "-"), "--file -: standard input"),
            (("--grammar", ""), "--grammar: is empty"),
            (("-j", ""), "--json-schema: is empty"),
            (("-f", ""), "--file: is empty"),
            (("--top-k=", "-v"), "--top-k: is empty"),
        ]
        for options, part in cases:
            with self.subTest(options=options):
                self.expect_error(longspec(*run, *options), USAGE, part)
        self.expect_error(longspec(*run, "-m", ""), USAGE, "--model: is empty")

    def test_options_that_would_have_no_effect(self):
        for command, part in ((("features", "-i", "x.jsonl", "-o", "x"), "--length"), (("selfcheck",), "--predict"),
                              (("bench",), "--depth")):
            self.expect_error(longspec(*command, "-m", "unused.gguf", "-c", "512"), USAGE, "--ctx-size: has no effect",
                              part)
            self.assertEqual(b"--ctx-size" in longspec(command[0], "--help").stdout, command[0] == "bench")
        with tempfile.NamedTemporaryFile() as session:
            for options in (("-sys", "Be brief."), ("--chat",), ("--no-chat",)):
                with self.subTest(options=options):
                    self.expect_error(longspec("run", "-m", "unused.gguf", "--session", session.name, *options), USAGE,
                                      options[0].replace("-sys", "--system-prompt") + ": has no effect")
            self.expect_error(longspec("run", "-m", "unused.gguf", "--session", session.name, "-p", ""), USAGE,
                              "prompt is empty")

    def test_old_spellings_warn(self):
        result = longspec("run", "-m", "/nonexistent.gguf", "-p", "hi", "--draft-max", "4")
        self.assertEqual(result.returncode, BAD_MODEL)
        self.assertIn(b"longspec: warning: --draft-max is called --spec-draft-n-max here", result.stderr)

    def test_options_of_llama_cpp_say_what_is_done_instead(self):
        result = longspec("run", "-m", "/nonexistent.gguf", "-p", "hi", "-ub", "256", "-tb", "2", "-fa", "on",
                          "--spec-default", "--spec-draft-p-min", "0.5", "--samplers", "top_k;xtc;temperature")
        self.expect_error(result, BAD_MODEL, "/nonexistent.gguf")
        for part in ("-ub is called --batch-size here", "-tb and -fa have no effect here",
                     "--spec-default is --spec-type auto", "--spec-draft-p-min sets",
                     "--samplers: left out, not here: xtc"):
            self.assertEqual(result.stderr.decode().count("longspec: warning: " + part), 1, result.stderr)
        self.expect_error(longspec("tokenize", "-m", "x.gguf", "-f", "-", "-fa", "on"), USAGE, "-fa")

    # No prompt, an empty one and a file of a line break are all refused before the model is opened.
    def test_empty_prompt(self):
        self.expect_error(longspec("run", "-m", "unused.gguf"), USAGE, "prompt is empty")
        self.expect_error(longspec("run", "-m", "unused.gguf", "-p", ""), USAGE, "prompt is empty")
        self.expect_error(longspec("run", "-m", "unused.gguf", "-f", "-", stdin=b"\n"), USAGE, "prompt is empty")


class BadFiles(CliTestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name, data=None):
        path = os.path.join(self.folder.name, name)
        if data is not None:
            with open(path, "wb") as file:
                file.write(data)
        return path

    # Every command names the file that is not there.
    def test_missing_model(self):
        for command in (("run", "-p", "hi"), ("chat",), ("info",), ("tokenize", "-f", "-")):
            with self.subTest(command=command):
                self.expect_error(longspec(*command, "-m", self.path("no.gguf")), BAD_MODEL, "no.gguf")

    def test_missing_prompt_file(self):
        self.expect_error(longspec("run", "-m", "unused.gguf", "-f", self.path("no.txt")), BAD_MODEL, "no.txt")
        self.expect_error(longspec("run", "-m", "unused.gguf", "-f", self.folder.name), BAD_MODEL, self.folder.name)

    @unittest.skipIf("LONGSPEC_SKIP_SLOW" in os.environ, "sanitizers map more than the limit")
    def test_a_prompt_that_memory_has_no_room_for(self):
        path = self.path("huge.txt", b"")
        os.truncate(path, 1 << 30)
        result = longspec("run", "-m", "unused.gguf", "-f", path, most_memory=400 << 20)
        self.expect_error(result, RESOURCES, "out of memory")

    @unittest.skipUnless(os.path.exists(MODEL), f"no model at {MODEL}")
    def test_threads_that_the_system_does_not_give(self):
        # Room for the model, and not for the stacks of so many threads.
        result = longspec("run", "-m", MODEL, "-p", "hi", "-c", "256", "-t", "1024", most_memory=2 << 30)
        self.expect_error(result, RESOURCES, "--threads 1024: the system refuses one")

    def test_not_a_model(self):
        for name, data in (("empty", b""), ("text", b"hello world, this is no model"), ("magic", b"GGUF")):
            with self.subTest(name=name):
                self.expect_error(longspec("run", "-p", "hi", "-m", self.path(name, data)), BAD_MODEL, name)
        self.expect_error(longspec("info", "-m", self.folder.name), BAD_MODEL, self.folder.name)

    def test_a_file_name_cannot_write_to_the_terminal(self):
        result = longspec("info", "-m", self.path("\x1b[31mred\nline.gguf"))
        self.expect_error(result, BAD_MODEL)
        self.assertNotIn(b"\x1b", result.stderr)

    # Wherever a download was cut off, the file is named and nothing is generated.
    @unittest.skipUnless(os.path.exists(MODEL), f"no model at {MODEL}")
    def test_truncated_model(self):
        with open(MODEL, "rb") as file:
            head = file.read(4 << 20)
        for size in (1, 4, 23, 1024, 100 * 1024, 1 << 20, 3 << 20, len(head)):
            with self.subTest(size=size):
                result = longspec("run", "-p", "hi", "-m", self.path("cut.gguf", head[:size]))
                self.expect_error(result, BAD_MODEL, "cut.gguf")

    def test_unwritable_output_is_said_before_the_model_is_read(self):
        for path in ("/nonexistent/stats.json", self.folder.name):
            result = longspec("run", "-m", "unused.gguf", "-p", "hi", "--stats-file", path)
            self.expect_error(result, OUTPUT, path)
        closed = subprocess.run(["/bin/sh", "-c", 'exec "$0" "$@" >&-', BIN, "run", "-m", "unused.gguf", "-p", "hi"],
                                stderr=subprocess.PIPE, timeout=TIMEOUT, check=False)
        self.assertEqual(closed.returncode, OUTPUT, closed.stderr)
        self.assertIn(b"standard output", closed.stderr)


@unittest.skipUnless(os.path.exists(MODEL), f"no model at {MODEL}")
class WithModel(CliTestCase):
    def run_json(self, *args, **kwargs):
        result = longspec("run", "-m", MODEL, "--json", *args, **kwargs)
        self.assertEqual(result.returncode, OK, result.stderr)
        self.assertEqual(result.stdout.count(b"\n"), 1)
        return json.loads(result.stdout)


def write_table(folder, model=MODEL):
    """A table of n-grams of a short text; returns its path."""
    path = os.path.join(folder, "table.ngrams")
    text = b"The bridge was repaired in summer. The repair of the bridge took two summers.\n" * 20
    made = longspec("corpus", "--ngrams", "-m", model, "-f", "-", "-o", path, stdin=text)
    if made.returncode != OK:
        raise AssertionError(made.stderr)
    return path


class Run(WithModel):
    def test_json_has_exactly_these_fields(self):
        out = self.run_json("-p", "Say hello.", "-n", "8", "--temp", "0")
        self.assertEqual(list(out), ["text", "tokens", "finish_reason", "seed", "timings", "speculative", "model"])
        self.assertEqual(list(out["timings"]),
                         ["cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second",
                          "prompt_draft_ms", "predicted_n", "predicted_ms", "predicted_per_token_ms",
                          "predicted_per_second", "draft_n", "draft_n_accepted"])
        self.assertEqual(list(out["speculative"]),
                         ["type", "steps", "mean_acceptance_length", "acceptance_per_position", "exactness",
                          "distinct_4gram", "draft_ms", "target_ms", "verify_ms", "commit_ms", "proposed",
                          "draft_bytes", "dice", "uses", "policy", "by_drafter", "by_context"])
        self.assertEqual(out["speculative"]["exactness"], "lossless")
        self.assertEqual(out["timings"]["predicted_n"], len(out["tokens"]))
        self.assertLessEqual(len(out["tokens"]), 8)
        self.assertIn(out["finish_reason"], ("stop", "length"))
        self.assertGreater(out["timings"]["prompt_n"], 3)
        self.assertEqual(out["model"], MODEL)

    def test_text_and_statistics(self):
        result = longspec("run", "-m", MODEL, "-p", "Say hello.", "-n", "8", "--temp", "0")
        self.assertEqual(result.returncode, OK, result.stderr)
        out = self.run_json("-p", "Say hello.", "-n", "8", "--temp", "0")
        self.assertEqual(result.stdout.decode(), out["text"].rstrip("\n") + "\n")
        stderr = result.stderr.decode()
        self.assertRegex(stderr,
                         r"prompt eval time = +[\d.]+ ms / +\d+ tokens "
                         r"\( *[\d.]+ ms per token, +[\d.]+ tokens per second\)")
        self.assertRegex(stderr, r"(?m)^ +eval time = +[\d.]+ ms / +\d+ tokens")
        self.assertRegex(stderr,
                         r"draft acceptance = [\d.]+ \( *\d+ accepted / +\d+ generated\), "
                         r"mean acceptance length = [\d.]+, acceptance rate per position = \(")
        self.assertRegex(stderr, r"distinct 4-gram share = [\d.]+")
        self.assertIn("speculation: auto (exactness: lossless)", stderr)

    def test_speculation_never_changes_the_text(self):
        prompt = "Repeat three times: the quick brown fox jumps over the lazy dog."
        for sampling in (("--temp", "0"), ("--temp", "0.7", "-s", "7"),
                         ("--temp", "1.0", "-s", "8", "--repeat-penalty", "1.1")):
            outs = [self.run_json("-p", prompt, "-n", "48", *sampling, *options)
                    for options in (("--spec-type", "none"), (), ("--spec-type", "ngram"),
                                    ("--spec-type", "ngram", "--spec-tree", "4", "--spec-draft-n-max", "16"),
                                    ("--spec-type", "ngram", "-t", "1", "-b", "7", "--spec-ngram-min", "1"))]
            for out in outs[1:]:
                self.assertEqual(out["tokens"], outs[0]["tokens"], sampling)
                self.assertEqual(out["text"], outs[0]["text"])
                self.assertEqual(out["finish_reason"], outs[0]["finish_reason"])
            self.assertEqual(outs[0]["speculative"]["type"], "none")
            self.assertEqual(outs[1]["speculative"]["type"], "auto")
            self.assertEqual(outs[1]["speculative"]["policy"]["name"], "adaptive")
            self.assertEqual(sum(outs[1]["speculative"]["policy"]["decisions"].values()),
                             outs[1]["speculative"]["steps"])
            self.assertEqual(outs[0]["timings"]["draft_n"], 0)

    def test_eager_attention_writes_the_same_text_in_more_memory(self):
        runs = {}
        for kind in ("flash", "eager"):
            result = longspec("run", "-m", MODEL, "--json", "-c", "8192", "-p", "Count to ten.", "-n", "24",
                              "--temp", "0.7", "-s", "3", "--attn-implementation", kind)
            self.assertEqual(result.returncode, OK, result.stderr)
            runs[kind] = (json.loads(result.stdout)["tokens"],
                          float(re.search(rb"scratch ([\d.]+) MiB", result.stderr)[1]))
        self.assertEqual(runs["flash"][0], runs["eager"][0])
        # Of one layer, its 3 KV heads for their 9 query heads, f16: the keys and values of 8192 tokens.
        self.assertAlmostEqual(runs["eager"][1] - runs["flash"][1], 2 * 8192 * 9 * 64 * 2 / 2 ** 20, delta=0.2)

    def test_equal_seeds_give_equal_text(self):
        args = ("-p", "Write a poem.", "-n", "24", "--temp", "1.2", "--top-k", "0", "--top-p", "1", "--min-p", "0")
        a, b, c = self.run_json(*args, "-s", "1"), self.run_json(*args, "-s", "1"), self.run_json(*args, "-s", "2")
        self.assertEqual(a["seed"], 1)
        self.assertEqual(a["tokens"], b["tokens"])
        self.assertNotEqual(a["tokens"], c["tokens"])
        fresh = self.run_json(*args)
        again = self.run_json(*args, "-s", str(fresh["seed"]))
        self.assertEqual(fresh["tokens"], again["tokens"])

    # The second run reads the weights that the first one kept, a damaged file is said and made again, and the text
    # stays.
    def test_weights_cache(self):
        args = ("-p", "Say hello.", "-n", "8", "--temp", "0", "--no-progress")
        plain = self.run_json(*args)
        with tempfile.TemporaryDirectory() as parent:
            folder = os.path.join(parent, "weights")
            runs = []
            for expected in ("weights packed now, kept in ", "weights read from "):
                result = longspec("run", "-m", MODEL, "--json", "-v", "--weights-cache", folder, *args)
                self.assertEqual(result.returncode, OK, result.stderr)
                self.assertIn(expected + folder, result.stderr.decode())
                self.assertNotIn("warning", result.stderr.decode())
                runs.append(json.loads(result.stdout))
            kept = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".longspec-weights")]
            self.assertEqual(len(kept), 1)
            with open(kept[0], "r+b") as file:
                file.truncate(os.path.getsize(kept[0]) // 2)
            both = [subprocess.Popen([BIN, "run", "-m", MODEL, "--json", "--weights-cache", folder, *args],
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
            outputs = [process.communicate(timeout=TIMEOUT) for process in both]
            self.assertEqual([process.returncode for process in both], [OK, OK], outputs)
            self.assertIn(f"longspec: warning: {kept[0]}: has ", "".join(err.decode() for _, err in outputs))
            runs += [json.loads(out) for out, _ in outputs]
            self.assertIn("weights read from " + kept[0],
                          longspec("run", "-m", MODEL, "-v", "--weights-cache", folder, *args).stderr.decode())
            # A full disk, as far as the program can tell.
            os.remove(kept[0])
            os.symlink("/dev/full", kept[0] + ".tmp")
            result = longspec("run", "-m", MODEL, "--json", "--weights-cache", folder, *args)
            self.assertEqual(result.returncode, OK, result.stderr)
            self.assertRegex(result.stderr.decode(),
                             r"longspec: warning: \S+: cannot be written: No space left on device; "
                             r"the packed weights are not kept")
            runs.append(json.loads(result.stdout))
            self.assertFalse([name for name in os.listdir(folder) if not name.endswith(".longspec-hash")])
        for run in runs:
            self.assertEqual(run["tokens"], plain["tokens"])

    # A text that is written in two runs is that of one, and a session of other options, or one that lost a bit, is
    # refused.
    def test_session(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "talk.session")
            text = "The quick brown fox jumps over the lazy dog. " * 20
            whole = self.run_json("--no-chat", "-p", text, "-n", "24", "--temp", "0")
            first = self.run_json("--no-chat", "-p", text, "-n", "12", "--temp", "0", "--session", path)
            rest = self.run_json("-n", "12", "--temp", "0", "--session", path)
            self.assertEqual(first["text"] + rest["text"], whole["text"])
            self.assertGreater(rest["timings"]["cache_n"], 190)
            other = longspec("run", "-m", MODEL, "-n", "2", "--session", path, "-ctk", "f32")
            self.assertNotEqual(other.returncode, OK)
            self.assertIn(b"keys f16", other.stderr)
            with open(path, "r+b") as file:  # a bit is lost
                file.seek(5000)
                byte = file.read(1)
                file.seek(5000)
                file.write(bytes([byte[0] ^ 1]))
            damaged = longspec("run", "-m", MODEL, "-n", "2", "--session", path)
            self.assertNotEqual(damaged.returncode, OK)
            self.assertIn(b"talk.session: the session file is damaged", damaged.stderr)

    # The text ends before the stop string, with and without speculation.
    def test_stop_string(self):
        args = ("--no-chat", "-p", "1, 2, 3, 4, 5,", "-n", "24", "--temp", "0")
        whole = self.run_json(*args)
        stop = whole["text"][6:9]
        for spec in ("none", "ngram"):
            out = self.run_json(*args, "--stop", stop, "--spec-type", spec)
            self.assertEqual(out["text"], whole["text"][:whole["text"].index(stop)])
            self.assertEqual(out["finish_reason"], "stop")
            self.assertEqual(out["tokens"], whole["tokens"][:len(out["tokens"])])

    # No tokens at all, and as many as the context has room for.
    def test_limits(self):
        out = self.run_json("--no-chat", "-p", "The", "-n", "0", "--temp", "0")
        self.assertEqual((out["text"], out["tokens"], out["finish_reason"]), ("", [], "length"))
        out = self.run_json("--no-chat", "-p", "The", "-c", "16", "--ignore-eos", "--temp", "0")
        self.assertEqual(out["finish_reason"], "context")
        self.assertEqual(out["timings"]["cache_n"] + out["timings"]["prompt_n"] + len(out["tokens"]), 16)

    def test_prompt_longer_than_the_context(self):
        result = longspec("run", "-m", MODEL, "--no-chat", "-p", "word " * 200, "-c", "64")
        self.expect_error(result, RESOURCES, "the prompt has 20", "the context holds 64", "-c")

    def test_a_context_that_cannot_fit_is_refused_with_numbers(self):
        result = longspec("run", "-m", MODEL, "-p", "hi", "-c", "1000000000")
        self.expect_error(result, RESOURCES, "KV cache", "a context of 1000000000", "available", "would fit")

    def test_prompt_and_file(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"The sky is blue.\n")
            file.flush()
            out = self.run_json("--no-chat", "-p", "Text:", "-f", file.name, "-n", "4", "--temp", "0")
            same = self.run_json("--no-chat", "-p", "Text:\n\nThe sky is blue.", "-n", "4", "--temp", "0")
            piped = self.run_json("--no-chat", "-p", "Text:", "-f", "-", "-n", "4", "--temp", "0",
                                  stdin=b"The sky is blue.\n")
        self.assertEqual(out["tokens"], same["tokens"])
        self.assertEqual(out["tokens"], piped["tokens"])

    # It is a part of the chat, and is refused where there is no chat.
    def test_system_prompt(self):
        a = self.run_json("-sys", "Answer with one word.", "-p", "Hi", "-n", "4", "--temp", "0")
        b = self.run_json("-p", "Hi", "-n", "4", "--temp", "0")
        self.assertNotEqual(a["timings"]["prompt_n"], b["timings"]["prompt_n"])
        self.expect_error(longspec("run", "-m", MODEL, "--no-chat", "-sys", "x", "-p", "Hi"), USAGE, "-sys")

    def test_invalid_utf8_is_accepted_as_bytes(self):
        for chat in ("--chat", "--no-chat"):
            out = self.run_json(chat, "-f", "-", "-n", "4", "--temp", "0", stdin=b"caf\xe9 \xff\xfe\x00 \xc3")
            self.assertEqual(len(out["tokens"]), out["timings"]["predicted_n"])
        result = subprocess.run([os.fsencode(BIN), b"run", b"-m", os.fsencode(MODEL), b"--json", b"-n", b"2", b"-p",
                                 b"\xff\xfe"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT, check=False)
        self.assertEqual(result.returncode, OK, result.stderr)
        json.loads(result.stdout.decode("utf-8"))

    def test_output_that_cannot_be_written(self):
        for extra in ((), ("--json",)):
            with open("/dev/full", "wb") as full:
                result = longspec("run", "-m", MODEL, "-p", "Say hello.", "-n", "8", *extra, stdout=full)
            self.assertEqual(result.returncode, OUTPUT, result.stderr)
            self.assertIn(b"longspec: error: cannot write standard output: No space left", result.stderr)
        result = longspec("run", "-m", MODEL, "-p", "Say hello.", "-n", "4", "--stats-file", "/dev/full")
        self.assertEqual(result.returncode, OUTPUT, result.stderr)

    def test_a_disk_that_fills_up_under_an_offloaded_cache(self):
        question = " ".join(f"word {i * i % 89}" for i in range(150))
        with tempfile.TemporaryDirectory() as folder:
            offloaded = (MODEL, "-c", "2048", "--temp", "0", "-n", "4", "--kv-offload", folder, "--kv-memory", "0")
            full = longspec("run", "-m", *offloaded, "-p", question, largest_file=7 << 20)  # room for 256 positions
            self.expect_error(full, RESOURCES, folder + ": no room for the key-value cache beyond 5 MiB")
            # A conversation says so and goes on.
            talk = longspec("chat", "-m", *offloaded, stdin=(question + "\nHello\n").encode(), largest_file=7 << 20)
            self.assertEqual(talk.returncode, RESOURCES, talk.stderr)
            self.assertEqual(talk.stdout, longspec("chat", "-m", *offloaded, stdin=b"Hello\n").stdout)
            plain = longspec("run", "-m", *offloaded[:-4], "-p", question)
            self.assertEqual(longspec("run", "-m", *offloaded, "-p", question).stdout, plain.stdout)
            self.assertEqual(os.listdir(folder), [])

    def test_a_reader_that_goes_away_ends_it_quietly(self):
        process = subprocess.Popen([BIN, "run", "-m", MODEL, "--no-chat", "-p", "Once upon a time", "--ignore-eos",
                                    "-n", "2000"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.read(1)
        process.stdout.close()
        stderr = process.stderr.read()
        process.stderr.close()
        self.assertEqual(process.wait(TIMEOUT), OUTPUT, stderr)
        self.assertNotIn(b"error", stderr)

    # The statistics replace what stood in the file, and hold the text that was printed.
    def test_stats_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "stats.json")
            with open(path, "w", encoding="utf-8") as file:
                file.write("x" * 10000)
            result = longspec("run", "-m", MODEL, "-p", "Say hello.", "-n", "8", "--temp", "0", "--stats-file", path)
            self.assertEqual(result.returncode, OK, result.stderr)
            with open(path, encoding="utf-8") as file:
                stats = json.load(file)
        self.assertEqual(stats["text"].rstrip("\n") + "\n", result.stdout.decode())

    def test_kernels_by_option_and_environment(self):
        # A prompt of one token and a pass behind it: the reference takes a second for each, and is not measured.
        args = ("--no-chat", "-p", "Once", "-n", "2", "--temp", "0", "--no-calibration-cache")
        a = self.run_json(*args, "--kernels", "reference")
        b = self.run_json(*args)
        self.assertEqual(a["tokens"], b["tokens"])
        self.expect_error(longspec("run", "-m", MODEL, "-p", "x", "--kernels", "abacus"), USAGE, "abacus", "reference")
        self.expect_error(longspec("run", "-m", MODEL, "-p", "x", env={"LONGSPEC_KERNELS": "abacus"}), USAGE, "abacus")

    # Ctrl-C ends the answer with its statistics and a status of its own.
    def test_interrupted(self):
        process = subprocess.Popen([BIN, "run", "-m", MODEL, "--no-chat", "-p", "Once upon a time", "--ignore-eos"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, INTERRUPTED, stderr)
        self.assertTrue(stdout.endswith(b"\n"))
        self.assertIn(b"eval time", stderr)

    def test_ctrl_c_ends_a_command_that_has_nothing_to_keep(self):
        # Whoever started the tests may ignore the signal.
        process = subprocess.Popen([BIN, "tokenize", "-m", MODEL, "-f", "-"], stdin=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        with process:
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(TIMEOUT), -signal.SIGINT)


class Chat(WithModel):
    ARGS = ("chat", "-m", MODEL, "--temp", "0", "-n", "16", "--no-progress")

    def test_piped_turns_reuse_the_cache(self):
        result = longspec(*self.ARGS, "-v", stdin=b"My name is Ann.\nWhat is my name?\n")
        self.assertEqual(result.returncode, OK, result.stderr)
        self.assertEqual(result.stderr.count(b"prompt eval time"), 2)
        self.assertRegex(result.stderr, rb"\(\d+ more from the cache\)")
        self.assertGreaterEqual(result.stdout.count(b"\n"), 2)

    # Lines that begin with a slash are no turns, and nothing is read after /exit.
    def test_commands(self):
        result = longspec(*self.ARGS, stdin=b"/help\n/nonsense\n\n/clear\n/exit\nnever read\n")
        self.assertEqual(result.returncode, OK, result.stderr)
        self.assertEqual(result.stdout, b"")
        self.assertIn(b"/clear  forget", result.stderr)
        self.assertIn(b"unknown command /nonsense", result.stderr)

    # After /clear a question is answered as in a new chat.
    def test_clear_forgets(self):
        once = longspec(*self.ARGS, stdin=b"Count to three.\n")
        twice = longspec(*self.ARGS, stdin=b"Hello\n/clear\nCount to three.\n")
        self.assertEqual(once.returncode, OK, once.stderr)
        self.assertTrue(once.stdout.strip())
        self.assertTrue(twice.stdout.endswith(once.stdout))

    def test_a_session_goes_on_in_the_next_call(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "talk.session")
            system = ("--system-prompt", "Be brief.")
            whole = longspec(*self.ARGS, *system, stdin=b"My name is Ann.\nWhat is my name?\n")
            first = longspec(*self.ARGS, *system, "--session", path, stdin=b"My name is Ann.\n")
            rest = longspec(*self.ARGS, "-v", "--prompt-cache", path, stdin=b"What is my name?\n")
            for result in (whole, first, rest):
                self.assertEqual(result.returncode, OK, result.stderr)
            self.assertIn(b"--prompt-cache is called --session here", rest.stderr)
            self.assertEqual(first.stdout + rest.stdout, whole.stdout)
            self.assertRegex(rest.stderr, rb"\(\d+ more from the cache\)")
            # What was cleared is gone from the file, its instruction is not.
            cleared = longspec(*self.ARGS, "--session", path, stdin=b"/clear\n")
            self.assertEqual(cleared.returncode, OK, cleared.stderr)
            again = longspec(*self.ARGS, "--session", path, stdin=b"My name is Ann.\n")
            self.assertEqual(again.stdout, first.stdout)
            self.assertEqual(os.listdir(folder), ["talk.session"])

    def test_run_begins_what_chat_goes_on_with(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "talk.session")
            whole = longspec(*self.ARGS, stdin=b"My name is Ann.\nWhat is my name?\n")
            first = longspec("run", *self.ARGS[1:], "-p", "My name is Ann.", "--session", path)
            rest = longspec(*self.ARGS, "--session", path, stdin=b"What is my name?\n")
            self.assertEqual(first.returncode, OK, first.stderr)
            self.assertEqual(rest.returncode, OK, rest.stderr)
            self.assertEqual(first.stdout + rest.stdout, whole.stdout)

    def test_sessions_that_cannot_go_on(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "text.session")
            written = longspec("run", *self.ARGS[1:], "--no-chat", "-p", "one two", "--session", path)
            self.assertEqual(written.returncode, OK, written.stderr)
            self.expect_error(longspec(*self.ARGS, "--session", path, stdin=b"Hi\n"), USAGE,
                              "text.session: the session is a text and no conversation")
            self.expect_error(longspec(*self.ARGS, "--session", path, "-ctk", "f32", stdin=b"Hi\n"), USAGE, "keys f16")
            with open(path, "r+b") as file:
                file.truncate(4000)
            self.expect_error(longspec(*self.ARGS, "--session", path, stdin=b"Hi\n"), BAD_MODEL, "text.session: ")
            for command in (self.ARGS, ("run", *self.ARGS[1:], "-p", "x")):
                for bad in (folder, os.path.join(folder, "none", "x.session")):
                    self.expect_error(longspec(*command, "--session", bad, stdin=b"Hi\n"), OUTPUT, bad)

    def test_a_turn_that_does_not_fit_is_refused_and_the_rest_goes_on(self):
        result = longspec(*self.ARGS, "-c", "96", stdin=b"word " * 200 + b"\nHi\n")
        self.assertEqual(result.returncode, RESOURCES, result.stderr)
        self.assertIn(b"longspec: error: the prompt has", result.stderr)
        self.assertTrue(result.stdout.strip())

    def spawn(self, *extra):
        self.seen = b""
        parent, child = pty.openpty()
        process = subprocess.Popen([BIN, "chat", "-m", MODEL, "--temp", "0", *extra], stdin=child, stdout=child,
                                   stderr=child, start_new_session=True)
        os.close(child)
        self.addCleanup(os.close, parent)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, parent

    def read_until(self, fd, text, seconds=TIMEOUT):
        """Reads the terminal up to `text`; what came after it is kept for the next call."""
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            try:
                ready = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]
                data = os.read(fd, 4096) if ready else b""
            except OSError:
                data = b""
            if not data:
                self.fail(f"{text!r} not seen in {self.seen!r}")
            self.seen += data
        self.seen = self.seen[self.seen.index(text) + len(text):]

    def test_ctrl_c_stops_the_answer_and_keeps_the_session(self):
        process, terminal = self.spawn("--ignore-eos")
        self.read_until(terminal, b"> ")
        os.write(terminal, b"Tell me a very long story.\n")
        self.read_until(terminal, b"story.\r\n")
        self.read_until(terminal, b" ")  # the answer has begun
        process.send_signal(signal.SIGINT)
        self.read_until(terminal, b"[stopped]")
        self.read_until(terminal, b"> ")
        os.write(terminal, b"/exit\n")
        self.assertEqual(process.wait(TIMEOUT), OK)

    def test_ctrl_c_at_the_prompt_leaves(self):
        process, terminal = self.spawn()
        self.read_until(terminal, b"> ")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(TIMEOUT), INTERRUPTED)

    def test_end_of_input_leaves(self):
        process, terminal = self.spawn()
        self.read_until(terminal, b"> ")
        os.write(terminal, b"\x04")
        self.assertEqual(process.wait(TIMEOUT), OK)


class Info(WithModel):
    # The facts that somebody looks for in `info`.
    def test_for_people(self):
        result = longspec("info", "-m", MODEL, "-c", "4096")
        self.assertEqual(result.returncode, OK, result.stderr)
        text = result.stdout.decode()
        for word in ("llama", "layers", "tokenizer", "smollm", "kernels", "arithmetic", "memory", "a context of 4096"):
            self.assertIn(word, text)

    # The same as JSON: the plan's parts are its total, and keys and values take what their types take.
    def test_for_programs(self):
        result = longspec("info", "-m", MODEL, "--json", "-ctk", "f32")
        info = json.loads(result.stdout)
        self.assertEqual(info["architecture"], "llama")
        self.assertEqual(info["memory"]["total"],
                         info["memory"]["weights"] + info["memory"]["kv_at_context"] + info["memory"]["scratch"])
        self.assertIn(info["kernels"], info["kernels_available"])
        self.assertIn("reference", info["kernels_available"])
        f16 = json.loads(longspec("info", "-m", MODEL, "--json").stdout)
        self.assertEqual(info["memory"]["kv_at_context"] * 2, f16["memory"]["kv_at_context"] * 3)
        small = json.loads(longspec("info", "-m", MODEL, "--json", "-ctk", "q8_0", "-ctv", "q4_0").stdout)
        self.assertEqual(small["memory"]["kv_at_context"] * 256, f16["memory"]["kv_at_context"] * (68 + 36))
        self.assertEqual(small["arithmetic"]["KV cache"], "keys q8_0, values q4_0")

    def test_forced_kernels_are_shown(self):
        info = json.loads(longspec("info", "-m", MODEL, "--json", env={"LONGSPEC_KERNELS": "reference"}).stdout)
        self.assertEqual(info["kernels"], "reference")


class MemoryPlan(WithModel):
    PLAN = rb"(?m)^memory: [\d.]+ [KMG]iB: weights .*, KV cache .* at a context of 512, scratch [^\n]*$"

    def test_one_line_of_it_before_loading(self):
        args = ("run", "-m", MODEL, "-c", "512", "-p", "Hi", "-n", "1")
        shown = longspec(*args)
        self.assertRegex(shown.stderr, self.PLAN)
        self.assertLess(shown.stderr.index(b"memory: "), shown.stderr.index(b"prompt eval time"))
        as_json = longspec(*args, "--json")
        self.assertRegex(as_json.stderr, self.PLAN)
        json.loads(as_json.stdout)
        self.assertRegex(longspec("chat", "-m", MODEL, "-c", "512").stderr, self.PLAN)
        self.assertNotIn(b"memory: ", longspec(*args, "--no-progress").stderr)

    def test_it_precedes_the_refusal(self):
        result = longspec("run", "-m", MODEL, "-p", "hi", "-c", "1000000000")
        self.assertEqual(result.returncode, RESOURCES)
        self.assertIn(b"at a context of 1000000000, scratch", result.stderr.split(b"longspec: error: ")[0])


class Selfcheck(WithModel):
    EXCERPT_BYTES = 5000
    TEMPERATURE = "0.7"  # 0 is that of the test below, and of test_draft_models.py

    def test_the_promise_holds_on_the_default_model(self):
        """Every drafter the program knows, on a real text that is longer than their windows."""
        with open(os.path.join(ROOT, "data/demo/report.txt"), "rb") as file:
            text = file.read(self.EXCERPT_BYTES)
        tokens = longspec("tokenize", "-m", MODEL, "-f", "-", "--json", stdin=text)
        self.assertGreaterEqual(len(json.loads(tokens.stdout)["tokens"]), 900)
        refused = longspec("run", "-m", MODEL, "-p", "hi", "--spec-type", "no-such-drafter").stderr.decode()
        drafters = refused.split("known are ")[1].strip().split(", ")
        self.assertGreater(len(drafters), 5)
        with tempfile.TemporaryDirectory() as folder:
            result = longspec("selfcheck", "-m", MODEL, "-f", "-", "-n", "16", "--temps", self.TEMPERATURE,
                              "-md", write_draft(folder), "-md", MODEL, stdin=text, timeout=900)
        lines = result.stdout.decode().splitlines()
        self.assertEqual(result.returncode, OK, result.stdout.decode() + result.stderr.decode())
        # Of those with a draft of their own two have one here.
        without = [kind for kind in ("eagle", "eagle3", "beagle", "medusa", "tokenswift", "exit") if kind in drafters]
        skipped = [line.split()[1].rstrip(":") for line in lines if line.startswith("skipped  ")]
        self.assertEqual(skipped, without)
        checked = [line for line in lines[:-1] if not line.startswith("skipped  ")]
        self.assertEqual(lines[-1], f"{len(checked)} comparisons, 0 different")
        self.assertTrue(all(line.startswith("identical  ") for line in checked), lines)
        at = [line.removeprefix("identical  ") for line in lines if f", temp {self.TEMPERATURE}: 16 tokens" in line]
        for name in (*drafters, "ngram,suffix", "suffix,recycling"):
            # Without a grammar or a text they guess nothing.
            if name in without or name in ("grammar", "prediction"):
                continue
            drafted = [int(re.search(r"(\d+) drafted", line)[1]) for line in at
                       if re.match(re.escape(name) + r"( \w|, temp)", line)]
            self.assertTrue(drafted, f"{name} is missing in {lines}")
            self.assertEqual(max(drafted) > 0, name != "none", f"{name}: {lines}")
        # The adaptive policy may find that drafting does not pay.
        for part in ("auto, adaptive policy", "auto with a draft model, adaptive policy", "auto without dice, ",
                     "random trees of 40 nodes", "prefill in chunks of 1,", "prefill in chunks of 7,", "threads "):
            self.assertTrue(any(part in line for line in at), f"{part} is missing in {lines}")
        self.assertTrue(any("kernels reference against" in line and f"temp {self.TEMPERATURE}" in line
                            for line in lines), lines)

    def test_drafters_without_a_model_are_named(self):
        result = longspec("selfcheck", "-m", MODEL, "-n", "1", "--temps", "0", "-f", "-", stdin=b"Once upon a time")
        self.assertEqual(result.returncode, OK, result.stderr)
        for name in ("longspec", "eagle", "eagle3", "beagle", "medusa", "tokenswift", "exit", "lm"):
            self.assertRegex(result.stdout.decode(),
                             rf"(?m)^skipped    {name}: .*needs a draft model.*--spec-draft-model")
        self.assertNotIn(b"temp 0.7", result.stdout)
        self.assertNotIn(b"auto without dice", result.stdout)  # there is no chance to take part in

    # Self-check refuses its own wrong options, and names a draft model that is not there.
    def test_bad_options(self):
        self.expect_error(longspec("selfcheck", "-m", MODEL, "--temps", "warm"), USAGE, "--temps")
        self.expect_error(longspec("selfcheck", "-m", MODEL, "-md", "/nonexistent.gguf"), BAD_MODEL,
                          "/nonexistent.gguf")


class Perplexity(WithModel):
    TEXT = b" ".join(b"The committee heard %d reports on bridge %d." % (i * i % 17, i) for i in range(20))

    def perplexity(self, *args):
        result = longspec("perplexity", "-m", MODEL, "-f", "-", *args, stdin=self.TEXT)
        self.assertEqual(result.returncode, OK, result.stderr)
        return result.stdout.decode()

    def test_the_same_numbers_for_any_batch(self):
        one, other = (json.loads(self.perplexity("--json", "-b", rows)) for rows in ("512", "13"))
        self.assertEqual(one, other)
        self.assertEqual(sum(bucket["tokens"] for bucket in one["by_position"]), one["tokens"])
        self.assertIn(f"Final estimate: PPL = {one['perplexity']:.4f} +/- ", self.perplexity())
        yarn = json.loads(self.perplexity("--json", "--rope-scaling", "yarn", "--rope-scale", "8"))
        self.assertEqual(yarn["rope_scaling"], "yarn x8 (original 8192)")
        self.assertNotEqual(yarn["nats"], one["nats"])

    # A file that is not there, and a text without a token to foretell.
    def test_errors(self):
        self.expect_error(longspec("perplexity", "-m", MODEL, "-f", "/nowhere"), BAD_MODEL, "/nowhere")
        self.expect_error(longspec("perplexity", "-m", MODEL, "-f", "-"), USAGE,
                          "a text of 0 tokens has none to foretell")


class Bench(WithModel):
    # A line for the machine, for each step and for sampling, with numbers that can be right.
    def test_json_lines(self):
        result = longspec("bench", "-m", MODEL, "--depth", "64", "--rows", "1,4", "--repetitions", "1", "--json")
        self.assertEqual(result.returncode, OK, result.stderr)
        machine, *rows, unfiltered, filtered = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual(machine["test"], "machine")
        for limit in ("gb_per_second", "q8_gmac_per_second", "f32_gmac_per_second", "bf16_gmac_per_second",
                      "barrier_us"):
            self.assertGreater(machine[limit], 0)
        self.assertEqual([(row["test"], row["depth"], row["rows"]) for row in rows],
                         [("prefill", 64, 64), ("decode", 64, 1), ("rows", 64, 4)])
        for row in rows:
            self.assertGreater(row["ms"], 0)
            self.assertGreater(row["tokens_per_second"], 0)
            self.assertGreater(row["gmac_per_second"], 0)
            self.assertGreater(row["roofline_share"], 0)
        for row, filters in ((unfiltered, "none"), (filtered, "default")):
            self.assertEqual((row["test"], row["depth"], row["filters"]), ("sampling", 64, filters))
            self.assertGreater(row["vocab"], 1000)
            self.assertGreater(row["us"], 0)
            self.assertAlmostEqual(row["share_of_step"], row["us"] / 1000 / rows[1]["ms"])

    # The same for people: a table of steps, and one of what choosing a token takes.
    def test_tables(self):
        result = longspec("bench", "-m", MODEL, "--depth", "64", "--rows", "1", "--repetitions", "1")
        self.assertEqual(result.returncode, OK, result.stderr)
        table = result.stdout.decode()
        self.assertRegex(table,
                         r"\n\| decode +\| +64 \| +1 \|.*\n\nChoosing one of \d+ tokens at temperature "
                         r"1, after 64 keys:\n\n"
                         r"\| filters .*\n\|-.*\n\| none +\| +[\d.]+ \| +[\d.]+ % \|\n\| "
                         r"default +\| +[\d.]+ \| +[\d.]+ % \|\n$")

    # A table of rows by depth and its chart; depths beyond the training are marked, and a chart that cannot be
    # written fails.
    def test_sweep(self):
        with tempfile.TemporaryDirectory() as folder:
            svg = os.path.join(folder, "sweep.svg")
            result = longspec("bench", "-m", MODEL, "--sweep", "--depth", "256,9000", "--rows", "2", "--repetitions",
                              "1", "--svg", svg)
            self.assertEqual(result.returncode, 0, result.stderr)
            lines = result.stdout.decode().splitlines()
            self.assertEqual(lines[3], "| rows | 256 keys | 9000* keys |")
            self.assertTrue(lines[5].startswith("| 1 |") and "1.00x" in lines[5], lines)
            self.assertTrue(lines[6].startswith("| 2 |"), lines)
            self.assertIn("speed only", result.stdout.decode())
            with open(svg, encoding="utf-8") as file:
                self.assertIn("Cost of a step", file.read())
            result = longspec("bench", "-m", MODEL, "--sweep", "--depth", "256", "--rows", "1", "--repetitions", "1",
                              "--svg", "/dev/full")
            self.assertEqual(result.returncode, OUTPUT, result.stderr)

    # Whole answers, of unrelated prompts and of one document, of which less has to be read.
    def test_answers(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
            text.write(" ".join(f"word {i * i % 89}" for i in range(200)))
            text.flush()
            args = ("bench", "-m", MODEL, "--answers", "3", "--parallel", "2", "--depth", "100", "--repetitions", "1")
            result = longspec(*args, "--text", text.name, "--spec-type", "ngram", "--json")
            self.assertEqual(result.returncode, OK, result.stderr)
            rows = [json.loads(line) for line in result.stdout.splitlines()]
            self.assertEqual([(row["prompts"], row["speculation"]) for row in rows],
                             [("unrelated", "none"), ("unrelated", "ngram"), ("one document", "none"),
                              ("one document", "ngram")])
            for row in rows:
                self.assertEqual(row["tokens"], 6)
                self.assertGreater(row["tokens_per_second"], row["tokens_per_second_with_prompts"])
            self.assertGreater(rows[0]["prompt_tokens_read"], rows[2]["prompt_tokens_read"])
            for_people = longspec(*args, "--text", text.name, "--spec-type", "none", "--prompts", "unrelated")
            self.assertIn(b"| unrelated    | none ", for_people.stdout)
            self.assertNotIn(b"one document", for_people.stdout)
        self.expect_error(longspec(*args), USAGE, "--text")
        self.expect_error(longspec(*args, "--text", "/nonexistent"), BAD_MODEL, "/nonexistent")
        self.expect_error(longspec(*args, "--text", "x", "--sweep"), USAGE, "--answers")

    # Numbers that cannot be measured with, and options that need another one.
    def test_bad_lists(self):
        self.expect_error(longspec("bench", "-m", MODEL, "--svg", "x.svg"), USAGE, "--svg x.svg: needs --sweep")
        self.expect_error(longspec("bench", "-m", MODEL, "--depth", "0"), USAGE, "--depth 0")
        self.expect_error(longspec("bench", "-m", MODEL, "--depth", "x"), USAGE, "--depth")
        self.expect_error(longspec("bench", "-m", MODEL, "--depth", "2000000000"), USAGE, "--depth 2000000000")

    def test_a_depth_that_cannot_fit_is_refused_with_numbers(self):
        self.expect_error(longspec("bench", "-m", MODEL, "--depth", "512,1000000000"), RESOURCES, "GiB")

    def test_a_file_that_is_missing_is_said_before_any_table(self):
        for args in (("-m", MODEL, "-md", "/nonexistent.gguf"), ("-m", "/nonexistent.gguf", "--parallel", "2")):
            self.expect_error(longspec("bench", *args, "--depth", "64"), BAD_MODEL, "/nonexistent.gguf")


class Tokenize(WithModel):
    CASES = [("", []), (" ", [216]), ("\n", [198]), ("don't I'LL we've", [12420, 982, 339, 23, 16421, 392, 3543])]

    # The tokens that the reference tokenizer gave for the same texts.
    def test_golden(self):
        for text, ids in self.CASES:
            result = longspec("tokenize", "-m", MODEL, "-f", "-", "--json", stdin=text.encode())
            self.assertEqual(result.returncode, OK, result.stderr)
            self.assertEqual(json.loads(result.stdout), {"tokens": ids})

    # For people a token is a line, whatever bytes it has.
    def test_lines(self):
        result = longspec("tokenize", "-m", MODEL, "-f", "-", stdin=b"don't\n\xe9")
        lines = result.stdout.decode().splitlines()
        self.assertEqual(lines[0], "12420\tdon")
        self.assertEqual(lines[2].split("\t")[1], "\\n")
        self.assertEqual(lines[-1].split("\t")[1], "\\xe9")

    # The name of a special token is that token, or its letters if --no-parse-special says so.
    def test_special_tokens(self):
        text = b"<|im_start|>"
        parsed = json.loads(longspec("tokenize", "-m", MODEL, "-f", "-", "--json", stdin=text).stdout)["tokens"]
        plain = json.loads(longspec("tokenize", "-m", MODEL, "-f", "-", "--json", "--no-parse-special",
                                    stdin=text).stdout)["tokens"]
        self.assertEqual(len(parsed), 1)
        self.assertGreater(len(plain), 1)


if __name__ == "__main__":
    unittest.main()
