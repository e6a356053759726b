// SPDX-License-Identifier: Apache-2.0
#include "draft_text/ppm_model.h"

#include <algorithm>

namespace longspec {
namespace {

// Of a context, the others are too rare to be drafted.
constexpr int kMostContinuations = 8;
// Shorter contexts that could add no more than this part of the least chance that is asked for are not asked.
constexpr double kNegligibleShare = 0.1;

double Power(double x, int n) {
  double product = 1;
  for (int i = 0; i < n; ++i) product *= x;
  return product;
}

}  // namespace

void PpmModel::Append(int32_t token) {
  text_.Append(token);
  const auto index = static_cast<size_t>(token);
  if (last_.size() <= index) last_.resize(index + 1, kNever);
  last_[index] = text_.size();
  if (prior_ != nullptr) prior_->Extend(prior_at_end_, token, prior_at_end_);
}

void PpmModel::Clear() {
  text_.Clear();
  last_.clear();
  if (prior_ != nullptr) prior_->Start({}, prior_at_end_);
}

void PpmModel::Current(Contexts& contexts) const {
  contexts.text.clear();
  contexts.text.push_back(text_.LongestMatch());
  while (contexts.text.back().length > 0) contexts.text.push_back(text_.Shorter(contexts.text.back()));
  contexts.prior = prior_at_end_;
}

void PpmModel::Extend(const Contexts& contexts, int32_t token, Contexts& extended) const {
  extended.text.clear();
  for (const SuffixContext& context : contexts.text) {
    SuffixContext longer;
    if (!text_.Extend(context, token, &longer)) continue;
    if (extended.text.empty() || extended.text.back().first != longer.first) extended.text.push_back(longer);
  }
  extended.text.push_back({});
  if (prior_ != nullptr) prior_->Extend(contexts.prior, token, extended.prior);
}

double PpmModel::Recency(int32_t token) const {
  const auto index = static_cast<size_t>(token);
  if (index >= last_.size() || last_[index] == kNever) return 1;
  const int64_t ago = text_.size() - last_[index];
  return ago < kRecent ? 4 : ago < kNotLongAgo ? 2 : 1;
}

// Among the tokens that are thought of; what is left to others stays as it is.
void PpmModel::PreferRecent(std::vector<Guess>& guesses) const {
  double before = 0, after = 0;
  for (Guess& guess : guesses) {
    before += guess.chance;
    after += guess.chance *= Recency(guess.token);
  }
  for (Guess& guess : guesses) guess.chance *= before / after;
}

// Longest context first: `unsaid` is what it and those before it leave to the shorter ones. A context of the
// text stands for all suffixes of it that are longer than the next one: as many steps of the recursion with
// the same counts.
double PpmModel::Predict(const Contexts& contexts, bool at_end, double least, std::vector<Guess>& out) const {
  out.clear();
  double unsaid = 1;
  const auto say = [&](int32_t token, double chance) {
    const auto known = std::ranges::find(out, token, &Guess::token);
    if (known != out.end()) {
      known->chance += chance;
    } else {
      out.push_back({.token = token, .chance = chance});
    }
  };
  const std::vector<SuffixContext>& text = contexts.text;
  for (size_t i = 0; i + 1 < text.size() && unsaid > kNegligibleShare * least; ++i) {
    const SuffixContext& context = text[i];
    const int64_t count = text_.Count(context);
    const int64_t followed = count - (at_end ? 1 : 0);
    if (followed <= 0) continue;
    const auto n = static_cast<double>(followed);
    const int shorter = text[i + 1].length;
    double kept = Power(kDoubt / (n + kDoubt), context.length - std::max(shorter, 1));
    if (shorter == 0) kept *= doubt_of_one_ / (n + doubt_of_one_);
    text_.Continuations(context, kMostContinuations, continuations_);
    for (const Continuation& c : continuations_) {
      say(c.token, unsaid * (1 - kept) * c.share * static_cast<double>(count) / n);
    }
    unsaid *= kept;
  }
  for (int k = prior_ != nullptr ? prior_->order() : 0; k > 0 && unsaid > kNegligibleShare * least; --k) {
    const int32_t node = contexts.prior.node[static_cast<size_t>(k)];
    if (node == NgramPrior::kUnknown) continue;
    const double n = static_cast<double>(prior_->Count(node)) + kDoubt;
    prior_->ForSuccessors(
        node, [&](int32_t token, int64_t count) { say(token, unsaid * static_cast<double>(count) / n); });
    unsaid *= kDoubt / n;
  }
  PreferRecent(out);
  double said = 0;
  std::erase_if(out, [&](const Guess& p) {
    if (p.chance >= least) said += p.chance;
    return p.chance < least;
  });
  return std::max(0.0, 1 - said);
}

}  // namespace longspec
