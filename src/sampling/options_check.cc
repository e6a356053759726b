// SPDX-License-Identifier: Apache-2.0
#include "sampling/options_check.h"

#include <cmath>
#include <limits>
#include <sstream>
#include <string>

#include "base/status_macros.h"

namespace longspec {
namespace {

Status Refuse(const char* option, double value, const std::string& wanted) {
  std::ostringstream message;
  message << option << " " << value << ": must be " << wanted;
  return InvalidArgument(message.str());
}

Status CheckShare(const char* option, float value) {
  if (value >= 0.0F && value <= 1.0F) return {};
  return Refuse(option, value, "between 0 and 1");
}

Status CheckFinite(const char* option, float value) {
  if (std::isfinite(value)) return {};
  return Refuse(option, value, "a finite number");
}

Status CheckBias(const SamplingOptions& options, int vocab_size) {
  for (const auto& [token, bias] : options.logit_bias) {
    if (token < 0 || token >= vocab_size) {
      return Refuse("--logit-bias: token", token, "from 0 to " + std::to_string(vocab_size - 1));
    }
    // Minus infinity forbids a token; NaN and plus infinity have no meaning.
    if (std::isnan(bias) || bias == std::numeric_limits<float>::infinity()) {
      return Refuse("--logit-bias: bias", bias, "a finite number or -inf");
    }
  }
  return {};
}

}  // namespace

Status CheckSamplingOptions(const SamplingOptions& options, int vocab_size) {
  if (vocab_size < 1) return InvalidArgument("a sampler needs a vocabulary of at least one token");
  LS_TRY(CheckFinite("--temp", options.temperature));
  LS_TRY(CheckShare("--top-p", options.top_p));
  LS_TRY(CheckShare("--min-p", options.min_p));
  if (options.repeat_last_n < -1) {
    return Refuse("--repeat-last-n", options.repeat_last_n, "-1 (all), 0 (off) or a number of tokens");
  }
  if (!(options.repeat_penalty > 0.0F) || !std::isfinite(options.repeat_penalty)) {
    return Refuse("--repeat-penalty", options.repeat_penalty, "a number above 0 (1 is off)");
  }
  LS_TRY(CheckFinite("--presence-penalty", options.presence_penalty));
  LS_TRY(CheckFinite("--frequency-penalty", options.frequency_penalty));
  LS_TRY(CheckBias(options, vocab_size));
  if (!options.seed.has_value()) return InvalidArgument("--seed: a sampler needs a number");
  return {};
}

}  // namespace longspec
