// SPDX-License-Identifier: Apache-2.0
//
// Stored keys and values, copied to other slots as they are (kv/kv_mover.h).
#pragma once

#include "kernels/gpu/cta.h"
#include "kernels/ops.h"

namespace longspec::kernels::gpu {

// Of a chunk the first layer's bytes, and a slot's place in it.
struct SlotCopy {
  const std::byte* from;
  std::byte* to;
  int32_t from_offset, to_offset;
};

// One after the other, in all layers: a slot may be moved on. A block of threads for a layer and KV head, and
// a thread for the same numbers of every move.
struct MoveSlots {
  struct Args {
    const SlotCopy* moves;
    int n_moves;
    int n_layer, n_kv_head;
    int64_t layer_bytes;
    // Of a key: codes of so many bytes (1, 2 or 4), then scales; of a value all bytes, an even number.
    int key_code_bytes, key_codes, key_scales, value_bytes;
    bool operator==(const Args&) const = default;
  };
  static constexpr int kThreads = 128;
  static Grid GridOf(const Args& a) { return {.width = a.n_kv_head, .height = a.n_layer}; }

  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    const int head = cta.block(), n_values = a.value_bytes / 2;
    const int64_t key_bytes = int64_t{a.key_codes} * a.key_code_bytes + 2 * a.key_scales;
    const int64_t keys = cta.block_y() * a.layer_bytes + head * kChunk * key_bytes;
    const int64_t values = cta.block_y() * a.layer_bytes + a.n_kv_head * kChunk * key_bytes +
                           int64_t{head} * kChunk * a.value_bytes;
    for (int i = cta.thread(); i < a.key_codes + a.key_scales + n_values; i += kThreads) {
      for (int move = 0; move < a.n_moves; ++move) {
        const SlotCopy at = a.moves[move];
        if (i < a.key_codes + a.key_scales) {
          const int64_t from = keys + PlaceOf(a, at.from_offset, i, key_bytes);
          const int64_t to = keys + PlaceOf(a, at.to_offset, i, key_bytes);
          if (i >= a.key_codes || a.key_code_bytes == 2) {
            Copy<uint16_t>(at.from + from, at.to + to);
          } else if (a.key_code_bytes == 4) {
            Copy<uint32_t>(at.from + from, at.to + to);
          } else {
            Copy<uint8_t>(at.from + from, at.to + to);
          }
        } else {
          const int64_t number = values + 2 * (i - a.key_codes - a.key_scales);
          Copy<uint16_t>(at.from + number + int64_t{at.from_offset} * a.value_bytes,
                         at.to + number + int64_t{at.to_offset} * a.value_bytes);
        }
      }
    }
  }

 private:
  // Code or scale i of the key at `offset`, from its head's keys on.
  static LONGSPEC_GPU int64_t PlaceOf(const Args& a, int offset, int i, int64_t key_bytes) {
    const int64_t block = offset / kKeyGroup * kKeyGroup * key_bytes;
    const int lane = offset % kKeyGroup;
    if (i < a.key_codes) return block + (int64_t{i} * kKeyGroup + lane) * a.key_code_bytes;
    return block + int64_t{kKeyGroup} * a.key_codes * a.key_code_bytes +
           ((i - a.key_codes) * kKeyGroup + lane) * 2;
  }
  template <typename T>
  static LONGSPEC_GPU void Copy(const std::byte* from, std::byte* to) {
    *reinterpret_cast<T*>(to) = *reinterpret_cast<const T*>(from);
  }
};

// Blocks of kKeyGroup slots of one layer and KV head; no block is another's.
struct BlockCopy {
  const std::byte* keys_from;
  const std::byte* values_from;
  std::byte* keys_to;
  std::byte* values_to;
};

struct MoveBlocks {
  struct Args {
    const BlockCopy* moves;
    int n_moves;
    int key_pieces, value_pieces;  // of 16 bytes
    bool operator==(const Args&) const = default;
  };
  static constexpr int kThreads = 128;
  static Grid GridOf(const Args& a) { return {.width = a.n_moves}; }
  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    const BlockCopy move = a.moves[cta.block()];
    for (int i = cta.thread(); i < a.key_pieces + a.value_pieces; i += kThreads) {
      const bool key = i < a.key_pieces;
      const int64_t at = 16 * (key ? i : i - a.key_pieces);
      *reinterpret_cast<Bytes16*>((key ? move.keys_to : move.values_to) + at) =
          Cta::Load16((key ? move.keys_from : move.values_from) + at);
    }
  }
};

}  // namespace longspec::kernels::gpu
