// SPDX-License-Identifier: Apache-2.0
//
// The draft's forward pass against its specification in double precision, and what it may and may not depend
// on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "draft_model/longspec.h"
#include "draft_model/testing/longspec_files.h"
#include "draft_model/testing/longspec_reference.h"
#include "tensor/half.h"

namespace longspec::testing {
namespace {

constexpr int kFf = 96;
// Largest difference of a logit (their deviation is about 1) that float32 arithmetic may make.
constexpr double kMostDistance = 1e-4;

// A target, a draft for it, and a sequence whose last token is the root.
struct LongspecRig {
  struct Options {
    int n_committed = 40;
    int window = 512;
    CacheType type = CacheType::kF32;
    std::string weights = "f32";
    int n_threads = 1;
    std::vector<int64_t> vocab = {};
    std::string architecture = "llama";
    int n_kv_heads = 2;  // with half as many as query heads: 1 makes heads of 32
    int n_heads = 2 * n_kv_heads;
    int n_embd = 64;
    float rope_scale = 1.0F;  // linear
    DType stored = DType::kF32;
  };

  explicit LongspecRig(const Options& o, const std::function<void(DraftTensors&)>& change = {})
      : tiny({.architecture = o.architecture,
              .n_embd = o.n_embd,
              .n_heads = o.n_heads,
              .n_kv_heads = o.n_kv_heads},
             Scaling(o), o.n_threads),
        draft(RandomDraft(tiny.spec, kFf, 9)),
        committed(RandomTokens(o.n_committed, 4)) {
    if (change) change(draft);
    const Folder folder;
    WriteDraft(draft, folder.File("model.safetensors"), "", o.stored, o.vocab);
    std::string more = ", \"longspec_window\": " + std::to_string(o.window);
    if (o.rope_scale != 1.0F) {
      more += R"(, "rope_scaling": {"type": "linear", "factor": )" + std::to_string(o.rope_scale) + "}";
    }
    std::ofstream(folder.File("config.json")) << ConfigJson(tiny.spec, more);
    parts = tiny.parts();
    config = *parts.sizes;
    auto loaded = OpenAndLoad(folder.path(), o.weights, parts);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    model = *loaded;
    cache = tiny.NewCache(2048, o.type);
    tiny.Evaluate(std::span(committed).first(committed.size() - 1), *cache);
    forward = std::make_unique<LongspecForward>(model, config.kv_layout(o.type, o.type),
                                                LongspecForward::MakeLane(*model, parts));
    EXPECT_TRUE(forward->Extend(committed).ok());
  }

  static RopeOptions Scaling(const Options& o) {
    RopeOptions rope;
    rope.scaling = o.rope_scale == 1.0F ? RopeOptions::Scaling::kNone : RopeOptions::Scaling::kLinear;
    rope.scale = o.rope_scale;
    return rope;
  }

  int root_position() const { return static_cast<int>(committed.size()) - 1; }
  LongspecRow Root() const { return {.token = committed.back(), .position = root_position()}; }
  KvSpan LastLayer() const { return cache->Span(config.n_layer - 1); }

  // Logits of rows of one pass.
  std::vector<std::vector<float>> Run(const std::vector<LongspecRow>& rows, const KvSpan& target) {
    std::vector<std::vector<TokenScore>> next;
    const Status status = forward->Run(rows, target, 5, next);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(next.size(), rows.size());
    std::vector<std::vector<float>> logits;
    for (size_t r = 0; r < rows.size(); ++r) {
      const float* row = forward->logits() + r * static_cast<size_t>(forward->n_logits());
      logits.emplace_back(row, row + forward->n_logits());
    }
    return logits;
  }
  std::vector<float> RootLogits() { return Run({Root()}, LastLayer())[0]; }

  // What the specification says of the root (empty path), or of a node below it.
  Vec ExpectedHidden(const std::vector<int32_t>& path) const {
    std::vector<int32_t> tokens = committed;
    tokens.insert(tokens.end(), path.begin(), path.end());
    const LongspecReference reference(draft, parts);
    return reference.HiddenOfLast(tokens, model->window, reference.ReadTarget(LastLayer(), cache->length()));
  }
  Vec Expected(const std::vector<int32_t>& path) const {
    return LongspecReference(draft, parts).Head(ExpectedHidden(path));
  }

  TinyTarget tiny;
  DraftTensors draft;
  std::vector<int32_t> committed;
  SharedParts parts;
  ModelSizes config;
  std::shared_ptr<const LongspecModel> model;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<LongspecForward> forward;
};

double Distance(const std::vector<float>& actual, const Vec& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  double most = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(actual[i]) - expected[i]));
  }
  return most;
}

double Deviation(const Vec& x) {
  double ss = 0;
  for (const double v : x) ss += v * v;
  return std::sqrt(ss / static_cast<double>(x.size()));
}

TEST(LongspecForward, RootAgreesWithTheSpecification) {
  for (const int n : {1, 2, 40, 300}) {
    for (const int window : {512, 7}) {
      LongspecRig rig({.n_committed = n, .window = window});
      const Vec expected = rig.Expected({});
      EXPECT_GT(Deviation(expected), 0.5);
      EXPECT_LT(Distance(rig.RootLogits(), expected), kMostDistance) << n << " " << window;
    }
  }
}

// Behaviour 2 of the specification: even a norm without weights would scale all logits.
TEST(LongspecForward, NoNormComesBeforeTheHead) {
  LongspecRig rig({});
  double ss = 0;
  const Vec hidden = rig.ExpectedHidden({});
  for (const double x : hidden) ss += x * x;
  Vec normed = rig.Expected({});
  for (double& x : normed) x /= std::sqrt(ss / static_cast<double>(hidden.size()));
  EXPECT_LT(Distance(rig.RootLogits(), rig.Expected({})), kMostDistance);
  EXPECT_GT(Distance(rig.RootLogits(), normed), 0.1);
}

// Level by level, as a tree grows: nodes see the window, the root, their ancestors and themselves.
TEST(LongspecForward, TreeNodesAgreeWithTheSpecification) {
  for (const int window : {512, 3}) {
    for (const int n : {1, 33, 257}) {
      LongspecRig rig({.n_committed = n, .window = window});
      (void)rig.RootLogits();
      const int r = rig.root_position();
      const std::vector<int32_t> a = {0}, b = {1}, aa = {0, 2}, ba = {1, 3}, bb = {1, 4}, bba = {1, 4, 5};
      const auto level1 = rig.Run({{11, r + 1, 0, a}, {22, r + 1, 1, b}}, rig.LastLayer());
      EXPECT_LT(Distance(level1[0], rig.Expected({11})), kMostDistance);
      EXPECT_LT(Distance(level1[1], rig.Expected({22})), kMostDistance);
      const auto level2 =
          rig.Run({{33, r + 2, 2, aa}, {44, r + 2, 3, ba}, {55, r + 2, 4, bb}}, rig.LastLayer());
      EXPECT_LT(Distance(level2[0], rig.Expected({11, 33})), kMostDistance);
      EXPECT_LT(Distance(level2[1], rig.Expected({22, 44})), kMostDistance);
      EXPECT_LT(Distance(level2[2], rig.Expected({22, 55})), kMostDistance);
      const auto level3 = rig.Run({{66, r + 3, 5, bba}}, rig.LastLayer());
      EXPECT_LT(Distance(level3[0], rig.Expected({22, 55, 66})), kMostDistance);
    }
  }
}

TEST(LongspecForward, OtherTypesAreCloseToTheSpecification) {
  const auto relative = [](LongspecRig rig) {
    const Vec expected = rig.Expected({});
    return Distance(rig.RootLogits(), expected) / Deviation(expected);
  };
  EXPECT_LT(relative(LongspecRig({.type = CacheType::kF16})), 0.01);
  EXPECT_LT(relative(LongspecRig({.type = CacheType::kBF16})), 0.05);
  EXPECT_LT(relative(LongspecRig({.type = CacheType::kBF16Amx})), 0.05);
  EXPECT_LT(relative(LongspecRig({.type = CacheType::kQ8_0, .n_kv_heads = 1})), 0.02);
  EXPECT_LT(relative(LongspecRig({.type = CacheType::kQ4_0, .n_kv_heads = 1})),
            0.36);  // 127 / 7 times q8_0's
  EXPECT_LT(relative(LongspecRig({.weights = "bf16"})), 0.05);
  EXPECT_LT(relative(LongspecRig({.weights = ""})), 0.1);
  EXPECT_LT(relative(LongspecRig({.weights = "q8_0"})), 0.1);
}

// Targets whose rotary halves lie as in the checkpoint, so that nothing changes places.
TEST(LongspecForward, QwenTargetsAgreeAsWell) {
  for (const char* architecture : {"qwen2", "qwen3"}) {
    LongspecRig rig({.n_committed = 30, .architecture = architecture});
    EXPECT_EQ(rig.config.rope.pairing, kernels::RopePairing::kHalfSplit);
    EXPECT_LT(Distance(rig.RootLogits(), rig.Expected({})), kMostDistance) << architecture;
    const std::vector<int32_t> path = {0};
    const auto node = rig.Run({{11, rig.root_position() + 1, 0, path}}, rig.LastLayer());
    EXPECT_LT(Distance(node[0], rig.Expected({11})), kMostDistance) << architecture;
  }
}

// What published drafts have: as many key-value heads as query heads, a fourth or a fifth of them, positions
// scaled linearly, files of F16.
TEST(LongspecForward, PublishedKindsAgreeWithTheSpecification) {
  const auto expect_agreement = [](const LongspecRig::Options& options,
                                   const std::function<void(DraftTensors&)>& change) {
    LongspecRig rig(options, change);
    EXPECT_LT(Distance(rig.RootLogits(), rig.Expected({})), kMostDistance);
    const std::vector<int32_t> path = {0};
    const auto node = rig.Run({{11, rig.root_position() + 1, 0, path}}, rig.LastLayer());
    EXPECT_LT(Distance(node[0], rig.Expected({11})), kMostDistance);
  };
  expect_agreement({.n_kv_heads = 4, .n_heads = 4}, {});
  expect_agreement({.n_kv_heads = 2, .n_heads = 8, .n_embd = 128}, {});
  expect_agreement({.n_kv_heads = 2, .n_heads = 10, .n_embd = 160}, {});
  expect_agreement({.n_committed = 300, .rope_scale = 4.0F}, {});
  expect_agreement({.stored = DType::kF16}, [](DraftTensors& draft) {
    for (auto& [name, tensor] : draft.tensors) {
      for (float& x : tensor.values) x = HalfToFloat(FloatToHalf(x));
    }
  });
}

TEST(LongspecForward, LogitsGiveTheTokensInOrder) {
  LongspecRig rig({});
  std::vector<std::vector<TokenScore>> next;
  const LongspecRow root = rig.Root();
  ASSERT_TRUE(rig.forward->Run({&root, 1}, rig.LastLayer(), 10, next).ok());
  Vec expected = rig.Expected({});
  double sum = 0;
  for (const double x : expected) sum += std::exp(x);
  ASSERT_EQ(next[0].size(), 10U);
  for (const TokenScore& score : next[0]) {
    const auto best = std::max_element(expected.begin(), expected.end());
    EXPECT_EQ(score.token, best - expected.begin());
    EXPECT_NEAR(score.log_prob, *best - std::log(sum), kMostDistance);
    *best = -1e300;
  }
}

// A row alone, among others, in parts of a long call, with any number of threads: the same bits.
TEST(LongspecForward, RowsDoNotDependOnEachOtherNorOnThreads) {
  std::vector<std::vector<float>> first;
  for (const int threads : {1, 2, 3}) {
    LongspecRig rig({.n_committed = 300, .n_threads = threads});
    (void)rig.RootLogits();
    std::vector<std::vector<int32_t>> paths;
    for (int32_t i = 0; i < 30; ++i) paths.push_back({i});
    std::vector<LongspecRow> rows;
    for (int32_t i = 0; i < 30; ++i) {
      rows.push_back({i + 5, rig.root_position() + 1, i, paths[static_cast<size_t>(i)]});
    }
    const auto together = rig.Run(rows, rig.LastLayer());
    if (first.empty()) first = together;
    EXPECT_EQ(together, first) << threads;
    for (const size_t i : {size_t{0}, size_t{17}, size_t{29}}) {
      EXPECT_EQ(rig.Run({rows[i]}, rig.LastLayer())[0], first[i]);
    }
  }
}

TEST(LongspecForward, LongCallsRunInParts) {
  LongspecRig rig({});
  (void)rig.RootLogits();
  const int n = 2 * LongspecForward::kMaxRows + 3;
  std::vector<std::vector<int32_t>> paths;
  for (int32_t i = 0; i < n; ++i) paths.push_back({i});
  std::vector<LongspecRow> rows;
  for (int32_t i = 0; i < n; ++i) {
    rows.push_back({i, rig.root_position() + 1, i, paths[static_cast<size_t>(i)]});
  }
  std::vector<std::vector<TokenScore>> together, alone;
  ASSERT_TRUE(rig.forward->Run(rows, rig.LastLayer(), 3, together).ok());
  ASSERT_EQ(together.size(), rows.size());
  for (const size_t i : {size_t{0}, size_t{31}, size_t{32}, size_t{66}}) {
    ASSERT_TRUE(rig.forward->Run({&rows[i], 1}, rig.LastLayer(), 3, alone).ok());
    for (size_t k = 0; k < 3; ++k) {
      EXPECT_EQ(together[i][k].token, alone[0][k].token);
      EXPECT_EQ(together[i][k].log_prob, alone[0][k].log_prob);
    }
  }
}

// Of the target it reads the last layer's committed rows and nothing else.
TEST(LongspecForward, ReadsTheLastLayersCommittedRowsOnly) {
  LongspecRig rig({.n_committed = 270});
  auto speculated = rig.cache->Begin(20);
  ASSERT_TRUE(speculated.ok());
  const std::vector<float> before = rig.RootLogits();
  const int length = rig.cache->length();
  for (int p = 0; p < length; ++p) Poke(rig.cache->Span(0), p);
  for (int i = 0; i < 20; ++i) Poke(rig.LastLayer(), length + i);
  EXPECT_EQ(rig.RootLogits(), before);
  for (const int p : {0, 255, 256, length - 1}) {
    const std::vector<float> earlier = rig.RootLogits();
    Poke(rig.LastLayer(), p);
    EXPECT_NE(rig.RootLogits(), earlier) << p;
  }
}

TEST(LongspecForward, UnusedProjectionsAreNotUsedAndBiasesAre) {
  const std::vector<float> before = LongspecRig({}).RootLogits();
  const auto with = [](const char* name) {
    return LongspecRig({},
                       [name](DraftTensors& draft) {
                         for (float& x : draft[name]) x = x * -2.0F + 0.1F;
                       })
        .RootLogits();
  };
  for (const char* name : {"cross_attn.k_proj.weight", "cross_attn.k_proj.bias", "cross_attn.v_proj.weight",
                           "cross_attn.v_proj.bias"}) {
    EXPECT_EQ(with(name), before) << name;
  }
  for (const char* name : {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias",
                           "cross_attn.q_proj.bias", "input_layernorm.weight", "mlp.down_proj.weight",
                           "post_self_attention_layernorm.weight", "post_cross_attention_layernorm.weight"}) {
    EXPECT_NE(with(name), before) << name;
  }
}

// Behaviour 6 of the specification: p - 512 is seen, p - 513 is not.
TEST(LongspecForward, TheWindowReaches512TokensBack) {
  for (const int n : {514, 700, 769, 1030}) {
    LongspecRig rig({.n_committed = n, .window = 512});
    const auto with = [&](int changed) {
      std::vector<int32_t> tokens = rig.committed;
      if (changed >= 0) tokens[static_cast<size_t>(changed)] ^= 1;
      rig.forward->Reset();
      EXPECT_TRUE(rig.forward->Extend(tokens).ok());
      return rig.RootLogits();
    };
    const std::vector<float> before = with(-1);
    const int p = n - 1;
    EXPECT_EQ(with(p - 513), before) << n;
    EXPECT_NE(with(p - 512), before) << n;
  }
}

// However the ring was filled, a node of a tree at its far end included.
TEST(LongspecForward, TheRingHoldsWhatAFullPrefillWould) {
  const std::vector<int32_t> tokens = RandomTokens(2010, 4);
  LongspecRig rig({.n_committed = 40});
  const auto filled = [&](const std::vector<int>& lengths, std::vector<int>* computed) {
    rig.forward->Reset();
    for (const int n : lengths) {
      const auto rows = rig.forward->Extend(std::span(tokens).first(static_cast<size_t>(n)));
      EXPECT_TRUE(rows.ok());
      if (computed != nullptr) computed->push_back(*rows);
    }
    const int r = lengths.back() - 1;
    std::vector<float> all = rig.Run({{tokens[static_cast<size_t>(r)], r}}, rig.LastLayer())[0];
    const std::vector<int32_t> path = {0};
    const auto node = rig.Run({{7, r + 1, 0, path}}, rig.LastLayer())[0];
    all.insert(all.end(), node.begin(), node.end());
    return all;
  };
  std::vector<int> one_by_one;
  for (int n = 1490; n <= 2010; ++n) one_by_one.push_back(n);
  const std::vector<float> expected = filled(one_by_one, nullptr);
  EXPECT_EQ(filled({2010}, nullptr), expected);
  EXPECT_EQ(filled({1300, 2010}, nullptr), expected);
  EXPECT_EQ(filled({2009, 2010}, nullptr), expected);
  // The worked example of the specification (3.7): rounds that accept 3, 3 and 0 of 2000 tokens' draft.
  std::vector<int> computed;
  EXPECT_EQ(filled({2000, 2001, 2005, 2009, 2010}, &computed), expected);
  EXPECT_EQ(computed, (std::vector<int>{513, 1, 4, 4, 1}));

  const LongspecReference reference(rig.draft, rig.parts);
  const ModelSizes& c = rig.config;
  for (const int p : {1497, 1700, 2009}) {
    const Vec key = reference.OwnKey(tokens[static_cast<size_t>(p)], p);
    const int place = p / kKvChunk % rig.forward->n_ring_chunks() * kKvChunk + p % kKvChunk;
    for (int h = 0; h < c.n_head_kv; ++h) {
      for (int d = 0; d < c.head_dim; ++d) {
        const int from = h * c.head_dim + d / 2 + d % 2 * (c.rope.n_rot / 2);
        EXPECT_NEAR(LongspecReference::Key(rig.forward->ring(), place, h, d), key[static_cast<size_t>(from)],
                    1e-5);
      }
    }
  }
}

// Behaviour 7 of the specification: a cache as long as the text holds the same rows and gives the same bits.
TEST(LongspecForward, TheRingEqualsACacheOfTheWholeText) {
  const std::vector<int32_t> tokens = RandomTokens(1600, 4);
  LongspecRig rig({.n_committed = 40});
  const ModelSizes& c = rig.config;
  // Chunks for a window of the whole text, which is then no wider than the ring's.
  auto* window_of = const_cast<LongspecModel*>(rig.model.get());
  window_of->window = 1600;
  LongspecForward whole(rig.model, c.kv_layout(CacheType::kF32, CacheType::kF32),
                        LongspecForward::MakeLane(*rig.model, rig.parts));
  window_of->window = 512;
  LongspecForward& ring = *rig.forward;
  ASSERT_EQ(ring.n_ring_chunks(), 3);
  ASSERT_EQ(whole.n_ring_chunks(), 8);
  const auto place = [](const LongspecForward& forward, int p) {
    return p / kKvChunk % forward.n_ring_chunks() * kKvChunk + p % kKvChunk;
  };
  const auto logits = [&](LongspecForward& forward, const LongspecRow& row) {
    std::vector<std::vector<TokenScore>> next;
    EXPECT_TRUE(forward.Run({&row, 1}, rig.LastLayer(), 1, next).ok());
    return std::vector<float>(forward.logits(), forward.logits() + forward.n_logits());
  };
  ring.Reset();
  for (const int n : {1, 100, 500, 512, 513, 514, 700, 1023, 1024, 1025, 1400, 1600}) {
    const auto committed = std::span(tokens).first(static_cast<size_t>(n));
    ASSERT_TRUE(ring.Extend(committed).ok());
    ASSERT_TRUE(whole.Extend(committed).ok());
    for (int p = std::max(0, n - 513); p < n; ++p) {
      for (int head = 0; head < c.n_head_kv; ++head) {
        for (int d = 0; d < c.head_dim; ++d) {
          ASSERT_EQ(ring.ring().KeyAt(place(ring, p), head, d), whole.ring().KeyAt(p, head, d)) << n << p;
          ASSERT_EQ(ring.ring().ValueAt(place(ring, p), head, d), whole.ring().ValueAt(p, head, d)) << n << p;
        }
      }
    }
    const LongspecRow root{.token = committed.back(), .position = n - 1};
    EXPECT_EQ(logits(ring, root), logits(whole, root)) << n;
    const std::vector<int32_t> path = {0};
    const LongspecRow node{.token = 7, .position = n, .slot = 0, .path = path};
    EXPECT_EQ(logits(ring, node), logits(whole, node)) << n;
  }
}

TEST(LongspecForward, AShorterSequenceStartsAgain) {
  LongspecRig rig({.n_committed = 100});
  const std::vector<float> before = rig.RootLogits();
  EXPECT_EQ(*rig.forward->Extend(std::span(rig.committed).first(60)), 60);
  EXPECT_EQ(*rig.forward->Extend(rig.committed), 40);
  EXPECT_EQ(rig.RootLogits(), before);
}

// A head over a part of the vocabulary has the logits of the whole head at these tokens, and names them by
// their numbers there.
TEST(LongspecForward, ReducedVocabulary) {
  const std::vector<float> all = LongspecRig({}).RootLogits();
  const std::vector<int64_t> vocab = {300, 7, 0, 383, 64, 65, 66, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 99};
  LongspecRig rig({.vocab = vocab});
  std::vector<int64_t> sorted = vocab;
  std::ranges::sort(sorted);
  const std::vector<float> reduced = rig.RootLogits();
  ASSERT_EQ(reduced.size(), vocab.size());
  std::vector<std::pair<float, int64_t>> expected;
  double sum = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    EXPECT_EQ(reduced[i], all[static_cast<size_t>(sorted[i])]);
    expected.emplace_back(-reduced[i], sorted[i]);
    sum += std::exp(static_cast<double>(reduced[i]));
  }
  std::ranges::sort(expected);
  std::vector<std::vector<TokenScore>> next;
  const LongspecRow root = rig.Root();
  ASSERT_TRUE(rig.forward->Run({&root, 1}, rig.LastLayer(), 100, next).ok());
  ASSERT_EQ(next[0].size(), vocab.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(next[0][i].token, expected[i].second);
    EXPECT_NEAR(next[0][i].log_prob, -static_cast<double>(expected[i].first) - std::log(sum), 1e-6);
  }
}

TEST(LongspecForward, TokensOutsideTheVocabularyAreRefused) {
  LongspecRig rig({});
  const std::vector<int32_t> bad = {5, 384};
  rig.forward->Reset();
  EXPECT_EQ(rig.forward->Extend(bad).status().code(), StatusCode::kInvalidArgument);
  std::vector<std::vector<TokenScore>> next;
  const LongspecRow row{.token = -1};
  EXPECT_EQ(rig.forward->Run({&row, 1}, rig.LastLayer(), 1, next).code(), StatusCode::kInvalidArgument);
}

// Weights out of all proportion: no number is a number any more, and nothing is proposed.
TEST(LongspecForward, LogitsThatAreNoNumbersProposeNothing) {
  LongspecRig rig({}, [](DraftTensors& draft) {
    for (float& x : draft["mlp.down_proj.weight"]) x = 3e38F;
  });
  std::vector<std::vector<TokenScore>> next;
  const LongspecRow root = rig.Root();
  ASSERT_TRUE(rig.forward->Run({&root, 1}, rig.LastLayer(), 5, next).ok());
  EXPECT_TRUE(next[0].empty());
}

}  // namespace
}  // namespace longspec::testing
