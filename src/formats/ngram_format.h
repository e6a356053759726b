// SPDX-License-Identifier: Apache-2.0
//
// The file of a table of n-grams (NgramPrior reads it, NgramCounter writes it). Little-endian: this header,
// then arrays without gaps. The table is a trie: a path a b c d is the context a b c with the successor d,
// and if there are longer ones also the context a b c d. The root, node 0, is the context of nothing; the
// others are numbered level by level, siblings together and in the order of their parents, so that a node's
// children are found by adding up how many the nodes before it have. Of siblings the `ranked` most frequent
// come first, most frequent first; the others by token. n: nodes without the root, n_inner: those above the
// last level.
//
//   u32 total_nodes[n_totals], totals[n_totals]   ascending: how often a context was followed by something,
//                                                 where that is not what its own count says; of node 0 always
//   u32 many_nodes[n_many], many[n_many]          ascending: the children of nodes that have 255 or more
//   u32 sums[(n_inner + 31) / 32]                 children of all nodes before 1 + 32 i, less the root's
//   u16 tokens[n]                                 u32 if the vocabulary has more than 65,536 tokens
//   u8 counts[n]                                  CountOfCode
//   u8 children[n_inner]                          255: see many
//
// Counts rather than chances, so that tables can be added up.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace longspec::ngram_format {

inline constexpr char kMagic[8] = {'L', 'S', 'N', 'G', 'R', 'A', 'M', 'S'};
inline constexpr uint32_t kVersion = 1;
inline constexpr int kMaxLevels = 5;  // contexts of 4 tokens and their successors
inline constexpr uint32_t kMaxRanked = 64;
inline constexpr uint32_t kMaxVocab = 1U << 25;     // five tokens are a number of 128 bits
inline constexpr uint32_t kNarrowVocab = 1U << 16;  // tokens of 16 bits
inline constexpr uint32_t kMany = 255;
inline constexpr uint32_t kSumNodes = 32;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t zero;
  uint64_t checksum_high, checksum_low;  // HashOf everything after it
  uint64_t tokenizer_high, tokenizer_low;
  uint32_t vocab_size;
  uint32_t order;   // tokens of the longest contexts
  uint32_t ranked;  // 1 to kMaxRanked
  uint32_t n_totals, n_many;
  uint32_t n_level[kMaxLevels];  // nodes by depth, of order + 1 levels; the others have none
};
static_assert(sizeof(Header) == 88);
inline constexpr size_t kHashedFrom = offsetof(Header, tokenizer_high);

// A count as a byte: exact up to 31, then four bits after the leading one; the largest is 507,904.
constexpr uint32_t CountOfCode(uint8_t code) {
  return code < 32 ? code : (16U + code % 16U) << (code / 16U - 1U);
}

// The nearest: at most 1/32 off, unless it is too large.
constexpr uint8_t CodeOfCount(uint64_t count) {
  if (count < 32) return static_cast<uint8_t>(count);
  auto exponent = static_cast<uint32_t>(std::bit_width(count)) - 5U;
  if (exponent > 14) return 255;
  uint64_t digits = (count + (uint64_t{1} << (exponent - 1U))) >> exponent;
  if (digits == 32) {
    digits = 16;
    if (++exponent > 14) return 255;
  }
  return static_cast<uint8_t>(16U * exponent + digits);
}

}  // namespace longspec::ngram_format
