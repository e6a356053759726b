// SPDX-License-Identifier: Apache-2.0
//
// Counts n-grams and writes the frequent ones as a table for NgramPrior. The same input gives the same bytes.
// About 16 bytes of memory per different n-gram of each length (32 if its tokens do not fit into 64 bits),
// and as much again while they are merged. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "formats/ngram_prior.h"
#include "longspec/status.h"

namespace longspec {

struct NgramOptions {
  int min_count = 3;   // rarer n-grams are left out, unless they are the way to longer ones
  int successors = 8;  // of each context: as many of the most frequent ones, and the ways to longer contexts
};

struct NgramSummary {
  // By the number of the context's tokens.
  std::array<int64_t, NgramPrior::kMaxOrder + 1> contexts = {}, pairs = {};
  int64_t bytes = 0;
};

// The n-grams of one length.
class NgramList;

class NgramCounter {
 public:
  // Contexts of up to `order` tokens. REQUIRES: 1 <= order <= NgramPrior::kMaxOrder,
  // 1 <= vocab_size <= ngram_format::kMaxVocab.
  NgramCounter(int order, int vocab_size);
  ~NgramCounter();
  NgramCounter(const NgramCounter&) = delete;
  NgramCounter& operator=(const NgramCounter&) = delete;

  // A text. An n-gram counts if its last token is learned (not 0; empty: all are), `weight` times. Tokens
  // outside the vocabulary part texts.
  void Add(std::span<const int32_t> tokens, std::span<const int8_t> learn = {}, int weight = 1);
  // What an earlier table holds; what was left out of it stays so. Its tokenizer must be the same.
  void Add(const NgramPrior& prior);

  int64_t tokens() const { return tokens_; }  // learned, of all texts, each counted once

  // Prunes and writes; may be called again. kInvalidArgument if no n-gram is frequent enough.
  Result<NgramSummary> Write(const std::string& path, const NgramOptions& options, const Hash128& tokenizer);

 private:
  const int order_, vocab_size_;
  int64_t tokens_ = 0;
  std::vector<std::unique_ptr<NgramList>> lists_;  // [i]: of i + 1 tokens
};

}  // namespace longspec
