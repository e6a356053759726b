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
  const size_t window = options.repeat_last_n < 0
                            ? history.size()
                            : std::min(history.size(), static_cast<size_t>(options.repeat_last_n));
  const auto for_each_in_window = [&](auto&& visit) {
    for (size_t i = history.size() - window; i < history.size(); ++i) {
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

}  // namespace longspec
