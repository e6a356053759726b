#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draft models as users meet them: converting between containers, and generating with one.

Needs the program ($LONGSPEC_BIN, default build/release/longspec); generating needs SmolLM2 ($LONGSPEC_MODEL), and a
draft of noise needs make_tiny_model beside the program in tools/. Tests whose needs are not met are skipped.
"""

import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("LONGSPEC_BIN", os.path.join(ROOT, "build/release/longspec"))
MODEL = os.environ.get("LONGSPEC_MODEL", os.path.join(ROOT, "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
TOOL = os.path.join(os.path.dirname(BIN), "tools/make_tiny_model")
HIDDEN, KV, FF, VOCAB = 576, 192, 1536, 49152  # of SmolLM2


def longspec(*args):
    return subprocess.run([BIN, *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=False)


def shapes(hidden, kv, ff):
    for attention in ("self_attn", "cross_attn"):
        for projection, n in (("q_proj", hidden), ("k_proj", kv), ("v_proj", kv)):
            yield f"{attention}.{projection}.weight", [n, hidden]
            yield f"{attention}.{projection}.bias", [n]
        yield f"{attention}.o_proj.weight", [hidden, hidden]
    yield from ((f"mlp.{name}_proj.weight", [ff, hidden]) for name in ("gate", "up"))
    yield "mlp.down_proj.weight", [hidden, ff]
    for name in ("input", "post_self_attention", "post_cross_attention"):
        yield f"{name}_layernorm.weight", [hidden]


def eagle_shapes(hidden, kv, ff):
    yield "fc.weight", [hidden, 2 * hidden]
    yield "fc.bias", [hidden]
    yield from layer_shapes("layers.0.", hidden, hidden, kv, ff)


def eagle3_shapes(hidden, kv, ff):
    yield "fc.weight", [hidden, 3 * hidden]
    yield from layer_shapes("midlayer.", 2 * hidden, hidden, kv, ff)
    for name in ("midlayer.input_layernorm", "midlayer.hidden_norm", "norm"):
        yield f"{name}.weight", [hidden]
    yield "lm_head.weight", [VOCAB, hidden]


def layer_shapes(prefix, n_in, hidden, kv, ff):
    yield from ((f"{prefix}self_attn.{name}_proj.weight", [n, n_in])
                for name, n in (("q", hidden), ("k", kv), ("v", kv)))
    yield f"{prefix}self_attn.o_proj.weight", [hidden, hidden]
    yield from ((f"{prefix}mlp.{name}_proj.weight", [ff, hidden]) for name in ("gate", "up"))
    yield f"{prefix}mlp.down_proj.weight", [hidden, ff]
    yield f"{prefix}post_attention_layernorm.weight", [hidden]


def write_draft(folder, hidden=HIDDEN, kv=KV, ff=FF, seed=1, tensors=shapes, **config):
    """A draft, LongSpec's by default, with random weights in bf16, as Hugging Face would hold it."""
    rng = random.Random(seed)
    header, data = {"__metadata__": {"format": "pt"}}, bytearray()
    signs = bytes(0x3D if i % 2 else 0xBD for i in range(256))  # magnitudes from 1/32 to 1/8
    for name, shape in tensors(hidden, kv, ff):
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = bytearray(2 * n)
        values[0::2] = rng.randbytes(n)
        values[1::2] = rng.randbytes(n).translate(signs)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(data), len(data) + 2 * n]}
        data += values
    os.makedirs(folder, exist_ok=True)
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump({"hidden_size": hidden, "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": VOCAB,
                   "rope_theta": 100000, "max_position_embeddings": 8192, **config}, file)
    return folder


def read_tensors(path):
    """name -> (type, shape, bytes) of a safetensors file."""
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[8 + length + t["data_offsets"][0]:8 + length + t["data_offsets"][1]])
            for name, t in header.items()}


@unittest.skipUnless(os.access(BIN, os.X_OK), f"no program at {BIN}")
class DraftModelTestCase(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)

    def path(self, name):
        return os.path.join(self.scratch.name, name)

    def expect_error(self, result, code, *parts):
        stderr = result.stderr.decode("utf-8", "replace")
        self.assertEqual(result.returncode, code, stderr)
        for part in parts:
            self.assertIn(part, stderr.splitlines()[-1])


class Convert(DraftModelTestCase):
    def test_a_round_trip_changes_nothing(self):
        folder = write_draft(self.path("draft"), 64, 32, 96)
        done = longspec("convert", folder, self.path("draft.gguf"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"20 tensors", done.stdout)
        self.assertEqual(longspec("convert", self.path("draft.gguf"), self.path("back")).returncode, 0)
        self.assertEqual(read_tensors(self.path("back/model.safetensors")), read_tensors(folder + "/model.safetensors"))
        with open(folder + "/config.json", "rb") as before, open(self.path("back/config.json"), "rb") as after:
            self.assertEqual(after.read(), before.read())

    # EAGLE drafts become GGUF files and come back with the same tensors.
    def test_every_kind(self):
        for kind, tensors in (("eagle", eagle_shapes), ("eagle3", eagle3_shapes)):
            folder = write_draft(self.path(kind), 64, 32, 96, tensors=tensors)
            done = longspec("convert", folder, self.path("draft.gguf"))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"kind {kind}".encode(), done.stdout)
            self.assertEqual(longspec("convert", self.path("draft.gguf"), self.path(kind + "-back")).returncode, 0)
            self.assertEqual(read_tensors(self.path(kind + "-back/model.safetensors")),
                             read_tensors(folder + "/model.safetensors"))

    # Matrices are converted to the type that was asked for, vectors keep theirs.
    def test_types(self):
        folder = write_draft(self.path("draft"), 64, 32, 96)
        self.assertEqual(longspec("convert", folder, self.path("q8.gguf"), "--type", "q8_0").returncode, 0)
        self.assertEqual(longspec("convert", self.path("q8.gguf"), self.path("f16"), "--type", "f16").returncode, 0)
        tensors = read_tensors(self.path("f16/model.safetensors"))
        self.assertEqual(tensors["mlp.up_proj.weight"][0], "F16")
        self.assertEqual(tensors["self_attn.q_proj.bias"][0], "BF16")

    # What is missing, unknown or no checkpoint is named, and nothing is written.
    def test_errors(self):
        folder = write_draft(self.path("draft"), 64, 32, 96)
        self.expect_error(longspec("convert", folder), 2, "output")
        self.expect_error(longspec("convert", folder, self.path("x.gguf"), "--type", "q9"), 2, "--type q9")
        self.expect_error(longspec("convert", folder, self.path("x"), "--type", "q8_0"), 2, "cannot hold Q8_0")
        self.expect_error(longspec("convert", self.path("none"), self.path("x.gguf")), 3, "none")
        with open(self.path("bad.safetensors"), "wb") as file:
            file.write(b"\xff" * 100)
        self.expect_error(longspec("convert", self.path("bad.safetensors"), self.path("x.gguf")), 3,
                          "not a safetensors file")
        self.assertFalse(os.path.exists(self.path("x.gguf")))
        for name in ("bad.safetensors/x.gguf", "bad.safetensors/x"):
            self.expect_error(longspec("convert", folder, self.path(name)), 5, "bad.safetensors/x")
        os.symlink("/dev/full", self.path("x.gguf.tmp"))
        self.expect_error(longspec("convert", folder, self.path("x.gguf")), 5, "No space left on device")


@unittest.skipUnless(os.access(TOOL, os.X_OK), "needs make_tiny_model")
class RandomDraft(DraftModelTestCase):
    """tools/make_random_model.py --eagle3."""

    def test_is_converted_and_drafts_for_its_target(self):
        target, folder, draft = self.path("tiny.gguf"), self.path("eagle3"), self.path("eagle3.gguf")
        subprocess.run([TOOL, "--out", target, "--layers", "7"], check=True)
        make = [sys.executable, os.path.join(ROOT, "tools/make_random_model.py"), target, folder, "--eagle3",
                "--draft-vocab", "300", "--longspec", BIN]
        subprocess.run(make, check=True)
        tensors = read_tensors(folder + "/model.safetensors")
        self.assertEqual([tensors["t2d"][2].count(1), tensors["d2t"][2]], [300, bytes(8 * 300)])
        done = longspec("convert", folder, draft)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"kind eagle3", done.stdout)
        run = ("run", "-m", target, "-p", "abc", "-n", "24", "--temp", "0", "--ignore-eos", "--json", "-t", "1")
        plain = json.loads(longspec(*run, "--spec-type", "none").stdout)
        result = longspec(*run, "--spec-type", "eagle3", "-md", draft)
        self.assertEqual(result.returncode, 0, result.stderr)
        answer = json.loads(result.stdout)
        self.assertEqual(answer["tokens"], plain["tokens"])
        self.assertGreater(answer["timings"]["draft_n"], 0)


@unittest.skipUnless(os.path.exists(MODEL), "SmolLM2 is not here")
class Generate(DraftModelTestCase):
    def run_model(self, *args):
        return longspec("run", "-m", MODEL, "-p", "The survey of the bridge found", "--no-chat", "-n", "24", "--json",
                        "--temp", "0.7", "--seed", "3", *args)

    def test_a_draft_that_knows_nothing_never_changes_the_text(self):
        folder = write_draft(self.path("draft"))
        plain = json.loads(self.run_model("--spec-type", "none").stdout)
        for tree in ("beam", "chain", "best:3", "opt"):
            result = self.run_model("--spec-type", "longspec", "-md", folder, "--spec-tree", tree)
            self.assertEqual(result.returncode, 0, result.stderr)
            answer = json.loads(result.stdout)
            self.assertEqual(answer["tokens"], plain["tokens"])
            self.assertGreater(answer["timings"]["draft_n"], 0)

    def test_nor_does_one_that_reads_hidden_states(self):
        plain = json.loads(self.run_model("--spec-type", "none").stdout)
        for kind, tensors in (("eagle", eagle_shapes), ("eagle3", eagle3_shapes)):
            folder = write_draft(self.path(kind), tensors=tensors)
            result = self.run_model("-md", folder, "--spec-type", kind)
            self.assertEqual(result.returncode, 0, result.stderr)
            answer = json.loads(result.stdout)
            self.assertEqual(answer["tokens"], plain["tokens"])
            self.assertNotIn("notice", answer["speculative"])
            self.assertGreater(answer["timings"]["draft_n"], 0)
            self.expect_error(self.run_model("-md", folder, "--spec-type", "longspec"), 3, f"kind {kind}, not longspec")

    def test_the_model_drafts_for_itself(self):
        plain = json.loads(self.run_model("--spec-type", "none", "--temp", "0").stdout)
        answer = json.loads(self.run_model("--spec-type", "lm", "-md", MODEL, "--temp", "0").stdout)
        self.assertEqual(answer["tokens"], plain["tokens"])
        self.assertEqual(answer["timings"]["draft_n_accepted"], answer["timings"]["draft_n"])

    def test_nor_does_its_head_of_fewer_tokens(self):
        head = ("--draft-vocab", "16384", "--prior", os.path.join(ROOT, "models/priors/smollm2.ngrams"))
        draft = self.path("head.gguf")
        done = longspec("convert", MODEL, draft, *head)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"with a head of 16384 tokens", done.stdout)
        plain = json.loads(self.run_model("--spec-type", "none", "--temp", "0").stdout)
        answer = json.loads(self.run_model("--spec-type", "lm", "-md", draft, "--temp", "0").stdout)
        self.assertEqual(answer["tokens"], plain["tokens"])
        self.assertGreater(answer["timings"]["draft_n_accepted"], 12)
        self.expect_error(longspec("run", "-m", draft, "-p", "x"), 3, "a draft model of kind lm")
        self.expect_error(longspec("convert", draft, self.path("again.gguf"), *head), 2, "of a whole model")
        self.expect_error(longspec("convert", MODEL, self.path("x.gguf"), *head[:2]), 2, "--prior")
        folder = write_draft(self.path("draft"))
        for option in (head[:2], ("--draft-coverage", "95")):
            done = longspec("convert", folder, self.path("x.gguf"), *option, *head[2:])
            self.expect_error(done, 2, option[0] + ": of a language model alone")
        done = longspec("convert", folder, self.path("x.gguf"), "--layers", "0")
        self.expect_error(done, 2, "--layers: of a language model alone")
        other = os.path.join(ROOT, "models/priors/qwen2.ngrams")
        self.expect_error(longspec("convert", MODEL, self.path("x.gguf"), *head[:3], other), 2, "qwen2.ngrams")

    def test_nor_do_some_of_its_layers(self):
        head = ("--draft-vocab", "16384", "--prior", os.path.join(ROOT, "models/priors/smollm2.ngrams"))
        draft = self.path("part.gguf")
        done = longspec("convert", MODEL, draft, "--layers", "0-14,16,18-29", *head, "--type", "q8_0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"of 28 layers that drafts, with a head of 16384 tokens", done.stdout)
        plain = json.loads(self.run_model("--spec-type", "none", "--temp", "0").stdout)
        answer = json.loads(self.run_model("--spec-type", "lm", "-md", draft, "--temp", "0").stdout)
        self.assertEqual(answer["tokens"], plain["tokens"])
        self.assertGreater(answer["timings"]["draft_n"], 0)
        covered = longspec("convert", MODEL, self.path("y.gguf"), *head[2:], "--draft-coverage", "95")
        self.assertEqual(covered.returncode, 0, covered.stderr)
        share = float(covered.stdout.decode().split(" tokens, ")[1].split(" %")[0])
        self.assertTrue(95 <= share < 95.1, covered.stdout)
        both = (*head, "--draft-coverage", "95")
        self.expect_error(longspec("convert", MODEL, self.path("x.gguf"), *both), 2, "excludes")
        self.expect_error(longspec("convert", MODEL, self.path("x.gguf"), *head[2:]), 2, "--prior")
        for layers, why in (("3-1", "as in 0-11"), ("0,x", "as in 0-11"), ("0-30", "has layers 0 to 29"),
                            ("2,1", "in this order"), ("", "--layers")):
            self.expect_error(longspec("convert", MODEL, self.path("x.gguf"), "--layers", layers), 2, why)
        folder = write_draft(self.path("draft"))
        self.expect_error(longspec("convert", folder, self.path("x.gguf"), "--layers", "0"), 2, "of a language model")

    def test_what_does_not_fit_is_refused(self):
        folder = write_draft(self.path("draft"), rope_theta=10000)
        self.expect_error(self.run_model("--spec-type", "longspec", "-md", folder), 3, "RoPE base 10000", "100000")
        self.expect_error(self.run_model("--spec-type", "longspec", "-md", self.path("none")), 3, "none")
        self.expect_error(self.run_model("--spec-type", "longspec", "-md", MODEL), 3, "is no kind of draft model")
        self.expect_error(self.run_model("--spec-type", "lm", "-md", folder), 2, "not a regular file")

    def test_beyond_its_training_the_statistics_say_so(self):
        folder = write_draft(self.path("draft"), longspec_trained_positions=12)
        answer = json.loads(self.run_model("--spec-type", "longspec", "-md", folder).stdout)
        self.assertIn("trained for 12 positions", answer["speculative"]["notice"])


@unittest.skipUnless(os.path.exists(MODEL), "SmolLM2 is not here")
class Shipped(DraftModelTestCase):
    """models/drafts/: trained for SmolLM2, so what it proposes is often right."""

    DRAFT = os.path.join(ROOT, "models/drafts/SmolLM2-135M-Instruct.longspec.gguf")
    EAGLE = os.path.join(ROOT, "models/drafts/SmolLM2-135M-Instruct.eagle.gguf")
    EXIT = os.path.join(ROOT, "models/drafts/SmolLM2-135M-Instruct.exit.gguf")
    LM = os.path.join(ROOT, "models/drafts/SmolLM2-135M-Instruct.lm.gguf")

    plain = {}  # of all tests, by temperature: the tokens without a draft

    def answer(self, n_characters, *args):
        with open(os.path.join(ROOT, "data/demo/report.txt"), encoding="utf-8") as file:
            text = file.read(n_characters)
        result = longspec("run", "-m", MODEL, "-p", text, "--no-chat", "-n", "48", "--json", "--seed", "3", *args)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def expect_often_right(self, kind, draft, trees, n_characters=4000, floor=1.3, temperatures=("0", "0.7")):
        """Of `trees`: shapes and their most nodes. The text is that of plain decoding; so many tokens a round."""
        steps = tokens = 0
        for temperature in temperatures:
            key = n_characters, temperature
            if key not in self.plain:
                self.plain[key] = self.answer(n_characters, "--temp", temperature, "--spec-type", "none")["tokens"]
            for tree, n_max in trees.items():
                drafted = self.answer(n_characters, "--temp", temperature, "--spec-type", kind, "-md", draft,
                                      "--spec-tree", tree, "--spec-draft-n-max", n_max)
                self.assertEqual(drafted["tokens"], self.plain[key])
                self.assertNotIn("notice", drafted["speculative"])
                steps += drafted["speculative"]["steps"]
                tokens += len(drafted["tokens"])
        self.assertGreater(tokens / steps, floor)
        self.assertLess(os.path.getsize(draft), 10 << 20)

    def test_it_is_often_right_and_never_changes_the_text(self):
        self.expect_often_right("longspec", self.DRAFT, {"beam": "68", "chain": "4"})

    def test_so_is_the_eagle_draft(self):
        self.expect_often_right("eagle", self.EAGLE, {"eagle2": "16", "chain": "4"})
        self.assertLess(os.path.getsize(self.EAGLE), 6 << 20)

    def test_so_is_the_one_that_exits_early(self):
        self.expect_often_right("exit", self.EXIT, {"best": "16", "chain": "4"}, 1000, 1.4, ("0", "1.0"))

    def test_so_is_the_language_model(self):
        self.expect_often_right("lm", self.LM, {"best": "16", "chain": "4"}, 1000, 2.0, ("0", "1.0"))

    def test_its_memory_does_not_grow_with_the_text(self):
        sizes = {self.answer(n, "--spec-type", "longspec", "-md", self.DRAFT)["speculative"]["draft_bytes"]
                 for n in (1000, 8000)}
        self.assertEqual(len(sizes), 1)
        self.assertLess(os.path.getsize(self.DRAFT), 6 << 20)


if __name__ == "__main__":
    unittest.main()
