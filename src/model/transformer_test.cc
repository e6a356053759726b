// SPDX-License-Identifier: Apache-2.0
//
// The forward pass on tiny random models: every way of cutting the same rows into calls gives the same bits.
#include "model/transformer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/testing/files.h"
#include "formats/tiny_model.h"
#include "kernels/dispatch.h"
#include "kv/full_cache.h"
#include "network/rope.h"
#include "sampling/testing/values_of.h"
#include "tensor/testing/values_of.h"

namespace longspec {
namespace {

using Row = std::vector<float>;

struct Model {
  std::shared_ptr<const GgufFile> file;
  ModelSpec config;
  std::unique_ptr<ThreadTeam> team;
  std::unique_ptr<Target> target;

  std::unique_ptr<KvCache> NewCache(CacheType type = CacheType::kF16) const {
    return MakeFullCache(config.kv_layout(type, type), config.n_layer, 1024);
  }
};

Model Load(const TinyModelOptions& tiny, int threads = 2,
           const kernels::KernelTable* table = kernels::Available().front(), int max_rows = 64,
           Bf16Arithmetic bf16_weights = Bf16Arithmetic::kF32) {
  const testing::Folder folder;
  const std::string path = folder.File("llama.gguf");
  EXPECT_TRUE(WriteTinyModel(tiny, path).ok());
  Model m;
  m.file = *GgufFile::Open(path);
  m.config = *ReadModelSpec(*m.file, {}, bf16_weights);
  m.team = std::make_unique<ThreadTeam>(threads);
  ModelLoadOptions options;
  options.max_rows = max_rows;
  m.target = *LoadModel(m.file, m.config, {table, m.team.get()}, options);
  return m;
}

std::vector<int32_t> SomeTokens(int n, unsigned seed = 1) {
  std::mt19937 rng(seed);
  std::vector<int32_t> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(static_cast<int32_t>(rng() % 380));
  return tokens;
}

std::vector<Row> Rows(const TargetOutput& output, size_t segment) {
  std::vector<Row> rows;
  const LogitRows& logits = output.segments[segment].logits;
  for (int i = 0; i < logits.size(); ++i) {
    rows.emplace_back(testing::ValuesOf(logits[i]).begin(), testing::ValuesOf(logits[i]).end());
  }
  return rows;
}

// Feeds the tokens in chunks and returns the logits of every one.
std::vector<Row> Feed(Model& m, KvCache& cache, const std::vector<int32_t>& tokens, size_t chunk) {
  std::vector<Row> rows;
  for (size_t at = 0; at < tokens.size(); at += chunk) {
    const size_t n = std::min(chunk, tokens.size() - at);
    auto transaction = cache.Begin(static_cast<int>(n));
    const ForwardSegment segment{.tokens = std::span(tokens).subspan(at, n),
                                 .parents = {},
                                 .kv = &*transaction,
                                 .logits = LogitsFor::kAllRows};
    const auto output = m.target->Forward({&segment, 1});
    EXPECT_TRUE(output.ok()) << output.status().message();
    for (Row& row : Rows(*output, 0)) rows.push_back(std::move(row));
    transaction->CommitAll();
  }
  return rows;
}

bool SameRows(const Row& a, const Row& b) {
  if (a.empty() || b.empty()) return a.empty() && b.empty();  // there is nothing to point at
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// With layers of every kind that it has.
TinyModelOptions TinyOf(const std::string& architecture) {
  TinyModelOptions tiny;
  tiny.architecture = architecture;
  if (architecture == "gemma3") tiny.n_layers = 7;
  return tiny;
}

class Architectures : public ::testing::TestWithParam<const char*> {};

TEST_P(Architectures, ChunksThreadsAndTablesDoNotChangeABit) {
  TinyModelOptions tiny = TinyOf(GetParam());
  tiny.head_dim = 48;  // n_heads * head_dim is not n_embd
  Model m = Load(tiny);
  const std::vector<int32_t> tokens = SomeTokens(70);
  const auto cache = m.NewCache();
  const std::vector<Row> one_by_one = Feed(m, *cache, tokens, 1);
  for (const kernels::KernelTable* table : kernels::Available()) {
    for (const int threads : {1, 3}) {
      Model other = Load(tiny, threads, table);
      const auto other_cache = other.NewCache();
      const std::vector<Row> rows = Feed(other, *other_cache, tokens, threads == 1 ? 7 : 33);
      for (size_t i = 0; i < rows.size(); ++i) {
        ASSERT_TRUE(SameRows(rows[i], one_by_one[i]))
            << table->name << ", " << threads << " threads, row " << i;
      }
    }
  }
}

// Attention that is measured alone changes nothing of what is computed.
TEST_P(Architectures, MeasuringAttentionChangesNothing) {
  const std::vector<int32_t> tokens = SomeTokens(30), tree = SomeTokens(4, 2);
  const std::vector<int32_t> parents = {-1, 0, 0, 1};
  Model m = Load(TinyOf(GetParam()));
  const auto cache = m.NewCache(), other = m.NewCache();
  const std::vector<Row> expected = Feed(m, *cache, tokens, 6);
  std::vector<Row> rows;
  for (size_t at = 0; at < tokens.size(); at += 6) {
    const std::vector<int32_t> next(tokens.begin() + static_cast<int>(at),
                                    tokens.begin() + static_cast<int>(at) + 6);
    {
      auto kv = other->Begin(4);
      const ForwardSegment segment{.tokens = tree, .parents = parents, .kv = &*kv};
      const auto ms = m.target->AttentionMs({&segment, 1});
      ASSERT_TRUE(ms.ok()) << ms.status().message();
      EXPECT_GT(*ms, 0);
    }
    for (Row& row : Feed(m, *other, next, 6)) rows.push_back(std::move(row));
  }
  ASSERT_EQ(rows.size(), expected.size());
  for (size_t i = 0; i < rows.size(); ++i) ASSERT_TRUE(SameRows(rows[i], expected[i])) << i;
}

// Pieces of a prompt, whose logits nobody asks for, leave their keys and values, and what is tapped is
// computed.
TEST_P(Architectures, WhatNobodyAsksForDoesNotChangeABitOfTheRest) {
  const std::vector<int32_t> tokens = SomeTokens(40);
  Model m = Load(TinyOf(GetParam()));
  const int last = m.config.n_layer - 1;
  const auto cache = m.NewCache();
  const std::vector<Row> expected = Feed(m, *cache, tokens, 8);
  const Taps of_last = {.hidden_layers = {last}}, of_final = {.final_hidden = true},
             of_first = {.hidden_layers = {0}}, of_queries = {.query_rows = 2};
  std::vector<float> tapped;  // with logits, and without
  for (const Taps* taps :
       std::initializer_list<const Taps*>{nullptr, &of_first, &of_last, &of_final, &of_queries}) {
    for (const LogitsFor logits : {LogitsFor::kLastRow, LogitsFor::kNone}) {
      const auto other = m.NewCache();
      auto kv = other->Begin(39);
      const ForwardSegment prompt{
          .tokens = std::span(tokens).first(39), .parents = {}, .kv = &*kv, .logits = logits, .taps = taps};
      const auto output = m.target->Forward({&prompt, 1});
      ASSERT_TRUE(output.ok());
      const TargetOutput::Segment& out = output->segments[0];
      StateRows rows = !out.hidden.empty() ? out.hidden[0] : out.final_hidden;
      if (rows.empty() && !out.queries.empty()) rows = out.queries[static_cast<size_t>(last)];
      EXPECT_EQ(rows.empty(), taps == nullptr);
      if (logits == LogitsFor::kLastRow) tapped = testing::ValuesOf(rows);
      if (logits == LogitsFor::kNone) {
        EXPECT_TRUE(SameRows(testing::ValuesOf(rows), tapped));
      }
      kv->CommitAll();
      auto next = other->Begin(1);
      const ForwardSegment root{.tokens = std::span(tokens).subspan(39), .parents = {}, .kv = &*next};
      const auto after = m.target->Forward({&root, 1});
      ASSERT_TRUE(after.ok());
      EXPECT_TRUE(SameRows(Rows(*after, 0)[0], expected[39]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Architectures, ::testing::Values("llama", "qwen2", "qwen3", "gemma3"),
                         [](const auto& architecture) { return std::string(architecture.param); });

// The weights of a tiny model depend on the seed, not on what it is called.
TEST(LlamaWithImages, RunsAsTheModelOfTextThatItHas) {
  for (const std::string text : {"qwen2", "qwen3"}) {
    Model alone = Load({.architecture = text}), with_images = Load({.architecture = text + "vl"});
    EXPECT_EQ(with_images.config.architecture, text + "vl");
    const auto cache = alone.NewCache(), other = with_images.NewCache();
    const std::vector<Row> expected = Feed(alone, *cache, SomeTokens(20), 7),
                           rows = Feed(with_images, *other, SomeTokens(20), 7);
    for (size_t i = 0; i < rows.size(); ++i)
      EXPECT_TRUE(SameRows(rows[i], expected[i])) << text << ", row " << i;
  }
}

// A window changes what a row sees, from the first row that stands behind more than it holds.
TEST(Windows, EndWhereTheySay) {
  TinyModelOptions narrow = TinyOf("gemma3"), wide = narrow;
  narrow.n_layers = wide.n_layers = 1;  // later layers would see further back
  wide.window = 400;
  Model a = Load(narrow), b = Load(wide);
  const auto of_a = a.NewCache(), of_b = b.NewCache();
  const std::vector<int32_t> tokens = SomeTokens(300);
  const std::vector<Row> in_window = Feed(a, *of_a, tokens, 50), all = Feed(b, *of_b, tokens, 50);
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(SameRows(in_window[static_cast<size_t>(i)], all[static_cast<size_t>(i)]), i < narrow.window)
        << i;
  }
  // What lies before the window is not seen: other tokens there change nothing.
  std::vector<int32_t> others = tokens;
  for (int i = 0; i < 295; ++i) others[static_cast<size_t>(i)] = tokens[static_cast<size_t>(299 - i)];
  const auto of_others = a.NewCache();
  EXPECT_TRUE(SameRows(Feed(a, *of_others, others, 64).back(), in_window.back()));
}

class LlamaCacheTypes : public ::testing::TestWithParam<std::pair<CacheType, CacheType>> {};

// Rows, threads and tables, for a head of 32, which every type can hold.
TEST_P(LlamaCacheTypes, ChunksThreadsAndTablesDoNotChangeABit) {
  TinyModelOptions tiny;
  tiny.n_heads = 2;
  tiny.n_kv_heads = 1;
  const auto new_cache = [](const Model& m) {
    return MakeFullCache(m.config.kv_layout(GetParam().first, GetParam().second), m.config.n_layer, 1024);
  };
  Model m = Load(tiny);
  const std::vector<int32_t> tokens = SomeTokens(270);
  const auto cache = new_cache(m);
  const std::vector<Row> one_by_one = Feed(m, *cache, tokens, 1);
  for (const kernels::KernelTable* table : kernels::Available()) {
    for (const int threads : {1, 3}) {
      Model other = Load(tiny, threads, table);
      const auto other_cache = new_cache(other);
      const std::vector<Row> rows = Feed(other, *other_cache, tokens, threads == 1 ? 7 : 33);
      for (size_t i = 0; i < rows.size(); ++i) {
        ASSERT_TRUE(SameRows(rows[i], one_by_one[i]))
            << table->name << ", " << threads << " threads, row " << i;
      }
    }
  }
  // And the type is not without effect.
  const auto f32 =
      MakeFullCache(m.config.kv_layout(CacheType::kF32, CacheType::kF32), m.config.n_layer, 1024);
  EXPECT_FALSE(SameRows(Feed(m, *f32, tokens, 64).back(), one_by_one.back()));
}

INSTANTIATE_TEST_SUITE_P(Types, LlamaCacheTypes,
                         ::testing::Values(std::pair{CacheType::kQ8_0, CacheType::kQ8_0},
                                           std::pair{CacheType::kQ4_0, CacheType::kQ4_0},
                                           std::pair{CacheType::kQ8_0, CacheType::kF16},
                                           std::pair{CacheType::kBF16, CacheType::kBF16},
                                           std::pair{CacheType::kBF16Amx, CacheType::kBF16Amx},
                                           std::pair{CacheType::kBF16Amx, CacheType::kF16},
                                           std::pair{CacheType::kI8, CacheType::kI8},
                                           std::pair{CacheType::kI8, CacheType::kF16},
                                           std::pair{CacheType::kF32, CacheType::kQ4_0}));

class LlamaTypes : public ::testing::TestWithParam<DType> {};

TEST_P(LlamaTypes, ChunksThreadsAndTablesDoNotChangeABit) {
  TinyModelOptions tiny;
  tiny.dtype = GetParam();
  if (Info(tiny.dtype).block_elements == 256) {
    tiny.n_embd = 256;
    tiny.n_ff = 256;
  }
  Model m = Load(tiny);
  const std::vector<int32_t> tokens = SomeTokens(270);
  const auto cache = m.NewCache();
  const std::vector<Row> one_by_one = Feed(m, *cache, tokens, 1);
  for (const size_t chunk : {2, 7, 33, 64}) {
    const auto other = m.NewCache();
    const std::vector<Row> rows = Feed(m, *other, tokens, chunk);
    for (size_t i = 0; i < rows.size(); ++i)
      ASSERT_TRUE(SameRows(rows[i], one_by_one[i])) << chunk << " row " << i;
  }
  for (const kernels::KernelTable* table : kernels::Available()) {
    for (const int threads : {1, 3}) {
      Model other = Load(tiny, threads, table);
      const auto other_cache = other.NewCache();
      const std::vector<int32_t> few(tokens.begin(), tokens.begin() + 20);
      const std::vector<Row> rows = Feed(other, *other_cache, few, 9);
      for (size_t i = 0; i < rows.size(); ++i)
        ASSERT_TRUE(SameRows(rows[i], one_by_one[i])) << table->name << " row " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, LlamaTypes,
                         ::testing::Values(DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                                           DType::kQ8_0, DType::kIQ4_NL, DType::kMXFP4, DType::kF16,
                                           DType::kBF16, DType::kF32, DType::kQ3_K, DType::kIQ4_XS,
                                           DType::kQ4_K, DType::kQ6_K),
                         [](const auto& type) { return std::string(Info(type.param).name); });

// As in a file whose widths are no multiples of 256 but for some: activations in super-blocks beside blocks
// of 32.
TEST(LlamaMixedTypes, MatricesOfBothArithmeticsStandInOneModel) {
  const TinyModelOptions tiny = {
      .n_embd = 256, .n_ff = 288, .dtype = DType::kQ8_0, .embedding_dtype = DType::kQ6_K};
  Model m = Load(tiny);
  const auto lines = DescribeArithmetic(m.config, *m.file);
  EXPECT_EQ(lines, (std::vector<std::pair<std::string, std::string>>{{"matmul Q8_0", "q8"},
                                                                     {"matmul Q6_K", "q8k"}}));
  const auto cache = m.NewCache();
  const std::vector<Row> one_by_one = Feed(m, *cache, SomeTokens(20), 1);
  for (const kernels::KernelTable* table : kernels::Available()) {
    Model other = Load(tiny, 3, table);
    const auto other_cache = other.NewCache();
    const std::vector<Row> rows = Feed(other, *other_cache, SomeTokens(20), 9);
    for (size_t i = 0; i < rows.size(); ++i)
      ASSERT_TRUE(SameRows(rows[i], one_by_one[i])) << table->name << " row " << i;
  }
}

class LlamaBf16Weights : public ::testing::TestWithParam<Bf16Arithmetic> {};

TEST_P(LlamaBf16Weights, ChunksThreadsAndTablesDoNotChangeABit) {
  TinyModelOptions tiny;
  tiny.dtype = DType::kBF16;
  tiny.n_ff = 96;
  Model m = Load(tiny, 2, kernels::Available().front(), 64, GetParam());
  const std::vector<int32_t> tokens = SomeTokens(70);
  const auto cache = m.NewCache();
  const std::vector<Row> one_by_one = Feed(m, *cache, tokens, 1);
  for (const kernels::KernelTable* table : kernels::Available()) {
    for (const int threads : {1, 3}) {
      Model other = Load(tiny, threads, table, 64, GetParam());
      const auto other_cache = other.NewCache();
      const std::vector<Row> rows = Feed(other, *other_cache, tokens, threads == 1 ? 7 : 33);
      for (size_t i = 0; i < rows.size(); ++i) {
        ASSERT_TRUE(SameRows(rows[i], one_by_one[i]))
            << table->name << ", " << threads << " threads, row " << i;
      }
    }
  }
  // It has an effect, and the one that rounding activations to 8 bits has.
  Model exact = Load(tiny);
  const auto exact_cache = exact.NewCache();
  const Row expected = Feed(exact, *exact_cache, tokens, 64).back(), &actual = one_by_one.back();
  EXPECT_FALSE(SameRows(expected, actual));
  double difference = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(double{expected[i]} - actual[i], 2);
    size += std::pow(double{expected[i]}, 2);
  }
  EXPECT_LT(std::sqrt(difference / size), 0.02);
  EXPECT_EQ(DescribeArithmetic(m.config, *m.file)[0].second,
            GetParam() == Bf16Arithmetic::kBF16 ? "bf16" : "bf16-amx");
}

INSTANTIATE_TEST_SUITE_P(Arithmetics, LlamaBf16Weights,
                         ::testing::Values(Bf16Arithmetic::kBF16, Bf16Arithmetic::kBF16Amx),
                         [](const auto& arithmetic) {
                           return arithmetic.param == Bf16Arithmetic::kBF16 ? "Bf16" : "Bf16Amx";
                         });

TEST_P(Architectures, ATreeRowIsThePathsLastRow) {
  TinyModelOptions tiny = TinyOf(GetParam());
  tiny.dtype = DType::kQ4_1;
  Model m = Load(tiny);
  const std::vector<int32_t> prefix = SomeTokens(250, 3), drafted = SomeTokens(30, 4);
  std::vector<int32_t> parents = {-1};
  std::mt19937 rng(9);
  for (int i = 1; i < 30; ++i) parents.push_back(static_cast<int32_t>(rng() % static_cast<unsigned>(i)));
  const auto cache = m.NewCache();
  Feed(m, *cache, prefix, 50);
  auto transaction = cache->Begin(30);
  const ForwardSegment tree{
      .tokens = drafted, .parents = parents, .kv = &*transaction, .logits = LogitsFor::kAllRows};
  const std::vector<Row> rows = Rows(*m.target->Forward({&tree, 1}), 0);
  for (const int node : {0, 7, 18, 29}) {
    std::vector<int32_t> path = prefix, tail;
    for (int32_t at = node; at >= 0; at = parents[static_cast<size_t>(at)])
      tail.push_back(drafted[static_cast<size_t>(at)]);
    path.insert(path.end(), tail.rbegin(), tail.rend());
    const auto plain = m.NewCache();
    EXPECT_TRUE(SameRows(Feed(m, *plain, path, 64).back(), rows[static_cast<size_t>(node)])) << node;
  }
}

TEST(Llama, SegmentsDoNotFeelEachOther) {
  Model m = Load({});
  const std::vector<int32_t> a = SomeTokens(40, 5), b = SomeTokens(20, 6);
  const auto alone_a = m.NewCache(), alone_b = m.NewCache(), cache_a = m.NewCache(), cache_b = m.NewCache();
  const std::vector<Row> rows_a = Feed(m, *alone_a, a, 40), rows_b = Feed(m, *alone_b, b, 20);
  const Taps taps = {.hidden_layers = {1}, .final_hidden = true};
  auto ta = cache_a->Begin(40);
  std::optional<KvTransaction> tb;
  if (auto rows = cache_b->Begin(20); rows.ok()) tb.emplace(std::move(*rows));
  const ForwardSegment segments[] = {
      {.tokens = a, .parents = {}, .kv = &*ta, .logits = LogitsFor::kLastRow},
      {.tokens = b, .parents = {}, .kv = &*tb, .logits = LogitsFor::kAllRows, .taps = &taps},
  };
  const auto output = m.target->Forward(segments);
  ASSERT_TRUE(output.ok());
  ASSERT_EQ(output->segments[0].logits.size(), 1);
  EXPECT_TRUE(SameRows(Rows(*output, 0)[0], rows_a.back()));
  for (size_t i = 0; i < 20; ++i) EXPECT_TRUE(SameRows(Rows(*output, 1)[i], rows_b[i])) << i;
  // Taps belong to a segment, and so do the rows whose logits are wanted.
  EXPECT_TRUE(output->segments[0].hidden.empty());
  ASSERT_EQ(output->segments[1].hidden.size(), 1U);
  const std::vector<float> tapped = testing::ValuesOf(output->segments[1].hidden[0]);
  ASSERT_EQ(tapped.size(), 20U * 64U);
  tb.reset();
  auto again = cache_b->Begin(20);
  const ForwardSegment later = {.tokens = b, .kv = &*again, .first_logits = 18, .taps = &taps};
  const auto second = m.target->Forward({&later, 1});
  ASSERT_TRUE(second.ok());
  ASSERT_EQ(second->segments[0].logits.size(), 2);
  EXPECT_TRUE(SameRows(Rows(*second, 0)[0], rows_b[18]));
  EXPECT_TRUE(SameRows(testing::ValuesOf(second->segments[0].hidden[0]), tapped));
}

TEST(Llama, TapsShowTheResidualStreamAndWhatTheHeadSees) {
  Model m = Load({});
  const std::vector<int32_t> tokens = SomeTokens(12);
  const auto cache = m.NewCache();
  auto transaction = cache->Begin(12);
  const Taps taps = {.hidden_layers = {0, 1}, .final_hidden = true};
  const ForwardSegment segment{
      .tokens = tokens, .parents = {}, .kv = &*transaction, .logits = LogitsFor::kNone, .taps = &taps};
  const auto output = m.target->Forward({&segment, 1});
  ASSERT_TRUE(output.ok());
  const auto& out = output->segments[0];
  EXPECT_EQ(out.logits.size(), 0);
  ASSERT_EQ(out.hidden.size(), 2U);
  // The final norm of the last layer's output is the final hidden state.
  const TensorView* norm = m.file->FindTensor("output_norm.weight");
  const std::vector<float> hidden = testing::ValuesOf(out.hidden[1]),
                           final_hidden = testing::ValuesOf(out.final_hidden);
  ASSERT_EQ(final_hidden.size(), 12U * 64U);
  for (int row = 0; row < 12; ++row) {
    float expected[64];
    const auto at = static_cast<size_t>(row) * 64;
    kernels::Available().front()->rms_norm(hidden.data() + at, reinterpret_cast<const float*>(norm->data), 64,
                                           m.config.rms_eps, expected);
    EXPECT_EQ(std::memcmp(expected, final_hidden.data() + at, sizeof(expected)), 0) << row;
  }
}

// The queries of the last rows of a segment, beside another one, against a loop over the first layer's
// weights; and they are the same bits however the rows are cut into calls, in every layer.
TEST(Llama, TapsShowTheRotatedQueries) {
  Model m = Load({.dtype = DType::kF32});
  const ModelSpec& c = m.config;
  const std::vector<int32_t> tokens = SomeTokens(9), other = SomeTokens(5, 3);
  const auto first = m.NewCache(), second = m.NewCache();
  auto of_first = first->Begin(9), of_second = second->Begin(5);
  const Taps taps = {.query_rows = 4};
  const ForwardSegment segments[] = {{.tokens = other, .parents = {}, .kv = &*of_second},
                                     {.tokens = tokens, .parents = {}, .kv = &*of_first, .taps = &taps}};
  const auto output = m.target->Forward(segments);
  ASSERT_TRUE(output.ok());
  EXPECT_EQ(output->segments[0].n_query_rows(), 0);
  const auto& out = output->segments[1];
  ASSERT_EQ(out.n_query_rows(), 4);
  ASSERT_EQ(out.queries.size(), static_cast<size_t>(c.n_layer));
  std::vector<Row> expected;  // by layer
  for (const StateRows& layer : out.queries) expected.push_back(testing::ValuesOf(layer));
  const auto tensor = [&](const char* name) {
    return reinterpret_cast<const float*>(m.file->FindTensor(name)->data);
  };
  const float *norm = tensor("blk.0.attn_norm.weight"), *weights = tensor("blk.0.attn_q.weight");
  const auto width = static_cast<size_t>(c.n_embd), q_width = static_cast<size_t>(c.n_head * c.head_dim);
  const RopeTable rope(c.rope);
  for (size_t row = 0; row < 4; ++row) {
    const float* x = tensor("token_embd.weight") + static_cast<size_t>(tokens[5 + row]) * width;
    double square = 0;
    for (size_t i = 0; i < width; ++i) square += double{x[i]} * double{x[i]};
    const double scale = 1 / std::sqrt(square / static_cast<double>(width) + double{c.rms_eps});
    std::vector<double> q(q_width);
    for (size_t o = 0; o < q_width; ++o) {
      for (size_t i = 0; i < width; ++i)
        q[o] += double{x[i]} * scale * double{norm[i]} * double{weights[o * width + i]};
    }
    std::vector<float> turn(static_cast<size_t>(c.rope.n_rot));
    rope.Row(static_cast<int>(5 + row), turn.data());
    for (size_t at = 0; at < q_width; at += static_cast<size_t>(c.head_dim)) {
      for (size_t i = 0; i < turn.size(); i += 2) {  // adjacent pairs
        const double a = q[at + i], b = q[at + i + 1];
        q[at + i] = a * double{turn[i]} - b * double{turn[i + 1]};
        q[at + i + 1] = a * double{turn[i + 1]} + b * double{turn[i]};
      }
    }
    for (size_t o = 0; o < q_width; ++o)
      EXPECT_NEAR(expected[0][row * q_width + o], q[o], 1e-5) << row << " " << o;
  }
  const auto third = m.NewCache();
  {
    auto rows = third->Begin(6);
    const ForwardSegment begin = {.tokens = std::span(tokens).first(6), .parents = {}, .kv = &*rows};
    ASSERT_TRUE(m.target->Forward({&begin, 1}).ok());
    rows->CommitAll();
  }
  auto rows = third->Begin(3);
  const ForwardSegment end = {
      .tokens = std::span(tokens).last(3), .parents = {}, .kv = &*rows, .taps = &taps};
  const auto again = m.target->Forward({&end, 1});
  ASSERT_TRUE(again.ok());
  ASSERT_EQ(again->segments[0].n_query_rows(), 3);
  for (size_t layer = 0; layer < expected.size(); ++layer) {
    const Row queries = testing::ValuesOf(again->segments[0].queries[layer]);
    ASSERT_EQ(queries.size(), 3 * q_width);
    EXPECT_EQ(std::memcmp(expected[layer].data() + q_width, queries.data(), 3 * q_width * sizeof(float)), 0);
  }
}

TEST(Llama, RefusesWhatItCannotRun) {
  Model m = Load({});
  const auto cache = m.NewCache();
  const std::vector<int32_t> bad = {5, 1000000};
  {
    auto transaction = cache->Begin(2);
    const ForwardSegment segment{
        .tokens = bad, .parents = {}, .kv = &*transaction, .logits = LogitsFor::kNone};
    const auto output = m.target->Forward({&segment, 1});
    ASSERT_FALSE(output.ok());
    EXPECT_NE(output.status().message().find("1000000"), std::string::npos);
  }
  const std::vector<int32_t> many = SomeTokens(65);
  auto transaction = cache->Begin(65);
  const ForwardSegment segment{
      .tokens = many, .parents = {}, .kv = &*transaction, .logits = LogitsFor::kNone};
  const auto output = m.target->Forward({&segment, 1});
  ASSERT_FALSE(output.ok());
  EXPECT_NE(output.status().message().find("65 rows"), std::string::npos);
}

TEST(Llama, LoadingReportsProgressAndCanBeCancelled) {
  Model m = Load({});
  std::vector<double> shares;
  ModelLoadOptions options;
  const CpuLane lane = {kernels::Available().front(), m.team.get()};
  options.on_progress = [&](double share) {
    shares.push_back(share);
    return true;
  };
  ASSERT_TRUE(LoadModel(m.file, m.config, lane, options).ok());
  EXPECT_GE(shares.size(), 15U);
  EXPECT_DOUBLE_EQ(shares.back(), 1.0);
  options.on_progress = [](double) { return false; };
  const auto cancelled = LoadModel(m.file, m.config, lane, options);
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.status().code(), StatusCode::kCancelled);
}

// A file that names the length before scaling has the one after it as its own.
TEST(Llama, TheContextIsScaledOnce) {
  const auto context = [](const std::string& scaling, int length, int original) {
    TinyModelOptions tiny;
    tiny.context_length = length;
    tiny.rope_scaling = scaling;
    tiny.rope_original_context = original;
    if (!scaling.empty()) tiny.rope_scaling_numbers = {{"factor", 4}};
    return Load(tiny).target->context_length();
  };
  EXPECT_EQ(context("", 512, 0), 512);
  EXPECT_EQ(context("linear", 512, 0), 2048);
  EXPECT_EQ(context("yarn", 512, 0), 2048);
  EXPECT_EQ(context("yarn", 512, 128), 512);
  EXPECT_EQ(context("yarn", 128, 128), 512);
}

TEST(Llama, ThePlanKnowsTheWeights) {
  Model m = Load({});
  const ModelMemory one = PlanModelMemory(m.config, *m.file, 1),
                    many = PlanModelMemory(m.config, *m.file, 512);
  EXPECT_EQ(one.weights, many.weights);
  EXPECT_GT(many.scratch, one.scratch);
  uint64_t stored = 0;
  for (const TensorView& t : m.file->tensors()) stored += t.n_rows() > 1 ? t.n_bytes : 0;
  EXPECT_GE(one.weights, stored);  // F32 weights stay F32; rows are padded to groups of 16
  EXPECT_LE(one.weights, stored * 11 / 10);
}

}  // namespace
}  // namespace longspec
