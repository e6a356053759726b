// SPDX-License-Identifier: Apache-2.0
//
// New keys and values, converted and stored. A thread stores one number of the float types, or 32 of the
// quantised ones, whose scale follows from the first of the largest.
#pragma once

#include "kernels/gpu/cta.h"
#include "kernels/gpu/kv.h"
#include "kernels/gpu/round.h"

namespace longspec::kernels::gpu {

// Where a position's numbers go: code i to codes[i * stride * bytes of a code], scale i to scales[2 i
// stride].
struct KvPlace {
  std::byte* codes;
  std::byte* scales;
  int stride;
  int distance;  // of two values whose nibbles share a byte
};

LONGSPEC_GPU bool HasScales(KvType type) {
  return type == KvType::kQ8_0 || type == KvType::kQ4_0 || type == KvType::kI8;
}

class StoreRow {
 public:
  // How many threads store a row.
  static LONGSPEC_GPU int Threads(KvType type, int head_dim) {
    return HasScales(type) ? head_dim / kQuantBlock : head_dim;
  }

  template <class Cta>
  static LONGSPEC_GPU void Run(KvType type, const float* x, int thread, const KvPlace& to) {
    switch (type) {
      case KvType::kF32:
        *reinterpret_cast<float*>(to.codes + thread * to.stride * 4) = x[thread];
        break;
      case KvType::kF16:
        *reinterpret_cast<uint16_t*>(to.codes + thread * to.stride * 2) = HalfOf<Cta>(x[thread]);
        break;
      case KvType::kQ8_0:
        Q8<Cta>(x + thread * kQuantBlock, thread, 1, to);
        break;
      case KvType::kI8:
        Q8<Cta>(x + thread * kQuantBlock, thread, 4, to);
        break;
      case KvType::kQ4_0:
        Q4<Cta>(x + thread * kQuantBlock, thread, to);
        break;
      default:
        *reinterpret_cast<uint16_t*>(to.codes + thread * to.stride * 2) = Bf16Of<Cta>(x[thread]);
    }
  }

 private:
  // The first value of the largest magnitude; NaN is the largest.
  template <class Cta>
  static LONGSPEC_GPU float Largest(const float* x) {
    uint32_t largest = 0;
    float m = x[0];
    for (int i = 0; i < kQuantBlock; ++i) {
      const uint32_t magnitude = Cta::ToBits(x[i]) & 0x7FFFFFFF;
      if (magnitude <= largest) continue;
      largest = magnitude;
      m = x[i];
    }
    return m;
  }

  static constexpr uint16_t kNoScale = 0x7E00;

  // The scale as it is stored: zero and NaN make codes of zero.
  template <class Cta>
  static LONGSPEC_GPU uint16_t ScaleBits(float s) {
    const uint16_t h = HalfOf<Cta>(s);
    if ((h & 0x7FFF) == 0) return 0;
    return (h & 0x7C00) == 0x7C00 ? kNoScale : h;
  }

  // `together`: values of one code.
  template <class Cta>
  static LONGSPEC_GPU void Q8(const float* x, int block, int together, const KvPlace& to) {
    const float m = Largest<Cta>(x), s = Cta::Div(m < 0.0F ? -m : m, 127.0F);
    const uint16_t d = ScaleBits<Cta>(s);
    const bool usable = d != 0 && d != kNoScale;
    const float inverse = usable ? Cta::Div(1.0F, s) : 0.0F;
    *reinterpret_cast<uint16_t*>(to.scales + block * to.stride * 2) = d;
    std::byte* codes = to.codes + block * kQuantBlock * to.stride;
    for (int i = 0; i < kQuantBlock; ++i) {
      const int q = usable ? static_cast<int>(Cta::Rint(Cta::Mul(x[i], inverse))) : 0;
      codes[i / together * together * to.stride + i % together] = static_cast<std::byte>(q & 255);
    }
  }

  template <class Cta>
  static LONGSPEC_GPU void Q4(const float* x, int block, const KvPlace& to) {
    const float s = Cta::Div(Largest<Cta>(x), -8.0F);
    const uint16_t d = ScaleBits<Cta>(s);
    const bool usable = d != 0 && d != kNoScale;
    const float inverse = usable ? Cta::Div(1.0F, s) : 0.0F;
    *reinterpret_cast<uint16_t*>(to.scales + block * to.stride * 2) = d;
    std::byte* codes = to.codes + block * (kQuantBlock / 2) * to.stride;
    for (int i = 0; i < kQuantBlock / 2; ++i) {
      const int low = to.distance == 1 ? 2 * i : i;
      const int pair =
          Nibble<Cta>(x[low], usable, inverse) | Nibble<Cta>(x[low + to.distance], usable, inverse) << 4;
      codes[i * to.stride] = static_cast<std::byte>(pair);
    }
  }

  template <class Cta>
  static LONGSPEC_GPU int Nibble(float x, bool usable, float inverse) {
    if (!usable) return 8;
    const int q = static_cast<int>(Cta::Add(Cta::Mul(x, inverse), 8.5F));
    return q < 15 ? q : 15;
  }
};

// One position of some heads.
struct StoreKv {
  // Where a row's position lies: the keys and values of its first head, in the first layer.
  struct Place {
    std::byte* keys;
    std::byte* values;
    int offset;  // in the chunk
    bool operator==(const Place&) const = default;
  };
  struct Args {
    const float* k;  // (n_rows, n_heads, head_dim), rows row_stride apart
    const float* v;
    int64_t row_stride;
    const Place* places;  // (n_rows), or null: `place` is the only row's
    Place place;
    int64_t k_head_bytes, v_head_bytes;  // of a chunk
    int64_t layer_offset;                // from the first layer's bytes to those of this one
    int n_rows, n_heads, head_dim;
    KvType k_type, v_type;
    bool operator==(const Args&) const = default;
  };
  static constexpr int kThreads = 128;
  static Grid GridOf(const Args& a) {
    return {.width = CeilDiv(2 * a.head_dim, kThreads) * a.n_heads, .height = a.n_rows};
  }
  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    const int row = cta.block_y(), head = cta.block() % a.n_heads;
    int thread = cta.block() / a.n_heads * kThreads + cta.thread();
    const Place at = a.places == nullptr ? a.place : a.places[row];
    const int64_t from = row * a.row_stride + int64_t{head} * a.head_dim;
    const int n_key_threads = StoreRow::Threads(a.k_type, a.head_dim);
    if (thread < n_key_threads) {
      const int codes = CodesOf(a.k_type, a.head_dim), scales = ScalesOf(a.k_type, a.head_dim);
      const int lane = at.offset % kKeyGroup;
      std::byte* block = at.keys + a.layer_offset + head * a.k_head_bytes +
                         static_cast<int64_t>(at.offset / kKeyGroup) * kKeyGroup * (codes + scales);
      StoreRow::Run<Cta>(
          a.k_type, a.k + from, thread,
          {block + lane * CodeBytes(a.k_type), block + kKeyGroup * codes + lane * 2, kKeyGroup, 1});
      return;
    }
    thread -= n_key_threads;
    if (thread >= StoreRow::Threads(a.v_type, a.head_dim)) return;
    const int codes = CodesOf(a.v_type, a.head_dim), scales = ScalesOf(a.v_type, a.head_dim);
    std::byte* to = at.values + a.layer_offset + head * a.v_head_bytes +
                    static_cast<int64_t>(at.offset) * (codes + scales);
    StoreRow::Run<Cta>(a.v_type, a.v + from, thread, {to, to + codes, 1, kQuantBlock / 2});
  }

 private:
  static LONGSPEC_GPU int CodeBytes(KvType type) {
    return type == KvType::kF32 || type == KvType::kI8 ? 4 : HasScales(type) ? 1 : 2;
  }
  static LONGSPEC_GPU int CodesOf(KvType type, int head_dim) {
    return type == KvType::kQ4_0 ? head_dim / 2 : type == KvType::kI8 ? head_dim : head_dim * CodeBytes(type);
  }
  static LONGSPEC_GPU int ScalesOf(KvType type, int head_dim) {
    return HasScales(type) ? head_dim / kQuantBlock * 2 : 0;
  }
};

}  // namespace longspec::kernels::gpu
