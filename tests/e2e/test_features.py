#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Features for training as users make them: from text to shards, stopped and continued; and the trainer, if it is
built.

Needs the program ($LONGSPEC_BIN, default build/release/longspec) and SmolLM2 ($LONGSPEC_MODEL). Tests whose
needs are not met are skipped.
"""

import gzip
import json
import os
import resource
import signal
import struct
import subprocess
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("LONGSPEC_BIN", os.path.join(ROOT, "build/release/longspec"))
MODEL = os.environ.get("LONGSPEC_MODEL", os.path.join(ROOT, "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
TRAINER = os.path.join(os.path.dirname(BIN), "longspec-train")


def longspec(*args):
    return subprocess.run([BIN, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600,
                          check=False)


def open_shard(path):
    """Name -> what the header says of the tensor, the metadata, and the bytes of all tensors."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    return header, json.loads(header.pop("__metadata__")["longspec.features"]), data


def read_shard(path):
    """Name -> (type, shape), and the metadata."""
    header, metadata, _ = open_shard(path)
    return {name: (tensor["dtype"], tensor["shape"]) for name, tensor in header.items()}, metadata


def read_folder(folder):
    """Name -> the bytes of that tensor in all shards, one after the other; the lengths of all sequences."""
    tensors, lengths = {}, []
    for name in sorted(os.listdir(folder)):
        header, _, data = open_shard(os.path.join(folder, name))
        begin, end = header.pop("sequence_ends")["data_offsets"]
        ends = struct.unpack(f"<{(end - begin) // 8}q", data[begin:end])
        lengths += [end - begin for begin, end in zip((0, *ends), ends)]
        for tensor, entry in header.items():
            begin, end = entry["data_offsets"]
            tensors[tensor] = tensors.get(tensor, b"") + data[begin:end]
    return tensors, lengths


@unittest.skipUnless(os.path.exists(BIN) and os.path.exists(MODEL), "needs the program and SmolLM2")
class Features(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.output = os.path.join(self.folder.name, "features")

    def write(self, name, objects):
        path = os.path.join(self.folder.name, name)
        opener = gzip.open if name.endswith(".gz") else open
        with opener(path, "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in objects)
        return path

    def features(self, *args):
        return longspec("features", "-m", MODEL, "-o", self.output, *args)

    def test_text_and_conversations_become_shards(self):
        text = self.write("a.jsonl.gz", [{"text": "The quick brown fox jumps over the lazy dog. " * 10}])
        chat = self.write("b.jsonl", [{"prompt": "What is two and two?", "answer": "Four, as far as anyone knows."}])
        made = self.features("-i", text, chat, "--length", "64", "--min-length", "8", "--top-k", "4")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn("3 sequences, 1 shards", made.stdout)
        tensors, metadata = read_shard(os.path.join(self.output, "features-00000.safetensors"))
        n = tensors["tokens"][1][0]
        self.assertEqual(tensors["keys"], ("F16", [n, 192]))
        self.assertEqual(tensors["values"], ("F16", [n, 192]))
        self.assertEqual(tensors["top_ids"], ("I32", [n, 4]))
        self.assertEqual(metadata["target"]["n_vocab"], 49152)
        self.assertEqual(len(metadata["target"]["rope_frequencies"]), 32)
        self.assertTrue(metadata["last"])
        # What is learned of them can be counted, and counts as often as is asked for.
        table = os.path.join(self.folder.name, "table")
        counted = longspec("corpus", "--ngrams", "-m", MODEL, "--shards", self.output, "--weight", "3", "-o", table)
        self.assertEqual(counted.returncode, 0, counted.stderr)
        self.assertRegex(counted.stdout, r"table: \d\d+ tokens counted; [1-9]\d* single tokens")

    def test_the_target_writes_answers(self):
        text = self.write("a.jsonl", [{"prompt": "What is two and two?"}, {"text": "The quick brown fox jumps. " * 9}])
        made = self.features("-i", text, "--length", "96", "--write", "12", "--write-temps", "0,0.7", "--top-k", "2")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn("2 sequences, 1 shards", made.stdout)
        _, metadata = read_shard(os.path.join(self.output, "features-00000.safetensors"))
        self.assertIn("--write 12", metadata["source"])
        wrong = self.features("-i", text, "--length", "96", "--write", "96")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("--write 96", wrong.stderr)

    # With --write-later only tokens are kept of what the model will write itself, and the option needs those that
    # make sense of it.
    def test_tokens_alone(self):
        text = self.write("a.jsonl", [{"prompt": "What is two and two?"}, {"text": "The quick brown fox jumps. " * 9}])
        later = ("--length", "48", "--write", "12", "--write-later")
        for options in ((), ("--keep", "none", "--top-k", "2")):
            failed = self.features("-i", text, *later, *options)
            self.assertEqual(failed.returncode, 2, failed.stderr)
            self.assertIn("--write-later: with --write N and --keep none", failed.stderr)
        made = self.features("-i", text, *later, "--keep", "none")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn("2 sequences, 1 shards", made.stdout)
        self.assertIn("disk: 9 bytes a token", made.stderr)
        tensors, metadata = read_shard(os.path.join(self.output, "features-00000.safetensors"))
        self.assertEqual(set(tensors), {"tokens", "positions", "loss", "sequence_ends"})
        self.assertEqual(metadata["keep"], "none")
        self.assertIn("--write 12 --write-later", metadata["source"])
        folder, lengths = read_folder(self.output)
        self.assertEqual(max(lengths), 48 - 12)
        self.assertEqual(set(folder["loss"]), {0})

    def test_the_target_writes_the_same_in_little_memory(self):
        text = self.write("a.jsonl", [{"text": f"{i} quick brown foxes jump over the lazy dog."} for i in range(9)])
        args = ["-i", text, "--length", "2048", "--write", "6", "--min-length", "8", "--threads", "1"]
        made = self.features(*args)
        self.assertEqual(made.returncode, 0, made.stderr)
        # Caches for 32 sequences of this length take 1.6 GiB.
        little = self.output + "-little"
        limited = subprocess.run([BIN, "features", "-m", MODEL, "-o", little, *args], capture_output=True, text=True,
                                 timeout=600,
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (6 * 10**8, 6 * 10**8)),
                                 check=False)
        self.assertEqual(limited.returncode, 0, limited.stderr)
        shards = []
        for folder in (self.output, little):
            with open(os.path.join(folder, "features-00000.safetensors"), "rb") as file:
                shards.append(file.read())
        self.assertEqual(shards[0], shards[1])

    def test_a_stopped_run_goes_on(self):
        text = self.write("a.jsonl", [{"text": f"Line {i} of a text that is long enough. " * 30} for i in range(40)])
        args = ["-i", text, "--length", "128", "--max-tokens", "3000", "--shard-tokens", "256"]
        command = [BIN, "features", "-m", MODEL, "-o", self.output, *args]
        first = os.path.join(self.output, "features-00000.safetensors")
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            give_up = time.monotonic() + 300
            while not os.path.exists(first) and process.poll() is None and time.monotonic() < give_up:
                time.sleep(0.005)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=300)
            self.assertEqual(process.returncode, 130, said)
        before, _ = read_folder(self.output)
        again = self.features(*args)
        self.assertEqual(again.returncode, 0, again.stderr)
        whole = longspec("features", "-m", MODEL, "-o", self.output + "-whole", *args)
        self.assertEqual(whole.returncode, 0, whole.stderr)
        tensors, lengths = read_folder(self.output)
        expected, expected_lengths = read_folder(self.output + "-whole")
        self.assertEqual(lengths, expected_lengths)
        self.assertEqual(set(tensors), {"tokens", "positions", "loss", "keys", "values"})
        self.assertEqual(set(expected), set(tensors))
        for name, numbers in tensors.items():
            self.assertTrue(numbers == expected[name], name)  # not shown: millions of bytes
            self.assertTrue(0 < len(before[name]) < len(numbers), name)

    def test_a_killed_run_ends_in_the_same_files(self):
        """Killed before the first shard, behind one, and where possible while one is written."""
        text = self.write("a.jsonl", [{"text": f"Line {i} of a text that is long enough. " * 30} for i in range(40)])
        args = ["-i", text, "--length", "128", "--max-tokens", "2000", "--shard-tokens", "256", "--keep", "kv,final"]
        whole = longspec("features", "-m", MODEL, "-o", self.output + "-whole", *args)
        self.assertEqual(whole.returncode, 0, whole.stderr)
        os.mkdir(self.output)
        shards = [0]
        for moment in (lambda names: True, lambda names: len(names) >= 2,
                       lambda names: len(names) >= 5 or (len(names) >= 3 and any(n.endswith(".tmp") for n in names))):
            with subprocess.Popen([BIN, "features", "-m", MODEL, "-o", self.output, *args], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
                give_up = time.monotonic() + 300
                while process.poll() is None and not moment(os.listdir(self.output)) and time.monotonic() < give_up:
                    time.sleep(0.0005)
                process.send_signal(signal.SIGKILL)
                said = process.stderr.read()
            self.assertEqual(process.returncode, -signal.SIGKILL, said)
            shards.append(sum(name.endswith(".safetensors") for name in os.listdir(self.output)))
            self.assertGreaterEqual(shards[-1], shards[-2])
        self.assertLess(shards[1], shards[-1])
        again = self.features(*args)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(again.stdout.split(": ")[1], whole.stdout.split(": ")[1])
        names = sorted(os.listdir(self.output))
        self.assertEqual(names, sorted(os.listdir(self.output + "-whole")))
        self.assertLess(shards[-1], len(names))
        for name in names:
            with open(os.path.join(self.output, name), "rb") as one, \
                    open(os.path.join(self.output + "-whole", name), "rb") as other:
                self.assertTrue(one.read() == other.read(), name)  # not shown: bytes

    def test_the_disk_is_looked_at_beforehand(self):
        text = self.write("a.jsonl", [{"text": f"Line {i} of a text that is long enough. " * 9} for i in range(40)])
        made = self.features("-i", text, "--length", "128", "--keep", "none", "--max-pieces", "1")
        self.assertEqual(made.returncode, 0, made.stderr)
        tokens = made.stdout.split(": ")[1].split(" ")[0]
        self.assertRegex(made.stderr,
                         rf"disk: 9 bytes a token, \d[^,;]* for {tokens} tokens \(counted in \d+\.\d s\); .* free")
        # With every token's probability each one takes as much as a hundred pages of text.
        bytes_per_token = 9 + 6 * 49152
        free = os.statvfs(self.folder.name).f_bavail * os.statvfs(self.folder.name).f_frsize
        line = "to be or not to be " * 2000
        n_lines = int(1.5 * free / bytes_per_token / 12000) + 1
        if n_lines > 3000:
            self.skipTest("the disk has room for all that can be asked for")
        text = self.write("b.jsonl", [{"text": line}] * n_lines)
        output = self.output + "-large"
        failed = longspec("features", "-m", MODEL, "-i", text, "-o", output, "--keep", "none", "--top-k", "49152")
        self.assertEqual(failed.returncode, 5, failed.stderr)
        self.assertEqual(len([line for line in failed.stderr.splitlines() if "error" in line]), 1)
        self.assertRegex(failed.stderr.splitlines()[-1],
                         r"-large: \d+ bytes for each of (about )?\d+ tokens are more than is free, "
                         r".*--max-tokens \d+$")
        self.assertEqual(os.listdir(output), [])

    def test_errors_are_one_line(self):
        text = self.write("a.jsonl", [{"words": "x"}])
        for args, code, message in ((("-i", text), 3, "a.jsonl:1: expected"), (("-i", text + "x"), 3, "a.jsonlx"),
                                    (("-i", text, "--length", "9999"), 2, "--length 9999"), ((), 2, "--input")):
            failed = self.features(*args)
            self.assertEqual(failed.returncode, code, failed.stderr)
            self.assertIn(message, failed.stderr)
            self.assertEqual(len([line for line in failed.stderr.splitlines() if "error" in line]), 1)

    def test_options_are_checked_before_the_model_is_read(self):
        text = self.write("a.jsonl", [{"text": "x"}])
        for options in (("--length", "1"), ("--top-k", "-1"), ("--write", "5000"), ("--shard-tokens", "0")):
            failed = longspec("features", "-m", text, "-i", text, "-o", self.output, *options)
            self.assertEqual(failed.returncode, 2, failed.stderr)
            self.assertIn(options[0], failed.stderr)
        self.assertFalse(os.path.exists(self.output))

    def test_a_folder_that_cannot_be_made_is_said_before_the_model_is_read(self):
        text = self.write("a.jsonl", [{"text": "x"}])
        failed = longspec("features", "-m", text, "-i", text, "-o", os.path.join(text, "features"))
        self.assertEqual(failed.returncode, 5, failed.stderr)
        self.assertIn("a.jsonl/features: cannot be made: Not a directory", failed.stderr)

    @unittest.skipIf(os.path.exists(TRAINER), "the trainer is built")
    def test_without_the_trainer_train_says_how_to_get_it(self):
        failed = longspec("train", "--steps", "3")
        self.assertEqual(failed.returncode, 2)
        self.assertIn("tools/setup_trainer.sh", failed.stderr)

    @unittest.skipUnless(os.path.exists(TRAINER), "the trainer is not built")
    def test_a_trained_draft_is_loaded(self):
        text = self.write("a.jsonl", [{"text": "The quick brown fox jumps over the lazy dog. " * 40}])
        self.assertEqual(self.features("-i", text, "--length", "64").returncode, 0)
        draft = os.path.join(self.folder.name, "draft")
        trained = longspec("train", "-m", MODEL, "-f", self.output, "-o", draft, "--batch", "2", "--steps", "3",
                           "--draft-vocab", "512")
        self.assertEqual(trained.returncode, 0, trained.stderr)
        run = ["run", "-m", MODEL, "-p", "The quick brown fox", "-n", "16", "--temp", "0"]
        plain = longspec(*run, "--spec-type", "none")
        drafted = longspec(*run, "--spec-type", "longspec", "--spec-draft-model", draft)
        self.assertEqual(drafted.returncode, 0, drafted.stderr)
        self.assertEqual(drafted.stdout, plain.stdout)


if __name__ == "__main__":
    unittest.main()
