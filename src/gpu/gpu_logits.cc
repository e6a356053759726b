// SPDX-License-Identifier: Apache-2.0
#include "gpu/gpu_logits.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "kernels/gpu/bodies.h"
#include "sampling/logits_processors.h"
#include "sampling/top_logits.h"

namespace longspec {
namespace {

namespace gpu = kernels::gpu;

constexpr int kMostParts = 128;  // of a row, each a block of threads
constexpr int kPartTokens = 1024;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

bool Filters(const SamplingOptions& options) {
  return options.top_k > 0 || options.top_p < 1.0F || options.min_p > 0.0F || options.infill;
}

}  // namespace

int GpuLogits::PartsOf(int rows) const {
  const int wanted = std::max(1, 4 * card_.facts().multiprocessors / std::max(rows, 1));
  return std::clamp(wanted, 1, std::min(kMostParts, gpu::CeilDiv(vocab_, kPartTokens)));
}

LogitRows GpuLogits::Begin(const float* logits, int n, int vocab) {
  const std::lock_guard lock(mutex_);
  logits_ = logits;
  n_ = n;
  vocab_ = vocab;
  looked_.clear();
  const size_t rows = Z(std::max(n, 1));
  checks_.Reserve(card_, rows * sizeof(gpu::RowCheck));
  largest_.Reserve(card_, rows * sizeof(gpu::BestLogit));
  indices_.Reserve(card_, rows * sizeof(int32_t));
  parts_.Reserve(card_, rows * Z(kMostParts) * std::max(sizeof(gpu::BestLogit), sizeof(gpu::BestKey)));
  draw_.Reserve(card_, sizeof(gpu::GumbelDraw));
  best_.Reserve(card_, kMostBest * (sizeof(uint64_t) + sizeof(float) + sizeof(int32_t)));
  return {logits, n, vocab, *this};
}

int GpuLogits::NumberOf(std::span<const float> row) const {
  const auto at = row.data() - logits_;
  LS_CHECK(at >= 0 && at % vocab_ == 0 && at / vocab_ < n_);
  return static_cast<int>(at / vocab_);
}

void GpuLogits::LookAtAll() const {
  const int n_parts = PartsOf(n_);
  card_.Launch<gpu::CheckRows>(
      {.x = logits_, .stride = vocab_, .checks = checks_.as<gpu::RowCheck>(), .n = vocab_, .n_rows = n_});
  card_.Launch<gpu::Argmax>({.x = logits_,
                             .stride = vocab_,
                             .parts = parts_.as<gpu::BestLogit>(),
                             .n = vocab_,
                             .n_rows = n_,
                             .n_parts = n_parts});
  card_.Launch<gpu::JoinParts<gpu::BestLogit>>({.parts = parts_.as<gpu::BestLogit>(),
                                                .n_parts = n_parts,
                                                .n_rows = n_,
                                                .indices = indices_.as<int32_t>(),
                                                .best = largest_.as<gpu::BestLogit>()});
  std::vector<gpu::RowCheck> checks(Z(n_));
  std::vector<gpu::BestLogit> largest(Z(n_));
  card_.Copy(checks_.data(), checks.data(), checks.size() * sizeof(gpu::RowCheck));
  card_.Copy(largest_.data(), largest.data(), largest.size() * sizeof(gpu::BestLogit));
  for (size_t i = 0; i < checks.size(); ++i) looked_.push_back({checks[i], largest[i]});
}

const GpuLogits::Looked& GpuLogits::Look(std::span<const float> row) const {
  const int number = NumberOf(row);
  if (looked_.empty()) LookAtAll();
  return looked_[Z(number)];
}

std::span<const float> GpuLogits::Read(std::span<const float> row, std::vector<float>* room) const {
  room->assign(row.size(), std::numeric_limits<float>::quiet_NaN());  // from which nothing is chosen
  card_.Copy(row.data(), room->data(), row.size_bytes());
  return *room;
}

Status GpuLogits::Check(std::span<const float> row, uint64_t position) const {
  {
    const std::lock_guard lock(mutex_);
    const gpu::RowCheck& check = Look(row).check;
    LS_TRY(card_.Wait());
    if (check.n_illegal == 0 && check.n_possible > 0) return {};
  }
  return LogitMemory::Check(row, position);  // which says what is wrong
}

int32_t GpuLogits::Choose(std::span<const float> row, const Sampler& sampler, const TokenHistory& history,
                          std::optional<std::span<const uint32_t>> allowed, Sampler::Scratch& scratch) const {
  const SamplingOptions& options = sampler.options();
  const bool is_plain =
      !allowed && !ChangesLogits(options) && (sampler.is_greedy() ? !options.infill : !Filters(options));
  if (is_plain) {
    const std::lock_guard lock(mutex_);
    const Looked& looked = Look(row);
    if (looked.check.n_illegal == 0) {
      if (looked.largest.value <= kMinusInfinity) return kNoToken;
      return sampler.is_greedy() ? looked.largest.index : Draw(row, sampler, history.size());
    }
  }
  return LogitMemory::Choose(row, sampler, history, allowed, scratch);
}

// Gumbel-max over the whole row.
int32_t GpuLogits::Draw(std::span<const float> row, const Sampler& sampler, uint64_t position) const {
  const Dice dice = sampler.DiceAt(position);
  const gpu::GumbelDraw draw = {.temperature = sampler.options().temperature,
                                .dice = {dice.key()[0], dice.key()[1]}};
  card_.Copy(&draw, draw_.data(), sizeof(draw));
  const int n_parts = PartsOf(1);
  card_.Launch<gpu::Gumbel>({.logits = row.data(),
                             .stride = vocab_,
                             .largest = largest_.as<gpu::BestLogit>() + NumberOf(row),
                             .draws = draw_.as<gpu::GumbelDraw>(),
                             .parts = parts_.as<gpu::BestKey>(),
                             .n = vocab_,
                             .n_rows = 1,
                             .n_parts = n_parts});
  card_.Launch<gpu::JoinParts<gpu::BestKey>>({.parts = parts_.as<gpu::BestKey>(),
                                              .n_parts = n_parts,
                                              .n_rows = 1,
                                              .indices = indices_.as<int32_t>(),
                                              .best = nullptr});
  int32_t token = kNoToken;
  card_.Copy(indices_.data(), &token, sizeof(token));
  return token;
}

int GpuLogits::Best(std::span<const float> row, std::span<int32_t> tokens, std::span<float> logits,
                    float* share) const {
  const size_t k = tokens.size();
  if (share == nullptr && k >= 1 && k <= kMostBest && k <= row.size()) {
    const std::lock_guard lock(mutex_);
    if (Look(row).check.n_illegal == 0) {
      auto* const scratch = best_.as<uint64_t>();
      auto* const values = reinterpret_cast<float*>(scratch + kMostBest);
      auto* const indices = reinterpret_cast<int32_t*>(values + kMostBest);
      card_.Launch<gpu::TopK>({.x = row.data(),
                               .stride = vocab_,
                               .n = vocab_,
                               .n_rows = 1,
                               .k = static_cast<int>(k),
                               .scratch = scratch,
                               .values = values,
                               .indices = indices});
      std::vector<float> best(k);
      card_.Copy(values, best.data(), k * sizeof(float));
      card_.Copy(indices, tokens.data(), k * sizeof(int32_t));
      const auto n = std::ranges::find(best, kMinusInfinity) - best.begin();  // those do not count
      for (size_t i = 0; i < std::min(static_cast<size_t>(n), logits.size()); ++i) logits[i] = best[i];
      return static_cast<int>(n);
    }
  }
  return LogitMemory::Best(row, tokens, logits, share);
}

}  // namespace longspec
