// SPDX-License-Identifier: Apache-2.0
//
// The operations of a forward pass, as plain structs and one table of functions per instruction set.
//
// The law (docs/arithmetic.md): for every operation, each table returns the same bits per row as
// kernels/reference/, whatever the number of rows in the call, the tiling, and which thread computes what.
// Kernels allocate nothing (the reference may), log nothing and never fail; shapes are the caller's promise.
// This header is all that kernel files see, so it has no inline functions: a file built for one instruction
// set must not emit code another file might link.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/weight_format.h"

namespace longspec::kernels {

inline constexpr int kRowGroup = 16;       // output rows interleaved in packed weights
inline constexpr int kQuantBlock = 32;     // values that a weight's scale or factor is for
inline constexpr int kSuperBlock = 256;    // values that are summed as integers in the q8k arithmetic
inline constexpr int kChunk = 256;         // keys per canonical softmax chunk
inline constexpr int kStretchChunks = 16;  // chunks whose states are merged before those of others
inline constexpr int kKeyGroup = 16;       // keys per transposed block
inline constexpr int kMaxHeadDim = 512;
inline constexpr int kStateHeader =
    16;  // floats before the head_dim values of a softmax state: [0] max, [1] sum

// ---- Weights
// ------------------------------------------------------------------------------------------------------

using longspec::WeightFormat;  // tensor/weight_format.h says how each is packed

struct PackedMatrix {
  const std::byte* data = nullptr;  // 64-byte aligned
  size_t group_bytes = 0;           // a multiple of 64
  int64_t n_out = 0, n_in = 0;
  WeightFormat format = WeightFormat::kF32;
};

// 32 activations of one row in the q8 arithmetic: value i = d[i / 16] * q[i]. Each half has a scale of its
// own: one outlier then costs 15 neighbours their precision and not 31, which halves the distance to float32
// for a few instructions.
//
// A block with a number that is not finite becomes kNoNumbersQ8, whose products are NaN: what is wrong in a
// model's numbers shows in its logits.
struct Q8Block {
  int8_t q[kQuantBlock];
  float d[2];  // max |x| of the half / 127
  // -8 and -128 times the sum of the half's q: what dots begin with where 8 or 128 was added to the weights;
  // where 16 was, it is twice the first.
  int32_t less_8[2];
  int32_t less_128[2];
  float s;  // fma(d[1], sum[1], d[0] * sum[0]) of the sums of q: what the minimum is multiplied with
  int32_t unused;
};
inline constexpr Q8Block kNoNumbersQ8 = {.q = {},
                                         .d = {__builtin_nanf(""), __builtin_nanf("")},
                                         .less_8 = {},
                                         .less_128 = {},
                                         .s = __builtin_nanf(""),
                                         .unused = 0};

// What follows from the sums of a block's q.
[[gnu::always_inline]] inline void SetSums(int32_t first, int32_t second, Q8Block& block) {
  block.less_8[0] = -8 * first;
  block.less_8[1] = -8 * second;
  block.less_128[0] = -128 * first;
  block.less_128[1] = -128 * second;
  block.s = __builtin_fmaf(block.d[1], static_cast<float>(second), block.d[0] * static_cast<float>(first));
}

// y[row][o] (+)= sum over k of w[o][k] * x[row][k], for the output rows of groups [group_begin, group_end).
struct MatmulQ8Args {
  const PackedMatrix* w = nullptr;  // a quantised format without super-blocks
  const Q8Block* x = nullptr;       // (n_rows, n_in / 32)
  float* y = nullptr;               // (n_rows, n_out), row stride y_stride
  int64_t y_stride = 0;
  int n_rows = 0;
  int group_begin = 0, group_end = 0;
  bool add = false;  // add to y instead of storing
  // What the caller reads after the last group: fetched, about a group of it, while that is multiplied.
  const std::byte* next = nullptr;
};
// Arithmetic "q8", blocks in ascending order: acc = fma(dw, fma(float(dot1), d[1], float(dot0) * d[0]), acc),
// then for *Min acc = fma(mw, s, acc), the dots being the exact integer sums of w * q over each half. Finally
// y = acc, or y + acc.

// 256 activations of one row in the q8k arithmetic: value i = d * steps[i / 32] * q[i]. One scale for all
// would cost small values beside a large one their precision: a block of 32 is divided into steps of its own,
// whole multiples of d. One with a number that is not finite becomes kNoNumbersQ8K.
inline constexpr int kMostSteps = 8;
struct Q8KBlock {
  int8_t q[kSuperBlock];
  int16_t half_sums[16];  // steps * sum of q, over 16 each
  int16_t block_sums[8];  // over 32 each
  float d;                // max |x| / (127 * kMostSteps)
  uint8_t steps[8];       // 1 to kMostSteps
  // Bit b: sums of products of block b's q may not fit 16 bits: of 32 with integers from 0 to 15, of 32 with
  // those from 0 to 31, of 16 with those from -32 to 31.
  uint8_t wide[3];
  uint8_t unused;
};
inline constexpr Q8KBlock kNoNumbersQ8K = {.q = {},
                                           .half_sums = {},
                                           .block_sums = {},
                                           .d = __builtin_nanf(""),
                                           .steps = {},
                                           .wide = {},
                                           .unused = 0};

// Sets bit b of `wide`. magnitudes: the sums of |q| of the block's halves; sum: that of q of the block.
[[gnu::always_inline]] inline void SetWide(int b, const int32_t (&magnitudes)[2], int32_t sum,
                                           uint8_t (&wide)[3]) {
  const int32_t all = magnitudes[0] + magnitudes[1], larger = (all + (sum < 0 ? -sum : sum)) / 2;
  const int32_t of_half = magnitudes[0] > magnitudes[1] ? magnitudes[0] : magnitudes[1];
  wide[0] = static_cast<uint8_t>(wide[0] | (15 * larger > INT16_MAX) << b);
  wide[1] = static_cast<uint8_t>(wide[1] | (31 * larger > INT16_MAX) << b);
  wide[2] = static_cast<uint8_t>(wide[2] | (32 * of_half > INT16_MAX) << b);
}

struct MatmulQ8KArgs {
  const PackedMatrix* w = nullptr;  // a super-block format
  const Q8KBlock* x = nullptr;      // (n_rows, n_in / 256)
  float* y = nullptr;               // (n_rows, n_out), row stride y_stride
  int64_t y_stride = 0;
  int n_rows = 0;
  int group_begin = 0, group_end = 0;
  bool add = false;                 // add to y instead of storing
  const std::byte* next = nullptr;  // as above
};
// Arithmetic "q8k", super-blocks in ascending order. Exact integers of one super-block, below 2^30:
//   dots = sum over its blocks of steps * factor * (sum of w * q), with a factor for each half in *Halves
//   minima = sum over its blocks of steps * (the minimum's factor) * (sum of q)       *Min only
// and from acc = 0
//   t = D * float(dots);  t = fma(-M, float(minima), t) for *Min;  acc = fma(d, t, acc)
// where float() rounds once. Finally y = acc, or y + acc.

struct MatmulFloatArgs {
  const PackedMatrix* w = nullptr;  // a float format
  const float* x = nullptr;         // (n_rows, n_in), row stride x_stride
  int64_t x_stride = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  int n_rows = 0;
  int group_begin = 0, group_end = 0;
  bool add = false;
};
// Arithmetic "f32": acc = fma(w, x, acc), k ascending.

// Two arithmetics of products of bf16 numbers, after the instructions that have them. Products lie in a row,
// the k-th of a[k] and b[k]; where one is missing at the end, both are 0. With
//   step(acc, a, b) = fma(a, b, acc), where a, b, acc and a result below 2^-126 (as rounded with any
//   exponent) count as zeros of their signs,
// "bf16" (VDPBF16PS) takes products in pairs, the second of a pair first:
//   acc = step(step(acc, a[k + 1], b[k + 1]), a[k], b[k])       k = 0, 2, 4, ...
// and "bf16-amx" (TDPBF16PS on tiles of 32 products) sums those of even and of odd k in blocks of 32:
//   even = odd = 0;  even = step(even, a[k], b[k]);  odd = step(odd, a[k + 1], b[k + 1])      k = 0, 2, ...
//   30 of the block acc = step(acc, step(odd, even, 1), 1)
// Numbers that are not stored as bf16 are rounded for it: to nearest even, denormals to zeros of their signs.
inline constexpr int kAmxBlock = 32;
inline constexpr size_t kBf16Bytes = 2;

struct MatmulBf16Args {
  const PackedMatrix* w = nullptr;  // kBF16Pairs or kBF16Amx
  const uint16_t* x =
      nullptr;  // (n_rows, n_in) as bf16, each row with zeros up to a multiple of 32; 64-byte aligned
  int64_t x_stride = 0;  // a multiple of 32
  float* y = nullptr;
  int64_t y_stride = 0;
  int n_rows = 0;
  int group_begin = 0, group_end = 0;
  bool add = false;  // in f32
};

// ---- Attention
// ----------------------------------------------------------------------------------------------------

// How a position's key or value of one KV head, head_dim values, is stored: as codes, then, for the quantised
// types, an f16 scale d for each 32 values (head_dim is a multiple of 32). Keys lie transposed in blocks of
// 16: codes (n_code, 16), then scales (n_scale, 16). Values lie in rows: codes (n_code), then scales
// (n_scale).
//   kF32, kF16, kBF16, kBF16Amx: the code is the value.
//   kQ8_0: a code is an i8 q; value = q * d.
//   kQ4_0: a code is two nibbles; value = (nibble - 8) * d. In a key code i holds value 2 i in its low nibble
//   and 2 i + 1 in
//          its high one: keys never share a byte, so that threads may store neighbours. In a value's row code
//          16 b + i holds values 32 b + i and 32 b + 16 + i.
//   kI8: the numbers of kQ8_0. A code is four neighbouring values' i8: a key's four dimensions lie together.
// Both products are exact in f32.
//
// Scores and weighted values of these are sums of f32 products, in arithmetic "f32", but for kBF16, which is
// multiplied in "bf16", kBF16Amx, stored as the same numbers and multiplied in "bf16-amx", and kI8,
// multiplied in "i8". In the first two queries and softmax numerators are rounded to bf16. A score's products
// are those of dimensions 0, 1, 2, ..., a value's those of a chunk's keys 0, 1, 2, ...
//
// Arithmetic "i8": 32 numbers x become integers q and a scale d. With a = max |x|
//   d = a / 127;  q = rint(x * (127 / a)), all 0 where a is below 2^-120
// and d = NaN, all q 0, where a number is not finite. Then, groups in ascending order,
//   of a query and each 32 dimensions:  acc = fma(dk, float(sum of q * k) * d, acc), from acc = 0, with dk
//   the
//     scale of the key's 32 dimensions
//   of each 32 keys of a chunk and each 32 dimensions, x being p times the scale of the value's 32
//   dimensions:
//     o = fma(float(sum of q * v), d, o)
// The sums are exact integers. Where there are less than 32 keys, the others' x are 0. An x of weighted
// values that has a sign, -0 too, counts as not finite: p and stored scales have none.
enum class KvType : uint8_t { kF32, kF16, kBF16, kQ8_0, kQ4_0, kBF16Amx, kI8 };
// So many neighbouring keys are summed together in weighted values, from the first of a chunk on.
constexpr int KeysSummedTogether(KvType type) {
  return type == KvType::kBF16Amx ? kAmxBlock
         : type == KvType::kI8    ? kQuantBlock
         : type == KvType::kBF16  ? 2
                                  : 1;
}

// What the caller will read soon after. A kernel may ask memory for it meanwhile, so that memory works while
// it computes.
struct Upcoming {
  const std::byte* begin = nullptr;
  size_t bytes = 0;
};

// out[row][key] = scale * dot(q[row], key), for keys of blocks [block_begin, block_end) of one chunk: in
// arithmetic "f32" by fma, d ascending.
struct ScoresArgs {
  const std::byte* keys = nullptr;  // 16 blocks of 16 keys of one KV head
  const float* q = nullptr;         // (n_rows, head_dim)
  float* out = nullptr;             // (n_rows, 256), indexed by the key's offset in the chunk
  int64_t out_stride = 0;
  float scale = 1.0F;
  int n_rows = 0;
  int head_dim = 0;  // a multiple of 16, at most kMaxHeadDim
  int block_begin = 0, block_end = 0;
  KvType type = KvType::kF16;
  Upcoming next = {};
};

// o[row][d] += p[row][key] * v[key][d] for key = 0 .. n_keys[row] - 1: in arithmetic "f32" by fma, ascending.
struct ValuesArgs {
  const std::byte* values = nullptr;  // 256 rows of head_dim values of one KV head
  const float* p = nullptr;           // (n_rows, 256)
  int64_t p_stride = 0;
  float* o = nullptr;  // (n_rows, head_dim), row stride o_stride
  int64_t o_stride = 0;
  const int* n_keys = nullptr;  // (n_rows)
  int n_rows = 0;
  int head_dim = 0;
  KvType type = KvType::kF16;
  Upcoming next = {};
};

// The same for values that lie scattered: values[i] is one key's row. All rows see all n_keys. What is summed
// together are neighbours in `values`: those of a chunk, if values[0] is of a position that is a multiple of
// KeysSummedTogether.
struct GatheredValuesArgs {
  const std::byte* const* values = nullptr;  // (n_keys)
  const float* p = nullptr;                  // (n_rows, n_keys), row stride p_stride
  int64_t p_stride = 0;
  float* o = nullptr;
  int64_t o_stride = 0;
  int n_keys = 0;
  int n_rows = 0;
  int head_dim = 0;
  KvType type = KvType::kF16;
};

// One new key and value of one KV head, converted and stored: 16-bit floats by rounding to nearest even,
// quantised types in blocks of 32 with m the first value of the largest magnitude:
//   kQ8_0, kI8: s = |m| / 127; q = rint(x * (1 / s))
//   kQ4_0: s = m / -8; nibble = min(15, int(x * (1 / s) + 8.5)), truncated
// and d = s in f16. Where d is no number other than zero, q is 0 (the nibble 8) and d is 0, or NaN if s
// overflowed or a value was not finite.
struct StoreKvArgs {
  const float* k = nullptr;     // (head_dim)
  const float* v = nullptr;     // (head_dim)
  std::byte* keys = nullptr;    // the chunk's keys of this head
  std::byte* values = nullptr;  // the chunk's values of this head
  int offset = 0;               // the key's offset in the chunk
  int head_dim = 0;
  KvType k_type = KvType::kF16, v_type = KvType::kF16;
};

// Gumbel-max sampling of a whole row. The key of a token is, in double,
//   (double(logit) - double(largest)) / temperature + gumbel(dice, token)        with 0 / temperature where
//   the two are equal
// and gumbel as base/dice.h has it. A logit that is not a number counts as minus infinity.
struct GumbelArgs {
  const float* logits = nullptr;  // (n)
  int n = 0;
  float largest = 0.0F;      // of the logits; above minus infinity
  double temperature = 1.0;  // above 0
  uint32_t dice[2] = {};     // longspec::Dice::key
};

// gelu(g) = g * sigmoid(z), with z = 2 sqrt(2 / pi) (g + 0.044715 g^3).
inline constexpr float kGeluLinear = 1.59576912F, kGeluCubic = 0.0713548162726F;

enum class RopePairing : uint8_t { kAdjacent, kHalfSplit };  // (2i, 2i + 1) or (i, i + n/2)

// ---- The table
// ----------------------------------------------------------------------------------------------------

struct KernelTable {
  const char* name;  // "reference", "avx2", "avx512", "avx512-bf16", "amx", "neon"

  // x (n) -> out (n / 32). Per half: d = max|x| / 127; q = rint(x * (127 / max|x|)), 0 where all are
  // below 2^-120. kNoNumbersQ8 where a number of the block is not finite. n is a multiple of 32.
  void (*quantize_q8)(const float* x, int n, Q8Block* out);
  void (*matmul_q8)(const MatmulQ8Args& args);
  // x (n) -> out (n / 256). With m = max|x|: d = m / 1016; of a block of 32, steps = ceil(max|x| * (8 / m)),
  // at least 1 and at most 8, and q = rint(x * ((1016 / m) / steps)); 1 and 0 where m is below 2^-116.
  // kNoNumbersQ8K where a number is not finite. n is a multiple of 256.
  void (*quantize_q8k)(const float* x, int n, Q8KBlock* out);
  void (*matmul_q8k)(const MatmulQ8KArgs& args);
  void (*matmul_float)(const MatmulFloatArgs& args);
  // x (n) -> n bf16 numbers as arithmetics "bf16" and "bf16-amx" want them, then zeros up to a multiple
  // of 32.
  void (*round_bf16)(const float* x, int n, uint16_t* out);
  void (*matmul_bf16)(const MatmulBf16Args& args);

  // y = (x * r) * w with r = 1 / sqrt(ss / n + eps); ss in 16 stripes by fma (index mod 16), then the fixed
  // tree.
  void (*rms_norm)(const float* x, const float* w, int n, float eps, float* y);
  // In place, one head's first n_rot values; cos_sin (n_rot / 2, 2). y0 = fma(x0, c, -(x1 * s)); y1 = fma(x0,
  // s, x1 * c).
  void (*rope)(float* x, int n_rot, const float* cos_sin, RopePairing pairing);
  // Gates of an MLP: out = (g * (1 / (1 + exp(-z)))) * u. SwiGLU's z is g. GeGLU, whose GELU is the one by
  // tanh, has z = g * fma(g * g, kGeluCubic, kGeluLinear), where large g make it an infinity. exp(-z) ends at
  // 0 and at about 2^127.5, so g beyond that becomes g * u above, and about g * 2^-127.5 * u below: minus
  // infinity stays one. Some NaN for a NaN.
  void (*swiglu)(const float* g, const float* u, int n, float* out);
  void (*geglu)(const float* g, const float* u, int n, float* out);
  // out = exp(x) by the polynomial of reference/elementwise.cc; exactly 0 below -87.33654. Some NaN for a
  // NaN.
  void (*exp)(const float* x, int n, float* out);
  // The lowest index of the largest value; some index if there are NaN. n >= 1.
  int (*argmax)(const float* x, int n);
  // The k largest values in descending order, equal values by ascending index. 1 <= k <= n, no NaN.
  void (*top_k)(const float* x, int n, int k, float* values, int32_t* indices);

  // The token with the largest key, the lowest of equal ones.
  int (*gumbel_argmax)(const GumbelArgs& args);

  void (*scores)(const ScoresArgs& args);
  // Softmax numerators of one chunk, in place: m = max; s[i] = exp(s[i] - m); sum in 16 stripes (index mod
  // 16), then the fixed tree. Writes state[0] = m and state[1] = sum. 1 <= n <= 256.
  void (*softmax_chunk)(float* scores, int n, float* state);
  void (*values)(const ValuesArgs& args);
  void (*gathered_values)(const GatheredValuesArgs& args);
  // Merges the next chunk's state, or the next stretch's, into `state`: m' = max(m, mc); a = exp(m - m'), b =
  // exp(mc - m'); x = fma(x, a, xc * b) for the sum and each of the head_dim values.
  void (*merge_state)(float* state, const float* chunk, int head_dim);
  // out = o * (1 / sum)
  void (*finish_state)(const float* state, int head_dim, float* out);
  void (*store_kv)(const StoreKvArgs& args);
};

// The fixed tree: stripes j and j + w are added for w = 8, 4, 2, 1.

}  // namespace longspec::kernels
