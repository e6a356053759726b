// SPDX-License-Identifier: Apache-2.0
//
// How cached keys and values are stored (ops.h draws it), for code that owns, copies or reads them one by
// one. Pure functions; not for kernel files, which have their own loaders.
#pragma once

#include <cstddef>

#include "kernels/ops.h"

namespace longspec::kernels {

// One position's key or value of one KV head: codes, then f16 scales. The floating-point types have no
// scales.
struct KvFormat {
  size_t code_bytes = 0;
  size_t n_codes = 0;
  size_t n_scales = 0;

  constexpr size_t codes_bytes() const { return code_bytes * n_codes; }
  constexpr size_t bytes() const { return codes_bytes() + 2 * n_scales; }
};

constexpr bool IsQuantized(KvType type) {
  return type == KvType::kQ8_0 || type == KvType::kQ4_0 || type == KvType::kI8;
}

// What head_dim must be a multiple of.
constexpr int KvMultiple(KvType type) { return IsQuantized(type) ? kQuantBlock : kKeyGroup; }

// REQUIRES: head_dim is a multiple of KvMultiple(type).
constexpr KvFormat FormatOf(KvType type, int head_dim) {
  const auto n = static_cast<size_t>(head_dim);
  switch (type) {
    case KvType::kF32:
      return {.code_bytes = 4, .n_codes = n, .n_scales = 0};
    case KvType::kQ8_0:
      return {.code_bytes = 1, .n_codes = n, .n_scales = n / kQuantBlock};
    case KvType::kQ4_0:
      return {.code_bytes = 1, .n_codes = n / 2, .n_scales = n / kQuantBlock};
    case KvType::kI8:
      return {.code_bytes = 4, .n_codes = n / 4, .n_scales = n / kQuantBlock};
    default:
      return {.code_bytes = 2, .n_codes = n, .n_scales = 0};
  }
}

// Element d of the key at `offset` of a chunk, and of a value's row: the numbers that attention computes
// with.
float KeyElement(KvType type, int head_dim, const std::byte* keys, int offset, int d);
float ValueElement(KvType type, int head_dim, const std::byte* row, int d);

}  // namespace longspec::kernels
