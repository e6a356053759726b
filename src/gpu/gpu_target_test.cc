// SPDX-License-Identifier: Apache-2.0
//
// A model on a card gives the bits that it gives on the CPU, however rows are cut into passes, and keys and
// values go from one to the other.
#include "gpu/gpu_target.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpu/testing/two_targets.h"

namespace longspec::testing {
namespace {

class GpuTargetOf : public ::testing::TestWithParam<const char*> {};

TEST_P(GpuTargetOf, PiecesAndTreesAreTheCpus) {
  TinyModelOptions tiny = {.architecture = GetParam()};
  if (tiny.architecture == "gemma3") tiny.n_layers = 7;
  tiny.head_dim = 48;  // n_heads * head_dim is not n_embd
  TwoTargets both(tiny);
  OnBoth on(both);
  const auto text = on.New();
  const Tokens tokens = RandomTokens(60);
  on.Pass({&text}, {{.tokens = Part(tokens, 0, 21), .logits = LogitsFor::kNone}});
  on.Pass({&text}, {{.tokens = Part(tokens, 21, 24)}});
  on.Pass({&text}, {{.tokens = Part(tokens, 24, 31), .parents = kTree, .kept = {0, 2, 4, 6}}});
  on.Pass({&text}, {{.tokens = Part(tokens, 31, 32)}});
}

INSTANTIATE_TEST_SUITE_P(All, GpuTargetOf, ::testing::Values("llama", "qwen2", "qwen3", "gemma3"),
                         [](const auto& architecture) { return std::string(architecture.param); });

TEST(GpuTarget, WeightsOfAllTypesAreTheCpus) {
  for (const DType type : {DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                           DType::kQ8_0, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K,
                           DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4}) {
    SCOPED_TRACE(std::string(Info(type).name));
    TwoTargets both(
        {.n_layers = 1, .n_embd = 256, .n_ff = 256, .dtype = type, .embedding_dtype = DType::kQ8_0});
    OnBoth on(both);
    const auto text = on.New();
    on.Pass({&text}, {{.tokens = RandomTokens(3)}});
    on.Pass({&text}, {{.tokens = RandomTokens(10, 2)}});
  }
}

TEST(GpuTarget, CachesOfAllTypesAreTheCpus) {
  for (const CacheType type :
       {CacheType::kF32, CacheType::kF16, CacheType::kQ8_0, CacheType::kQ4_0, CacheType::kI8}) {
    SCOPED_TRACE(std::string(CacheTypeName(type)));
    TwoTargets both({.n_layers = 1, .head_dim = 32});
    OnBoth on(both, type);
    const auto text = on.New();
    const Tokens tokens = RandomTokens(300);
    // Up to a tree that lies on both sides of the end of a chunk.
    for (int at = 0; at < 250; at += 50)
      on.Pass({&text}, {{.tokens = Part(tokens, at, at + 50), .logits = LogitsFor::kLastRow}});
    on.Pass({&text}, {{.tokens = Part(tokens, 250, 253)}});
    on.Pass({&text}, {{.tokens = Part(tokens, 253, 260), .parents = kTree, .kept = {0, 2, 4, 5}}});
    on.Pass({&text}, {{.tokens = Part(tokens, 260, 267), .parents = kTree, .kept = {0, 1, 3}}});
    on.Pass({&text}, {{.tokens = Part(tokens, 267, 268)}});
    EXPECT_EQ(BytesOf(*text.on_cpu).size(), 2U);
  }
}

// Passes of few rows that launch the same again are a graph: what changes between them, tokens, positions,
// trees, chunks and logits, must not be what it was.
TEST(GpuTarget, PassesThatRepeatAreTheCpus) {
  TwoTargets both({.architecture = "gemma3", .n_layers = 7});
  OnBoth on(both);
  const auto text = on.New(), other = on.New();
  const Tokens tokens = RandomTokens(400);
  for (int at = 0; at < 240; at += 60)
    on.Pass({&text}, {{.tokens = Part(tokens, at, at + 60), .logits = LogitsFor::kNone}});
  const std::vector<int32_t> chain = {-1, 0, 1}, fan = {-1, 0, 0};
  int at = 240;
  // Up to behind the end of a chunk.
  for (int i = 0; i < 9; ++i) {
    on.Pass({&text}, {{.tokens = Part(tokens, at, at + 1)}});
    on.Pass({&text},
            {{.tokens = Part(tokens, at + 1, at + 4), .parents = i % 2 == 0 ? chain : fan, .kept = {0}}});
    at += 2;
    if (i % 3 == 2) on.Pass({&other}, {{.tokens = Part(tokens, 3 * i, 3 * i + 1)}});
    if (i == 5) on.Pass({&other}, {{.tokens = Part(tokens, 300, 350), .logits = LogitsFor::kLastRow}});
  }
}

TEST(GpuTarget, SequencesOfAPassAreTheCpusWhateverTheyShare) {
  TwoTargets both({});
  OnBoth on(both);
  const auto first = on.New();
  const Tokens tokens = RandomTokens(400);
  for (int at = 0; at < 300; at += 60)
    on.Pass({&first}, {{.tokens = Part(tokens, at, at + 60), .logits = LogitsFor::kNone}});
  const auto second = first.Fork(), third = first.Fork(), fourth = on.New();
  third.Truncate(270);
  on.Pass({&first, &second, &third, &fourth},
          {{.tokens = Part(tokens, 300, 301)},
           {.tokens = Part(tokens, 310, 317), .parents = kTree, .kept = {0, 1}},
           {.tokens = Part(tokens, 320, 340), .logits = LogitsFor::kLastRow},
           {.tokens = Part(tokens, 0, 12)}});
  on.Pass({&fourth, &third, &first, &second}, {{.tokens = Part(tokens, 12, 13)},
                                               {.tokens = Part(tokens, 340, 343)},
                                               {.tokens = Part(tokens, 350, 357), .parents = kTree},
                                               {.tokens = Part(tokens, 317, 318)}});
}

// The first chunk of a text on the card, what comes after it in memory of the host.
TEST(GpuTarget, ChunksInHostMemoryAreTheCpus) {
  TwoTargets both({});
  OnBoth on(both, CacheType::kF16, {.memory_chunks = 1, .to_host = true});
  const auto first = on.New();
  const Tokens tokens = RandomTokens(320);
  for (int at = 0; at < 300; at += 60)
    on.Pass({&first}, {{.tokens = Part(tokens, at, at + 60), .logits = LogitsFor::kLastRow}});
  const auto second = first.Fork();
  on.Pass({&first, &second}, {{.tokens = Part(tokens, 300, 307), .parents = kTree, .kept = {0, 2}},
                              {.tokens = Part(tokens, 310, 311)}});
}

// Those that a pass only reads are fetched a layer ahead, as many at a time as there is room for.
TEST(GpuTarget, ChunksThatAreFetchedAheadAreTheCpus) {
  const Tokens tokens = RandomTokens(900);
  for (const char* architecture : {"llama", "gemma3"}) {
    TwoTargets both({.architecture = architecture, .n_layers = 3});
    for (const size_t room : {size_t{1}, size_t{2}, size_t{8}}) {
      SCOPED_TRACE(std::string(architecture) + ", " + std::to_string(room));
      OnBoth on(both, CacheType::kF16, {.memory_chunks = 1, .to_host = true, .fetched_chunks = room});
      const auto first = on.Begun(Part(tokens, 0, 800));
      // Again and again, as graphs.
      for (int at = 800; at < 803; ++at) on.Pass({&first}, {{.tokens = Part(tokens, at, at + 1)}});
      on.Pass({&first}, {{.tokens = Part(tokens, 803, 810), .parents = kTree, .kept = {0, 2, 4}}});
      const auto second = first.Fork(), third = on.Begun(Part(tokens, 300, 600));
      on.Pass({&second, &first, &third},
              {{.tokens = Part(tokens, 810, 817), .parents = kTree, .kept = {0, 1}},
               {.tokens = Part(tokens, 820, 840), .logits = LogitsFor::kLastRow},
               {.tokens = Part(tokens, 600, 601)}});
      on.Pass({&first}, {{.tokens = Part(tokens, 840, 850), .logits = LogitsFor::kNone}});
    }
  }
}

TEST(GpuTarget, WhatIsTappedIsTheCpus) {
  TwoTargets both({.architecture = "qwen3"});
  OnBoth on(both);
  const auto text = on.New(), other = on.New();
  const Tokens tokens = RandomTokens(60);
  const Taps all = {.hidden_layers = {0, 1}, .final_hidden = true, .query_rows = 3},
             first = {.hidden_layers = {0}}, last = {.hidden_layers = {1}};
  on.Pass({&text}, {{.tokens = Part(tokens, 0, 20), .logits = LogitsFor::kNone, .taps = &all}});
  on.Pass({&text, &other}, {{.tokens = Part(tokens, 20, 27), .parents = kTree, .kept = {0, 2}, .taps = &all},
                            {.tokens = Part(tokens, 30, 40), .logits = LogitsFor::kNone, .taps = &first}});
  on.Pass({&other, &text}, {{.tokens = Part(tokens, 40, 45), .logits = LogitsFor::kNone, .taps = &last},
                            {.tokens = Part(tokens, 29, 30), .taps = &first}});
}

TEST(GpuTarget, RowsBegunAheadOfThePassAreTheCpus) {
  TwoTargets both({.n_layers = 4});
  // All but a first chunk in host memory, of which layers are fetched ahead.
  OnBoth on(both, CacheType::kF16, {.memory_chunks = 1, .to_host = true, .fetched_chunks = 1});
  const auto text = on.Begun(RandomTokens(600, 2)), other = on.New();
  const Tokens tokens = RandomTokens(60);
  on.Pass({&text, &other}, {{.tokens = Part(tokens, 0, 20)}, {.tokens = Part(tokens, 20, 30)}});
  const KvLayout layout = both.spec.kv_layout(CacheType::kF16, CacheType::kF16);
  std::vector<Given> given[2];
  for (const bool on_gpu : {false, true}) {
    Target& target = on_gpu ? *both.on_gpu : *both.on_cpu;
    KvCache& cache = on_gpu ? *text.on_gpu : *text.on_cpu;
    const auto prefix = target.NewPrefix(layout, 2);
    prefix->Clear(cache.length());
    const Tokens root = {31}, children = {32, 33};
    const std::vector<int32_t> no_parent = {-1}, parents = {0, 0};
    const PrefixSegment begin = {
        .cache = &cache, .tokens = root, .parents = no_parent, .prefix = prefix.get()};
    const PrefixSegment more = {
        .cache = &cache, .tokens = children, .parents = parents, .prefix = prefix.get()};
    ASSERT_TRUE(target.RunPrefix({&begin, 1}).ok());
    ASSERT_TRUE(target.RunPrefix({&more, 1}).ok());
    EXPECT_EQ(prefix->n_rows(), 3);
    // A row more than the prefix has, and a sequence without one.
    given[on_gpu ? 1 : 0] =
        Pass(target,
             {{.cache = &cache,
               .tokens = {31, 32, 33, 34},
               .parents = {-1, 0, 0, 2},
               .kept = {0, 2, 3},
               .prefix = prefix.get()},
              {.cache = on_gpu ? other.on_gpu.get() : other.on_cpu.get(), .tokens = Part(tokens, 30, 33)}});
  }
  for (size_t i = 0; i < 2; ++i) ExpectSame(given[0][i], given[1][i]);
  on.Pass({&text}, {{.tokens = Part(tokens, 40, 42)}});
}

TEST(GpuTarget, SequencesMoveBetweenTheCardAndTheCpu) {
  TwoTargets both({});
  OnBoth on(both);
  const auto text = on.New();
  const Tokens tokens = RandomTokens(320);
  for (int at = 0; at < 280; at += 56)
    on.Pass({&text}, {{.tokens = Part(tokens, at, at + 56), .logits = LogitsFor::kNone}});
  // Begun on the CPU and continued on the card, and the other way round.
  OnBoth::Sequence crossed = {Moved(*text.on_gpu, on.cpu_pool()), Moved(*text.on_cpu, on.gpu_pool())};
  on.Pass({&crossed}, {{.tokens = Part(tokens, 280, 287), .parents = kTree, .kept = {0, 1, 3}}});
  on.Pass({&crossed}, {{.tokens = Part(tokens, 287, 290)}});
}

TEST(GpuTarget, AttentionMassIsTheCpus) {
  TwoTargets both({});
  OnBoth on(both);
  const auto text = on.New();
  const Tokens tokens = RandomTokens(60);
  const Taps taps = {.query_rows = 1};
  on.Pass({&text}, {{.tokens = Part(tokens, 0, 40), .logits = LogitsFor::kNone}});
  std::vector<float> mass[2];
  for (const bool on_gpu : {false, true}) {
    Target& target = on_gpu ? *both.on_gpu : *both.on_cpu;
    KvCache& cache = on_gpu ? *text.on_gpu : *text.on_cpu;
    auto kv = cache.Begin(1);
    const ForwardSegment row = {
        .tokens = std::span(tokens).subspan(40, 1), .parents = {}, .kv = &*kv, .taps = &taps};
    const auto output = target.Forward({&row, 1});
    ASSERT_TRUE(output.ok());
    target.AttentionMass(cache, 1, output->segments[0].queries[1], &mass[on_gpu ? 1 : 0]);
  }
  EXPECT_FALSE(mass[0].empty());
  EXPECT_TRUE(SameBits(mass[0], mass[1]));
}

}  // namespace
}  // namespace longspec::testing
