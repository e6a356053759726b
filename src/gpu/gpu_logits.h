// SPDX-License-Identifier: Apache-2.0
//
// Logits in a card's memory. Checks, greedy choices, draws that no filter precedes, and the k best are made
// there, and what is drawn of the k best, on the host; for everything else a row is copied. A grammar's mask
// is brought and applied to a copy of the row there, in which biases and penalties then change the few logits
// that they concern, on the host.
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
  // What is known of each row once one of them is asked for.
  struct Looked {
    kernels::gpu::RowCheck check;
    kernels::gpu::BestLogit largest;
  };
  // A row from which tokens are chosen, and its largest logit, here and there.
  struct Choosable {
    const float* row;
    kernels::gpu::BestLogit largest;
    const kernels::gpu::BestLogit* largest_there;
  };
  int NumberOf(std::span<const float> row) const;
  const Looked& Look(std::span<const float> row) const;
  void LookAtAll() const;
  void FindLargest(const float* rows, int n_rows, kernels::gpu::BestLogit* largest) const;
  // Nothing: its copy on the host says it.
  std::optional<Choosable> Changed(std::span<const float> row, const SamplingOptions& options,
                                   const TokenHistory& history,
                                   std::optional<std::span<const uint32_t>> allowed) const;
  // The k largest of a row in the card's memory, from the largest on, of equal ones the lowest token first.
  void FindBest(const float* row, int k, int32_t* tokens, float* logits) const;
  int32_t DrawOfBest(const float* row, const Sampler& sampler, uint64_t position,
                     Sampler::Scratch& scratch) const;
  int32_t Draw(const Choosable& from, const Sampler& sampler, uint64_t position) const;
  int PartsOf(int rows) const;

  Runtime& card_;
  mutable std::mutex mutex_;
  const float* logits_ = nullptr;
  int n_ = 0, vocab_ = 0;
  mutable std::vector<Looked> looked_;  // of all rows, or none
  // In the card's memory.
  GpuBuffer checks_, largest_, indices_, parts_, draw_, best_;
  GpuBuffer changed_, mask_, changes_;  // of a row that is changed
};

}  // namespace longspec
