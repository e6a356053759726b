// SPDX-License-Identifier: Apache-2.0
#include "attention/kv_span.h"

#include <string>

namespace longspec {
namespace {

using kernels::KvType;

static_assert(KernelType(CacheType::kF32) == KvType::kF32 && KernelType(CacheType::kF16) == KvType::kF16 &&
              KernelType(CacheType::kBF16) == KvType::kBF16 &&
              KernelType(CacheType::kQ8_0) == KvType::kQ8_0 &&
              KernelType(CacheType::kQ4_0) == KvType::kQ4_0 &&
              KernelType(CacheType::kBF16Amx) == KvType::kBF16Amx &&
              KernelType(CacheType::kI8) == KvType::kI8);

Status CheckType(CacheType type, const std::string& option, int head_dim) {
  const int multiple = kernels::KvMultiple(KernelType(type));
  if (head_dim % multiple == 0) return {};
  return Unsupported(option + " " + std::string(CacheTypeName(type)) +
                     " needs a head dimension that is a multiple of " + std::to_string(multiple) +
                     ", which " + std::to_string(head_dim) + " is not; f16, bf16 and f32 do not");
}

}  // namespace

std::string_view CacheTypeName(CacheType type) {
  switch (type) {
    case CacheType::kF32:
      return "f32";
    case CacheType::kF16:
      return "f16";
    case CacheType::kBF16:
      return "bf16";
    case CacheType::kQ8_0:
      return "q8_0";
    case CacheType::kQ4_0:
      return "q4_0";
    case CacheType::kBF16Amx:
      return "bf16-amx";
    case CacheType::kI8:
      return "i8";
  }
  return "";
}

std::string_view AttentionArithmetic(CacheType type) {
  const bool has_own = type == CacheType::kBF16 || type == CacheType::kBF16Amx || type == CacheType::kI8;
  return has_own ? CacheTypeName(type) : "f32";
}

Status CheckLayout(const KvLayout& layout) {
  if (Status status = CheckType(layout.k_type, "--cache-type-k", layout.head_dim); !status.ok())
    return status;
  return CheckType(layout.v_type, "--cache-type-v", layout.head_dim);
}

float KvSpan::KeyAt(int slot, int kv_head, int d) const {
  return kernels::KeyElement(KernelType(layout.k_type), layout.head_dim, keys(slot / kKvChunk, kv_head),
                             slot % kKvChunk, d);
}

float KvSpan::ValueAt(int slot, int kv_head, int d) const {
  return kernels::ValueElement(KernelType(layout.v_type), layout.head_dim, value_row(slot, kv_head), d);
}

}  // namespace longspec
