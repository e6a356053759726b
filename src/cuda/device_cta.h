// SPDX-License-Identifier: Apache-2.0
//
// The Cta (kernels/gpu/cta.h) of a GPU, from compute capability 8.0 on. Only for what nvcc compiles.
#pragma once

#include <cuda_fp16.h>

#include "kernels/gpu/cta.h"

namespace longspec::cuda {

class DeviceCta {
 public:
  LONGSPEC_GPU int thread() const { return static_cast<int>(threadIdx.x); }
  LONGSPEC_GPU int n_threads() const { return static_cast<int>(blockDim.x); }
  LONGSPEC_GPU int block() const { return static_cast<int>(blockIdx.x); }
  LONGSPEC_GPU int block_y() const { return static_cast<int>(blockIdx.y); }
  LONGSPEC_GPU int n_blocks() const { return static_cast<int>(gridDim.x); }
  LONGSPEC_GPU std::byte* Shared() const {
    extern __shared__ __align__(16) unsigned char shared[];
    return reinterpret_cast<std::byte*>(shared);
  }
  LONGSPEC_GPU void Sync() const { __syncthreads(); }
  LONGSPEC_GPU void SyncWarp() const { __syncwarp(); }

  template <typename T>
  LONGSPEC_GPU T Shuffle(T value, int lane) const {
    return __shfl_sync(0xFFFFFFFFU, value, lane);
  }
  template <typename T>
  LONGSPEC_GPU T ShuffleXor(T value, int mask) const {
    return __shfl_xor_sync(0xFFFFFFFFU, value, mask);
  }
  LONGSPEC_GPU void Mma16(int32_t (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) const {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(b));
  }
  LONGSPEC_GPU void Mma32(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }

  LONGSPEC_GPU void CopyAsync(void* to, const void* from) const {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     static_cast<uint32_t>(__cvta_generic_to_shared(to))),
                 "l"(from)
                 : "memory");
  }
  LONGSPEC_GPU void CommitCopies() const { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int N>
  LONGSPEC_GPU void WaitCopies() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
  }

  static LONGSPEC_GPU kernels::gpu::Bytes8 Load8(const void* p) {
    return *static_cast<const kernels::gpu::Bytes8*>(p);
  }
  static LONGSPEC_GPU kernels::gpu::Bytes16 Load16(const void* p) {
    return *static_cast<const kernels::gpu::Bytes16*>(p);
  }
  static LONGSPEC_GPU kernels::gpu::Bytes8 Stream8(const void* p) {
    kernels::gpu::Bytes8 bytes;
    asm("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0,%1}, [%2];"
        : "=r"(bytes.words[0]), "=r"(bytes.words[1])
        : "l"(p));
    return bytes;
  }
  static LONGSPEC_GPU kernels::gpu::Bytes16 Stream16(const void* p) {
    kernels::gpu::Bytes16 bytes;
    asm("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
        : "=r"(bytes.words[0]), "=r"(bytes.words[1]), "=r"(bytes.words[2]), "=r"(bytes.words[3])
        : "l"(p));
    return bytes;
  }

  static LONGSPEC_GPU int32_t AddTo(int32_t* to, int32_t n) { return atomicAdd(to, n); }

  static LONGSPEC_GPU float Fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
  static LONGSPEC_GPU float Add(float a, float b) { return __fadd_rn(a, b); }
  static LONGSPEC_GPU float Sub(float a, float b) { return __fsub_rn(a, b); }
  static LONGSPEC_GPU float Mul(float a, float b) { return __fmul_rn(a, b); }
  static LONGSPEC_GPU float Div(float a, float b) { return __fdiv_rn(a, b); }
  static LONGSPEC_GPU float Sqrt(float a) { return __fsqrt_rn(a); }
  static LONGSPEC_GPU float Rint(float a) { return rintf(a); }
  static LONGSPEC_GPU double DAdd(double a, double b) { return __dadd_rn(a, b); }
  static LONGSPEC_GPU double DSub(double a, double b) { return __dsub_rn(a, b); }
  static LONGSPEC_GPU double DMul(double a, double b) { return __dmul_rn(a, b); }
  static LONGSPEC_GPU double DDiv(double a, double b) { return __ddiv_rn(a, b); }
  static LONGSPEC_GPU float Bits(uint32_t bits) { return __uint_as_float(bits); }
  static LONGSPEC_GPU uint32_t ToBits(float f) { return __float_as_uint(f); }
  static LONGSPEC_GPU float Half(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
  static LONGSPEC_GPU uint16_t ToHalf(float f) { return __half_as_ushort(__float2half_rn(f)); }
  static LONGSPEC_GPU int32_t Dot4(uint32_t u, uint32_t s, int32_t c) {
    int32_t sum;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(u), "r"(s), "r"(c));
    return sum;
  }
  static LONGSPEC_GPU int32_t DotS4(uint32_t s, uint32_t t, int32_t c) {
    return __dp4a(static_cast<int>(s), static_cast<int>(t), c);
  }
  template <int kHalf>
  static LONGSPEC_GPU int32_t Dot2(uint32_t p, uint32_t s, int32_t c) {
    return kHalf == 0 ? __dp2a_lo(static_cast<int>(p), static_cast<int>(s), c)
                      : __dp2a_hi(static_cast<int>(p), static_cast<int>(s), c);
  }
};

}  // namespace longspec::cuda
