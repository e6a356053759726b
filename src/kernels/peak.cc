// SPDX-License-Identifier: Apache-2.0
#include "kernels/peak.h"

#include <cmath>

#include "kernels/cpu/peak_loops.h"
#include "kernels/tables.h"

namespace longspec::kernels {
namespace {

// What a compiler makes of plain loops, where no table is better.
template <typename T>
void Keep(T& value) {
  asm volatile("" : "+r"(value));
}

int64_t PlainQ8(int64_t rounds) {
  int32_t sum = 0, w = 3, x = -5;
  for (int64_t i = 0; i < rounds; ++i) {
    Keep(w);
    sum += w * x;
    Keep(sum);
  }
  return rounds;
}

int64_t PlainF32(int64_t rounds) {
  float sum = 0.0F;
  volatile float w = 0.5F;
  for (int64_t i = 0; i < rounds; ++i) sum = std::fma(w, 0.25F, sum);
  w = sum;
  return rounds;
}

}  // namespace

PeakLoops PeakLoopsOf(const KernelTable& table) {
#if defined(__x86_64__)
  if (&table == &kAvx2Table) return {avx2::PeakQ8, avx2::PeakF32, avx2::PeakF32, avx2::PeakF32};
  if (&table == &kAvx512Table) return {avx512::PeakQ8, avx512::PeakF32, avx512::PeakF32, avx512::PeakF32};
  if (&table == &kAvx512Bf16Table) {
    return {avx512::PeakQ8, avx512::PeakF32, avx512_bf16::PeakBf16, avx512::PeakF32};
  }
  if (&table == &kAmxTable) return {avx512::PeakQ8, avx512::PeakF32, avx512_bf16::PeakBf16, amx::PeakBf16Amx};
#elif defined(__aarch64__)
  if (&table == &kNeonTable) return {neon::PeakQ8, neon::PeakF32, neon::PeakF32, neon::PeakF32};
#endif
  static_cast<void>(table);
  return {PlainQ8, PlainF32, PlainF32, PlainF32};
}

}  // namespace longspec::kernels
