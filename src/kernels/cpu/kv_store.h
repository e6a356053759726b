// SPDX-License-Identifier: Apache-2.0
//
// Storing a position's key and value, over a set's `Lanes` (lanes.h) that also has StoreAs(type, out, v): 16
// numbers of a type without scales. Everything lives in an unnamed namespace on purpose: files built for
// different instruction sets include this, and each gets its own copy.
#pragma once

#include <cstddef>
#include <cstring>

#include "kernels/cpu/kv_quantize.h"
#include "kernels/cpu/kv_traits.h"
#include "kernels/cpu/lanes.h"
#include "kernels/ops.h"

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

template <typename Set>
inline void StoreFloatKey(const StoreKvArgs& a) {
  const size_t bytes = a.k_type == KvType::kF32 ? 4 : 2;
  const auto head_dim = static_cast<size_t>(a.head_dim);
  const size_t block = static_cast<size_t>(a.offset / kKeyGroup) * head_dim * kKeyGroup;
  std::byte* column = a.keys + (block + static_cast<size_t>(a.offset % kKeyGroup)) * bytes;
  for (size_t d = 0; d < head_dim; d += kLanes) {
    std::byte converted[kLanes * sizeof(float)];
    Set::StoreAs(a.k_type, converted, Set::Load(a.k + d));
    for (size_t i = 0; i < kLanes; ++i) {
      std::memcpy(column + (d + i) * kKeyGroup * bytes, converted + i * bytes, bytes);
    }
  }
}

template <typename Set>
inline void StoreFloatValue(const StoreKvArgs& a) {
  const size_t bytes = a.v_type == KvType::kF32 ? 4 : 2;
  const auto head_dim = static_cast<size_t>(a.head_dim);
  std::byte* row = a.values + static_cast<size_t>(a.offset) * head_dim * bytes;
  for (size_t d = 0; d < head_dim; d += kLanes) {
    Set::StoreAs(a.v_type, row + d * bytes, Set::Load(a.v + d));
  }
}

template <typename Set>
inline void StoreKvBy(const StoreKvArgs& a) {
  WithStoredType(a.k_type, [&](auto type) {
    constexpr KvType kType = decltype(type)::kValue;
    if constexpr (kHasScales<kType>) {
      StoreQuantizedKey<kType>(a);
    } else {
      StoreFloatKey<Set>(a);
    }
  });
  WithStoredType(a.v_type, [&](auto type) {
    constexpr KvType kType = decltype(type)::kValue;
    if constexpr (kHasScales<kType>) {
      StoreQuantizedValue<kType>(a);
    } else {
      StoreFloatValue<Set>(a);
    }
  });
}

}  // namespace
}  // namespace longspec::kernels
