// SPDX-License-Identifier: Apache-2.0
//
// The LongSpec drafter in the real loop, on a real (tiny) target: the same tokens and the same bits as
// without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "decode/testing/one_sequence.h"
#include "draft_model/draft_models.h"
#include "draft_model/registry.h"
#include "draft_model/testing/longspec_files.h"
#include "policy/policy.h"
#include "sampling/sampler.h"
#include "sampling/testing/values_of.h"

namespace longspec::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Few tokens are likely, so that even a draft that knows nothing is right now and then.
constexpr int kLongspecLikely = 8;

struct LongspecText {
  std::vector<int32_t> tokens;
  std::vector<float> logits;  // of every generated token, bit by bit
  DecodeStats stats;
  bool operator==(const LongspecText& o) const {
    return tokens == o.tokens && logits.size() == o.logits.size() &&
           std::memcmp(logits.data(), o.logits.data(), logits.size() * sizeof(float)) == 0;
  }
};

class LongspecDrafterTest : public ::testing::Test {
 protected:
  explicit LongspecDrafterTest(const TinyModelOptions& options = {}, const TinyTarget::Change& change = {})
      : tiny_(options, {}, 1, Bf16Arithmetic::kF32, change),
        draft_(WriteDraftFolder(folder_, tiny_.spec, RandomDraft(tiny_.spec, 64, 3))) {}

  SpeculationOptions Options(const std::string& tree = "", int n_max = 24) const {
    SpeculationOptions options;
    options.type = "longspec";
    options.draft_model = draft_;
    options.tree = tree;
    options.draft_n_max = n_max;
    return options;
  }

  std::vector<int32_t> Prompt(int n) const {
    std::vector<int32_t> prompt;
    for (int i = 0; i < n; ++i) prompt.push_back((i * i + 5 * i) % 97 + 100);
    return prompt;
  }

  LongspecText Generate(const SpeculationOptions& options, float temperature, int n_prompt, int n_predict,
                        std::unique_ptr<Drafter>* drafter_out = nullptr) {
    SamplingOptions sampling;
    sampling.temperature = temperature;
    sampling.seed = 11;
    for (int32_t t = 0; t < n_likely_; ++t) sampling.logit_bias.emplace_back(200 + t, 9.0F);
    const auto sampler = Sampler::Create(sampling, tiny_.spec.n_vocab);
    EXPECT_TRUE(sampler.ok());
    cache_ = tiny_.NewCache(n_prompt + n_predict + 64, CacheType::kF16);
    auto drafter =
        MakeDrafter(options, {.target = &tiny_.target(), .cache = cache_.get(), .models = &models_});
    EXPECT_TRUE(drafter.ok()) << drafter.status().message();
    OneSequence decoder(&tiny_.target(), Prompt(n_prompt), cache_.get(), drafter->get(),
                        MakeFixedPolicy(options), *sampler, 64);
    EXPECT_TRUE(decoder.Prefill().ok());
    LongspecText text;
    while (static_cast<int>(text.tokens.size()) < n_predict) {
      const auto step = decoder.Step(n_predict - static_cast<int>(text.tokens.size()));
      EXPECT_TRUE(step.ok()) << step.status().message();
      if (!step.ok()) break;
      for (size_t i = 0; i < step->tokens.size(); ++i) {
        text.tokens.push_back(step->tokens[i]);
        const auto row = testing::ValuesOf(step->logits[step->path[i]]);
        text.logits.insert(text.logits.end(), row.begin(), row.end());
      }
    }
    committed_ = decoder.tokens();
    text.stats = decoder.stats();
    if (drafter_out != nullptr) *drafter_out = std::move(*drafter);
    return text;
  }

  // They make up the draft's whole vocabulary.
  void ProposeLikelyTokensOnly() {
    std::vector<int64_t> vocab;
    for (int64_t t = 0; t < kLongspecLikely; ++t) vocab.push_back(200 + t);
    WriteDraft(RandomDraft(tiny_.spec, 64, 3), draft_ + "/model.safetensors", "", DType::kF32, vocab);
  }

  LongspecText Plain(float temperature, int n_prompt, int n_predict) {
    return Generate({.type = "none"}, temperature, n_prompt, n_predict);
  }

  Folder folder_;
  TinyTarget tiny_;
  std::string draft_;
  int n_likely_ = kLongspecLikely;
  DraftModels models_;
  std::unique_ptr<KvCache> cache_;
  std::vector<int32_t> committed_;
};

TEST_F(LongspecDrafterTest, SameBitsForEveryShapeAndTemperature) {
  ProposeLikelyTokensOnly();
  int64_t accepted = 0;
  for (const float temperature : {0.0F, 0.7F, 1.0F}) {
    const LongspecText plain = Plain(temperature, 20, 60);
    for (const char* tree :
         {"chain", "", "4", "3,5,9", "best", "best:3", "opt:0.1", "opt-last:0.1:4", "eagle2:4:3:20"}) {
      for (const int n_max : {1, 24, 100}) {
        SCOPED_TRACE(std::string(tree) + " " + std::to_string(n_max) + " at " + std::to_string(temperature));
        const LongspecText text = Generate(Options(tree, n_max), temperature, 20, 60);
        EXPECT_EQ(text, plain);
        EXPECT_GT(text.stats.drafted, 0);
        EXPECT_EQ(text.stats.accepted + text.stats.steps, 60);
        accepted += text.stats.accepted;
      }
    }
  }
  EXPECT_GT(accepted, 300);  // else nothing was tested
}

TEST_F(LongspecDrafterTest, SameBitsAcrossChunksOfTheContext) {
  const LongspecText plain = Plain(0.7F, 500, 40);
  EXPECT_EQ(Generate(Options("", 60), 0.7F, 500, 40), plain);
  EXPECT_EQ(Generate(Options("chain", 5), 0.7F, 500, 40), plain);
  EXPECT_EQ(Generate(Options(), 0.7F, 1, 20), Plain(0.7F, 1, 20));  // nothing to attend to at first
}

// With keys of its own, made of the target's final hidden states: other guesses, the same text, and one layer
// of the text in memory.
TEST_F(LongspecDrafterTest, WithKeysOfItsOwn) {
  ProposeLikelyTokensOnly();
  std::unique_ptr<Drafter> reads_targets, reads_own;
  const LongspecText plain = Plain(0.7F, 300, 60);
  const LongspecText with_targets = Generate(Options("4"), 0.7F, 300, 60, &reads_targets);
  Folder folder;
  draft_ =
      WriteDraftFolder(folder, tiny_.spec, RandomDraft(tiny_.spec, 64, 3), ", \"longspec_own_keys\": true");
  ProposeLikelyTokensOnly();
  for (const float temperature : {0.0F, 0.7F, 1.0F}) {
    for (const char* tree : {"chain", "4,3,2", "best"}) {
      SCOPED_TRACE(std::string(tree) + " at " + std::to_string(temperature));
      EXPECT_EQ(Generate(Options(tree), temperature, 300, 60), Plain(temperature, 300, 60));
    }
  }
  const LongspecText with_own = Generate(Options("4"), 0.7F, 300, 60, &reads_own);
  EXPECT_EQ(with_own, plain);
  EXPECT_GT(with_own.stats.accepted, 0);
  EXPECT_NE(with_own.stats.accepted, with_targets.stats.accepted);
  EXPECT_FALSE(reads_targets->taps().final_hidden);
  EXPECT_TRUE(reads_own->taps().final_hidden);
  EXPECT_GT(reads_own->bytes(), reads_targets->bytes());

  DraftTensors lacks = RandomDraft(tiny_.spec, 64, 3);
  lacks.tensors.erase("cross_attn.v_proj.weight");
  WriteDraft(lacks, draft_ + "/model.safetensors");
  models_ = {};
  const auto refused =
      MakeDrafter(Options(), {.target = &tiny_.target(), .cache = cache_.get(), .models = &models_});
  EXPECT_THAT(refused.status().message(), HasSubstr("cross_attn.v_proj.weight"));
}

// A target and a draft of which nothing is left but embedding and head say the same of every token: the next
// one is a function of the last. So the draft is always right, and a round is four guesses and a token more.
class PerfectLongspec : public LongspecDrafterTest {
 protected:
  PerfectLongspec() : LongspecDrafterTest({.tied = false}, LeaveEmbeddingAndHead) {
    WritePerfect({});
    n_likely_ = 0;
  }

  void WritePerfect(const std::vector<int64_t>& vocab) {
    DraftTensors draft = RandomDraft(tiny_.spec, 64, 3);
    for (const char* name : {"self_attn.o_proj", "cross_attn.o_proj", "mlp.down_proj"}) {
      std::ranges::fill(draft[std::string(name) + ".weight"], 0.0F);
    }
    WriteDraft(draft, draft_ + "/model.safetensors", "", DType::kF32, vocab);
    models_ = {};
  }

  static void LeaveEmbeddingAndHead(std::string_view name, std::span<float> values) {
    if (name.ends_with("attn_output.weight") || name.ends_with("ffn_down.weight")) {
      std::ranges::fill(values, 0.0F);
    }
    if (name == "output_norm.weight") std::ranges::fill(values, 1.0F);
  }
};

TEST_F(PerfectLongspec, InChainsOfFourEveryRoundIsFiveTokens) {
  const LongspecText plain = Plain(0.0F, 20, 60);
  std::vector<int32_t> distinct = plain.tokens;
  std::ranges::sort(distinct);
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  EXPECT_GT(distinct.size(), 3U);
  const LongspecText text = Generate(Options("chain", 4), 0.0F, 20, 60);
  EXPECT_EQ(text, plain);
  EXPECT_EQ(text.stats.steps, 12);
  EXPECT_EQ(text.stats.drafted, 48);
  EXPECT_EQ(text.stats.accepted, 48);
  // One that is left out of the draft's vocabulary ends a round.
  std::vector<int64_t> all_but_one(static_cast<size_t>(tiny_.spec.n_vocab));
  std::iota(all_but_one.begin(), all_but_one.end(), 0);
  std::erase(all_but_one, plain.tokens[57]);
  WritePerfect(all_but_one);
  const LongspecText with_one_missing = Generate(Options("chain", 4), 0.0F, 20, 60);
  EXPECT_EQ(with_one_missing, plain);
  EXPECT_LT(with_one_missing.stats.accepted, 48);
}

// A draft that is never right: a token a round, and still the same text.
TEST_F(LongspecDrafterTest, AnAdversaryCostsNothingButTime) {
  WriteDraft(RandomDraft(tiny_.spec, 64, 3), draft_ + "/model.safetensors", "", DType::kF32, {5, 6, 7});
  const LongspecText plain = Plain(0.0F, 20, 20);
  const LongspecText text = Generate(Options("3,9", 12), 0.0F, 20, 20);
  EXPECT_EQ(text, plain);
  EXPECT_EQ(text.stats.accepted, 0);
  EXPECT_EQ(text.stats.steps, 20);
  EXPECT_EQ(text.stats.drafted_at.at(0), 19);
}

// Whatever its weights are: the bits are the target's.
TEST_F(LongspecDrafterTest, NoWeightsCanChangeABit) {
  const auto all = [](float factor) {
    return [factor](DraftTensors& draft) {
      for (auto& [name, tensor] : draft.tensors) {
        for (float& x : tensor.values) x *= factor;
      }
    };
  };
  const auto fill = [](const char* name, float value) {
    return [=](DraftTensors& draft) { std::ranges::fill(draft[name], value); };
  };
  const struct {
    const char* what;
    std::function<void(DraftTensors&)> change;
    std::vector<int64_t> vocab;
    bool proposes;
  } adversaries[] = {
      {"none", all(0.0F), {}, true},
      {"huge", all(100.0F), {}, true},
      {"always the same wrong token", all(1.0F), {5}, true},
      {"no numbers from the MLP", fill("mlp.down_proj.weight", 3e38F), {}, false},
      {"no numbers from a norm", fill("input_layernorm.weight", 3e38F), {}, false},
      {"no numbers for keys", fill("self_attn.k_proj.weight", 3e38F), {}, false},
  };
  for (const auto& adversary : adversaries) {
    DraftTensors draft = RandomDraft(tiny_.spec, 64, 3);
    adversary.change(draft);
    WriteDraft(draft, draft_ + "/model.safetensors", "", DType::kF32, adversary.vocab);
    models_ = {};
    for (const float temperature : {0.0F, 0.7F, 1.0F}) {
      const LongspecText plain = Plain(temperature, 20, 16);
      for (const char* tree : {"chain", "", "4", "best", "opt:0.1", "opt-last:0.1:4"}) {
        SCOPED_TRACE(std::string(adversary.what) + ": " + tree + " at " + std::to_string(temperature));
        SpeculationOptions options = Options(tree);
        options.draft_weights = "f32";
        const LongspecText text = Generate(options, temperature, 20, 16);
        EXPECT_EQ(text, plain);
        EXPECT_EQ(text.stats.drafted > 0, adversary.proposes);
        EXPECT_EQ(text.stats.accepted + text.stats.steps, 16);
        if (!adversary.vocab.empty()) {
          EXPECT_EQ(text.stats.accepted, 0);
        }
      }
    }
  }
}

// What a round leaves in the cache is what prefill of the same text would.
TEST_F(LongspecDrafterTest, TheCacheEqualsAFreshPrefill) {
  ProposeLikelyTokensOnly();
  const LongspecText text_of_rounds = Generate(Options("", 60), 1.0F, 490, 60);
  EXPECT_GT(text_of_rounds.stats.accepted, 10);  // else nothing was moved
  const std::unique_ptr<KvCache> after = std::move(cache_);
  std::vector<int32_t> text = committed_;
  text.pop_back();
  ASSERT_EQ(text.size(), 549U);  // chunks end at 256 and 512
  auto fresh = tiny_.NewCache(600, CacheType::kF16);
  tiny_.Evaluate(text, *fresh);
  ASSERT_EQ(after->length(), fresh->length());
  for (int layer = 0; layer < tiny_.spec.n_layer; ++layer) {
    const KvSpan a = after->Span(layer), b = fresh->Span(layer);
    for (int p = 0; p < after->length(); ++p) {
      for (int head = 0; head < tiny_.spec.n_head_kv; ++head) {
        for (int d = 0; d < tiny_.spec.head_dim; ++d) {
          ASSERT_EQ(a.KeyAt(p, head, d), b.KeyAt(p, head, d)) << layer << " " << p;
          ASSERT_EQ(a.ValueAt(p, head, d), b.ValueAt(p, head, d)) << layer << " " << p;
        }
      }
    }
  }
}

TEST_F(LongspecDrafterTest, ProposesLongSpecsOwnTree) {
  auto cache = tiny_.NewCache(100);
  const auto drafter =
      MakeDrafter(Options(), {.target = &tiny_.target(), .cache = cache.get(), .models = &models_});
  ASSERT_TRUE(drafter.ok()) << drafter.status().message();
  EXPECT_EQ((*drafter)->name(), "longspec");
  EXPECT_TRUE((*drafter)->taps().empty());
  const std::vector<int32_t> committed = {5};
  ASSERT_TRUE((*drafter)->Follow(committed).ok());
  TokenTree tree(5);
  ASSERT_TRUE((*drafter)->Propose({.max_nodes = 68, .max_depth = 5}, committed, tree).ok());
  EXPECT_EQ(tree.size(), 69);
  std::vector<int> levels(6, 0);
  for (const TreeNode& node : tree.nodes()) ++levels[static_cast<size_t>(node.depth)];
  EXPECT_EQ(levels, (std::vector<int>{1, 4, 16, 16, 16, 16}));
  TokenTree again(5);
  ASSERT_TRUE((*drafter)->Propose({.max_nodes = 68, .max_depth = 5}, committed, again).ok());
  for (int i = 0; i < 69; ++i) EXPECT_EQ(tree.node(i).token, again.node(i).token);
}

// The point of the method: 64,000 positions cost the draft no more memory than 512.
TEST_F(LongspecDrafterTest, MemoryDoesNotDependOnTheContext) {
  size_t bytes = 0;
  TinyModelOptions small;
  small.n_layers = 1;
  small.n_embd = 32;
  small.n_heads = 2;
  small.n_kv_heads = 1;
  small.n_ff = 32;
  TinyTarget tiny(small);
  const Folder folder;
  SpeculationOptions options = Options("3,6", 9);
  options.draft_model = WriteDraftFolder(folder, tiny.spec, RandomDraft(tiny.spec, 32, 1));
  for (const int n : {512, 4096, 8192, 65536}) {
    auto cache = tiny.NewCache(n + 10, CacheType::kF16);
    auto rows = cache->Begin(n);
    ASSERT_TRUE(rows.ok());
    rows->CommitAll();
    const auto drafter = MakeDrafter(options, {.target = &tiny.target(), .cache = cache.get()});
    ASSERT_TRUE(drafter.ok()) << drafter.status().message();
    const std::vector<int32_t> committed(static_cast<size_t>(n) + 1, 17);
    ASSERT_TRUE((*drafter)->Follow(committed).ok());
    TokenTree tree(17);
    ASSERT_TRUE((*drafter)->Propose({.max_nodes = 9, .max_depth = 2}, committed, tree).ok());
    EXPECT_EQ(tree.size(), 10);
    if (bytes == 0) bytes = (*drafter)->bytes();
    EXPECT_EQ((*drafter)->bytes(), bytes) << n;
  }
  EXPECT_GT(bytes, 0U);
  EXPECT_LT(bytes, 3U << 20);
}

TEST_F(LongspecDrafterTest, BeyondItsTrainingItProposesNothingAndSaysSo) {
  (void)WriteDraftFolder(folder_, tiny_.spec, RandomDraft(tiny_.spec, 64, 3),
                         ", \"max_position_embeddings\": 4096, \"longspec_trained_positions\": 50");
  std::unique_ptr<Drafter> drafter;
  const LongspecText plain = Plain(0.0F, 40, 30);
  const LongspecText text = Generate(Options("4,4,4"), 0.0F, 40, 30, &drafter);
  EXPECT_EQ(text, plain);
  EXPECT_GT(text.stats.drafted, 0);
  EXPECT_THAT(drafter->notice(),
              AllOf(HasSubstr("trained for 50 positions"), HasSubstr("nothing was proposed")));
  const LongspecText late = Generate(Options(), 0.0F, 51, 5, &drafter);
  EXPECT_EQ(late.stats.drafted, 0);
  const LongspecText early = Generate(Options(), 0.0F, 10, 5, &drafter);
  EXPECT_GT(early.stats.drafted, 0);
  EXPECT_EQ(drafter->notice(), "");
  // The last levels before the limit: the root at position 48 may have two.
  auto cache = tiny_.NewCache(100);
  auto rows = cache->Begin(48);
  ASSERT_TRUE(rows.ok());
  rows->CommitAll();
  auto last = MakeDrafter(Options(), {.target = &tiny_.target(), .cache = cache.get()});
  ASSERT_TRUE(last.ok());
  const std::vector<int32_t> committed(49, 3);
  TokenTree tree(3);
  ASSERT_TRUE((*last)->Propose({.max_nodes = 68, .max_depth = 5}, committed, tree).ok());
  EXPECT_EQ(tree.max_depth(), 2);
}

TEST_F(LongspecDrafterTest, AModelIsLoadedOnce) {
  const auto first = models_.Learned<LongspecModel>(draft_, "", tiny_.parts());
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(models_.Learned<LongspecModel>(draft_, "", tiny_.parts())->get(), first->get());
  EXPECT_NE(models_.Learned<LongspecModel>(draft_, "f32", tiny_.parts())->get(), first->get());
  EXPECT_FALSE(models_.Learned<LongspecModel>(draft_ + "x", "", tiny_.parts()).ok());
}

// A cache that keeps a part of the positions.
class PartialCache final : public KvCache {
 public:
  int length() const override { return 0; }
  int capacity() const override { return 0; }
  Exactness exactness() const override { return Exactness::kApproximate; }
  size_t bytes() const override { return 0; }
  KvSpan Span(int) const override { return {}; }
  void Truncate(int) override {}

 protected:
  Status Reserve(int) override { return {}; }
  void CommitRows(std::span<const int32_t>) override {}
  void Rollback() override {}
};

TEST_F(LongspecDrafterTest, NeedsTheWholeCache) {
  const PartialCache cache;
  const auto drafter = MakeDrafter(Options(), {.target = &tiny_.target(), .cache = &cache});
  EXPECT_EQ(drafter.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(drafter.status().message(), HasSubstr("reads the target's whole cache"));
}

TEST(LongspecOptions, AreCheckedBeforeAnyModelIsRead) {
  const auto message = [](SpeculationOptions options) {
    options.type = "longspec";
    return CheckDrafter(options).message();
  };
  EXPECT_THAT(message({}), HasSubstr("--spec-type longspec: needs a draft model"));
  EXPECT_THAT(message({.tree = "wide", .draft_model = "x"}), HasSubstr("--spec-tree wide: must be"));
  EXPECT_THAT(message({.draft_model = "x", .draft_weights = "q9"}),
              HasSubstr("--spec-draft-weights q9: must be"));
  EXPECT_THAT(message({.draft_model = "x", .draft_weights = "q4_K"}), HasSubstr("--spec-draft-weights q4_K"));
  EXPECT_EQ(message({.draft_model = "x", .draft_weights = "bf16"}), "");
}

}  // namespace
}  // namespace longspec::testing
