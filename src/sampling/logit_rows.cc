// SPDX-License-Identifier: Apache-2.0
#include "sampling/logit_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sampling/logits_check.h"
#include "sampling/top_logits.h"

namespace longspec {
namespace {

// The row with the forbidden tokens at minus infinity.
std::span<const float> AllowedRow(std::span<const float> logits, std::span<const uint32_t> mask,
                                  std::vector<float>& row) {
  constexpr size_t kBits = 32;
  row.assign(logits.size(), -std::numeric_limits<float>::infinity());
  for (size_t word = 0; word < mask.size(); ++word) {
    if (mask[word] == 0) continue;
    const size_t end = std::min((word + 1) * kBits, logits.size());
    for (size_t token = word * kBits; token < end; ++token) {
      if ((mask[word] >> (token % kBits) & 1U) != 0) row[token] = logits[token];
    }
  }
  return row;
}

class LogitsOnHost final : public LogitMemory {
 public:
  std::span<const float> Read(std::span<const float> row, std::vector<float>* /*room*/) const override {
    return row;
  }
};

}  // namespace

Status LogitMemory::Check(std::span<const float> row, uint64_t position) const {
  std::vector<float> room;
  return CheckLogits(Read(row, &room), position);
}

int32_t LogitMemory::Choose(std::span<const float> row, const Sampler& sampler, const TokenHistory& history,
                            std::optional<std::span<const uint32_t>> allowed,
                            Sampler::Scratch& scratch) const {
  std::span<const float> logits = Read(row, &scratch.read);
  if (allowed) logits = AllowedRow(logits, *allowed, scratch.allowed);
  return sampler.Sample(logits, history, history.size(), scratch);
}

int LogitMemory::Best(std::span<const float> row, std::span<int32_t> tokens, std::span<float> logits,
                      float* share) const {
  std::vector<float> room;
  const std::span<const float> all = Read(row, &room);
  const int n = TopLogits(all, tokens);
  for (size_t i = 0; i < std::min(static_cast<size_t>(n), logits.size()); ++i) {
    logits[i] = all[static_cast<size_t>(tokens[i])];
  }
  if (share != nullptr) {
    const bool finite = n > 0 && std::isfinite(all[static_cast<size_t>(tokens[0])]);
    *share = finite ? ShareOfLargest(all, tokens[0]) : 0.0F;
  }
  return n;
}

void LogitMemory::MostProbable(std::span<const float> row, const kernels::KernelTable& kernels, int k,
                               std::span<const int32_t> names, std::vector<TokenScore>& out) const {
  std::vector<float> room;
  const std::span<const float> logits = Read(row, &room);
  TopTokens(kernels, logits.data(), static_cast<int>(logits.size()), k, names, out);
}

const LogitMemory& HostLogits() {
  static const LogitsOnHost host;
  return host;
}

}  // namespace longspec
