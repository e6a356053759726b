// SPDX-License-Identifier: Apache-2.0
//
// Bodies of a GPU over several rows, and those that a kernel table has no function for, on any device: their
// results must be those of the reference's functions called one after the other.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "kernels/gpu/choice.h"
#include "kernels/gpu/each.h"
#include "kernels/gpu/elementwise.h"
#include "kernels/gpu/gate.h"
#include "kernels/gpu/gumbel.h"
#include "kernels/gpu/norm.h"
#include "kernels/gpu/quantize.h"
#include "kernels/gpu/round.h"
#include "kernels/gpu/store_kv.h"
#include "kernels/gpu/top_k.h"
#include "kernels/kv_format.h"
#include "kernels/tables.h"
#include "kernels/testing/data.h"
#include "tensor/half.h"

namespace longspec::kernels::testing {

template <typename Device>
class RowCases {
 public:
  // Those that differ from the reference.
  static std::vector<std::string> All() {
    std::vector<std::string> wrong;
    const auto check = [&](const char* name, bool same) {
      if (!same) wrong.emplace_back(name);
    };
    check("norm", Norm(577, 3));
    check("norm of several pieces", Norm(9000, 2));
    check("norm, quantised to q8", (QuantizedNorm<gpu::ToQ8>(608, 3, kReferenceTable.quantize_q8)));
    check("norm of several pieces, quantised to q8",
          (QuantizedNorm<gpu::ToQ8>(8192, 2, kReferenceTable.quantize_q8)));
    check("norm, quantised to q8k", (QuantizedNorm<gpu::ToQ8K>(1536, 3, kReferenceTable.quantize_q8k)));
    const auto swiglu = kReferenceTable.swiglu, geglu = kReferenceTable.geglu;
    check("swiglu, quantised to q8",
          (QuantizedGate<gpu::Silu, gpu::ToQ8>(5024, swiglu, kReferenceTable.quantize_q8)));
    check("swiglu, quantised to q8k",
          (QuantizedGate<gpu::Silu, gpu::ToQ8K>(2816, swiglu, kReferenceTable.quantize_q8k)));
    check("geglu, quantised to q8",
          (QuantizedGate<gpu::Gelu, gpu::ToQ8>(5024, geglu, kReferenceTable.quantize_q8)));
    check("geglu, quantised to q8k",
          (QuantizedGate<gpu::Gelu, gpu::ToQ8K>(2816, geglu, kReferenceTable.quantize_q8k)));
    check("rows quantised to q8", (Quantized<gpu::ToQ8>(224, kReferenceTable.quantize_q8)));
    check("rows quantised to q8k", (Quantized<gpu::ToQ8K>(768, kReferenceTable.quantize_q8k)));
    check("rope of adjacent pairs", Rope(RopePairing::kAdjacent));
    check("rope of halves", Rope(RopePairing::kHalfSplit));
    check("f16", Halves());
    for (const KvType k : kKvTypes) check(Name(k), Store(k, KvType::kQ8_0) && Store(KvType::kQ4_0, k));
    check("choice", Choice());
    check("top k", LargestOfRows());
    return wrong;
  }

  static bool Norm(int n, int n_rows) {
    const std::vector<float> x = Random(1).Floats(Size(n_rows) * Size(n + 3)), w = Random(2).Floats(Size(n));
    std::vector<float> expected(Size(n_rows) * Size(n + 5), 7.0F), actual = expected;
    for (int row = 0; row < n_rows; ++row) {
      kReferenceTable.rms_norm(&x[Size(row) * Size(n + 3)], w.data(), n, 1e-6F,
                               &expected[Size(row) * Size(n + 5)]);
    }
    {
      const In in(x.data(), x.size()), weights(w.data(), w.size());
      const InOut<float> out(actual.data(), actual.size());
      Device::template Launch<gpu::RmsNorm>(
          {.rows =
               {.x = in.get(), .stride = n + 3, .w = weights.get(), .n = n, .n_rows = n_rows, .eps = 1e-6F},
           .y = out.get(),
           .y_stride = n + 5});
    }
    return Same(expected, actual);
  }

  // Tokens of three rows, by the largest logit and by dice.
  static bool Choice() {
    constexpr int kN = 5000, kRows = 3, kStride = kN + 7;
    const std::vector<float> x = Random(20).Floats(kRows * kStride, 12.0F);
    std::vector<int32_t> largest(kRows), drawn(kRows);
    std::vector<gpu::GumbelDraw> draws;
    for (uint32_t row = 0; row < kRows; ++row) draws.push_back({0.5 + row, {row, 9}});
    {
      const In logits(x.data(), x.size());
      const typename Device::template In<gpu::GumbelDraw> draws_there(draws.data(), draws.size());
      const InOut<int32_t> argmax(largest.data(), kRows), tokens(drawn.data(), kRows);
      constexpr int kParts = 4;
      const typename Device::template Scratch<gpu::BestLogit> parts(kRows * kParts), best(kRows);
      Device::template Launch<gpu::Argmax>({.x = logits.get(),
                                            .stride = kStride,
                                            .parts = parts.get(),
                                            .n = kN,
                                            .n_rows = kRows,
                                            .n_parts = kParts});
      Device::template Launch<gpu::JoinParts<gpu::BestLogit>>({.parts = parts.get(),
                                                               .n_parts = kParts,
                                                               .n_rows = kRows,
                                                               .indices = argmax.get(),
                                                               .best = best.get()});
      const typename Device::template Scratch<gpu::BestKey> keys(kRows * kParts);
      Device::template Launch<gpu::Gumbel>({.logits = logits.get(),
                                            .stride = kStride,
                                            .largest = best.get(),
                                            .draws = draws_there.get(),
                                            .parts = keys.get(),
                                            .n = kN,
                                            .n_rows = kRows,
                                            .n_parts = kParts});
      Device::template Launch<gpu::JoinParts<gpu::BestKey>>({.parts = keys.get(),
                                                             .n_parts = kParts,
                                                             .n_rows = kRows,
                                                             .indices = tokens.get(),
                                                             .best = nullptr});
    }
    for (uint32_t row = 0; row < kRows; ++row) {
      const float* logits = &x[row * kStride];
      const int expected = kReferenceTable.argmax(logits, kN);
      const GumbelArgs args{.logits = logits,
                            .n = kN,
                            .largest = logits[expected],
                            .temperature = draws[row].temperature,
                            .dice = {row, 9}};
      if (largest[row] != expected || drawn[row] != kReferenceTable.gumbel_argmax(args)) return false;
    }
    return true;
  }

  static bool LargestOfRows() {
    constexpr int kN = 3000, kRows = 3, kK = 50, kStride = kN + 1;
    std::vector<float> x = Random(21).Floats(kRows * kStride);
    for (size_t i = 0; i < x.size(); i += 3) x[i] = 0.25F;  // ties
    std::vector<float> expected(kRows * kK), actual = expected;
    std::vector<int32_t> expected_at(kRows * kK), actual_at = expected_at;
    for (int row = 0; row < kRows; ++row) {
      kReferenceTable.top_k(&x[Size(row) * kStride], kN, kK, &expected[Size(row) * kK],
                            &expected_at[Size(row) * kK]);
    }
    {
      const In in(x.data(), x.size());
      const typename Device::template Scratch<uint64_t> scratch(kRows * kK);
      const InOut<float> values(actual.data(), actual.size());
      const InOut<int32_t> indices(actual_at.data(), actual_at.size());
      Device::template Launch<gpu::TopK>({.x = in.get(),
                                          .stride = kStride,
                                          .n = kN,
                                          .n_rows = kRows,
                                          .k = kK,
                                          .scratch = scratch.get(),
                                          .values = values.get(),
                                          .indices = indices.get()});
    }
    return Same(expected, actual) && Same(expected_at, actual_at);
  }

 private:
  using In = typename Device::template In<float>;
  template <typename T>
  using InOut = typename Device::template InOut<T>;

  static size_t Size(int64_t n) { return static_cast<size_t>(n); }

  template <typename T>
  static bool Same(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
  }

  template <typename Block>
  using Quantizer = void (*)(const float* x, int n, Block* out);

  template <typename To>
  static bool Quantized(int n, Quantizer<typename To::Block> quantize) {
    constexpr int kRows = 5;
    const int stride = n + 32;
    const std::vector<float> x = Random(3).Floats(Size(kRows * stride));
    std::vector<typename To::Block> expected(Size(kRows * n / To::kBlock)), actual = expected;
    for (int row = 0; row < kRows; ++row)
      quantize(&x[Size(row * stride)], n, &expected[Size(row * n / To::kBlock)]);
    {
      const In in(x.data(), x.size());
      const InOut<typename To::Block> out(actual.data(), actual.size());
      Device::template Launch<gpu::Quantize<To>>(
          {.source = {.x = in.get(), .stride = stride}, .out = out.get(), .n = n, .n_rows = kRows});
    }
    return Same(expected, actual);
  }

  template <typename To>
  static bool QuantizedNorm(int n, int n_rows, Quantizer<typename To::Block> quantize) {
    const std::vector<float> x = Random(4).Floats(Size(n_rows * n)), w = Random(5).Floats(Size(n));
    std::vector<typename To::Block> expected(Size(n_rows * n / To::kBlock)), actual = expected;
    for (int row = 0; row < n_rows; ++row) {
      std::vector<float> y(Size(n));
      kReferenceTable.rms_norm(&x[Size(row * n)], w.data(), n, 1e-6F, y.data());
      quantize(y.data(), n, &expected[Size(row * n / To::kBlock)]);
    }
    {
      const In in(x.data(), x.size()), weights(w.data(), w.size());
      const InOut<typename To::Block> out(actual.data(), actual.size());
      Device::template Launch<gpu::QuantizeNorm<To>>(
          {.rows = {.x = in.get(), .stride = n, .w = weights.get(), .n = n, .n_rows = n_rows, .eps = 1e-6F},
           .out = out.get()});
    }
    return Same(expected, actual);
  }

  template <class Gate, typename To>
  static bool QuantizedGate(int n, decltype(KernelTable::swiglu) gate_of,
                            Quantizer<typename To::Block> quantize) {
    constexpr int kRows = 2;
    const std::vector<float> g = Random(6).Floats(Size(kRows * n), 9.0F),
                             u = Random(7).Floats(Size(kRows * n));
    std::vector<typename To::Block> expected(Size(kRows * n / To::kBlock)), actual = expected;
    for (int row = 0; row < kRows; ++row) {
      std::vector<float> y(Size(n));
      gate_of(&g[Size(row * n)], &u[Size(row * n)], n, y.data());
      quantize(y.data(), n, &expected[Size(row * n / To::kBlock)]);
    }
    {
      const In gate(g.data(), g.size()), up(u.data(), u.size());
      const InOut<typename To::Block> out(actual.data(), actual.size());
      Device::template Launch<gpu::Quantize<To, gpu::GatedRows<Gate>>>(
          {.source = {.g = gate.get(), .u = up.get(), .stride = n},
           .out = out.get(),
           .n = n,
           .n_rows = kRows});
    }
    return Same(expected, actual);
  }

  static bool Rope(RopePairing pairing) {
    constexpr int kRows = 3, kHeads = 5, kDim = 96, kRot = 80, kStride = kHeads * kDim + 16;
    const std::vector<float> angles = Random(8).Floats(kRows * kRot);
    std::vector<float> expected = Random(9).Floats(kRows * kStride), actual = expected;
    for (int row = 0; row < kRows; ++row) {
      for (int head = 0; head < kHeads; ++head) {
        kReferenceTable.rope(&expected[Size(row * kStride + head * kDim)], kRot, &angles[Size(row * kRot)],
                             pairing);
      }
    }
    {
      const In cos_sin(angles.data(), angles.size());
      const InOut<float> x(actual.data(), actual.size());
      Device::template Launch<gpu::Rope>({.x = x.get(),
                                          .row_stride = kStride,
                                          .head_stride = kDim,
                                          .cos_sin = cos_sin.get(),
                                          .n_rows = kRows,
                                          .n_heads = kHeads,
                                          .n_rot = kRot,
                                          .pairing = pairing});
    }
    return Same(expected, actual);
  }

  // Halves and what lies between them, and NaNs.
  static bool Halves() {
    std::vector<float> x;
    Random random(10);
    for (uint32_t h = 0; h < 0x10000; h += 7) {
      const float f = HalfToFloat(static_cast<uint16_t>(h));
      x.insert(x.end(), {f, f * 1.0002F, f + 1e-8F * random.Float()});
    }
    std::vector<uint16_t> expected, actual(x.size());
    for (const float f : x) expected.push_back(FloatToHalf(f));
    {
      const In in(x.data(), x.size());
      const InOut<uint16_t> out(actual.data(), actual.size());
      Device::template Launch<gpu::Each<gpu::RoundHalf>>(
          {.of = {.x = in.get()}, .out = out.get(), .n = static_cast<int>(x.size())});
    }
    return Same(expected, actual);
  }

  // Three positions of two heads.
  static bool Store(KvType k_type, KvType v_type) {
    constexpr int kRows = 3, kHeads = 2, kDim = 160, kStride = kHeads * kDim + 8;
    const std::vector<float> k = Random(11).Floats(kRows * kStride), v = Random(12).Floats(kRows * kStride);
    const size_t k_bytes = kChunk * FormatOf(k_type, kDim).bytes(),
                 v_bytes = kChunk * FormatOf(v_type, kDim).bytes();
    std::vector<std::byte> expected(kHeads * (k_bytes + v_bytes), std::byte{0x5A}), actual = expected;
    const int offsets[kRows] = {3, 255, 16};
    for (int row = 0; row < kRows; ++row) {
      for (int head = 0; head < kHeads; ++head) {
        kReferenceTable.store_kv({.k = &k[Size(row * kStride + head * kDim)],
                                  .v = &v[Size(row * kStride + head * kDim)],
                                  .keys = expected.data() + Size(head) * k_bytes,
                                  .values = expected.data() + kHeads * k_bytes + Size(head) * v_bytes,
                                  .offset = offsets[row],
                                  .head_dim = kDim,
                                  .k_type = k_type,
                                  .v_type = v_type});
      }
    }
    {
      const In keys(k.data(), k.size()), values(v.data(), v.size());
      const InOut<std::byte> chunk(actual.data(), actual.size());
      std::vector<gpu::StoreKv::Place> places;
      for (const int offset : offsets)
        places.push_back({chunk.get(), chunk.get() + kHeads * k_bytes, offset});
      const typename Device::template In<gpu::StoreKv::Place> at(places.data(), places.size());
      Device::template Launch<gpu::StoreKv>({.k = keys.get(),
                                             .v = values.get(),
                                             .row_stride = kStride,
                                             .places = at.get(),
                                             .place = {},
                                             .k_head_bytes = static_cast<int64_t>(k_bytes),
                                             .v_head_bytes = static_cast<int64_t>(v_bytes),
                                             .layer_offset = 0,
                                             .n_rows = kRows,
                                             .n_heads = kHeads,
                                             .head_dim = kDim,
                                             .k_type = k_type,
                                             .v_type = v_type});
    }
    return Same(expected, actual);
  }
};

}  // namespace longspec::kernels::testing
