// SPDX-License-Identifier: Apache-2.0
//
// Attention of sets that make arithmetics "bf16" and "bf16-amx" (ops.h) of f32 products, around those of
// float_attention.h. A `Set` is that of these kernels, and has RoundToBf16(v) besides. Everything lives in an
// unnamed namespace on purpose: files built for different instruction sets include this, and each gets its
// own copy.
#pragma once

#include <cstddef>

#include "kernels/cpu/bf16_lanes.h"
#include "kernels/cpu/bf16_pairs.h"
#include "kernels/cpu/float_attention.h"

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

template <typename Set>
void RoundAll(const float* x, int n, float* out) {
  const int whole = n & ~(kLanes - 1), rest = n - whole;
  for (int i = 0; i < whole; i += kLanes) Set::Store(out + i, Set::RoundToBf16(Set::Load(x + i)));
  if (rest > 0) Set::StorePart(out + whole, rest, Set::RoundToBf16(Set::LoadPart(x + whole, rest)));
}

template <typename Set>
void ScaleAll(float* x, int n, float by) {
  for (int i = 0; i < n; i += kLanes) Set::Store(x + i, Set::Scale(Set::Load(x + i), by));
}

// Of all types but kI8. round_bf16(x, n, out): as KernelTable::round_bf16.
template <typename Set, typename Round>
inline void ScoresBy(const ScoresArgs& a, const Round& round_bf16) {
  if (a.type == KvType::kBF16) {
    return ScoresInPairs(a, RoundAll<Set>, ScoresOf<Set, KvType::kBF16>, ScaleAll<Set>);
  }
  if (a.type == KvType::kBF16Amx) return ScoresInTiles<Set>(a, round_bf16);
  WithKvType(a.type, [&](auto type) { ScoresOf<Set, decltype(type)::kValue>(a); });
}

template <typename Set, typename Round>
inline void ValuesBy(const ValuesArgs& a, const Round& round_bf16) {
  if (a.type == KvType::kBF16) return ValuesInPairs(a, RoundAll<Set>, ValuesOf<Set, KvType::kBF16>);
  if (a.type == KvType::kBF16Amx) {
    const ChunkRows value_row = {a.values, static_cast<size_t>(a.head_dim) * kBf16Bytes};
    return ValuesInTiles<Set>(a, value_row, round_bf16);
  }
  WithKvType(a.type, [&](auto type) { ValuesOf<Set, decltype(type)::kValue>(a); });
}

template <typename Set, typename Round>
inline void GatheredValuesBy(const GatheredValuesArgs& a, const Round& round_bf16) {
  if (a.type == KvType::kBF16) return ValuesInPairs(a, RoundAll<Set>, GatheredOf<Set, KvType::kBF16>);
  if (a.type == KvType::kBF16Amx) return ValuesInTiles<Set>(a, ScatteredRows{a.values}, round_bf16);
  WithKvType(a.type, [&](auto type) { GatheredOf<Set, decltype(type)::kValue>(a); });
}

}  // namespace
}  // namespace longspec::kernels
