// SPDX-License-Identifier: Apache-2.0
#include "kv/copy_slot.h"

#include <cstring>

namespace longspec {
namespace {

// n numbers of one key, which lie kKeyBlock numbers apart.
template <size_t kBytes>
void CopyColumn(const std::byte* from, std::byte* to, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const size_t at = i * kKeyBlock * kBytes;
    std::memcpy(to + at, from + at, kBytes);
  }
}

// Of one key in a chunk: where its first code and its first scale lie.
struct KeyPlace {
  size_t codes, scales;
};

KeyPlace PlaceOf(const kernels::KvFormat& format, int slot) {
  const auto offset = static_cast<size_t>(slot % kKvChunk);
  const size_t block = offset / kKeyBlock * kKeyBlock * format.bytes(), lane = offset % kKeyBlock;
  return {.codes = block + lane * format.code_bytes,
          .scales = block + kKeyBlock * format.codes_bytes() + lane * 2};
}

}  // namespace

void CopySlot(const KvSpan& from, int from_slot, const KvWriter& to, int to_slot) {
  const KvLayout& layout = from.layout;
  const kernels::KvFormat key = layout.k_format();
  const KeyPlace key_from = PlaceOf(key, from_slot), key_to = PlaceOf(key, to_slot);
  const auto copy_codes = key.code_bytes == 4   ? CopyColumn<4>
                          : key.code_bytes == 2 ? CopyColumn<2>
                                                : CopyColumn<1>;
  for (int head = 0; head < layout.n_kv_head; ++head) {
    const std::byte* source = from.keys(from_slot / kKvChunk, head);
    std::byte* target = to.keys(to_slot / kKvChunk, head);
    copy_codes(source + key_from.codes, target + key_to.codes, key.n_codes);
    CopyColumn<2>(source + key_from.scales, target + key_to.scales, key.n_scales);
    std::memcpy(to.value_row(to_slot, head), from.value_row(from_slot, head), layout.v_row_bytes());
  }
}

void CopyBlock(const KvSpan& from, int from_slot, const KvWriter& to, int to_slot, int kv_head) {
  const KvLayout& layout = from.layout;
  const size_t key_bytes = layout.k_format().bytes();
  const auto key_at = [&](int slot) { return static_cast<size_t>(slot % kKvChunk) * key_bytes; };
  std::memcpy(to.keys(to_slot / kKvChunk, kv_head) + key_at(to_slot),
              from.keys(from_slot / kKvChunk, kv_head) + key_at(from_slot), kKeyBlock * key_bytes);
  std::memcpy(to.value_row(to_slot, kv_head), from.value_row(from_slot, kv_head),
              kKeyBlock * layout.v_row_bytes());
}

}  // namespace longspec
