// SPDX-License-Identifier: Apache-2.0
//
// Rows of a model's logits, by what is asked of them: whether a token can be chosen, which one is, the
// likeliest ones, and the row itself where nothing else helps. They lie where the model computes: in host
// memory here, elsewhere in that of a device, whose addresses the host cannot read. There an answer is some
// tokens, and the row of the vocabulary's length is copied only for whoever asks for it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "kernels/ops.h"
#include "longspec/status.h"
#include "sampling/sampler.h"
#include "sampling/top_tokens.h"

namespace longspec {

// Where rows of logits lie, and who answers there what a LogitRow is asked, in the same words. Thread-safe.
class LogitMemory {
 public:
  virtual ~LogitMemory() = default;

  virtual std::span<const float> Read(std::span<const float> row, std::vector<float>* room) const = 0;

  // Unless it is overridden, each is answered of what Read gives.
  virtual Status Check(std::span<const float> row, uint64_t position) const;
  virtual int32_t Choose(std::span<const float> row, const Sampler& sampler, const TokenHistory& history,
                         std::optional<std::span<const uint32_t>> allowed, Sampler::Scratch& scratch) const;
  virtual int Best(std::span<const float> row, std::span<int32_t> tokens, std::span<float> logits,
                   float* share) const;
  virtual void MostProbable(std::span<const float> row, const kernels::KernelTable& kernels, int k,
                            std::span<const int32_t> names, std::vector<TokenScore>& out) const;
};

// Memory that the host can address.
const LogitMemory& HostLogits();

class LogitRow {
 public:
  // (vocab), borrowed, as is their memory.
  explicit LogitRow(std::span<const float> logits, const LogitMemory& memory = HostLogits())
      : logits_(logits), memory_(&memory) {}

  int vocab() const { return static_cast<int>(logits_.size()); }

  // Whether a token can be chosen: CheckLogits.
  Status Check(uint64_t position) const { return memory_->Check(logits_, position); }

  // Sampler::Sample after this history. `allowed`: bit t % 32 of word t / 32 says whether token t may be
  // chosen; the others are as if their logits were minus infinity. Without it all may.
  int32_t Choose(const Sampler& sampler, const TokenHistory& history, Sampler::Scratch& scratch,
                 std::optional<std::span<const uint32_t>> allowed = std::nullopt) const {
    return memory_->Choose(logits_, sampler, history, allowed, scratch);
  }

  // TopLogits.
  int Best(std::span<int32_t> tokens) const { return memory_->Best(logits_, tokens, {}, nullptr); }
  // And their logits, as many, and the softmax share of the first of them: 0 if there is none, or its logit
  // is infinite.
  int Best(std::span<int32_t> tokens, std::span<float> logits, float* share) const {
    LS_CHECK(logits.size() == tokens.size());
    return memory_->Best(logits_, tokens, logits, share);
  }

  // TopTokens of the first n logits.
  void MostProbable(const kernels::KernelTable& kernels, int n, int k, std::span<const int32_t> names,
                    std::vector<TokenScore>& out) const {
    memory_->MostProbable(logits_.first(static_cast<size_t>(n)), kernels, k, names, out);
  }

  // The row itself, (vocab), on demand: where it lies in host memory; of what lies elsewhere a copy in
  // `room`, which takes longer than any other answer.
  std::span<const float> Read(std::vector<float>* room) const { return memory_->Read(logits_, room); }

 private:
  std::span<const float> logits_;
  const LogitMemory* memory_;
};

class LogitRows {
 public:
  LogitRows() = default;
  // `logits`: (n, vocab), borrowed, as is their memory.
  LogitRows(const float* logits, int n, int vocab, const LogitMemory& memory = HostLogits())
      : logits_(logits), n_(n), vocab_(vocab), memory_(&memory) {}

  int size() const { return n_; }
  LogitRow operator[](int i) const {
    LS_CHECK(i >= 0 && i < n_);
    return LogitRow({at(i), static_cast<size_t>(vocab_)}, *memory_);
  }
  LogitRows From(int first, int n) const {
    LS_CHECK(first >= 0 && n >= 0 && first + n <= n_);
    LogitRows part = *this;
    part.logits_ = at(first);
    part.n_ = n;
    return part;
  }

 private:
  const float* at(int i) const { return logits_ + static_cast<size_t>(i) * static_cast<size_t>(vocab_); }

  const float* logits_ = nullptr;
  int n_ = 0, vocab_ = 0;
  const LogitMemory* memory_ = nullptr;
};

}  // namespace longspec
