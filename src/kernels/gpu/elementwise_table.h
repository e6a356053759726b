// SPDX-License-Identifier: Apache-2.0
//
// Functions of a kernel table (gpu/table.h): what is done to each number, and quantising.
#pragma once

#include "kernels/gpu/each.h"
#include "kernels/gpu/elementwise.h"
#include "kernels/gpu/gate.h"
#include "kernels/gpu/norm.h"
#include "kernels/gpu/quantize.h"
#include "kernels/gpu/round.h"

namespace longspec::kernels::gpu {

template <typename Device, typename To>
void QuantizeOnDevice(const float* x, int n, typename To::Block* out) {
  const auto size = static_cast<size_t>(n);
  const typename Device::template In<float> in(x, size);
  const typename Device::template InOut<typename To::Block> blocks(out, size / To::kBlock);
  Device::template Launch<Quantize<To>>(
      {.source = {.x = in.get(), .stride = n}, .out = blocks.get(), .n = n, .n_rows = 1});
}

template <typename Device>
struct Elementwise {
  using In = typename Device::template In<float>;
  using InOut = typename Device::template InOut<float>;

  static void RoundToBf16(const float* x, int n, uint16_t* out) {
    const In in(x, Size(n));
    const int n_out = (n + kAmxBlock - 1) / kAmxBlock * kAmxBlock;
    const typename Device::template InOut<uint16_t> rounded(out, Size(n_out));
    Device::template Launch<Each<RoundBf16>>(
        {.of = {.x = in.get(), .n = n}, .out = rounded.get(), .n = n_out});
  }
  static void Norm(const float* x, const float* w, int n, float eps, float* y) {
    const In in(x, Size(n)), weights(w, Size(n));
    const InOut out(y, Size(n));
    Device::template Launch<RmsNorm>(
        {.rows = {.x = in.get(), .stride = n, .w = weights.get(), .n = n, .n_rows = 1, .eps = eps},
         .y = out.get(),
         .y_stride = n});
  }
  static void Rotate(float* x, int n_rot, const float* cos_sin, RopePairing pairing) {
    const InOut values(x, Size(n_rot));
    const In angles(cos_sin, Size(n_rot));
    Device::template Launch<Rope>({.x = values.get(),
                                   .row_stride = n_rot,
                                   .head_stride = n_rot,
                                   .cos_sin = angles.get(),
                                   .n_rows = 1,
                                   .n_heads = 1,
                                   .n_rot = n_rot,
                                   .pairing = pairing});
  }
  template <class Gate>
  static void GateAll(const float* g, const float* u, int n, float* out) {
    const In gate(g, Size(n)), up(u, Size(n));
    const InOut to(out, Size(n));
    Device::template Launch<Each<Gated<Gate>>>(
        {.of = {.g = gate.get(), .u = up.get()}, .out = to.get(), .n = n});
  }
  static void ExpOfAll(const float* x, int n, float* out) {
    const In in(x, Size(n));
    const InOut to(out, Size(n));
    Device::template Launch<Each<Exp>>({.of = {.x = in.get()}, .out = to.get(), .n = n});
  }

 private:
  static size_t Size(int n) { return static_cast<size_t>(n); }
};

template <typename Device>
void SetElementwise(KernelTable& table) {
  table.quantize_q8 = QuantizeOnDevice<Device, ToQ8>;
  table.quantize_q8k = QuantizeOnDevice<Device, ToQ8K>;
  table.round_bf16 = Elementwise<Device>::RoundToBf16;
  table.rms_norm = Elementwise<Device>::Norm;
  table.rope = Elementwise<Device>::Rotate;
  table.swiglu = Elementwise<Device>::template GateAll<Silu>;
  table.geglu = Elementwise<Device>::template GateAll<Gelu>;
  table.exp = Elementwise<Device>::ExpOfAll;
}

}  // namespace longspec::kernels::gpu
