// SPDX-License-Identifier: Apache-2.0
//
// The forward pass over a cache in which slots are not positions.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/testing/files.h"
#include "formats/tiny_model.h"
#include "kernels/dispatch.h"
#include "kv/full_cache.h"
#include "kv/streaming_cache.h"
#include "model/shared_parts.h"
#include "model/transformer.h"
#include "network/rope.h"
#include "sampling/testing/values_of.h"

namespace longspec {
namespace {

using Row = std::vector<float>;

struct StreamingModel {
  explicit StreamingModel(int n_layers) {
    const testing::Folder folder;
    const std::string path = folder.File("llama.gguf");
    TinyModelOptions tiny;
    tiny.n_layers = n_layers;
    EXPECT_TRUE(WriteTinyModel(tiny, path).ok());
    file = *GgufFile::Open(path);
    config = *ReadModelSpec(*file, {});
    ModelLoadOptions options;
    options.max_rows = 64;
    target = *LoadModel(file, config, {kernels::Available().front(), &team}, options);
  }

  KvLayout layout() const { return config.kv_layout(CacheType::kF32, CacheType::kF32); }
  std::unique_ptr<KvCache> Full() const { return MakeFullCache(layout(), config.n_layer, 1024); }
  std::unique_ptr<WorkingSet> Streaming(int sink, int window) const {
    return MakeStreamingCache(MakeHostPool(layout(), config.n_layer), sink, window);
  }
  // With positions inside the cache.
  std::unique_ptr<WorkingSet> Reindexed(int sink, int window, CacheType type = CacheType::kF32) const {
    const auto rope = std::make_shared<const RopeTable>(config.rope);
    return MakeStreamingCache(MakeHostPool(config.kv_layout(type, type), config.n_layer), sink, window,
                              {.kernels = target->shared_parts()->lane.kernels,
                               .pairing = config.rope.pairing,
                               .n_rot = rope->n_rot(),
                               .magnitude = rope->magnitude(),
                               .row = [rope](int p, float* cos_sin) { rope->Row(p, cos_sin); }});
  }

  // Runs the rows and commits those in `kept`; the logits of all of them.
  std::vector<Row> Run(KvCache& cache, std::span<const int32_t> tokens, std::span<const int32_t> parents,
                       std::span<const int32_t> kept) {
    auto rows = cache.Begin(static_cast<int>(tokens.size()));
    EXPECT_TRUE(rows.ok());
    const ForwardSegment segment = {
        .tokens = tokens, .parents = parents, .kv = &*rows, .logits = LogitsFor::kAllRows};
    const auto output = target->Forward({&segment, 1});
    EXPECT_TRUE(output.ok());
    std::vector<Row> logits;
    for (int i = 0; i < std::ssize(tokens); ++i) {
      const auto row = testing::ValuesOf(output->segments[0].logits[i]);
      logits.emplace_back(row.begin(), row.end());
    }
    rows->Commit(kept);
    return logits;
  }

  Row Feed(KvCache& cache, std::span<const int32_t> tokens) {
    Row last;
    for (const int32_t& token : tokens) last = Run(cache, {&token, 1}, {}, std::vector<int32_t>{0})[0];
    return last;
  }

  std::shared_ptr<const GgufFile> file;
  ModelSpec config;
  ThreadTeam team{2};
  std::unique_ptr<Target> target;
};

std::vector<int32_t> Tokens(int n) {
  std::mt19937 rng(4);
  std::vector<int32_t> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(static_cast<int32_t>(rng() % 380));
  return tokens;
}

bool SameRow(const Row& a, const Row& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double Distance(const Row& a, const Row& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(static_cast<double>(a[i] - b[i])));
  return most;
}

TEST(LlamaStreaming, NothingForgottenMeansTheBitsOfAFullCache) {
  StreamingModel model(2);
  const std::vector<int32_t> tokens = Tokens(290);
  const auto full = model.Full();
  const auto streaming = model.Reindexed(4, 300);
  // Chains and trees alike, across a chunk's border.
  const std::vector<int32_t> parents = {-1, 0, 0, 1, 2, 3};
  const std::vector<int32_t> kept = {0, 1, 3, 5};
  for (size_t at = 0; at + 6 <= tokens.size(); at += 6) {
    const bool tree = at % 12 == 0;
    const auto rows = std::span(tokens).subspan(at, 6);
    const auto expected = model.Run(*full, rows, tree ? parents : std::vector<int32_t>{}, kept);
    const auto actual = model.Run(*streaming, rows, tree ? parents : std::vector<int32_t>{}, kept);
    for (size_t i = 0; i < 6; ++i) ASSERT_TRUE(SameRow(actual[i], expected[i])) << at << " " << i;
  }
}

TEST(LlamaStreaming, FollowingAFullCacheGivesItsBits) {
  StreamingModel model(2);
  const std::vector<int32_t> tokens = Tokens(100);
  const auto full = model.Full();
  model.Feed(*full, std::span(tokens).first(90));
  const auto streaming = model.Reindexed(4, 200);
  ASSERT_TRUE(streaming->Follow(*full).ok());
  const auto rest = std::span(tokens).subspan(90);
  EXPECT_TRUE(SameRow(model.Feed(*streaming, rest), model.Feed(*full, rest)));
}

// In a model of one layer keys and values know their token and position only, and attention the distance: a
// window over the end of a long text sees what a full cache of that end alone does.
TEST(LlamaStreaming, RowsStandWhereTheTransactionSaysNotWhereTheirSlotsAre) {
  StreamingModel model(1);
  const std::vector<int32_t> tokens = Tokens(200);
  constexpr size_t kWindow = 40;
  const auto full = model.Full();
  model.Feed(*full, std::span(tokens).first(150));
  // The last row after 1, 2, ... rows of its own, which turn the ring.
  for (size_t n = 150; n < 200; n += n < 155 ? 1 : 15) {
    const auto streaming = model.Streaming(0, kWindow);
    ASSERT_TRUE(streaming->Follow(*full).ok());
    const Row windowed = model.Feed(*streaming, std::span(tokens).subspan(150, n - 149));
    const auto end_only = model.Full();
    const Row expected = model.Feed(*end_only, std::span(tokens).subspan(n - kWindow, kWindow + 1));
    EXPECT_LT(Distance(windowed, expected), 1e-3) << n;
    const auto all = model.Full();
    EXPECT_GT(Distance(windowed, model.Feed(*all, std::span(tokens).first(n + 1))), 1e-2) << n;
  }
}

// StreamingLLM's positions: what is seen of a text is what a full cache sees of the sinks and the window as
// one text, however much was forgotten between them, and taken back.
TEST(LlamaStreaming, SinksStandRightBeforeTheWindow) {
  StreamingModel model(1);
  const std::vector<int32_t> tokens = Tokens(260);
  constexpr size_t kSink = 4, kWindow = 36;
  const auto expect = [&](KvCache& cache, size_t n, double most) {
    const Row row = model.Feed(cache, std::span(tokens).subspan(n, 1));
    std::vector<int32_t> seen(tokens.begin(), tokens.begin() + kSink);
    seen.insert(seen.end(), tokens.begin() + static_cast<std::ptrdiff_t>(n - kWindow),
                tokens.begin() + static_cast<std::ptrdiff_t>(n + 1));
    const Row expected = model.Feed(*model.Full(), seen);
    EXPECT_LT(Distance(row, expected), most) << n;
    return Distance(row, expected);
  };
  const auto full = model.Full();
  model.Feed(*full, std::span(tokens).first(150));
  const auto reindexed = model.Reindexed(kSink, kWindow);
  ASSERT_TRUE(reindexed->Follow(*full).ok());
  for (size_t n = 150; n < 160; ++n) expect(*reindexed, n, 1e-3);
  // What is followed replaces what was drafted.
  model.Feed(*full, std::span(tokens).subspan(150, 20));
  ASSERT_TRUE(reindexed->Follow(*full).ok());
  expect(*reindexed, 170, 1e-3);
  // Of a model of its own: nothing is followed, and nothing wrong with a text that is begun anew.
  const auto own = model.Reindexed(kSink, kWindow);
  for (const size_t n : {250, 180}) {
    own->Truncate(0);
    model.Feed(*own, std::span(tokens).first(n));
    expect(*own, n, 1e-3);
  }
  // Keys of few bits, turned from what was stored and not from what was turned.
  const auto rounded = model.Reindexed(kSink, kWindow, CacheType::kF16);
  model.Feed(*rounded, std::span(tokens).first(200));
  for (size_t n = 200; n < 240; ++n) expect(*rounded, n, 2e-2);
  // Without turning, sinks are where they were.
  const auto streaming = model.Streaming(kSink, kWindow);
  ASSERT_TRUE(streaming->Follow(*full).ok());
  EXPECT_GT(expect(*streaming, 170, 1e9), 1e-2);
}

TEST(LlamaStreaming, WhatIsForgottenIsForgotten) {
  StreamingModel model(2);
  std::vector<int32_t> tokens = Tokens(120), other = tokens;
  for (size_t i = 4; i < 60; ++i) other[i] = (tokens[i] + 100) % 380;
  const auto logits = [&](const std::vector<int32_t>& text) {
    // Two layers of a window of 20 reach 40 positions back.
    const auto cache = model.Streaming(4, 20);
    return model.Feed(*cache, text);
  };
  EXPECT_LT(Distance(logits(tokens), logits(other)), 1e-3);
  other[2] += 1;  // a sink
  EXPECT_GT(Distance(logits(tokens), logits(other)), 1e-3);
}

}  // namespace
}  // namespace longspec
