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
constexpr float kInfinity = std::numeric_limits<float>::infinity(), kMinusInfinity = -kInfinity;
constexpr size_t kMostChanges = 4096;  // of a row's logits; more are changed on the host

// As they lie in a card's memory.
struct Changes {
  float logits[kMostChanges];
  int32_t tokens[kMostChanges];
};
struct BestOfParts {
  static constexpr int kMost = 64;  // of a row
  uint64_t scratch[kMostParts * kMost];
  float values[kMostParts * kMost + kMostParts];  // of the parts, and what is left of the row
  int32_t indices[kMostParts * kMost];
  float row_values[kMost];
  int32_t row_indices[kMost];
};

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
  best_.Reserve(card_, sizeof(BestOfParts));
  changed_.Reserve(card_, sizeof(gpu::BestLogit) + Z(vocab) * sizeof(float));
  mask_.Reserve(card_, Z(gpu::CeilDiv(vocab, 32)) * sizeof(uint32_t));
  changes_.Reserve(card_, sizeof(Changes));
  return {logits, n, vocab, *this};
}

int GpuLogits::NumberOf(std::span<const float> row) const {
  const auto at = row.data() - logits_;
  LS_CHECK(at >= 0 && at % vocab_ == 0 && at / vocab_ < n_);
  return static_cast<int>(at / vocab_);
}

void GpuLogits::LookAtAll() const {
  card_.Launch<gpu::CheckRows>(
      {.x = logits_, .stride = vocab_, .checks = checks_.as<gpu::RowCheck>(), .n = vocab_, .n_rows = n_});
  FindLargest(logits_, n_, largest_.as<gpu::BestLogit>());
  std::vector<gpu::RowCheck> checks(Z(n_));
  std::vector<gpu::BestLogit> largest(Z(n_));
  card_.Copy(checks_.data(), checks.data(), checks.size() * sizeof(gpu::RowCheck));
  card_.Copy(largest_.data(), largest.data(), largest.size() * sizeof(gpu::BestLogit));
  for (size_t i = 0; i < checks.size(); ++i) looked_.push_back({checks[i], largest[i]});
}

void GpuLogits::FindLargest(const float* rows, int n_rows, gpu::BestLogit* largest) const {
  const int n_parts = PartsOf(n_rows);
  card_.Launch<gpu::Argmax>({.x = rows,
                             .stride = vocab_,
                             .parts = parts_.as<gpu::BestLogit>(),
                             .n = vocab_,
                             .n_rows = n_rows,
                             .n_parts = n_parts});
  card_.Launch<gpu::JoinParts<gpu::BestLogit>>({.parts = parts_.as<gpu::BestLogit>(),
                                                .n_parts = n_parts,
                                                .n_rows = n_rows,
                                                .indices = indices_.as<int32_t>(),
                                                .best = largest});
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
  const bool is_of_best = !sampler.is_greedy() && options.top_k > 0 && options.top_k <= BestOfParts::kMost &&
                          options.top_k < vocab_;
  if (!options.infill && (sampler.is_greedy() || !sampler.has_filters() || is_of_best)) {
    const std::lock_guard lock(mutex_);
    std::optional<Choosable> from;
    if (const Looked& looked = Look(row); looked.check.n_illegal == 0) {
      from = {row.data(), looked.largest, largest_.as<gpu::BestLogit>() + NumberOf(row)};
      if (allowed || ChangesLogits(options)) from = Changed(row, options, history, allowed);
    }
    if (from) {
      if (from->largest.value <= kMinusInfinity) return kNoToken;
      if (is_of_best) return DrawOfBest(from->row, sampler, history.size(), scratch);
      return sampler.is_greedy() ? from->largest.index : Draw(*from, sampler, history.size());
    }
  }
  return LogitMemory::Choose(row, sampler, history, allowed, scratch);
}

// A copy of the row in which the forbidden tokens are at minus infinity, and then those are changed that are
// to be: of these the logits come to the host and go back.
std::optional<GpuLogits::Choosable> GpuLogits::Changed(
    std::span<const float> row, const SamplingOptions& options, const TokenHistory& history,
    std::optional<std::span<const uint32_t>> allowed) const {
  const LogitChanges changes(options, history, vocab_);
  const size_t n = changes.tokens().size();
  if (n > kMostChanges) return std::nullopt;
  auto* const largest_there = changed_.as<gpu::BestLogit>();
  auto* const to = reinterpret_cast<float*>(largest_there + 1);
  if (allowed) {
    const int n_words = std::min(static_cast<int>(allowed->size()), gpu::CeilDiv(vocab_, 32));
    card_.Copy(allowed->data(), mask_.data(), Z(n_words) * sizeof(uint32_t));
    card_.Launch<gpu::Each<gpu::AllowedLogits>>(
        {.of = {.x = row.data(), .mask = mask_.as<uint32_t>(), .n_words = n_words}, .out = to, .n = vocab_});
  } else {
    card_.Copy(row.data(), to, row.size_bytes());
  }
  if (n > 0) {
    auto* const logits_there = changes_.as<Changes>()->logits;
    auto* const tokens_there = changes_.as<Changes>()->tokens;
    const auto count = static_cast<int>(n);
    std::vector<float> logits(n);
    card_.Copy(changes.tokens().data(), tokens_there, n * sizeof(int32_t));
    card_.Launch<gpu::Each<gpu::GatheredRows>>(
        {.of = {.from = to, .rows = tokens_there, .width = 1}, .out = logits_there, .n = count});
    card_.Copy(logits_there, logits.data(), n * sizeof(float));
    changes.Apply(logits);
    if (!std::ranges::all_of(logits, [](float x) { return x < kInfinity; })) return std::nullopt;
    card_.Copy(logits.data(), logits_there, n * sizeof(float));
    card_.Launch<gpu::Scatter>({.x = logits_there, .at = tokens_there, .out = to, .n = count});
  }
  FindLargest(to, 1, largest_there);
  gpu::BestLogit largest = gpu::BestLogit::None();
  card_.Copy(largest_there, &largest, sizeof(largest));
  return Choosable{to, largest, largest_there};
}

// Gumbel-max over the whole row.
int32_t GpuLogits::Draw(const Choosable& from, const Sampler& sampler, uint64_t position) const {
  const Dice dice = sampler.DiceAt(position);
  const gpu::GumbelDraw draw = {.temperature = sampler.options().temperature,
                                .dice = {dice.key()[0], dice.key()[1]}};
  card_.Copy(&draw, draw_.data(), sizeof(draw));
  const int n_parts = PartsOf(1);
  card_.Launch<gpu::Gumbel>({.logits = from.row,
                             .stride = vocab_,
                             .largest = from.largest_there,
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

// Of each part of the row its k best, side by side, and of these the k best.
void GpuLogits::FindBest(const float* row, int k, int32_t* tokens, float* logits) const {
  auto& there = *best_.as<BestOfParts>();
  std::fill_n(tokens, k, 0);  // of a card that is gone nothing is copied
  const auto find = [&](const float* x, int n, int n_rows, float* values, int32_t* indices) {
    card_.Launch<gpu::TopK>({.x = x,
                             .stride = n,
                             .n = n,
                             .n_rows = n_rows,
                             .k = k,
                             .scratch = there.scratch,
                             .values = values,
                             .indices = indices});
  };
  const int n_parts = std::clamp(vocab_ / kPartTokens, 1, kMostParts), part = vocab_ / n_parts;
  const int found = n_parts * k, searched = n_parts * part;
  if (n_parts == 1) {
    find(row, vocab_, 1, there.row_values, there.row_indices);
  } else {
    find(row, part, n_parts, there.values, there.indices);
    card_.Copy(row + searched, there.values + found, Z(vocab_ - searched) * sizeof(float));
    find(there.values, found + vocab_ - searched, 1, there.row_values, there.row_indices);
  }
  card_.Copy(there.row_values, logits, Z(k) * sizeof(float));
  card_.Copy(there.row_indices, tokens, Z(k) * sizeof(int32_t));
  if (n_parts == 1) return;
  std::vector<int32_t> indices(Z(found));
  card_.Copy(there.indices, indices.data(), Z(found) * sizeof(int32_t));
  for (int i = 0; i < k; ++i) {
    const int at = tokens[i];
    tokens[i] = at < found ? at / k * part + indices[Z(at)] : searched + at - found;
  }
}

int32_t GpuLogits::DrawOfBest(const float* row, const Sampler& sampler, uint64_t position,
                              Sampler::Scratch& scratch) const {
  const int k = sampler.options().top_k;
  int32_t tokens[BestOfParts::kMost] = {};
  float logits[BestOfParts::kMost];
  std::ranges::fill(logits, kMinusInfinity);
  FindBest(row, k, tokens, logits);
  scratch.candidates.clear();
  for (int i = 0; i < k && logits[i] > kMinusInfinity; ++i)
    scratch.candidates.emplace_back(logits[i], tokens[i]);
  return sampler.SampleAmong(position, scratch);
}

int GpuLogits::Best(std::span<const float> row, std::span<int32_t> tokens, std::span<float> logits,
                    float* share) const {
  const size_t k = tokens.size();
  if (share == nullptr && k >= 1 && k <= Z(BestOfParts::kMost) && k <= row.size()) {
    const std::lock_guard lock(mutex_);
    if (Look(row).check.n_illegal == 0) {
      std::vector<float> best(k, kMinusInfinity);
      FindBest(row.data(), static_cast<int>(k), tokens.data(), best.data());
      const auto n = std::ranges::find(best, kMinusInfinity) - best.begin();  // those do not count
      for (size_t i = 0; i < std::min(static_cast<size_t>(n), logits.size()); ++i) logits[i] = best[i];
      return static_cast<int>(n);
    }
  }
  return LogitMemory::Best(row, tokens, logits, share);
}

}  // namespace longspec
