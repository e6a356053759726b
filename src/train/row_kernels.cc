// SPDX-License-Identifier: Apache-2.0
#include "train/row_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"

#if defined(__AVX512BF16__)
#include "kernels/cpu/avx512_math.h"
#endif

namespace longspec::train {

#if defined(__AVX512BF16__)

namespace {

constexpr int64_t kLanes = 16;

__m512 Widen(__m256i bf16) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16)); }

// What is not in `lanes` is `other`.
__m512 LoadSome(__mmask16 lanes, const c10::BFloat16* x, float other) {
  return _mm512_mask_mov_ps(_mm512_set1_ps(other), lanes, Widen(_mm256_maskz_loadu_epi16(lanes, x)));
}

void StoreSome(__mmask16 lanes, c10::BFloat16* x, __m512 v) {
  _mm256_mask_storeu_epi16(x, lanes, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
}

// Calls visit(at, lanes) for sixteen numbers of first .. end - 1 at a time; `lanes` are those of them.
template <typename Visit>
void ForEachVector(int64_t first, int64_t end, const Visit& visit) {
  for (int64_t at = first; at < end; at += kLanes) {
    const int64_t left = end - at;
    visit(at, left >= kLanes ? __mmask16{0xFFFF} : static_cast<__mmask16>((1U << left) - 1));
  }
}

float Largest(const c10::BFloat16* x, int64_t first, int64_t end) {
  const float lowest = -std::numeric_limits<float>::infinity();
  __m512 most = _mm512_set1_ps(lowest);
  ForEachVector(first, end, [&](int64_t at, __mmask16 lanes) {
    most = _mm512_max_ps(most, LoadSome(lanes, x + at, lowest));
  });
  return _mm512_reduce_max_ps(most);
}

// out[i] = exp(x[i] - largest); their sum.
float ExpTo(const c10::BFloat16* x, int64_t n, float largest, float* out) {
  __m512 sum = _mm512_setzero_ps();
  ForEachVector(0, n, [&](int64_t at, __mmask16 lanes) {
    const __m512 e =
        kernels::ExpVector(_mm512_sub_ps(LoadSome(lanes, x + at, largest), _mm512_set1_ps(largest)));
    _mm512_mask_storeu_ps(out + at, lanes, e);
    sum = _mm512_mask_add_ps(sum, lanes, sum, e);
  });
  return _mm512_reduce_add_ps(sum);
}

}  // namespace

double CrossEntropyRow(std::span<c10::BFloat16> logits, const RowLabels& labels) {
  const auto n = static_cast<int64_t>(logits.size());
  thread_local std::vector<float> mine, theirs;
  mine.resize(logits.size());
  const float largest = Largest(logits.data(), 0, n);
  const float sum = ExpTo(logits.data(), n, largest, mine.data());
  double expected = 0.0;
  for (size_t i = 0; i < labels.ids.size(); ++i) {
    const auto id = static_cast<size_t>(labels.ids[i]);
    expected += double{labels.weights[i]} * static_cast<float>(logits[id]);
    mine[id] -= labels.weights[i] * sum;
  }
  const __m512 scale = _mm512_set1_ps(1.0F / sum);
  if (labels.scores != nullptr) {
    theirs.resize(logits.size());
    const float of_label = Largest(labels.scores, 0, n);
    const float share = labels.soft / ExpTo(labels.scores, n, of_label, theirs.data());
    __m512 product = _mm512_setzero_ps();
    ForEachVector(0, n, [&](int64_t at, __mmask16 lanes) {
      const __m512 label =
          _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, theirs.data() + at), _mm512_set1_ps(share));
      product = _mm512_fmadd_ps(label, LoadSome(lanes, logits.data() + at, 0.0F), product);
      StoreSome(lanes, logits.data() + at,
                _mm512_fmsub_ps(_mm512_maskz_loadu_ps(lanes, mine.data() + at), scale, label));
    });
    expected += double{_mm512_reduce_add_ps(product)};
  } else {
    ForEachVector(0, n, [&](int64_t at, __mmask16 lanes) {
      StoreSome(lanes, logits.data() + at,
                _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, mine.data() + at), scale));
    });
  }
  return double{largest} + std::log(double{sum}) - expected;
}

ExpSum ExpRow(const SeenScores& row) {
  c10::BFloat16* const x = row.scores.data();
  std::fill(x, x + row.first, c10::BFloat16(0.0F));
  std::fill(x + row.end, x + row.scores.size(), c10::BFloat16(0.0F));
  if (row.first >= row.end) return {0.0F, -std::numeric_limits<float>::infinity()};
  const float largest = Largest(x, row.first, row.end);
  __m512 sum = _mm512_setzero_ps();
  ForEachVector(row.first, row.end, [&](int64_t at, __mmask16 lanes) {
    const __m512 e =
        kernels::ExpVector(_mm512_sub_ps(LoadSome(lanes, x + at, largest), _mm512_set1_ps(largest)));
    StoreSome(lanes, x + at, e);
    sum = _mm512_mask_add_ps(sum, lanes, sum, e);
  });
  const float total = _mm512_reduce_add_ps(sum);
  return {total, largest + std::log(total)};
}

void SoftmaxGradientRow(const SeenScores& row, float log_sum, float mean, c10::BFloat16* gradient) {
  c10::BFloat16* const x = row.scores.data();
  for (c10::BFloat16* const y : {x, gradient}) {
    std::fill(y, y + row.first, c10::BFloat16(0.0F));
    std::fill(y + row.end, y + row.scores.size(), c10::BFloat16(0.0F));
  }
  ForEachVector(row.first, row.end, [&](int64_t at, __mmask16 lanes) {
    const __m512 share =
        kernels::ExpVector(_mm512_sub_ps(LoadSome(lanes, x + at, log_sum), _mm512_set1_ps(log_sum)));
    StoreSome(lanes, x + at, share);
    const __m512 distance = _mm512_sub_ps(LoadSome(lanes, gradient + at, 0.0F), _mm512_set1_ps(mean));
    StoreSome(lanes, gradient + at, _mm512_mul_ps(share, distance));
  });
}

#else

double CrossEntropyRow(std::span<c10::BFloat16>, const RowLabels&) { LS_CHECK(false); }
ExpSum ExpRow(const SeenScores&) { LS_CHECK(false); }
void SoftmaxGradientRow(const SeenScores&, float, float, c10::BFloat16*) { LS_CHECK(false); }

#endif

}  // namespace longspec::train
