// SPDX-License-Identifier: Apache-2.0
#include "sampling/sampler.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/elementary.h"
#include "base/status_macros.h"
#include "kernels/dispatch.h"
#include "sampling/candidates.h"
#include "sampling/logits_processors.h"
#include "sampling/options_check.h"

namespace longspec {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// exp((logit - largest) / temperature), and 1 for the largest itself even where the difference is no number.
double Weight(float logit, float largest, double temperature) {
  if (logit == largest) return 1.0;
  return Exp((static_cast<double>(logit) - static_cast<double>(largest)) / temperature);
}

// The token of the largest logit.
int32_t Likeliest(std::span<const float> row) {
  const int32_t token = ArgMax(row);
  return row[static_cast<size_t>(token)] > kMinusInfinity ? token : kNoToken;
}

// What survives the filters: the first n_kept candidates of `order`.
struct Survivors {
  CandidateOrder order;
  float largest;
  size_t n_kept;
};

// Sum of the weights of the first n candidates, in the order in which they lie. That is one and the same
// order in every run: sorted as far as a filter looked, or by id if none did.
double SumWeights(std::span<const Candidate> candidates, float largest, double temperature) {
  double sum = 0.0;
  for (const auto& [logit, token] : candidates) sum += Weight(logit, largest, temperature);
  return sum;
}

// The smallest prefix whose share of the probability is at least top_p.
size_t TopPPrefix(CandidateOrder& order, float largest, double total, double top_p) {
  double cumulative = 0.0;
  for (size_t i = 0; i < order.size(); ++i) {
    cumulative += Weight(order[i].first, largest, 1.0);
    if (cumulative >= top_p * total) return i + 1;
  }
  return order.size();
}

// The prefix of candidates at least min_p times as probable as the first; never empty.
size_t MinPPrefix(CandidateOrder& order, size_t n, float largest, double min_p) {
  size_t kept = 1;
  while (kept < n && Weight(order[kept].first, largest, 1.0) >= min_p) ++kept;
  return kept;
}

// The candidates of a hole's filling among the first n; how many.
size_t InfillCandidates(const InfillFilter& infill, CandidateOrder& order, size_t n,
                        std::vector<Candidate>& candidates, std::span<const float> logits) {
  size_t looked_at = 0;  // read one by one, which sorts them
  while (looked_at < std::min(n, InfillFilter::kMost) && order[looked_at].first > kMinusInfinity) ++looked_at;
  return looked_at == 0 ? n : infill.Apply(std::span(candidates).first(looked_at), logits);
}

// By shares of the probability.
Survivors Likely(const SamplingOptions& options, float largest, bool sorted,
                 std::vector<Candidate>& candidates) {
  Survivors kept{CandidateOrder(candidates, sorted ? candidates.size() : 0), largest, candidates.size()};
  if (options.top_p < 1.0F) {
    const double total = SumWeights(candidates, largest, 1.0);
    kept.n_kept = TopPPrefix(kept.order, largest, total, static_cast<double>(options.top_p));
  }
  if (options.min_p > 0.0F) {
    kept.n_kept = MinPPrefix(kept.order, kept.n_kept, largest, static_cast<double>(options.min_p));
  }
  return kept;
}

Survivors Select(const SamplingOptions& options, const std::optional<InfillFilter>& infill,
                 std::span<const float> logits, std::vector<Candidate>& candidates) {
  TopCandidates(logits, options.top_k, candidates);
  const bool sorted = candidates.size() < logits.size();
  const float largest =
      sorted ? candidates.front().first : candidates[static_cast<size_t>(ArgMax(logits))].first;
  Survivors kept = Likely(options, largest, sorted, candidates);
  if (infill) {
    kept.n_kept = InfillCandidates(*infill, kept.order, kept.n_kept, candidates, logits);
    kept.largest = kept.order[0].first;
  }
  return kept;
}

// The candidate with the largest key (kernels/ops.h: GumbelArgs), the lowest token of equal ones.
int32_t GumbelChoice(std::span<const Candidate> candidates, float largest, double temperature,
                     const Dice& dice) {
  int32_t choice = candidates.front().second;
  double best = -std::numeric_limits<double>::infinity();
  for (const auto& [logit, token] : candidates) {
    const double x = logit == largest ? 0.0 : static_cast<double>(logit) - static_cast<double>(largest);
    const double key = x / temperature + dice.Gumbel(token);
    if (key > best || (key == best && token < choice)) {
      best = key;
      choice = token;
    }
  }
  return choice;
}

// The row after bias and penalties: the caller's own where they change nothing.
std::span<const float> Processed(const SamplingOptions& options, std::span<const float> logits,
                                 const TokenHistory& history, Sampler::Scratch& scratch) {
  if (!ChangesLogits(options)) return logits;
  scratch.logits.assign(logits.begin(), logits.end());
  ApplyBiasAndPenalties(options, history, scratch.logits, scratch.counts);
  return scratch.logits;
}

}  // namespace

Sampler::Sampler(SamplingOptions options, int vocab_size, RngStream stream,
                 const kernels::KernelTable& kernels, std::optional<InfillFilter> infill)
    : options_(std::move(options)),
      vocab_size_(vocab_size),
      stream_(stream),
      kernels_(&kernels),
      infill_(infill) {}

Result<Sampler> Sampler::Create(const SamplingOptions& options, int vocab_size, uint64_t sequence,
                                const kernels::KernelTable* kernels, const Tokenizer* tokenizer) {
  LS_TRY(CheckSamplingOptions(options, vocab_size));
  if (options.infill && tokenizer == nullptr)
    return InvalidArgument("the sampler infill needs the texts of tokens, which are not known here");
  std::optional<InfillFilter> infill;
  if (options.infill) infill.emplace(*tokenizer);
  return Sampler(options, vocab_size, {.seed = *options.seed, .sequence = sequence},
                 kernels != nullptr ? *kernels : *kernels::Available().front(), infill);
}

int32_t Sampler::Sample(std::span<const float> logits, const TokenHistory& history, uint64_t position,
                        Scratch& scratch) const {
  LS_CHECK(logits.size() == static_cast<size_t>(vocab_size_));
  const std::span<const float> row = Processed(options_, logits, history, scratch);
  if (is_greedy() && !infill_) return Likeliest(row);
  if (is_greedy()) {
    const Survivors kept = Select(options_, infill_, row, scratch.candidates);
    return kept.largest == kMinusInfinity ? kNoToken : scratch.candidates.front().second;
  }

  const Dice dice = DiceAt(position);
  if (!has_filters()) {
    const int32_t likeliest = Likeliest(row);
    if (likeliest == kNoToken) return kNoToken;
    return kernels_->gumbel_argmax({.logits = row.data(),
                                    .n = vocab_size_,
                                    .largest = row[static_cast<size_t>(likeliest)],
                                    .temperature = options_.temperature,
                                    .dice = {dice.key()[0], dice.key()[1]}});
  }
  auto [order, largest, n] = Select(options_, infill_, row, scratch.candidates);
  if (largest == kMinusInfinity) return kNoToken;
  return GumbelChoice(std::span(scratch.candidates).first(n), largest, options_.temperature, dice);
}

int32_t Sampler::SampleAmong(uint64_t position, Scratch& scratch) const {
  LS_CHECK(options_.top_k > 0 && !infill_ && !is_greedy());
  std::vector<Candidate>& candidates = scratch.candidates;
  if (candidates.empty() || candidates.front().first == kMinusInfinity) return kNoToken;
  const float largest = candidates.front().first;
  const size_t n = Likely(options_, largest, /*sorted=*/true, candidates).n_kept;
  return GumbelChoice(std::span(candidates).first(n), largest, options_.temperature, DiceAt(position));
}

std::span<const TokenProbability> Sampler::Distribution(std::span<const float> logits,
                                                        const TokenHistory& history, Scratch& scratch) const {
  LS_CHECK(logits.size() == static_cast<size_t>(vocab_size_));
  const std::span<const float> row = Processed(options_, logits, history, scratch);
  scratch.distribution.clear();
  if (is_greedy()) {
    const int32_t token = Sample(logits, history, 0, scratch);
    if (token != kNoToken) scratch.distribution.push_back({token, 1.0});
    return scratch.distribution;
  }
  const double temperature = options_.temperature;
  auto [order, largest, n] = Select(options_, infill_, row, scratch.candidates);
  if (largest == kMinusInfinity) return scratch.distribution;
  const double total = SumWeights(std::span(scratch.candidates).first(n), largest, temperature);
  for (size_t i = 0; i < n; ++i) {
    const double weight = Weight(order[i].first, largest, temperature);
    if (weight == 0.0) break;
    scratch.distribution.push_back({order[i].second, weight / total});
  }
  return scratch.distribution;
}

}  // namespace longspec
