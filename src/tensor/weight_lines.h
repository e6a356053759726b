// SPDX-License-Identifier: Apache-2.0
//
// How the weights of a packed block share its bytes, so that none is wasted. A block, 32 weights of each of
// 16 output rows, has as many lines of 64 bytes as a weight has bits; byte 4 row + i of every line is that
// row's. Weights 4 j + i of all rows, for one j, are a line of weights. Some have the lower bits of a line of
// bytes to themselves, and the upper bits of these, together, are the others. Data only: files built for
// different instruction sets include this.
#pragma once

#include "tensor/weight_format.h"

namespace longspec {

// Bits [from, from + n) of a line's bytes are bits [to, to + n) of weights.
struct LinePart {
  int line = 0, from = 0, n = 0, to = 0;
};
struct WeightLine {
  int n_parts = 0;
  LinePart parts[3] = {};  // the most significant first
};
struct WeightLines {
  WeightLine of[8];  // of each j
};

inline constexpr WeightLines kLinesOf3Bits = {{{1, {{0, 0, 3, 0}}},
                                               {1, {{1, 0, 3, 0}}},
                                               {1, {{2, 0, 3, 0}}},
                                               {2, {{0, 6, 2, 1}, {1, 6, 1, 0}}},
                                               {1, {{0, 3, 3, 0}}},
                                               {1, {{1, 3, 3, 0}}},
                                               {1, {{2, 3, 3, 0}}},
                                               {2, {{2, 6, 2, 1}, {1, 7, 1, 0}}}}};
inline constexpr WeightLines kLinesOf4Bits = {{{1, {{0, 0, 4, 0}}},
                                               {1, {{1, 0, 4, 0}}},
                                               {1, {{2, 0, 4, 0}}},
                                               {1, {{3, 0, 4, 0}}},
                                               {1, {{0, 4, 4, 0}}},
                                               {1, {{1, 4, 4, 0}}},
                                               {1, {{2, 4, 4, 0}}},
                                               {1, {{3, 4, 4, 0}}}}};
inline constexpr WeightLines kLinesOf5Bits = {{{1, {{0, 0, 5, 0}}},
                                               {1, {{1, 0, 5, 0}}},
                                               {1, {{2, 0, 5, 0}}},
                                               {1, {{3, 0, 5, 0}}},
                                               {1, {{4, 0, 5, 0}}},
                                               {2, {{1, 6, 2, 3}, {0, 5, 3, 0}}},
                                               {2, {{3, 6, 2, 3}, {2, 5, 3, 0}}},
                                               {3, {{1, 5, 1, 4}, {3, 5, 1, 3}, {4, 5, 3, 0}}}}};
inline constexpr WeightLines kLinesOf6Bits = {{{1, {{0, 0, 6, 0}}},
                                               {1, {{1, 0, 6, 0}}},
                                               {1, {{2, 0, 6, 0}}},
                                               {3, {{0, 6, 2, 4}, {1, 6, 2, 2}, {2, 6, 2, 0}}},
                                               {1, {{3, 0, 6, 0}}},
                                               {1, {{4, 0, 6, 0}}},
                                               {1, {{5, 0, 6, 0}}},
                                               {3, {{3, 6, 2, 4}, {4, 6, 2, 2}, {5, 6, 2, 0}}}}};
inline constexpr WeightLines kLinesOf8Bits = {{{1, {{0, 0, 8, 0}}},
                                               {1, {{1, 0, 8, 0}}},
                                               {1, {{2, 0, 8, 0}}},
                                               {1, {{3, 0, 8, 0}}},
                                               {1, {{4, 0, 8, 0}}},
                                               {1, {{5, 0, 8, 0}}},
                                               {1, {{6, 0, 8, 0}}},
                                               {1, {{7, 0, 8, 0}}}}};

// By the bits of a weight.
inline constexpr WeightLines kWeightLines[9] = {
    {}, {}, {}, kLinesOf3Bits, kLinesOf4Bits, kLinesOf5Bits, kLinesOf6Bits, {}, kLinesOf8Bits};

}  // namespace longspec
