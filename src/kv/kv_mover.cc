// SPDX-License-Identifier: Apache-2.0
#include "kv/kv_mover.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/size.h"
#include "kernels/ops.h"
#include "kv/block_summaries.h"
#include "kv/layer_view.h"

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

template <typename View>
View LayerOf(View view, int layer) {
  view.layer_offset += Z(layer) * view.layout.layer_bytes();
  return view;
}

void CopyValue(const KvSpan& from, int from_slot, const KvWriter& to, int to_slot, int head) {
  std::memcpy(to.value_row(to_slot, head), from.value_row(from_slot, head), from.layout.v_row_bytes());
}

// Encodes keys. What it writes as the value is nothing.
class KeyEncoder {
 public:
  KeyEncoder(const KvLayout& layout, const kernels::KernelTable& kernels)
      : kernels_(kernels), no_value_(Z(layout.head_dim)) {}

  void Store(const float* key, const KvWriter& to, int slot, int head) const {
    kernels_.store_kv({.k = key,
                       .v = no_value_.data(),
                       .keys = to.keys(slot / kKvChunk, head),
                       .values = to.values(slot / kKvChunk, head),
                       .offset = slot % kKvChunk,
                       .head_dim = to.layout.head_dim,
                       .k_type = KernelType(to.layout.k_type),
                       .v_type = KernelType(to.layout.v_type)});
  }

 private:
  const kernels::KernelTable& kernels_;
  const std::vector<float> no_value_;
};

// Cosines and sines that turn a key back from where it stands, (n_rot / 2, 2).
void RowBack(const Rotary& rotary, int from, float* turn) {
  rotary.row(from, turn);
  const auto scale = static_cast<float>(1.0 / (rotary.magnitude * rotary.magnitude));
  for (int i = 0; i < rotary.n_rot; i += 2) {
    turn[i] *= scale;
    turn[i + 1] *= -scale;
  }
}

void DecodeKey(const KvSpan& from, int slot, int head, float* key) {
  for (int d = 0; d < from.layout.head_dim; ++d) key[d] = from.KeyAt(slot, head, d);
}

class MoverOnHost final : public KvMover {
 public:
  void MoveSlots(const KvSpan& from, const KvWriter& to, int n_layer,
                 std::span<const SlotMove> moves) const override {
    const KvLayout& layout = from.layout;
    const kernels::KvFormat key = layout.k_format();
    const auto copy_codes = key.code_bytes == 4   ? CopyColumn<4>
                            : key.code_bytes == 2 ? CopyColumn<2>
                                                  : CopyColumn<1>;
    for (int layer = 0; layer < n_layer && !moves.empty(); ++layer) {
      const KvSpan source = LayerOf(from, layer);
      const KvWriter target = LayerOf(to, layer);
      for (const SlotMove& move : moves) {
        const KeyPlace key_from = PlaceOf(key, move.from), key_to = PlaceOf(key, move.to);
        for (int head = 0; head < layout.n_kv_head; ++head) {
          const std::byte* const keys = source.keys(move.from / kKvChunk, head);
          std::byte* const moved = target.keys(move.to / kKvChunk, head);
          copy_codes(keys + key_from.codes, moved + key_to.codes, key.n_codes);
          CopyColumn<2>(keys + key_from.scales, moved + key_to.scales, key.n_scales);
          CopyValue(source, move.from, target, move.to, head);
        }
      }
    }
  }

  void MoveBlocks(const KvSpan& from, const KvWriter& to, std::span<const BlockMove> moves) const override {
    const size_t key_bytes = from.layout.k_format().bytes();
    const auto key_at = [&](int slot) { return Z(slot % kKvChunk) * key_bytes; };
    for (const auto& [layer, head, from_slot, to_slot] : moves) {
      const KvSpan source = LayerOf(from, layer);
      const KvWriter target = LayerOf(to, layer);
      std::memcpy(target.keys(to_slot / kKvChunk, head) + key_at(to_slot),
                  source.keys(from_slot / kKvChunk, head) + key_at(from_slot), kKeyBlock * key_bytes);
      std::memcpy(target.value_row(to_slot, head), source.value_row(from_slot, head),
                  kKeyBlock * from.layout.v_row_bytes());
    }
  }

  void MoveTurned(const KvSpan& from, const KvWriter& to, int n_layer, const Rotary& rotary,
                  std::span<const TurnedMove> moves) const override {
    const KeyEncoder encoder(to.layout, *rotary.kernels);
    std::vector<float> key(Z(from.layout.head_dim)), back(Z(rotary.n_rot)), there(Z(rotary.n_rot));
    for (const TurnedMove& move : moves) {
      const bool turns = move.position.from != move.position.to;
      if (turns) {
        RowBack(rotary, move.position.from, back.data());
        rotary.row(move.position.to, there.data());
      }
      for (int layer = 0; layer < n_layer; ++layer) {
        const KvSpan source = LayerOf(from, layer);
        const KvWriter target = LayerOf(to, layer);
        for (int head = 0; head < from.layout.n_kv_head; ++head) {
          DecodeKey(source, move.slot.from, head, key.data());
          if (turns) {
            rotary.kernels->rope(key.data(), rotary.n_rot, back.data(), rotary.pairing);
            rotary.kernels->rope(key.data(), rotary.n_rot, there.data(), rotary.pairing);
          }
          encoder.Store(key.data(), target, move.slot.to, head);
          CopyValue(source, move.slot.from, target, move.slot.to, head);
        }
      }
    }
  }

  void ReadKeys(const KvSpan& from, int n_layer, int slot, float* keys) const override {
    for (int layer = 0; layer < n_layer; ++layer) {
      const KvSpan source = LayerOf(from, layer);
      for (int head = 0; head < from.layout.n_kv_head; ++head, keys += from.layout.head_dim) {
        DecodeKey(source, slot, head, keys);
      }
    }
  }

  void ReadValues(const KvSpan& from, int n_layer, int slot, float* values) const override {
    for (int layer = 0; layer < n_layer; ++layer) {
      const KvSpan source = LayerOf(from, layer);
      for (int head = 0; head < from.layout.n_kv_head; ++head) {
        for (int d = 0; d < from.layout.head_dim; ++d) *values++ = source.ValueAt(slot, head, d);
      }
    }
  }

  void WriteKeys(const KvWriter& to, int n_layer, int first, int n, const Rotary& rotary, int by,
                 const float* keys) const override {
    const KvLayout& layout = to.layout;
    const KeyEncoder encoder(layout, *rotary.kernels);
    std::vector<float> key(Z(layout.head_dim)), turn(Z(rotary.n_rot));
    std::vector<std::byte> value(layout.v_row_bytes());
    if (by != 0) {
      rotary.row(by, turn.data());
      for (float& x : turn) x = static_cast<float>(static_cast<double>(x) / rotary.magnitude);
    }
    for (int slot = first; slot < first + n; ++slot) {
      for (int layer = 0; layer < n_layer; ++layer) {
        const KvWriter target = LayerOf(to, layer);
        for (int head = 0; head < layout.n_kv_head; ++head, keys += layout.head_dim) {
          std::copy_n(keys, layout.head_dim, key.begin());
          if (by != 0) rotary.kernels->rope(key.data(), rotary.n_rot, turn.data(), rotary.pairing);
          std::byte* const kept = target.value_row(slot, head);
          std::memcpy(value.data(), kept, value.size());
          encoder.Store(key.data(), target, slot, head);
          std::memcpy(kept, value.data(), value.size());
        }
      }
    }
  }

  void CopyChunk(const KvLayout& layout, int n_layer, int n, const std::byte* from,
                 std::byte* to) const override {
    const size_t k_bytes = Z((n + kKeyBlock - 1) / kKeyBlock) * kKeyBlock * layout.k_format().bytes();
    const size_t v_bytes = Z(n) * layout.v_row_bytes();
    for (int layer = 0; layer < n_layer; ++layer) {
      for (const auto& [stride, bytes] :
           {std::pair(layout.k_head_bytes(), k_bytes), std::pair(layout.v_head_bytes(), v_bytes)}) {
        for (int head = 0; head < layout.n_kv_head; ++head, from += stride, to += stride)
          std::memcpy(to, from, bytes);
      }
    }
  }

  std::span<const std::byte> Read(const std::byte* chunk, size_t bytes,
                                  std::vector<std::byte>* /*room*/) const override {
    return {chunk, bytes};
  }
  void Write(std::span<const std::byte> bytes, std::byte* chunk) const override {
    std::memcpy(chunk, bytes.data(), bytes.size());
  }
  void Fill(std::byte* at, size_t bytes, std::byte with) const override {
    std::memset(at, std::to_integer<int>(with), bytes);
  }

  std::unique_ptr<BlockSummaries> NewSummaries(const KvLayout& layout, int n_layer, int n_head,
                                               BlockScore score) const override {
    return std::make_unique<HostSummaries>(layout, n_layer, n_head, score);
  }
  std::unique_ptr<LayerView> NewLayerView(const KvLayout&, int layer) const override {
    return std::make_unique<LayerInPlace>(layer);
  }
};

}  // namespace

void CompactRows(int first, std::span<const int32_t> rows, std::vector<SlotMove>* moves) {
  moves->clear();
  int to = first;
  for (const int32_t row : rows) {
    if (first + row != to) moves->push_back({.from = first + row, .to = to});
    ++to;
  }
}

std::unique_ptr<LayerView> KvMover::NewLayerView(const KvLayout& layout, int layer) const {
  return std::make_unique<LayerCopy>(layout, layer);
}

const KvMover& HostMover() {
  static const MoverOnHost mover;
  return mover;
}

}  // namespace longspec
