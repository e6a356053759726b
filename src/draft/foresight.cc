// SPDX-License-Identifier: Apache-2.0
#include "draft/foresight.h"

#include <algorithm>
#include <cmath>

#include "sampling/logits_processors.h"

namespace longspec {
namespace {

// A filter drops a candidate that it would drop by this factor.
constexpr double kWide = 4;
constexpr double kNegligibleChance = 1e-12;  // chance
constexpr double kLargestShift = 1e6;        // of a logit

void StableSortByChance(std::vector<Guess>& guesses) {
  std::stable_sort(guesses.begin(), guesses.end(),
                   [](const Guess& a, const Guess& b) { return a.chance > b.chance; });
}

}  // namespace

// What bias and penalties add to a logit multiplies the odds. The repetition penalty scales the logit itself,
// which is not known. Returns the new rest.
double Foresight::Shift(const TokenHistory& history, std::vector<Guess>& guesses, double rest) const {
  if (sampler_ == nullptr || !ChangesLogits(sampler_->options())) return rest;
  std::vector<int32_t> tokens;
  for (const Guess& guess : guesses) tokens.push_back(guess.token);
  const std::vector<double> shifts = LogitShifts(sampler_->options(), history, tokens);
  // Against the largest, for a bias of a thousand has no exponential. What is not listed is not shifted.
  double most = 0;
  for (const double shift : shifts) most = std::max(most, std::min(shift, kLargestShift));
  rest *= std::exp(-most);
  double total = rest;
  for (size_t i = 0; i < guesses.size(); ++i)
    total += guesses[i].chance *= std::exp(std::min(shifts[i], kLargestShift) - most);
  std::erase_if(guesses, [](const Guess& guess) { return !(guess.chance > 0); });
  for (Guess& guess : guesses) guess.chance /= total;
  return total > 0 ? rest / total : 0;
}

void Foresight::ThrowDice(const DiceModel& model, const TokenHistory& history, double rest,
                          std::vector<Guess>& guesses) const {
  if (!has_dice() || guesses.empty()) return;
  const Dice dice = sampler_->DiceAt(history.size());
  rest = std::max(rest, model.missing);
  double total = rest > 0 ? std::exp(model.belief * std::log(rest) + model.other) : 0.0;
  for (Guess& guess : guesses) {
    guess.chance = std::exp(model.belief * std::log(guess.chance) + model.dice * dice.Gumbel(guess.token));
    total += guess.chance;
  }
  for (Guess& guess : guesses) guess.chance = total > 0 ? guess.chance / total : 0.0;
}

void Foresight::Refine(const DiceModel& model, const TokenHistory& history, double rest,
                       std::vector<Guess>& guesses) const {
  rest = Shift(history, guesses, rest);
  ThrowDice(model, history, rest, guesses);
  StableSortByChance(guesses);
}

void Foresight::RefineDistribution(const DiceModel& model, const TokenHistory& history, double rest,
                                   std::vector<Guess>& guesses) const {
  rest = Shift(history, guesses, rest);
  StableSortByChance(guesses);
  if (sampler_ == nullptr || sampler_->is_greedy() || guesses.empty()) return;
  while (guesses.back().chance < kNegligibleChance && guesses.size() > 1) {
    rest += guesses.back().chance;
    guesses.pop_back();
  }
  const SamplingOptions& options = sampler_->options();
  if (options.top_k > 0 && guesses.size() >= static_cast<size_t>(options.top_k)) {
    guesses.resize(static_cast<size_t>(options.top_k));
    rest = 0;
  }
  const double least = guesses.front().chance * static_cast<double>(options.min_p) / kWide;
  const double most = 1 - (1 - static_cast<double>(options.top_p)) / kWide;
  double before = 0;
  size_t n = 0;
  for (; n < guesses.size() && guesses[n].chance >= least && (options.top_p >= 1 || before < most); ++n) {
    before += guesses[n].chance;
  }
  if (n < guesses.size()) rest = 0;
  guesses.resize(n);
  if (guesses.empty()) return;
  // Temperature, as shares of the likeliest. What is not listed counts as tokens like the last one listed.
  const double power = 1 / static_cast<double>(options.temperature);
  const double first = guesses.front().chance, last = guesses.back().chance;
  rest = rest / first * std::pow(last / first, power - 1);
  double total = rest;
  for (Guess& guess : guesses) total += guess.chance = std::pow(guess.chance / first, power);
  for (Guess& guess : guesses) guess.chance /= total;
  ThrowDice(model, history, rest / total, guesses);
  StableSortByChance(guesses);
}

}  // namespace longspec
