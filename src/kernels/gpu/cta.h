// SPDX-License-Identifier: Apache-2.0
//
// A GPU's kernels are bodies: templates over a `Cta`, a thread's view of the block of threads it is in. On a
// GPU it is cuda::DeviceCta (cuda/device_cta.h), on a CPU testing::FiberCta (kernels/testing/fiber_cta.h),
// whose threads are fibers. So this folder needs no CUDA headers.
//
// What a Cta has:
//   thread(), n_threads()         of the block, whole warps of 32
//   block(), block_y()            of the grid; n_blocks() is the grid's width
//   Shared()                      the block's memory, 16-byte aligned, at first of any content
//   Sync(), SyncWarp()            barriers of the block and of the warp, for what they wrote to memory
// Operations of a warp, which all of its 32 threads come to together:
//   Shuffle(value, lane)          the value of that lane; of 4 or 8 bytes
//   ShuffleXor(value, mask)       the value of the lane whose number differs by mask
//   Mma16(c, a0, a1, b)           c (16, 8) += a (16, 16) * b (16, 8), exact integers: unsigned a, signed b
//   Mma32(c, a, b)                c (16, 8) += a (16, 32) * b (32, 8)
//     With g = lane / 4 and j = lane % 4 a lane has of c: (g, 2 j), (g, 2 j + 1), (g + 8, 2 j), (g + 8, 2 j +
//     1). Mma16: of a: row g and row g + 8, columns 4 j to 4 j + 3, and of b: column g, rows 4 j to 4 j + 3.
//     Mma32: a[0], a[1] and b[0] are as in Mma16, of the first 16 columns of a and rows of b; a[2], a[3] and
//     b[1] of the last 16.
// Copies from global to shared memory, 16 bytes each, both ends aligned:
//   CopyAsync(to, from)           begins one; `to` must not be read
//   CommitCopies()                ends a group of those begun since the last
//   WaitCopies<N>()               until at most N groups of this thread are under way; a barrier tells others
// Memory, by aligned 8 or 16 bytes:
//   Load8(p), Load16(p)           what is read again, from any memory
//   Stream8(p), Stream16(p)       global memory that nothing writes meanwhile and nobody reads again
//   AddTo(p, n)                   adds to an integer that other threads add to, and returns what it was
// Arithmetic, static, each rounded once to nearest even, with denormals, never fused:
//   Fma, Add, Sub, Mul, Div, Sqrt, Rint, Half (widens f16 bits), ToHalf (rounds to f16 bits); a NaN stays one
//   DAdd, DSub, DMul, DDiv        the same in double
//   Bits(bits), ToBits(f)         a float's bits
//   Dot4(u, s, c)                 c + sum of four unsigned bytes times four signed ones
//   DotS4(s, t, c)                the same of signed bytes
//   Dot2<kHalf>(p, s, c)          c + sum of p's two signed halves times two signed bytes, the lower or upper
//   of s
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define LONGSPEC_GPU __device__ __forceinline__
#define LONGSPEC_UNROLL _Pragma("unroll")
#define LONGSPEC_NO_UNROLL _Pragma("unroll 1")
#else
#define LONGSPEC_GPU inline
#define LONGSPEC_UNROLL
#define LONGSPEC_NO_UNROLL
#endif

namespace longspec::kernels::gpu {

inline constexpr int kWarp = 32;

struct alignas(8) Bytes8 {
  uint32_t words[2];
};
struct alignas(16) Bytes16 {
  uint32_t words[4];
};

// How a body is launched. Bodies are structs:
//   struct Body {
//     struct Args { ... };                 // plain, of addresses in the device's memory
//     static constexpr int kThreads;       // a multiple of 32
//     static constexpr int kMinBlocks;     // if there: on a multiprocessor at a time, for registers
//     static Grid GridOf(const Args& a);   // on the host; a grid without blocks is not launched
//     template <class Cta> static LONGSPEC_GPU void Run(const Cta& cta, const Args& a);
//   };
struct Grid {
  int width = 1, height = 1;  // of blocks; the height is at most 65,535
  size_t shared_bytes = 0;
};

// The host's: kernels that are launched with these arguments hold no more rows or columns than they need.
constexpr int CeilDiv(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

}  // namespace longspec::kernels::gpu
