// SPDX-License-Identifier: Apache-2.0
//
// Logits in a card's memory. Checks, greedy choices, draws that no filter precedes, and the k best are made
// there; for everything else a row is copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "gpu/gpu_memory.h"
#include "kernels/gpu/check_rows.h"
#include "kernels/gpu/choice.h"
#include "sampling/logit_rows.h"

namespace longspec {

class GpuLogits final : public LogitMemory {
 public:
  explicit GpuLogits(Runtime& card) : card_(card) {}

  // Rows of a pass, (n, vocab), in the card's memory: valid until the next Begin. Throws std::bad_alloc.
  LogitRows Begin(const float* logits, int n, int vocab);

  std::span<const float> Read(std::span<const float> row, std::vector<float>* room) const override;
  Status Check(std::span<const float> row, uint64_t position) const override;
  int32_t Choose(std::span<const float> row, const Sampler& sampler, const TokenHistory& history,
                 std::optional<std::span<const uint32_t>> allowed, Sampler::Scratch& scratch) const override;
  int Best(std::span<const float> row, std::span<int32_t> tokens, std::span<float> logits,
           float* share) const override;

 private:
  static constexpr int kMostBest = 64;

  // What is known of each row once one of them is asked for.
  struct Looked {
    kernels::gpu::RowCheck check;
    kernels::gpu::BestLogit largest;
  };
  int NumberOf(std::span<const float> row) const;
  const Looked& Look(std::span<const float> row) const;
  void LookAtAll() const;
  int32_t Draw(std::span<const float> row, const Sampler& sampler, uint64_t position) const;
  int PartsOf(int rows) const;

  Runtime& card_;
  mutable std::mutex mutex_;
  const float* logits_ = nullptr;
  int n_ = 0, vocab_ = 0;
  mutable std::vector<Looked> looked_;  // of all rows, or none
  // In the card's memory.
  GpuBuffer checks_, largest_, indices_, parts_, draw_, best_;
};

}  // namespace longspec
