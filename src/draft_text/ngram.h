// SPDX-License-Identifier: Apache-2.0
//
// Where every n-gram of a growing sequence occurred with a token after it: what prompt lookup
// scans for, in constant time per appended token and per look-up. An occurrence is named by its continuation,
// the index of the token after it, so the suffix of the sequence never finds itself. Exact: hashes only find,
// tokens decide. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace longspec {

class NgramIndex {
 public:
  // Indexes lengths min_n to max_n. REQUIRES: 1 <= min_n <= max_n
  NgramIndex(int min_n, int max_n);

  // Makes `tokens` the sequence: appends what is new if it extends the known one, else starts again.
  void Assign(std::span<const int32_t> tokens);
  void Append(std::span<const int32_t> tokens);

  std::span<const int32_t> tokens() const { return tokens_; }
  size_t bytes() const;  // memory held

  // Continuation of the first or the most recent occurrence of the last n tokens; -1 if there is none.
  // REQUIRES: min_n <= n <= max_n
  int First(int n) const;
  int Last(int n) const;
  // The next older occurrence of the n-gram before `continuation`; -1 if there is none.
  int Previous(int n, int continuation) const;

 private:
  struct Slot {
    int32_t first = -1;
    int32_t last = -1;  // -1: empty
  };
  // One length: an open-addressing table of its n-grams, and for every occurrence the one before it.
  struct Level {
    explicit Level(int length) : n(length), slots(64) {}

    int n;
    size_t used = 0;
    std::vector<Slot> slots;        // a power of two of them, at most half used
    std::vector<int32_t> previous;  // [continuation - n]
  };

  const Level& level(int n) const;
  size_t Find(const Level& level, std::span<const int32_t> ngram) const;
  const Slot* Suffix(int n) const;
  void Insert(Level& level, int32_t continuation);
  void Grow(Level& level);

  std::vector<int32_t> tokens_;
  std::vector<Level> levels_;
};

}  // namespace longspec
