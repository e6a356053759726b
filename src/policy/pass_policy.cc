// SPDX-License-Identifier: Apache-2.0
#include "policy/pass_policy.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

namespace longspec {

bool BatchTrial::MayGuess(bool only_decode) {
  if (pause_ > 0) {
    --pause_;
    return guesses_ = false;
  }
  if (!only_decode) return guesses_ = true;
  ++rounds_;
  // The first round is plain: without it there is nothing to compare with.
  return guesses_ = factor_ > 0 && rounds_ % kPlainEvery != 0;
}

void BatchTrial::Observe(double plain_ms, const PassResult& round) {
  if (plain_ms <= 0 || round.round_ms <= 0 || round.pass.empty()) return;
  // Where nothing was guessed, and no time was lost in finding that out, a round was as good as plain.
  if (!guesses_ || (round.nodes == 0 && round.draft_ms < kNoDrafting * round.round_ms)) {
    const double factor = (round.round_ms - round.draft_ms) / plain_ms;
    factor_ = factor_ == 0 ? factor : factor_ + kRate * (factor - factor_);
    return;
  }
  if (factor_ == 0) return;
  const double tokens_each = static_cast<double>(round.tokens) / static_cast<double>(round.pass.size());
  const double speed = tokens_each * plain_ms * factor_ / round.round_ms;
  speed_ = judged_ == 0 ? speed : speed_ + kRate * (speed - speed_);
  ++judged_;
  if (judged_ < (speed_ < kMuchSlower ? kShortTrial : kTrial)) return;
  if (speed_ >= kWorth) {
    next_pause_ = kMinPause;
    return;
  }
  pause_ = next_pause_;
  next_pause_ = std::min(2 * next_pause_, kMaxPause);
  judged_ = 0;
}

bool PassPolicy::Begin(int n_sequences, bool only_decode) {
  several_ = n_sequences > 1 && costs_ != nullptr;
  only_decodes_ = only_decode;
  plain_ms_ = 0;
  return !several_ || trial_.MayGuess(only_decode);
}

void PassPolicy::Choose(std::span<Proposal> proposals) {
  if (!several_) {
    for (const Proposal& p : proposals) {
      if (p.policy != nullptr) *p.tree = p.policy->Choose(std::move(*p.tree));
    }
    return;
  }
  const PassCost cost(*costs_);
  std::vector<PassPart> prompts, plain, parts;
  std::vector<SpeculationCandidates> candidates(proposals.size());
  std::vector<bool> valued;
  ShareOptions options{.margin = kLeastPromise};
  for (const Proposal& p : proposals) {
    const std::optional<SpeculationCandidates> value =
        p.policy == nullptr ? std::nullopt : p.policy->Value(*p.tree);
    if (value) candidates[valued.size()] = *value;
    valued.push_back(value.has_value());
    if (p.policy != nullptr && !value) *p.tree = p.policy->Choose(std::move(*p.tree));
    for (std::vector<PassPart>* rows : {&prompts, &plain, &parts}) rows->push_back(p.rows);
    prompts.back().rows -= p.decodes ? 1 : 0;
    parts.back().rows += value ? 0 : p.tree->size() - 1;
    options.overhead_ms += p.draft_ms;
  }
  plain_ms_ = only_decodes_ ? cost.Ms(plain) : 0;
  options.prompts_ms = cost.Ms(prompts);
  const SpeculationShares shares = ShareSpeculation(parts, candidates, cost, options);
  for (size_t i = 0; i < proposals.size(); ++i) {
    const Proposal& p = proposals[i];
    if (valued[i]) *p.tree = p.policy->Take(std::move(*p.tree), shares.nodes[i]);
  }
}

double PassPolicy::PredictedMs(std::span<const PassPart> pass) const {
  return costs_ == nullptr ? 0 : PassCost(*costs_).Ms(pass);
}

void PassPolicy::Observe(const PassResult& round) {
  if (costs_ != nullptr && round.pass.size() > 1) ObservePass(round.pass, round.target_ms, costs_);
  if (several_) trial_.Observe(plain_ms_, round);
  // The first round pays for what is done once.
  if (only_decodes_ && round.tokens > 0 && std::exchange(warm_, true))
    token_ms_.Add(round.round_ms / round.tokens);
}

}  // namespace longspec
