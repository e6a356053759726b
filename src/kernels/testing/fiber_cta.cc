// SPDX-License-Identifier: Apache-2.0
#include "kernels/testing/fiber_cta.h"

namespace longspec::kernels::testing {
namespace {

// c (16, 8) += a (16, k) * b (k, 8), of fragments as cta.h draws them.
template <int kDepth>
void MultiplyTiles(FiberBlock::Meeting& meeting) {
  constexpr int kHalves = kDepth / 16, kA = 4, kB = kA + 2 * kHalves;
  uint8_t a[16][kDepth];
  int8_t b[8][kDepth];
  for (int lane = 0; lane < gpu::kWarp; ++lane) {
    const int g = lane / 4, j = lane % 4;
    const uint32_t* in = meeting.in[lane];
    for (int half = 0; half < kHalves; ++half) {
      for (int i = 0; i < 4; ++i) {
        const int k = 16 * half + 4 * j + i;
        a[g][k] = static_cast<uint8_t>(in[kA + 2 * half] >> 8 * i);
        a[g + 8][k] = static_cast<uint8_t>(in[kA + 2 * half + 1] >> 8 * i);
        b[g][k] = static_cast<int8_t>(in[kB + half] >> 8 * i);
      }
    }
  }
  for (int lane = 0; lane < gpu::kWarp; ++lane) {
    for (int e = 0; e < 4; ++e) {
      const int m = lane / 4 + 8 * (e / 2), n = 2 * (lane % 4) + e % 2;
      uint32_t sum = meeting.in[lane][e];
      for (int k = 0; k < kDepth; ++k) sum += static_cast<uint32_t>(a[m][k] * b[n][k]);
      meeting.out[lane][e] = sum;
    }
  }
}

}  // namespace

void ShuffleLanes(FiberBlock::Meeting& meeting) {
  for (auto& lane : meeting.in) {
    uint32_t* out = meeting.out[&lane - meeting.in];
    out[0] = meeting.in[lane[2]][0];
    out[1] = meeting.in[lane[2]][1];
  }
}

void NoOperation(FiberBlock::Meeting&) {}
void MultiplyTiles16(FiberBlock::Meeting& meeting) { MultiplyTiles<16>(meeting); }
void MultiplyTiles32(FiberBlock::Meeting& meeting) { MultiplyTiles<32>(meeting); }

}  // namespace longspec::kernels::testing
