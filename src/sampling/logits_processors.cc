// SPDX-License-Identifier: Apache-2.0
#include "sampling/logits_processors.h"

#include <algorithm>
#include <utility>

namespace longspec {
namespace {

bool HasPenalties(const SamplingOptions& options) {
  return options.repeat_last_n != 0 && (options.repeat_penalty != 1.0F || options.frequency_penalty != 0.0F ||
                                        options.presence_penalty != 0.0F);
}

// The first token of `history` that penalties see.
size_t WindowBegin(const SamplingOptions& options, const TokenHistory& history) {
  if (options.repeat_last_n < 0) return 0;
  return history.size() - std::min(history.size(), static_cast<size_t>(options.repeat_last_n));
}

float Penalised(float logit, int32_t count, const SamplingOptions& options) {
  // Dividing a negative logit by a penalty above 1 would make the token more likely.
  logit = logit > 0.0F ? logit / options.repeat_penalty : logit * options.repeat_penalty;
  return logit - (static_cast<float>(count) * options.frequency_penalty + options.presence_penalty);
}

}  // namespace

bool ChangesLogits(const SamplingOptions& options) {
  return !options.logit_bias.empty() || HasPenalties(options);
}

void ApplyBiasAndPenalties(const SamplingOptions& options, const TokenHistory& history,
                           std::span<float> logits, std::vector<int32_t>& counts) {
  for (const auto& [token, bias] : options.logit_bias) logits[static_cast<size_t>(token)] += bias;
  if (!HasPenalties(options)) return;

  if (counts.size() < logits.size()) counts.resize(logits.size(), 0);
  const auto for_each_in_window = [&](auto&& visit) {
    for (size_t i = WindowBegin(options, history); i < history.size(); ++i) {
      const auto token = static_cast<size_t>(history[i]);
      if (token < logits.size()) visit(token);  // what lies outside the vocabulary has no logit to penalise
    }
  };
  for_each_in_window([&](size_t token) { ++counts[token]; });
  // A token is penalised where it is met first; its cleared count tells later meetings.
  for_each_in_window([&](size_t token) {
    const int32_t count = std::exchange(counts[token], 0);
    if (count > 0) logits[token] = Penalised(logits[token], count, options);
  });
}

LogitChanges::LogitChanges(const SamplingOptions& options, const TokenHistory& history, int vocab_size) {
  const size_t begin = HasPenalties(options) ? WindowBegin(options, history) : history.size();
  const auto is_seen = [&](size_t i) { return history[i] >= 0 && history[i] < vocab_size; };
  for (const auto& [token, bias] : options.logit_bias) tokens_.push_back(token);
  for (size_t i = begin; i < history.size(); ++i) {
    if (is_seen(i)) tokens_.push_back(history[i]);
  }
  std::sort(tokens_.begin(), tokens_.end());
  tokens_.erase(std::unique(tokens_.begin(), tokens_.end()), tokens_.end());
  const auto place = [&](int32_t token) {
    return static_cast<int32_t>(std::lower_bound(tokens_.begin(), tokens_.end(), token) - tokens_.begin());
  };
  options_.repeat_penalty = options.repeat_penalty;
  options_.frequency_penalty = options.frequency_penalty;
  options_.presence_penalty = options.presence_penalty;
  options_.repeat_last_n = -1;
  for (const auto& [token, bias] : options.logit_bias) options_.logit_bias.emplace_back(place(token), bias);
  for (size_t i = begin; i < history.size(); ++i) {
    if (is_seen(i)) history_.push_back(place(history[i]));
  }
}

void LogitChanges::Apply(std::span<float> logits) const {
  std::vector<int32_t> counts;
  ApplyBiasAndPenalties(options_, {.committed = history_, .drafted = {}}, logits, counts);
}

std::vector<double> LogitShifts(const SamplingOptions& options, const TokenHistory& history,
                                std::span<const int32_t> tokens) {
  std::vector<double> shifts(tokens.size(), 0.0);
  std::vector<std::pair<int32_t, size_t>> places;  // by token
  for (size_t i = 0; i < tokens.size(); ++i) places.emplace_back(tokens[i], i);
  std::sort(places.begin(), places.end());
  const auto place = [&](int32_t token) {
    const auto at = std::lower_bound(places.begin(), places.end(), std::pair(token, size_t{0}));
    return at != places.end() && at->first == token ? static_cast<ptrdiff_t>(at->second) : ptrdiff_t{-1};
  };
  for (const auto& [token, bias] : options.logit_bias) {
    if (const auto at = place(token); at >= 0) shifts[static_cast<size_t>(at)] += static_cast<double>(bias);
  }
  if (!HasPenalties(options)) return shifts;
  std::vector<bool> seen(tokens.size(), false);
  for (size_t i = WindowBegin(options, history); i < history.size(); ++i) {
    const auto at = place(history[i]);
    if (at < 0) continue;
    const auto index = static_cast<size_t>(at);
    if (!seen[index]) shifts[index] -= static_cast<double>(options.presence_penalty);
    shifts[index] -= static_cast<double>(options.frequency_penalty);
    seen[index] = true;
  }
  return shifts;
}

}  // namespace longspec
