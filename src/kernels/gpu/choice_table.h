// SPDX-License-Identifier: Apache-2.0
//
// Functions of a kernel table (gpu/table.h): searches of a row.
#pragma once

#include "kernels/gpu/choice.h"
#include "kernels/gpu/gumbel.h"
#include "kernels/gpu/top_k.h"

namespace longspec::kernels::gpu {

template <typename Device>
struct Choice {
  using In = typename Device::template In<float>;
  static int Parts(int n) { return n < 4096 ? 1 : 3; }

  template <typename T>
  static int Join(const T* parts, int n_parts) {
    int32_t index = 0;
    {
      const typename Device::template InOut<int32_t> to(&index, 1);
      Device::template Launch<JoinParts<T>>(
          {.parts = parts, .n_parts = n_parts, .n_rows = 1, .indices = to.get(), .best = nullptr});
    }
    return index;
  }

  static int Largest(const float* x, int n) {
    const In in(x, static_cast<size_t>(n));
    const typename Device::template Scratch<BestLogit> parts(static_cast<size_t>(Parts(n)));
    Device::template Launch<Argmax>(
        {.x = in.get(), .stride = n, .parts = parts.get(), .n = n, .n_rows = 1, .n_parts = Parts(n)});
    return Join<BestLogit>(parts.get(), Parts(n));
  }

  static int Sample(const GumbelArgs& a) {
    const In in(a.logits, static_cast<size_t>(a.n));
    const BestLogit largest = {a.largest, 0};
    const GumbelDraw draw = {a.temperature, {a.dice[0], a.dice[1]}};
    const typename Device::template In<BestLogit> largest_there(&largest, 1);
    const typename Device::template In<GumbelDraw> draws(&draw, 1);
    const typename Device::template Scratch<BestKey> parts(static_cast<size_t>(Parts(a.n)));
    Device::template Launch<Gumbel>({.logits = in.get(),
                                     .stride = a.n,
                                     .largest = largest_there.get(),
                                     .draws = draws.get(),
                                     .parts = parts.get(),
                                     .n = a.n,
                                     .n_rows = 1,
                                     .n_parts = Parts(a.n)});
    return Join<BestKey>(parts.get(), Parts(a.n));
  }

  static void Largests(const float* x, int n, int k, float* values, int32_t* indices) {
    const In in(x, static_cast<size_t>(n));
    const typename Device::template Scratch<uint64_t> scratch(static_cast<size_t>(k));
    const typename Device::template InOut<float> to(values, static_cast<size_t>(k));
    const typename Device::template InOut<int32_t> at(indices, static_cast<size_t>(k));
    Device::template Launch<TopK>({.x = in.get(),
                                   .stride = n,
                                   .n = n,
                                   .n_rows = 1,
                                   .k = k,
                                   .scratch = scratch.get(),
                                   .values = to.get(),
                                   .indices = at.get()});
  }
};

template <typename Device>
void SetChoice(KernelTable& table) {
  table.argmax = Choice<Device>::Largest;
  table.top_k = Choice<Device>::Largests;
  table.gumbel_argmax = Choice<Device>::Sample;
}

}  // namespace longspec::kernels::gpu
