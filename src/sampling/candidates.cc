// SPDX-License-Identifier: Apache-2.0
#include "sampling/candidates.h"

#include <algorithm>
#include <limits>

#include "sampling/count_in_lanes.h"

namespace longspec {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

bool Before(const Candidate& a, const Candidate& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

// Also maps NaN to minus infinity: a comparison with NaN is false.
float Larger(float a, float b) { return a > b ? a : b; }

auto At(std::vector<Candidate>& v, size_t i) { return v.begin() + static_cast<std::ptrdiff_t>(i); }

// The k first of more than k candidates come first, unsorted. REQUIRES: 0 < k < v.size()
void Partition(std::vector<Candidate>& v, size_t k) {
  std::nth_element(v.begin(), At(v, k - 1), v.end(), Before);
}

// A function of its own: inside of the loop below compilers do not turn it into vectors.
[[gnu::noinline]] bool AnyAbove(float threshold, std::span<const float> logits) {
  return CountInLanes(logits, [threshold](float logit) { return logit > threshold; }) > 0;
}

// Calls f(logit, token) for the logits above `threshold`, which f may raise, by ascending token.
template <typename F>
void ForEachAbove(const float& threshold, std::span<const float> logits, const F& f) {
  constexpr size_t kAtOnce = 128;
  for (size_t begin = 0; begin < logits.size(); begin += kAtOnce) {
    const std::span<const float> some = logits.subspan(begin, std::min(kAtOnce, logits.size() - begin));
    if (!AnyAbove(threshold, some)) continue;
    for (size_t i = 0; i < some.size(); ++i) {
      if (some[i] > threshold) f(some[i], static_cast<int32_t>(begin + i));
    }
  }
}

}  // namespace

int32_t ArgMax(std::span<const float> logits) {
  float largest = kMinusInfinity;
  int32_t first = 0;
  ForEachAbove(largest, logits, [&](float logit, int32_t token) {
    largest = logit;
    first = token;
  });
  return first;
}

void TopCandidates(std::span<const float> logits, int k, std::vector<Candidate>& out) {
  out.clear();
  const size_t n = logits.size();
  if (k <= 0 || static_cast<size_t>(k) >= n) {
    out.reserve(n);
    for (size_t i = 0; i < n; ++i)
      out.emplace_back(Larger(logits[i], kMinusInfinity), static_cast<int32_t>(i));
    return;
  }
  // The k first as they stand. A later logit has a larger id, so an equal one does not beat the k-th best.
  const auto top = static_cast<size_t>(k);
  const size_t full = std::max<size_t>(2 * top, 64);
  out.reserve(full);
  for (size_t i = 0; i < top; ++i)
    out.emplace_back(Larger(logits[i], kMinusInfinity), static_cast<int32_t>(i));
  float threshold = std::ranges::max(out, Before).first;
  ForEachAbove(threshold, logits.subspan(top), [&](float logit, int32_t token) {
    out.emplace_back(logit, token + k);
    if (out.size() < full) return;
    Partition(out, top);
    out.resize(top);
    threshold = out.back().first;
  });
  if (out.size() > top) {
    Partition(out, top);
    out.resize(top);
  }
  std::sort(out.begin(), out.end(), Before);
}

void CandidateOrder::SortPast(size_t i) {
  while (n_sorted_ <= i) {
    const size_t next = std::min(candidates_.size(), std::max<size_t>(64, 4 * n_sorted_));
    if (next < candidates_.size()) {
      std::nth_element(At(candidates_, n_sorted_), At(candidates_, next), candidates_.end(), Before);
    }
    std::sort(At(candidates_, n_sorted_), At(candidates_, next), Before);
    n_sorted_ = next;
  }
}

}  // namespace longspec
