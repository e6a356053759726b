#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
import gzip
import json
import os
import subprocess
import sys
import tempfile
import unittest

import make_draft_prompts as tool


def texts(n):
    """So many long texts of each family; every piece of them is another one."""
    return {family: [f"{family} {i}: " + " ".join(f"{family[0]}{i}w{k}" for k in range(3000)) for i in range(n)]
            for family in tool.FAMILIES}


class PlainTest(unittest.TestCase):
    def test_pieces_come_once_and_are_mixed(self):
        all_texts = texts(6)
        lines = list(tool.plain(all_texts, seed=5, count=10 ** 6))
        pieces = [line["text"] for line in lines]
        self.assertEqual(len(set(pieces)), len(pieces))
        whole = {family: "\n".join(parts) for family, parts in all_texts.items()}
        self.assertTrue(all(any(piece in text for text in whole.values()) for piece in pieces))
        self.assertTrue(all(tool.SHORTEST_PIECE < len(piece) <= 4300 for piece in pieces))
        # Everything but short ends is there.
        self.assertGreater(sum(map(len, pieces)), 0.95 * sum(map(len, whole.values())))
        first = {piece[0] for piece in pieces[:12]}
        self.assertGreater(len(first), 2)

    def test_the_same_seed_gives_the_same(self):
        some = list(tool.plain(texts(3), seed=5, count=10))
        self.assertEqual(len(some), 10)
        self.assertEqual(some, list(tool.plain(texts(3), seed=5, count=10)))
        self.assertNotEqual(some, list(tool.plain(texts(3), seed=6, count=10)))


class HeldOutTest(unittest.TestCase):
    def test_families_take_turns(self):
        with tempfile.TemporaryDirectory() as folder:
            for family, n in (("a", 1), ("b", 3)):
                with gzip.open(f"{folder}/{family}.jsonl.gz", "wt", encoding="utf-8") as file:
                    file.writelines(json.dumps({"instruction": "Say.", "prompt_text": f"{family}{i} and more"}) + "\n"
                                    for i in range(n))
            with open(f"{folder}/README.md", "w", encoding="utf-8") as file:
                file.write("not a family")
            self.assertEqual([line["prompt"] for line in tool.held_out(folder, 3, longest=2)],
                             ["Say.\n\na0", "Say.\n\nb0", "Say.\n\nb1"])
            self.assertEqual(len(list(tool.held_out(folder, 10, longest=2))), 4)


class ProgramTest(unittest.TestCase):
    def test_writes_prompts_or_pieces(self):
        with tempfile.TemporaryDirectory() as folder:
            for family, some in texts(3).items():
                with gzip.open(f"{folder}/{family}.jsonl.gz", "wt", encoding="utf-8") as file:
                    file.writelines(json.dumps({"text": text}) + "\n" for text in some)
            for more, keys in (([], {"prompt", "text"}), (["--plain"], {"text"})):
                out = f"{folder}/out.jsonl"
                subprocess.run([sys.executable, os.path.join(os.path.dirname(__file__), "make_draft_prompts.py"),
                                "--data", folder, "--out", out, "--count", "40", *more], check=True)
                with open(out, encoding="utf-8") as file:
                    lines = [json.loads(line) for line in file]
                self.assertEqual(len(lines), 40)
                self.assertEqual({key for line in lines for key in line}, keys)


if __name__ == "__main__":
    unittest.main()
