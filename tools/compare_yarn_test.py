#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of compare_yarn.py: which tokens a bucket is compared with, and what is a difference."""

import unittest

from compare_yarn import compare


def perplexity(*buckets):
    return {"by_position": [{"from": f, "to": t, "tokens": n, "nats": nats} for f, t, n, nats in buckets]}


class Compare(unittest.TestCase):
    # Of 6 tokens, 5 are foretold: those at positions 1 to 5.
    NATS = [1.0, 2.0, 3.0, 4.0, 6.0]

    # Equal means agree, with a line of the table for each range of positions.
    def test_equal(self):
        lines, agree = compare(perplexity((0, 4, 3, 2.0), (4, 8, 2, 5.0)), self.NATS, 1e-6)
        self.assertTrue(agree, lines)
        self.assertEqual(len(lines), 4)
        self.assertIn("| 4 to 7 | 2 | 5.000000 | 5.000000 |", lines[3])

    # A mean that is further away than the tolerance does not agree.
    def test_another_mean(self):
        self.assertFalse(compare(perplexity((0, 4, 3, 2.0), (4, 8, 2, 5.001)), self.NATS, 1e-4)[1])

    # What is not a number never agrees.
    def test_no_number(self):
        self.assertFalse(compare(perplexity((0, 4, 3, float("nan"))), self.NATS, 1e-4)[1])

    def test_another_number_of_tokens(self):
        self.assertFalse(compare(perplexity((0, 4, 4, 2.0)), self.NATS, 1e-4)[1])


if __name__ == "__main__":
    unittest.main()
