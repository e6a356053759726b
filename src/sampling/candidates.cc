// SPDX-License-Identifier: Apache-2.0
#include "sampling/candidates.h"

#include <algorithm>
#include <array>
#include <limits>

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

}  // namespace

int32_t ArgMax(std::span<const float> logits) {
  constexpr size_t kLanes = 16;  // independent maxima, so that the loop vectorises
  std::array<float, kLanes> best;
  best.fill(kMinusInfinity);
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) best[lane] = Larger(logits[i + lane], best[lane]);
  }
  for (; i < logits.size(); ++i) best[0] = Larger(logits[i], best[0]);
  float largest = kMinusInfinity;
  for (const float b : best) largest = Larger(b, largest);
  if (largest == kMinusInfinity) return 0;
  return static_cast<int32_t>(std::find(logits.begin(), logits.end(), largest) - logits.begin());
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
  // One pass over the row: what does not beat the k-th best so far is skipped; ids ascend, so an equal logit
  // does not beat it either.
  const auto top = static_cast<size_t>(k);
  const size_t full = std::max<size_t>(2 * top, 64);
  out.reserve(full);
  float threshold = kMinusInfinity;
  for (size_t i = 0; i < n; ++i) {
    const float logit = Larger(logits[i], kMinusInfinity);
    if (out.size() >= top && logit <= threshold) continue;
    out.emplace_back(logit, static_cast<int32_t>(i));
    if (out.size() == full) {
      Partition(out, top);
      out.resize(top);
      threshold = out.back().first;
    }
  }
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
