// SPDX-License-Identifier: Apache-2.0
//
// What the files of quantised types share: rounding to the steps of a block, and the record of a type that is
// known by what is done with one of its blocks.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "tensor/dtype.h"

namespace longspec {

// round(x / step) within [low, high]; a zero step encodes zeros, and so does a quotient that is no number.
int RoundToStep(float x, float step, int low, int high);
// Stores a step and returns it as the reader will see it, so that values are rounded against what they will
// decode to.
float StoreHalf(float value, uint16_t* stored);
// The element of largest magnitude, with its sign.
float Extreme(const float* src, int n);

// The code whose value of kIq4Values is nearest to x / d.
int NearestIq4(float x, float d);

inline uint8_t PairOfNibbles(int low, int high) {
  return static_cast<uint8_t>((low & 0xF) | ((high & 0xF) << 4));
}

// Stored bytes may have any alignment, so blocks are copied out before they are read.
template <typename Block>
Block LoadBlock(const std::byte* src) {
  Block block;
  std::memcpy(&block, src, sizeof block);
  return block;
}

// How a type is numbered and packed; what else there is to know follows from its block.
struct BlockTypeNames {
  std::string_view name;
  uint32_t gguf_number, file_type;
  WeightFormat packed;
};

template <typename Block, int kElements, void (*kDecode)(const Block&, float*),
          void (*kEncode)(const float*, Block*), void (*kTakeApart)(const Block&, StoredBlock*)>
constexpr WeightTypeInfo InBlocks(const BlockTypeNames& names) {
  return {.name = names.name,
          .block_elements = kElements,
          .block_bytes = sizeof(Block),
          .gguf_number = names.gguf_number,
          .file_type = names.file_type,
          .packed = names.packed,
          .decode =
              [](const std::byte* src, int64_t n, float* dst) {
                for (int64_t i = 0; i < n; i += kElements, src += sizeof(Block)) {
                  kDecode(LoadBlock<Block>(src), dst + i);
                }
              },
          .encode =
              [](const float* src, int64_t n, std::byte* dst) {
                for (int64_t i = 0; i < n; i += kElements, dst += sizeof(Block)) {
                  Block block{};
                  kEncode(src + i, &block);
                  std::memcpy(dst, &block, sizeof block);
                }
              },
          .take_apart = [](const std::byte* src,
                           StoredBlock* block) { kTakeApart(LoadBlock<Block>(src), block); }};
}

}  // namespace longspec
