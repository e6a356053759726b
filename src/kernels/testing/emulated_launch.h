// SPDX-License-Identifier: Apache-2.0
//
// Who launches bodies on fibers, for the tables of emulated_runtime.h.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "kernels/gpu/bodies.h"
#include "kernels/testing/fiber_device.h"

namespace longspec::kernels::testing {

// Tests have no heads of more dimensions: compiling all bodies takes minutes.
template <class Body>
inline constexpr bool kIsEmulated = true;
template <KvType K, KvType V, int kDims, int kEntries, int kRing>
inline constexpr bool kIsEmulated<gpu::FusedAttention<K, V, kDims, kEntries, kRing>> = kDims == 64;
// Not chosen by LaunchProduct.
template <class Units>
inline constexpr bool kIsEmulated<gpu::FewRows<Units, 1>> = false;

struct LaunchOnFibers {
  template <class Body>
  static void Launch(void* /*stream*/, const typename Body::Args& args) {
    if constexpr (kIsEmulated<Body>) {
      FiberDevice::Launch<Body>(args);
    } else {
      std::fprintf(stderr, "emulated card: a body was launched that is not compiled\n");
      std::abort();
    }
  }
};

}  // namespace longspec::kernels::testing
