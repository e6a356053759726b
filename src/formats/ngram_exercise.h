// SPDX-License-Identifier: Apache-2.0
//
// For tests and fuzzing: does with arbitrary bytes everything that a program does with a table of n-grams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <vector>

#include "base/check.h"
#include "formats/ngram_prior.h"

namespace longspec {

// The status of reading the bytes as a table, whatever their checksum. If it is one, every context is entered
// by its tokens, and all that is said of it is looked at.
inline Status ExerciseNgrams(std::span<const std::byte> bytes) {
  std::vector<uint64_t> aligned(bytes.size() / 8 + 1);
  if (!bytes.empty()) std::memcpy(aligned.data(), bytes.data(), bytes.size());
  const auto parsed =
      NgramPrior::ParseUnsealed(std::as_bytes(std::span(aligned)).first(bytes.size()), "fuzz");
  if (!parsed.ok()) return parsed.status();
  const NgramPrior& prior = **parsed;
  int64_t n = 0;
  prior.Visit([&](std::span<const int32_t> ngram, int64_t, int64_t followed) {
    ++n;
    NgramPrior::Contexts contexts, extended;
    prior.Start(ngram, contexts);
    for (const int32_t outside : {-1, prior.vocab_size(), 1 << 30}) {
      prior.Extend(contexts, outside, extended);
      LS_CHECK(extended.node[1] == NgramPrior::kUnknown);
    }
    if (followed == 0 || ngram.size() > static_cast<size_t>(prior.order())) return;
    const int32_t node = contexts.node[ngram.size()];
    LS_CHECK(node != NgramPrior::kUnknown && prior.Count(node) == followed);
    int64_t last = 1 << 30;
    std::set<int32_t> tokens;
    prior.ForSuccessors(node, [&](int32_t token, int64_t count) {
      LS_CHECK(token >= 0 && token < prior.vocab_size() && count > 0 && count <= last);
      LS_CHECK(tokens.insert(token).second);
      last = count;
      prior.Extend(contexts, token, extended);
    });
    LS_CHECK(tokens.size() <= static_cast<size_t>(prior.ranked()));
  });
  LS_CHECK(n == prior.n_pairs() + 1);
  return {};
}

}  // namespace longspec
