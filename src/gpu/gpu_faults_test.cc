// SPDX-License-Identifier: Apache-2.0
//
// What goes wrong with a card is one line that says so.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpu/testing/two_targets.h"
#include "kernels/testing/emulated_runtime.h"

namespace longspec::testing {
namespace {

using kernels::testing::EmulatedRuntime;

// A model of its own, since nothing can be done with a card that is gone.
std::unique_ptr<Target> LoadOn(const TwoTargets& both, Device& device, Status* status) {
  ModelLoadOptions options;
  options.max_rows = 16;
  auto target = device.Load(both.file, both.spec, options);
  *status = target.status();
  return target.ok() ? *std::move(target) : nullptr;
}

TEST(GpuFaults, ACardThatIsFullSaysSo) {
  const TwoTargets both({.n_layers = 1});
  Status status;
  const auto tiny = MakeGpuDevice(std::make_shared<EmulatedRuntime>(size_t{64} << 10), "", 1);
  EXPECT_EQ(LoadOn(both, **tiny, &status), nullptr);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "cuda (emulated): no room for weights of 0 MiB, 0 MiB are free");

  // Room for the weights and not for the rest.
  const auto small = MakeGpuDevice(std::make_shared<EmulatedRuntime>(size_t{270} << 10), "", 1);
  EXPECT_EQ(LoadOn(both, **small, &status), nullptr);
  EXPECT_EQ(status.message(), "cuda (emulated): no memory for the activations of 16 rows");

  // Chunks, until there is no room for another one.
  auto card = std::make_shared<EmulatedRuntime>(size_t{2} << 20);
  const auto device = MakeGpuDevice(card, "", 1);
  const auto target = LoadOn(both, **device, &status);
  ASSERT_NE(target, nullptr) << status.message();
  const auto pool = both.NewPool(*target, CacheType::kF16);
  std::vector<KvChunkRef> chunks;
  auto chunk = pool->Take();
  for (; chunk.ok(); chunk = pool->Take()) chunks.push_back(*chunk);
  EXPECT_GT(chunks.size(), 2U);
  EXPECT_EQ(chunk.status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(chunk.status().message().starts_with("no memory of cuda (emulated) for more of the key-value"))
      << chunk.status().message();
}

TEST(GpuFaults, ACardThatIsGoneSaysSo) {
  const TwoTargets both({.n_layers = 1});
  auto card = std::make_shared<EmulatedRuntime>();
  const auto device = MakeGpuDevice(card, "", 1);
  Status status;
  const auto target = LoadOn(both, **device, &status);
  ASSERT_NE(target, nullptr) << status.message();
  const auto cache = MakeFullCache(both.NewPool(*target, CacheType::kF16), kCapacity);
  Pass(*target, {{.cache = cache.get(), .tokens = RandomTokens(5)}});
  card->DieAfter(3);
  const Tokens tokens = RandomTokens(2);
  auto kv = cache->Begin(2);
  const ForwardSegment rows = {.tokens = tokens, .parents = {}, .kv = &*kv};
  status = target->Forward({&rows, 1}).status();
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_EQ(status.message(), "cuda (emulated): the card is gone");
}

TEST(GpuFaults, WhatCardsDoNotHaveIsRefused) {
  const TwoTargets both({.n_layers = 1, .head_dim = 32});
  const auto refused = [&](const ModelSpec& spec, CacheType k, CacheType v) {
    return both.gpu->Check(spec, spec.kv_layout(k, v)).message();
  };
  EXPECT_EQ(refused(both.spec, CacheType::kQ8_0, CacheType::kQ8_0), "");
  EXPECT_EQ(refused(both.spec, CacheType::kQ8_0, CacheType::kF16),
            "--cache-type-k q8_0 with --cache-type-v f16: a card's kernels have f32, f16, q8_0, q4_0 and i8, "
            "keys and values alike");
  EXPECT_NE(refused(both.spec, CacheType::kBF16, CacheType::kBF16), "");
  EXPECT_EQ(refused(both.spec, CacheType::kI8, CacheType::kI8), "");
  ModelSpec other = both.spec;
  other.bf16_format = kernels::WeightFormat::kBF16Pairs;
  EXPECT_EQ(refused(other, CacheType::kF16, CacheType::kF16),
            "--bf16-weights: a card multiplies them in f32 alone");
  other = both.spec;
  other.n_head = 66;
  other.n_head_kv = 1;
  EXPECT_EQ(refused(other, CacheType::kF16, CacheType::kF16),
            "a card has no attention for 66 query heads of 32 dimensions to a KV head");
}

TEST(GpuFaults, DevicesAreChosenByName) {
  const auto why = [](const char* name) { return MakeDevice(name, "", 1).status().message(); };
  EXPECT_EQ(why("cpu"), "");
  EXPECT_EQ(why("auto"), "");
  for (const char* name : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x"})
    EXPECT_EQ(why(name), "--device " + std::string(name) + ": must be auto, cpu, cuda or cuda:N");
}

TEST(GpuFaultsDeathTest, TheHostDoesNotTouchACardsMemory) {
  const TwoTargets both({.n_layers = 1});
  const auto pool = both.NewPool(*both.on_gpu, CacheType::kF16);
  const auto chunk = pool->Take();
  EXPECT_DEATH(*chunk.value()->data() = std::byte{1}, "");
}

}  // namespace
}  // namespace longspec::testing
