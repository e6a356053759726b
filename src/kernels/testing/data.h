// SPDX-License-Identifier: Apache-2.0
//
// Made-up operands for kernel tests. Buffers are exactly as large as the contract says, so that an address
// sanitizer sees every byte read or written beyond it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "kernels/ops.h"
#include "kernels/packing.h"

namespace longspec::kernels::testing {

inline size_t Size(int64_t n) { return static_cast<size_t>(n); }

// The same numbers on every machine: only the generator's raw bits are used.
class Random {
 public:
  explicit Random(uint32_t seed) : bits_(seed) {}
  uint32_t Bits() { return static_cast<uint32_t>(bits_()); }
  int Below(int n) { return static_cast<int>(Bits() % static_cast<uint32_t>(n)); }
  // In (-scale, scale), of many magnitudes.
  float Float(float scale = 1.0F);
  std::vector<float> Floats(size_t n, float scale = 1.0F);

 private:
  std::mt19937 bits_;
};

// Numbers whose products lie about 2^-126, the least normal f32, with few significant bits: sums that cancel,
// that are exactly a power of two, and that round up to one are all frequent.
class TinyNumbers {
 public:
  explicit TinyNumbers(uint32_t seed) : random_(seed) {}
  float Next(int exponent);
  std::vector<float> Floats(size_t n, int exponent);
  std::vector<std::byte> Bf16s(size_t n, int exponent);

 private:
  Random random_;
};

// 64-byte aligned bytes, as packed weights are promised to be.
class AlignedBytes {
 public:
  explicit AlignedBytes(size_t size);
  std::byte* data() { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
};

// kLargest: every integer is at the end of its range. kSmall: activations are a third as large, but for those
// of every fifth super-block.
enum class Fill : uint8_t { kRandom, kLargest, kSmall };

// A packed matrix of any format, filled without passing through a stored tensor. Padding lanes hold garbage
// on purpose.
class TestMatrix {
 public:
  TestMatrix(WeightFormat format, int64_t n_in, int64_t n_out, Fill fill, uint32_t seed);
  const PackedMatrix& matrix() const { return matrix_; }
  int n_groups() const { return static_cast<int>((matrix_.n_out + kRowGroup - 1) / kRowGroup); }

 private:
  AlignedBytes bytes_;
  PackedMatrix matrix_;
};

std::vector<Q8Block> TestActivations(int n_rows, int64_t n_in, Fill fill, uint32_t seed);
std::vector<Q8KBlock> TestActivationsQ8K(int n_rows, int64_t n_in, Fill fill, uint32_t seed);
void SetSums(Q8KBlock& block);  // from its q and steps

// The keys and values of one head of one chunk, filled without passing through store_kv.
std::vector<std::byte> StoredKeys(KvType type, int head_dim, uint32_t seed);
std::vector<std::byte> StoredValues(KvType type, int head_dim, uint32_t seed);

const char* Name(WeightFormat format);
const char* Name(KvType type);

// Of an arithmetic that `fits`, in the order of WeightFormat.
template <typename F>
std::vector<WeightFormat> FormatsOf(const F& fits) {
  std::vector<WeightFormat> formats;
  for (int i = 0; i < kWeightFormatCount; ++i) {
    if (fits(static_cast<WeightFormat>(i))) formats.push_back(static_cast<WeightFormat>(i));
  }
  return formats;
}
inline const std::vector<WeightFormat> kAllFormats = FormatsOf([](WeightFormat) { return true; });
inline const std::vector<WeightFormat> kQuantizedFormats =
    FormatsOf([](WeightFormat format) { return IsQuantized(format); });
inline const std::vector<WeightFormat> kSuperFormats =
    FormatsOf([](WeightFormat format) { return HasSuperBlocks(format); });
inline const std::vector<WeightFormat> kFloatFormats =
    FormatsOf([](WeightFormat format) { return !IsQuantized(format); });
inline constexpr KvType kKvTypes[] = {KvType::kF32,  KvType::kF16,     KvType::kBF16, KvType::kQ8_0,
                                      KvType::kQ4_0, KvType::kBF16Amx, KvType::kI8};
inline constexpr int kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 33};

}  // namespace longspec::kernels::testing
