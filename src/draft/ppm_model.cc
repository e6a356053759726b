// SPDX-License-Identifier: Apache-2.0
#include "draft/ppm_model.h"

#include <algorithm>

namespace longspec {
namespace {

// Of a context, the others are too rare to be drafted.
constexpr int kMostContinuations = 8;
// Shorter contexts that could add no more than this part of the least chance that is asked for are not asked.
constexpr double kNegligible = 0.1;

double Power(double x, int n) {
  double product = 1;
  for (int i = 0; i < n; ++i) product *= x;
  return product;
}

}  // namespace

void PpmModel::Current(Contexts& contexts) const {
  contexts.clear();
  contexts.push_back(text_.LongestMatch());
  while (contexts.back().length > 0) contexts.push_back(text_.Shorter(contexts.back()));
}

void PpmModel::Extend(const Contexts& contexts, int32_t token, Contexts& extended) const {
  extended.clear();
  for (const SuffixContext& context : contexts) {
    SuffixContext longer;
    if (!text_.Extend(context, token, &longer)) continue;
    if (extended.empty() || extended.back().first != longer.first) extended.push_back(longer);
  }
  extended.push_back({});
}

// Longest context first: `unsaid` is what it and those before it leave to the shorter ones. A context stands
// for all suffixes of it that are longer than the next one: as many steps of the recursion with the same
// counts.
void PpmModel::Predict(const Contexts& contexts, bool at_end, double least,
                       std::vector<Prediction>& out) const {
  out.clear();
  double unsaid = 1;
  for (size_t i = 0; i + 1 < contexts.size() && unsaid > kNegligible * least; ++i) {
    const SuffixContext& context = contexts[i];
    const int64_t count = text_.Count(context);
    const int64_t followed = count - (at_end ? 1 : 0);
    if (followed <= 0) continue;
    const auto n = static_cast<double>(followed);
    const double kept = Power(kDoubt / (n + kDoubt), context.length - contexts[i + 1].length);
    text_.Continuations(context, kMostContinuations, continuations_);
    for (const Continuation& c : continuations_) {
      const double said = unsaid * (1 - kept) * c.share * static_cast<double>(count) / n;
      const auto known =
          std::find_if(out.begin(), out.end(), [&](const Prediction& p) { return p.token == c.token; });
      if (known != out.end()) {
        known->chance += said;
      } else {
        out.push_back({.token = c.token, .chance = said});
      }
    }
    unsaid *= kept;
  }
  std::erase_if(out, [&](const Prediction& p) { return p.chance < least; });
}

}  // namespace longspec
