// SPDX-License-Identifier: Apache-2.0
//
// llama.cpp's sampler "infill": a hole is filled with what is likely, or not at all. If ends of the text are
// likely together, it ends; tokens that begin alike count as one; what is unlikely beside them is left out. A
// function of one row. Immutable; the tokenizer is borrowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sampling/candidates.h"
#include "tokenizer/tokenizer.h"

namespace longspec {

class InfillFilter {
 public:
  // Of more candidates the likeliest so many are looked at: it compares all pairs of them.
  static constexpr size_t kMost = 256;

  explicit InfillFilter(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  // `candidates` are sorted, the likeliest first, and have logits above minus infinity. Those that are left
  // are moved to the front, in order; their number is returned, which is at least 1. Where only the end of
  // the text is left, that is its token if `row`, the logits of all tokens, lets it occur.
  size_t Apply(std::span<Candidate> candidates, std::span<const float> row) const;

 private:
  bool IsEnd(int32_t token) const;
  std::string_view TextOf(int32_t token) const;  // empty: it stands for none
  void Merge(std::span<const Candidate> candidates, std::vector<double>& chances) const;

  const Tokenizer* tokenizer_;
};

}  // namespace longspec
