// SPDX-License-Identifier: Apache-2.0
#include "server/hole_prediction.h"

#include <utility>

#include "openai/likely_middles.h"

namespace longspec::server {
namespace {

constexpr double kUnusedIsRight = 0.85;  // what is left of a suggestion that is being typed
constexpr double kEndsAsBefore =
    0.8;  // a suggestion, as the one before it: with an end token, or with a line

// How what was suggested lately ended.
struct Ends {
  int32_t token = -1;  // the newest end token; -1: none
  double chance = 0;   // of it, and not of a line's end
};

Ends EndsOf(const std::vector<std::vector<int32_t>>& suggestions, const Engine& engine) {
  for (const std::vector<int32_t>& tokens : suggestions) {
    if (!engine.EndsAnswer(tokens.back())) continue;
    const bool is_newest = &tokens == &suggestions.front();
    return {.token = tokens.back(), .chance = is_newest ? kEndsAsBefore : 1 - kEndsAsBefore};
  }
  return {};
}

}  // namespace

PredictionDraftOptions HolePrediction(const InfillText& text, const openai::Suggestions& suggestions,
                                      const Engine& engine) {
  PredictionDraftOptions prediction;
  const auto add = [&](std::string_view begins, int32_t end, double chance) {
    std::vector<int32_t> tokens = engine.Tokenize(begins, false, false);
    if (end >= 0) tokens.push_back(end);
    prediction.beginnings.push_back({.tokens = std::move(tokens), .chance = static_cast<float>(chance)});
  };
  std::vector<std::vector<int32_t>> lately = suggestions.Tokens();
  const Ends ends = EndsOf(lately, engine);
  double left = 1;
  if (const auto rest = suggestions.RestOf(text)) {
    add(rest->text, rest->end_token, kUnusedIsRight);
    left -= kUnusedIsRight;
  }
  for (const openai::LikelyMiddle& middle : openai::LikelyMiddles(text)) {
    if (!middle.ends) {
      add(middle.text, -1, left * middle.chance);
      continue;
    }
    if (ends.token >= 0) add(middle.text, ends.token, left * middle.chance * ends.chance);
    add(middle.text + "\n", -1, left * middle.chance * (1 - ends.chance));
  }
  // How the last ones went on and ended.
  for (std::vector<int32_t>& tokens : lately)
    prediction.beginnings.push_back({.tokens = std::move(tokens), .chance = 0});
  return prediction;
}

}  // namespace longspec::server
