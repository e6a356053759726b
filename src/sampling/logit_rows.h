// SPDX-License-Identifier: Apache-2.0
//
// Rows of a model's logits, by what is asked of them: whether a token can be chosen, which one is, the
// likeliest ones, and the numbers themselves where nothing else helps. Here they are views of what a pass on
// the CPU has computed; wherever else they lie, an answer is some tokens and no row of the vocabulary's
// length.
#pragma once

#include <cstdint>
#include <span>

#include "base/check.h"
#include "longspec/status.h"
#include "sampling/logits_check.h"
#include "sampling/sampler.h"
#include "sampling/top_logits.h"

namespace longspec {

class LogitRow {
 public:
  explicit LogitRow(std::span<const float> logits) : logits_(logits) {}

  // CheckLogits, Sampler::Sample after this history, TopLogits.
  Status Check(uint64_t position) const { return CheckLogits(logits_, position); }
  int32_t Choose(const Sampler& sampler, const TokenHistory& history, Sampler::Scratch& scratch) const {
    return sampler.Sample(logits_, history, history.size(), scratch);
  }
  int Best(std::span<int32_t> tokens) const { return TopLogits(logits_, tokens); }

  int vocab() const { return static_cast<int>(logits_.size()); }
  std::span<const float> values() const { return logits_; }  // (vocab)

 private:
  std::span<const float> logits_;
};

class LogitRows {
 public:
  LogitRows() = default;
  // `logits`: (n, vocab), borrowed.
  LogitRows(const float* logits, int n, int vocab) : logits_(logits), n_(n), vocab_(vocab) {}

  int size() const { return n_; }
  LogitRow operator[](int i) const {
    LS_CHECK(i >= 0 && i < n_);
    return LogitRow({at(i), static_cast<size_t>(vocab_)});
  }
  LogitRows From(int first, int n) const {
    LS_CHECK(first >= 0 && n >= 0 && first + n <= n_);
    return {at(first), n, vocab_};
  }

 private:
  const float* at(int i) const { return logits_ + static_cast<size_t>(i) * static_cast<size_t>(vocab_); }

  const float* logits_ = nullptr;
  int n_ = 0, vocab_ = 0;
};

}  // namespace longspec
