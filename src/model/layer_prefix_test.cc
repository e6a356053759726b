// SPDX-License-Identifier: Apache-2.0
//
// Rows whose first layers were run ahead: whatever part of a pass they are, it gives the bits that it gives
// from the start.
#include "model/layer_prefix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/size.h"
#include "formats/tiny_model.h"
#include "kernels/dispatch.h"
#include "kv/full_cache.h"
#include "kv/streaming_cache.h"
#include "model/transformer.h"
#include "sampling/testing/values_of.h"
#include "tensor/testing/values_of.h"

namespace longspec {
namespace {

constexpr int kLayers = 5;
const Taps kNoTaps;

std::vector<int32_t> Tokens(int n, unsigned seed) {
  std::mt19937 rng(seed);
  std::vector<int32_t> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(static_cast<int32_t>(rng() % 380));
  return tokens;
}

class PrefixModel {
 public:
  explicit PrefixModel(int threads = 2, const kernels::KernelTable* table = kernels::Available().front(),
                       CacheType type = CacheType::kF16, DType dtype = DType::kQ4_1,
                       const std::string& architecture = "llama")
      : type_(type), team_(threads) {
    bytes_ = *TinyModelBytes({.architecture = architecture,
                              .n_layers = kLayers,
                              .n_heads = 4,
                              .n_kv_heads = 2,
                              .head_dim = 32,
                              .dtype = dtype});
    const auto file = *GgufFile::Parse(bytes_, "tiny");
    config = *ReadModelSpec(*file, {});
    target = *LoadModel(file, config, {table, &team_}, {.max_rows = 64});
  }

  KvLayout layout() const { return config.kv_layout(type_, type_); }
  std::unique_ptr<KvCache> NewCache(std::span<const int32_t> tokens) {
    auto cache = MakeFullCache(layout(), config.n_layer, 1024);
    Append(*cache, tokens);
    return cache;
  }
  void Append(KvCache& cache, std::span<const int32_t> tokens) {
    for (; !tokens.empty(); tokens = tokens.subspan(std::min<size_t>(50, tokens.size()))) {
      const auto part = tokens.first(std::min<size_t>(50, tokens.size()));
      auto rows = cache.Begin(static_cast<int>(part.size()));
      const ForwardSegment segment = {.tokens = part, .kv = &*rows, .logits = LogitsFor::kNone};
      ASSERT_TRUE(target->Forward({&segment, 1}).ok());
      rows->CommitAll();
    }
  }
  Status Run(const PrefixSegment& segment) { return target->RunPrefix({&segment, 1}); }
  LayerPrefix NewPrefix(int n_layers, const KvCache& cache) const {
    LayerPrefix prefix(MakeHostPool(layout(), n_layers), config.n_embd);
    prefix.Clear(cache.length());
    return prefix;
  }

  ModelSpec config;
  std::unique_ptr<Target> target;

 private:
  CacheType type_;
  std::vector<std::byte> bytes_;
  ThreadTeam team_;
};

struct Tree {
  std::vector<int32_t> tokens, parents;  // parents empty: a chain

  int ParentOf(int row) const { return parents.empty() ? row - 1 : parents[Z(row)]; }
  int DepthOf(int row) const { return row < 0 ? -1 : DepthOf(ParentOf(row)) + 1; }
};

Tree Chain(int n) { return {.tokens = Tokens(n, 4), .parents = {}}; }

// Siblings differ, since their tokens do.
Tree Branches(int n) {
  Tree tree = Chain(n);
  for (int i = 0; i < n; ++i) tree.tokens[Z(i)] = (tree.tokens[Z(i)] / 40) * 40 + i;
  std::mt19937 rng(9);
  tree.parents = {-1};
  for (int i = 1; i < n; ++i) tree.parents.push_back(static_cast<int32_t>(rng() % Z(i)));
  return tree;
}

// Runs the rows `wanted` of the tree, whose ancestors are among them, level by level.
void RunLevels(PrefixModel& m, const KvCache& cache, const Tree& tree, const std::vector<bool>& wanted,
               LayerPrefix& prefix) {
  std::vector<int> row_of(wanted.size(), -1);
  for (int depth = 0; depth < static_cast<int>(wanted.size()); ++depth) {
    std::vector<int32_t> tokens, parents;
    for (int i = 0; i < static_cast<int>(wanted.size()); ++i) {
      if (!wanted[Z(i)] || tree.DepthOf(i) != depth) continue;
      row_of[Z(i)] = prefix.n_rows() + static_cast<int>(tokens.size());
      tokens.push_back(tree.tokens[Z(i)]);
      parents.push_back(tree.ParentOf(i) < 0 ? -1 : row_of[Z(tree.ParentOf(i))]);
    }
    const Status status = m.Run({.cache = &cache, .tokens = tokens, .parents = parents, .prefix = &prefix});
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

// The row of a prefix that is this one of the tree.
int RowOf(const LayerPrefix& prefix, const Tree& tree, int row) {
  return row < 0 ? -1 : prefix.Find(RowOf(prefix, tree, tree.ParentOf(row)), tree.tokens[Z(row)]);
}

void AddTo(std::vector<float>* all, const StateRows& rows) {
  const std::vector<float> values = testing::ValuesOf(rows);
  all->insert(all->end(), values.begin(), values.end());
}

// What a pass over the rows gives: logits of all, then what was tapped, then the keys and values of all
// layers.
std::vector<float> Pass(PrefixModel& m, KvCache& cache, const Tree& tree, const LayerPrefix* prefix,
                        const Taps& taps = kNoTaps) {
  auto rows = cache.Begin(static_cast<int>(tree.tokens.size()));
  const ForwardSegment segment = {
      .tokens = tree.tokens, .parents = tree.parents, .kv = &*rows, .taps = &taps, .prefix = prefix};
  const auto output = m.target->Forward({&segment, 1});
  EXPECT_TRUE(output.ok()) << output.status().message();
  const TargetOutput::Segment& out = output->segments[0];
  const size_t n = tree.tokens.size();
  const float* const logits = testing::ValuesOf(out.logits[0]).data();
  std::vector<float> all(logits, logits + n * Z(output->vocab));
  for (const StateRows& hidden : out.hidden) AddTo(&all, hidden);
  AddTo(&all, out.final_hidden);
  for (int layer = 0; layer < m.config.n_layer; ++layer) {
    for (size_t row = 0; row < n; ++row) {
      for (int head = 0; head < m.config.n_head_kv; ++head) {
        for (int d = 0; d < m.config.head_dim; ++d) {
          const int slot = rows->slot() + static_cast<int>(row);
          all.push_back(cache.Span(layer).KeyAt(slot, head, d));
          all.push_back(cache.Span(layer).ValueAt(slot, head, d));
        }
      }
    }
  }
  return all;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// A part of the tree that is closed under parents: all rows, the first ones, or some.
std::vector<bool> Part(const Tree& tree, int which) {
  std::vector<bool> part(tree.tokens.size(), true);
  std::mt19937 rng(static_cast<unsigned>(which));
  for (int i = 0; i < static_cast<int>(part.size()) && which > 0; ++i) {
    const int parent = tree.ParentOf(i);
    part[Z(i)] = (parent < 0 || part[Z(parent)]) && (which == 1 ? i < 3 : rng() % 4 != 0);
  }
  return part;
}

void ExpectTheBitsOfRowsRunFromTheStart(PrefixModel& m, int n_committed) {
  const Taps taps = {.hidden_layers = {2, 4}, .final_hidden = true};
  const auto cache = m.NewCache(Tokens(n_committed, 3));
  for (const Tree& tree : {Chain(20), Branches(20)}) {
    const std::vector<float> expected = Pass(m, *cache, tree, nullptr, taps);
    for (const auto& [n_layers, which] : {std::pair{1, 2}, {3, 0}, {3, 1}, {3, 2}}) {
      SCOPED_TRACE(std::string(tree.parents.empty() ? "chain" : "tree") + " after " +
                   std::to_string(n_committed) + ", " + std::to_string(n_layers) + " layers, part " +
                   std::to_string(which));
      LayerPrefix prefix = m.NewPrefix(n_layers, *cache);
      RunLevels(m, *cache, tree, Part(tree, which), prefix);
      EXPECT_TRUE(SameBits(Pass(m, *cache, tree, &prefix, taps), expected));
    }
  }
}

TEST(LayerPrefix, RowsRunAheadGiveTheBitsOfRowsRunFromTheStart) {
  for (const kernels::KernelTable* table : kernels::Available()) {
    SCOPED_TRACE(table->name);
    PrefixModel one(1, table, CacheType::kF16), two(2, table, CacheType::kQ8_0, DType::kF32),
        together(2, table, CacheType::kBF16Amx), integers(2, table, CacheType::kI8),  // 32 values a sum
        windows(2, table, CacheType::kF16, DType::kQ4_1, "gemma3");
    ExpectTheBitsOfRowsRunFromTheStart(one, 0);
    ExpectTheBitsOfRowsRunFromTheStart(one, 37);
    ExpectTheBitsOfRowsRunFromTheStart(two, 250);  // the rows lie in two chunks
    ExpectTheBitsOfRowsRunFromTheStart(together, 37);
    ExpectTheBitsOfRowsRunFromTheStart(integers, 37);
    ExpectTheBitsOfRowsRunFromTheStart(windows, 250);
  }
}

TEST(LayerPrefix, MayBeOfAllLayers) {
  PrefixModel m;
  const auto cache = m.NewCache(Tokens(30, 3));
  const Tree tree = Branches(12);
  const std::vector<float> expected = Pass(m, *cache, tree, nullptr);
  for (const int which : {0, 1, 2}) {
    LayerPrefix prefix = m.NewPrefix(kLayers, *cache);
    RunLevels(m, *cache, tree, Part(tree, which), prefix);
    EXPECT_TRUE(SameBits(Pass(m, *cache, tree, &prefix), expected));
  }
}

// Rows of the prefix that the pass does not have, in an order of their own, and rows that only it has.
TEST(LayerPrefix, RowsThatNobodyAsksForChangeNothing) {
  PrefixModel m;
  const auto cache = m.NewCache(Tokens(60, 3));
  const Tree grown = Branches(24);
  LayerPrefix prefix = m.NewPrefix(2, *cache);
  RunLevels(m, *cache, grown, Part(grown, 2), prefix);
  Tree kept;  // every other subtree below the root's
  std::vector<int> row_of(grown.tokens.size(), -1);
  for (int i = 0; i < 24; ++i) {
    const int parent = grown.ParentOf(i);
    if (i > 0 && (row_of[Z(parent)] < 0 || i % 3 == 1)) continue;
    row_of[Z(i)] = static_cast<int>(kept.tokens.size());
    kept.tokens.push_back(grown.tokens[Z(i)]);
    kept.parents.push_back(i == 0 ? -1 : row_of[Z(parent)]);
  }
  kept.tokens.push_back(379);
  kept.parents.push_back(1);
  ASSERT_GT(kept.tokens.size(), 6U);
  ASSERT_LT(kept.tokens.size(), 24U);
  EXPECT_TRUE(SameBits(Pass(m, *cache, kept, &prefix), Pass(m, *cache, kept, nullptr)));
  // And nothing that it asks for: another root.
  kept.tokens[0] = 378;
  EXPECT_TRUE(SameBits(Pass(m, *cache, kept, &prefix), Pass(m, *cache, kept, nullptr)));
}

// What a prefix holds is what is used, or nothing would be saved; and a row's error stays its own and its
// descendants'.
TEST(LayerPrefix, IsWhatThePassGoesOnFrom) {
  PrefixModel m;
  const auto cache = m.NewCache(Tokens(60, 3));
  const Tree tree = {.tokens = Tokens(5, 4), .parents = {-1, 0, 0, 1, 2}};
  const std::vector<float> expected = Pass(m, *cache, tree, nullptr);
  LayerPrefix prefix = m.NewPrefix(3, *cache);
  RunLevels(m, *cache, tree, {true, true, true, false, false}, prefix);
  ASSERT_EQ(prefix.n_rows(), 3);
  prefix.hidden(1)[7] += 1;  // of row 1, and so what its child 3 sees
  const std::vector<float> poked = Pass(m, *cache, tree, &prefix);
  const auto vocab = Z(m.config.n_vocab);
  for (size_t row = 0; row < 5; ++row) {
    const bool same = std::memcmp(&poked[row * vocab], &expected[row * vocab], vocab * sizeof(float)) == 0;
    EXPECT_EQ(same, row != 1 && row != 3) << row;
  }
  // Where a layer is tapped that it has no residual stream of, it is left alone.
  const Taps early = {.hidden_layers = {1}};
  EXPECT_TRUE(SameBits(Pass(m, *cache, tree, &prefix, early), Pass(m, *cache, tree, nullptr, early)));
  const Taps own = {.hidden_layers = {2}};
  EXPECT_FALSE(SameBits(Pass(m, *cache, tree, &prefix, own), Pass(m, *cache, tree, nullptr, own)));
  // So is one of another position.
  m.Append(*cache, Tokens(1, 8));
  EXPECT_TRUE(SameBits(Pass(m, *cache, tree, &prefix), Pass(m, *cache, tree, nullptr)));
}

TEST(LayerPrefix, SequencesOfAPassMayHaveOnesOfTheirOwn) {
  PrefixModel m;
  const Tree trees[] = {Branches(9), Chain(7), Branches(11), Chain(1)};
  const int n_layers[] = {2, 0, 4, 2};  // 0: none
  std::vector<std::unique_ptr<KvCache>> caches;
  std::vector<std::vector<float>> expected;
  std::vector<LayerPrefix> prefixes;
  std::vector<KvTransaction> rows;
  for (size_t s = 0; s < 4; ++s) {
    caches.push_back(m.NewCache(Tokens(20 + 90 * static_cast<int>(s), 3)));  // the same beginning
    expected.push_back(Pass(m, *caches[s], trees[s], nullptr));
    prefixes.push_back(m.NewPrefix(std::max(n_layers[s], 1), *caches[s]));
    if (n_layers[s] > 0) RunLevels(m, *caches[s], trees[s], Part(trees[s], s == 3 ? 0 : 2), prefixes[s]);
  }
  std::vector<ForwardSegment> segments;
  rows.reserve(4);
  for (size_t s = 0; s < 4; ++s) {
    rows.push_back(*caches[s]->Begin(static_cast<int>(trees[s].tokens.size())));
    segments.push_back({.tokens = trees[s].tokens,
                        .parents = trees[s].parents,
                        .kv = &rows[s],
                        .prefix = n_layers[s] > 0 ? &prefixes[s] : nullptr});
  }
  const auto output = m.target->Forward(segments);
  ASSERT_TRUE(output.ok());
  for (size_t s = 0; s < 4; ++s) {
    const size_t n = trees[s].tokens.size() * Z(output->vocab);
    EXPECT_EQ(std::memcmp(testing::ValuesOf(output->segments[s].logits[0]).data(), expected[s].data(),
                          n * sizeof(float)),
              0)
        << s;
  }
}

// A cache in which slots are not positions.
TEST(LayerPrefix, ReadsTheSlotsOfACacheThatForgets) {
  PrefixModel m;
  const auto cache = MakeStreamingCache(MakeHostPool(m.layout(), kLayers), 4, 20);
  m.Append(*cache, Tokens(20, 3));
  for (const int32_t token : Tokens(9, 5)) m.Append(*cache, {&token, 1});
  ASSERT_LT(cache->n_slots(), cache->length());
  const Tree tree = Branches(10);
  LayerPrefix prefix = m.NewPrefix(3, *cache);
  RunLevels(m, *cache, tree, Part(tree, 2), prefix);
  EXPECT_TRUE(SameBits(Pass(m, *cache, tree, &prefix), Pass(m, *cache, tree, nullptr)));
}

// Rows of several sequences in one pass: each gets the bits of a pass of its own.
TEST(LayerPrefix, SequencesShareAPass) {
  PrefixModel m;
  const std::vector<Tree> trees = {Chain(3), Branches(9), Chain(1), Branches(20)};
  std::vector<std::unique_ptr<KvCache>> caches;
  std::vector<LayerPrefix> together;
  std::vector<PrefixSegment> segments;
  together.reserve(trees.size());
  std::vector<std::vector<int32_t>> parents;
  for (size_t i = 0; i < trees.size(); ++i) {
    caches.push_back(m.NewCache(Tokens(5 + 90 * static_cast<int>(i), 3 + i)));
    together.push_back(m.NewPrefix(2, *caches[i]));
    parents.emplace_back();
    for (int row = 0; row < static_cast<int>(trees[i].tokens.size()); ++row) {
      parents[i].push_back(trees[i].ParentOf(row));
    }
  }
  // Rows see the rows above them only when those have been run: one level at a time.
  for (int depth = 0; depth < 20; ++depth) {
    segments.clear();
    std::vector<std::vector<int32_t>> tokens(trees.size()), below(trees.size());
    for (size_t i = 0; i < trees.size(); ++i) {
      for (int row = 0; row < static_cast<int>(trees[i].tokens.size()); ++row) {
        if (trees[i].DepthOf(row) != depth) continue;
        const int above = parents[i][Z(row)];
        tokens[i].push_back(trees[i].tokens[Z(row)]);
        below[i].push_back(above < 0 ? -1 : RowOf(together[i], trees[i], above));
      }
      segments.push_back(
          {.cache = caches[i].get(), .tokens = tokens[i], .parents = below[i], .prefix = &together[i]});
    }
    ASSERT_TRUE(m.target->RunPrefix(segments).ok());
  }
  for (size_t i = 0; i < trees.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(together[i].n_rows(), static_cast<int>(trees[i].tokens.size()));
    EXPECT_TRUE(
        SameBits(Pass(m, *caches[i], trees[i], &together[i]), Pass(m, *caches[i], trees[i], nullptr)));
    LayerPrefix alone = m.NewPrefix(2, *caches[i]);
    RunLevels(m, *caches[i], trees[i], std::vector<bool>(trees[i].tokens.size(), true), alone);
    for (int row = 0; row < alone.n_rows(); ++row) {
      EXPECT_EQ(std::memcmp(alone.hidden(row), together[i].hidden(row), Z(m.config.n_embd) * sizeof(float)),
                0);
    }
  }
}

TEST(LayerPrefix, WhatCannotBeRunLeavesItAsItWas) {
  PrefixModel m;
  const auto cache = m.NewCache(Tokens(10, 3));
  LayerPrefix prefix = m.NewPrefix(2, *cache);
  const std::vector<int32_t> good = {5, 6}, bad = {7, 1000000}, parents = {-1, 0};
  const auto run = [&](const std::vector<int32_t>& tokens, const std::vector<int32_t>& below) {
    return m.Run({.cache = cache.get(), .tokens = tokens, .parents = below, .prefix = &prefix});
  };
  ASSERT_TRUE(run(good, parents).ok());
  const Status refused = run(bad, parents);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.message().find("1000000"), std::string::npos);
  const Status many = run(Tokens(65, 1), std::vector<int32_t>(65, 1));
  ASSERT_FALSE(many.ok());
  EXPECT_NE(many.message().find("65 rows"), std::string::npos);
  EXPECT_EQ(prefix.n_rows(), 2);
  EXPECT_EQ(prefix.Find(0, 6), 1);
  EXPECT_EQ(prefix.Find(-1, 6), -1);
  EXPECT_EQ(prefix.position(1), 11);
  EXPECT_GE(prefix.bytes(), 2 * m.layout().layer_bytes());
  EXPECT_EQ(cache->length(), 10);
}

// A draft's rows are run between a pass and who reads what it tapped.
TEST(LayerPrefix, WhatThePassBeforeTappedStays) {
  PrefixModel m;
  const auto cache = m.NewCache(Tokens(40, 1));
  const Taps taps = {.hidden_layers = {1}, .query_rows = 8};
  const std::vector<int32_t> root = {7};
  const auto output = [&] {
    auto rows = cache->Begin(1);
    const ForwardSegment segment = {.tokens = root, .kv = &*rows, .taps = &taps};
    return *m.target->Forward({&segment, 1});
  }();
  const TargetOutput::Segment& out = output.segments[0];
  ASSERT_EQ(out.n_query_rows(), 1);
  const auto tapped = [&] {
    std::vector<float> all = testing::ValuesOf(out.hidden[0]);
    for (const StateRows& queries : out.queries) AddTo(&all, queries);
    return all;
  };
  const std::vector<float> before = tapped();
  LayerPrefix prefix = m.NewPrefix(3, *cache);
  const std::vector<int32_t> tokens = Tokens(6, 5), parents = {-1, 0, 1, 1, 3, 3};
  ASSERT_TRUE(m.Run({.cache = cache.get(), .tokens = tokens, .parents = parents, .prefix = &prefix}).ok());
  EXPECT_TRUE(SameBits(tapped(), before));
}

}  // namespace
}  // namespace longspec
