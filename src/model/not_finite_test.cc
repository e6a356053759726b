// SPDX-License-Identifier: Apache-2.0
//
// One number of a model file that is no number shows in the logits, whatever the types and the kernel table:
// nothing on the way turns it into a number.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "formats/tiny_model.h"
#include "kernels/dispatch.h"
#include "kv/full_cache.h"
#include "model/transformer.h"
#include "sampling/testing/values_of.h"

namespace longspec {
namespace {

constexpr int kRows = 3;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
const float kErased = std::bit_cast<float>(0xFFFFFFFFU);  // what erased storage holds
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Damage {
  std::string tensor;  // one of F32
  size_t at;
  float value;
};

// How many of the rows of a short text have a logit that is no finite number.
int BrokenRows(const TinyModelOptions& tiny, const Damage* damage, const kernels::KernelTable* table,
               CacheType cache_type = CacheType::kF16, Bf16Arithmetic arithmetic = Bf16Arithmetic::kF32) {
  std::vector<std::byte> bytes = *TinyModelBytes(tiny);
  auto file = *GgufFile::Parse(bytes, "broken");
  if (damage != nullptr) {
    const TensorView* tensor = file->FindTensor(damage->tensor);
    EXPECT_TRUE(tensor != nullptr && tensor->dtype == DType::kF32) << damage->tensor;
    const auto offset = static_cast<size_t>(tensor->data - bytes.data()) + damage->at * sizeof(float);
    std::memcpy(bytes.data() + offset, &damage->value, sizeof(float));
  }
  const ModelSpec config = *ReadModelSpec(*file, {}, arithmetic);
  ThreadTeam team(1);
  ModelLoadOptions options;
  options.max_rows = kRows;
  const auto model = *LoadModel(file, config, {table, &team}, options);
  const auto cache = MakeFullCache(config.kv_layout(cache_type, cache_type), config.n_layer, 64);
  const std::vector<int32_t> tokens = {5, 6, 7};
  auto kv = *cache->Begin(kRows);
  const ForwardSegment segment{.tokens = tokens, .parents = {}, .kv = &kv, .logits = LogitsFor::kAllRows};
  const auto output = model->Forward({&segment, 1});
  EXPECT_TRUE(output.ok()) << output.status().message();
  int broken = 0;
  for (int row = 0; row < output->segments[0].logits.size(); ++row) {
    const auto logits = testing::ValuesOf(output->segments[0].logits[row]);
    broken += std::ranges::all_of(logits, [](float x) { return std::isfinite(x); }) ? 0 : 1;
  }
  return broken;
}

TEST(NotFinite, OneBrokenWeightShowsInEveryRow) {
  TinyModelOptions tiny;
  tiny.n_embd = 256;
  tiny.n_ff = 256;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0,
                            DType::kQ4_K, DType::kQ6_K}) {
    tiny.dtype = dtype;
    for (const kernels::KernelTable* table : kernels::Available()) {
      const std::string where = std::string(Info(dtype).name) + ", " + table->name;
      EXPECT_EQ(BrokenRows(tiny, nullptr, table), 0) << where;
      for (const Damage& damage :
           {Damage{"blk.0.attn_norm.weight", 101, kNan}, Damage{"blk.1.ffn_norm.weight", 255, -kNan},
            Damage{"output_norm.weight", 0, kInfinity}}) {
        EXPECT_EQ(BrokenRows(tiny, &damage, table), kRows) << where << ", " << damage.tensor;
      }
    }
  }
}

// Keys and values of NaN are stored as what they are.
TEST(NotFinite, EveryCacheTypeKeepsWhatIsBroken) {
  TinyModelOptions tiny;
  tiny.n_embd = 128;
  for (const CacheType type : {CacheType::kF32, CacheType::kF16, CacheType::kBF16, CacheType::kBF16Amx,
                               CacheType::kQ8_0, CacheType::kQ4_0, CacheType::kI8}) {
    for (const kernels::KernelTable* table : kernels::Available()) {
      EXPECT_EQ(BrokenRows(tiny, nullptr, table, type), 0) << table->name;
      for (const float value : {kNan, kErased}) {
        const Damage damage = {"blk.0.attn_norm.weight", 3, value};
        EXPECT_EQ(BrokenRows(tiny, &damage, table, type), kRows) << table->name;
      }
    }
  }
}

// Activations that are rounded to bf16 stay what they are, too.
TEST(NotFinite, Bf16ArithmeticKeepsWhatIsBroken) {
  TinyModelOptions tiny;
  tiny.n_embd = 128;
  tiny.dtype = DType::kBF16;
  for (const Bf16Arithmetic arithmetic : {Bf16Arithmetic::kBF16, Bf16Arithmetic::kBF16Amx}) {
    for (const kernels::KernelTable* table : kernels::Available()) {
      EXPECT_EQ(BrokenRows(tiny, nullptr, table, CacheType::kF16, arithmetic), 0) << table->name;
      for (const float value : {kNan, kErased}) {
        const Damage damage = {"output_norm.weight", 7, value};
        EXPECT_EQ(BrokenRows(tiny, &damage, table, CacheType::kF16, arithmetic), kRows) << table->name;
      }
    }
  }
}

}  // namespace
}  // namespace longspec
