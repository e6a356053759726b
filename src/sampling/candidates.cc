// SPDX-License-Identifier: Apache-2.0
#include "sampling/candidates.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/largest.h"

namespace longspec {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// No function: templates would call one by its address.
constexpr auto kBefore = [](const Candidate& a, const Candidate& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
};

// Also maps NaN to minus infinity: a comparison with NaN is false.
float Larger(float a, float b) { return a > b ? a : b; }

auto At(std::vector<Candidate>& v, size_t i) { return v.begin() + static_cast<std::ptrdiff_t>(i); }

// All of them, in order of id. Replaces `out`.
void Take(std::span<const float> logits, std::vector<Candidate>& out) {
  out.clear();
  out.reserve(logits.size());
  for (const float logit : logits)
    out.emplace_back(Larger(logit, kMinusInfinity), static_cast<int32_t>(out.size()));
}

constexpr size_t kAtOnce = 128;
// Logits come from all cores' caches, which no core expects.
constexpr size_t kLineFloats = 16, kAhead = 1024;

// Whether one of kAtOnce logits is above. In vectors of four, which any compiler's baseline has, and a line
// at a time. What is not a number is not above.
bool AnyAbove(float threshold, const float* logits) {
  using Floats [[gnu::vector_size(16)]] = float;
  using Ints [[gnu::vector_size(16)]] = int32_t;
  const Floats thresholds = {threshold, threshold, threshold, threshold};
  Ints above = {};
  for (size_t line = 0; line < kAtOnce; line += kLineFloats) {
    Floats a, b, c, d;
    std::memcpy(&a, logits + line, sizeof(a));
    std::memcpy(&b, logits + line + 4, sizeof(b));
    std::memcpy(&c, logits + line + 8, sizeof(c));
    std::memcpy(&d, logits + line + 12, sizeof(d));
    above |= (a > thresholds) | (b > thresholds) | (c > thresholds) | (d > thresholds);
  }
  return (above[0] | above[1] | above[2] | above[3]) != 0;
}

// Calls f(logit, token) for the logits above `threshold`, which f may raise, by ascending token.
template <typename F>
void ForEachAbove(const float& threshold, std::span<const float> logits, const F& f) {
  for (size_t begin = 0; begin < logits.size(); begin += kAtOnce) {
    const std::span<const float> some = logits.subspan(begin, std::min(kAtOnce, logits.size() - begin));
    for (size_t i = 0; i < kAtOnce; i += kLineFloats) __builtin_prefetch(some.data() + kAhead + i);
    if (some.size() == kAtOnce && !AnyAbove(threshold, some.data())) continue;
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
  if (k <= 0 || static_cast<size_t>(k) >= logits.size()) {
    Take(logits, out);
  } else {
    FirstCandidates(logits, static_cast<size_t>(k), out);
  }
}

void FirstCandidates(std::span<const float> logits, size_t k, std::vector<Candidate>& out) {
  k = std::min(k, logits.size());
  const size_t full = k + 4 + k / 2;  // rarely sorted out, and a threshold that is not stale
  out.reserve(full);
  // The k first as they stand. A later logit has a larger id, so an equal one does not beat the k-th best.
  Take(logits.first(k), out);
  if (k == 0) return;
  float threshold = std::ranges::max(out, kBefore).first;
  ForEachAbove(threshold, logits.subspan(k), [&](float logit, int32_t token) {
    out.emplace_back(logit, token + static_cast<int32_t>(k));
    if (out.size() < full) return;
    KeepFirst(out, k, kBefore);
    threshold = out.back().first;
  });
  KeepFirst(out, k, kBefore);
  std::sort(out.begin(), out.end(), kBefore);
}

void CandidateOrder::SortPast(size_t i) {
  while (n_sorted_ <= i) {
    const size_t next = std::min(candidates_.size(), std::max<size_t>(64, 4 * n_sorted_));
    if (next < candidates_.size()) {
      std::nth_element(At(candidates_, n_sorted_), At(candidates_, next), candidates_.end(), kBefore);
    }
    std::sort(At(candidates_, n_sorted_), At(candidates_, next), kBefore);
    n_sorted_ = next;
  }
}

}  // namespace longspec
