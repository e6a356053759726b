// SPDX-License-Identifier: Apache-2.0
//
// Where keys and values go in the quantised types. Of a position there is little to store, and it lies
// scattered: these are plain loops around each instruction set's QuantizeKv. Everything lives in an unnamed
// namespace on purpose: each file that includes this gets its own copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/kv_traits.h"

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

// A block of 32 values: codes not yet packed, and the scale.
struct QuantizedKv {
  uint8_t q[kQuantBlock];
  uint16_t d;
};

// `x` rounded as ops.h says of store_kv. The file that includes this one defines it.
template <KvType T>
inline QuantizedKv QuantizeKv(const float* x);

// Where a position's numbers go: code i to codes[i * stride * its bytes], scale i to scales[2 * i * stride].
struct KvDestination {
  std::byte* codes;
  std::byte* scales;
  size_t stride;
};

// kDistance: of two values whose nibbles share a byte.
template <KvType T, size_t kDistance>
inline void StoreQuantizedKv(const float* x, int head_dim, const KvDestination& to) {
  constexpr KvType kRounded = T == KvType::kI8 ? KvType::kQ8_0 : T;
  std::byte* codes = to.codes;
  std::byte* scale = to.scales;
  for (int d = 0; d < head_dim; d += kQuantBlock) {
    const QuantizedKv block = QuantizeKv<kRounded>(x + d);
    for (size_t i = 0; i < kCodeBytes32<T>; i += kCodeBytes<T>, codes += kCodeBytes<T> * to.stride) {
      if constexpr (T == KvType::kQ4_0) {
        const size_t low = kDistance == 1 ? 2 * i : i;
        *codes = static_cast<std::byte>(block.q[low] | block.q[low + kDistance] << 4);
      } else {
        std::memcpy(codes, block.q + i, kCodeBytes<T>);
      }
    }
    std::memcpy(scale, &block.d, sizeof(block.d));
    scale += 2 * to.stride;
  }
}

template <KvType T>
inline void StoreQuantizedKey(const StoreKvArgs& a) {
  constexpr size_t kBytes32 = kCodeBytes32<T> + kScaleBytes32<T>;
  const size_t groups = static_cast<size_t>(a.head_dim) / kQuantBlock;
  std::byte* block = a.keys + static_cast<size_t>(a.offset / kKeyGroup) * kKeyGroup * groups * kBytes32;
  const auto lane = static_cast<size_t>(a.offset % kKeyGroup);
  std::byte* scales = block + groups * kCodeBytes32<T> * kKeyGroup;
  StoreQuantizedKv<T, 1>(a.k, a.head_dim, {block + lane * kCodeBytes<T>, scales + 2 * lane, kKeyGroup});
}

template <KvType T>
inline void StoreQuantizedValue(const StoreKvArgs& a) {
  constexpr size_t kBytes32 = kCodeBytes32<T> + kScaleBytes32<T>;
  const size_t groups = static_cast<size_t>(a.head_dim) / kQuantBlock;
  std::byte* row = a.values + static_cast<size_t>(a.offset) * groups * kBytes32;
  StoreQuantizedKv<T, kQuantBlock / 2>(a.v, a.head_dim, {row, row + groups * kCodeBytes32<T>, 1});
}

}  // namespace
}  // namespace longspec::kernels
