// SPDX-License-Identifier: Apache-2.0
//
// Tables of n-grams for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>

#include "draft_text/ngram_counter.h"

namespace longspec::testing {

inline constexpr NgramOptions kEveryNgram = {.min_count = 1, .successors = 1 << 20};

// What followed the last tokens in a text.
inline void WritePrior(const std::string& path, std::span<const int32_t> text, int vocab_size,
                       const Hash128& tokenizer, int order = 3, const NgramOptions& options = kEveryNgram) {
  NgramCounter counter(order, vocab_size);
  counter.Add(text);
  const auto written = counter.Write(path, options, tokenizer);
  EXPECT_TRUE(written.ok()) << written.status().message();
}

}  // namespace longspec::testing
