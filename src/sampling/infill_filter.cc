// SPDX-License-Identifier: Apache-2.0
#include "sampling/infill_filter.h"

#include <limits>
#include <string_view>
#include <utility>

#include "base/elementary.h"

namespace longspec {
namespace {

constexpr double kLeastChance = 0.2;  // of a token, with those that begin like it
constexpr double kEndFactor = 3;      // times the number of candidates: how much an end's chance counts

}  // namespace

bool InfillFilter::IsEnd(int32_t token) const {
  return token < tokenizer_->vocab_size() && tokenizer_->IsEndOfGeneration(token);
}

std::string_view InfillFilter::TextOf(int32_t token) const {
  if (token >= tokenizer_->vocab_size() || tokenizer_->IsControl(token)) return {};
  return tokenizer_->TokenBytes(token);
}

// Two of which one begins the other become the likelier one; what has become another has chance 0.
void InfillFilter::Merge(std::span<const Candidate> candidates, std::vector<double>& chances) const {
  for (size_t i = 0; i < candidates.size(); ++i) {
    const std::string_view beginning = TextOf(candidates[i].second);
    if (beginning.empty()) continue;
    for (size_t j = 0; j < candidates.size() && chances[i] > 0; ++j) {
      if (i == j || chances[j] == 0 || !TextOf(candidates[j].second).starts_with(beginning)) continue;
      const bool into_longer = chances[j] > chances[i];
      double& from = into_longer ? chances[i] : chances[j];
      (into_longer ? chances[j] : chances[i]) += std::exchange(from, 0);
    }
  }
}

size_t InfillFilter::Apply(std::span<Candidate> candidates, std::span<const float> row) const {
  const Candidate likeliest = candidates.front();
  Candidate& first = candidates.front();
  std::vector<double> chances;
  double of_ends = 0, of_texts = 0;
  for (const auto& [logit, token] : candidates) {
    const double x = static_cast<double>(logit) - static_cast<double>(likeliest.first);
    chances.push_back(logit == likeliest.first ? 1.0 : Exp(x));
    (IsEnd(token) ? of_ends : of_texts) += chances.back();
  }
  const auto keep_if = [&](const auto& wanted) {
    size_t n = 0;
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (!wanted(i, IsEnd(candidates[i].second))) continue;
      candidates[n] = candidates[i];
      chances[n++] = chances[i];
    }
    candidates = candidates.first(n);
    chances.resize(n);
  };
  if (kEndFactor * of_ends * static_cast<double>(candidates.size()) > of_texts) {
    keep_if([](size_t, bool is_end) { return is_end; });
    return candidates.size();
  }
  Merge(candidates, chances);
  const double all = of_ends + of_texts;
  double kept = 0;
  size_t n_texts = 0;
  keep_if([&](size_t i, bool is_end) {
    if (!is_end && chances[i] < kLeastChance * all) return false;
    kept += chances[i];
    n_texts += is_end ? 0 : 1;
    return true;
  });
  if (n_texts == 0) {
    const TokenizerSpec& spec = tokenizer_->spec();
    const int32_t end = spec.eot >= 0 ? spec.eot : spec.eos;
    const bool may_end = end >= 0 && static_cast<size_t>(end) < row.size() &&
                         row[static_cast<size_t>(end)] > -std::numeric_limits<float>::infinity();
    first = may_end ? Candidate{row[static_cast<size_t>(end)], end} : likeliest;
    return 1;
  }
  const double least = kept / static_cast<double>(n_texts + 1);
  keep_if([&](size_t i, bool is_end) { return is_end || chances[i] >= least; });
  return candidates.size();
}

}  // namespace longspec
