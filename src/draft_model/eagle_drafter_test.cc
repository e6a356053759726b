// SPDX-License-Identifier: Apache-2.0
//
// The EAGLE drafters: trees against their specification's naive forward pass, what is remembered of prompts,
// rounds and rewinds, and the real loop, whose text is that of plain decoding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "decode/batch_decoder.h"
#include "draft_model/draft_models.h"
#include "draft_model/eagle.h"
#include "draft_model/registry.h"
#include "draft_model/testing/batch_sequence.h"
#include "draft_model/testing/eagle_scene.h"
#include "policy/policy.h"
#include "sampling/sampler.h"
#include "sampling/testing/values_of.h"

namespace longspec::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// --- Against the specification. ---

TEST(EagleTree, BeamsAreTheSpecifications) {
  for (const auto& eagle : BothKinds()) {
    SCOPED_TRACE(eagle->path + (eagle->shape.eagle3 ? " eagle3" : " eagle"));
    EagleScene scene(eagle.get(), "3,5,4");
    scene.Follow(RandomTokens(40, 4));
    scene.Compute(17);
    ExpectTree(scene.Propose(12, 3), BeamSearch(scene.Specified(), {3, 5, 4}));
    EXPECT_EQ(scene.drafter().notice(), "");
  }
}

TEST(EagleTree, ReducedHeadsAndBiases) {
  SmallEagle eagle({.fc_bias = false, .qkv_bias = true}, SomeTokens());
  SmallEagle eagle3({.eagle3 = true, .qkv_bias = true}, SomeTokens());
  SmallEagle one_layer({.eagle3 = true, .n_taps = 2}, SomeTokens(),
                       R"(, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [3, 1]})");
  SmallEagle normed({.eagle3 = true, .norm_before_fc = true}, SomeTokens());
  for (SmallEagle* e : {&eagle, &eagle3, &one_layer, &normed}) {
    EagleScene scene(e, "4,6,6,6");
    scene.Follow(RandomTokens(30, 5));
    scene.Compute();
    ExpectTree(scene.Propose(22, 4), BeamSearch(scene.Specified(), {4, 6, 6, 6}));
  }
}

// Qwen3-4B: 32 heads of 128 in a model that is 2560 wide. Here four of 32, of the target too, or one, in 64.
std::vector<std::unique_ptr<SmallEagle>> EaglesOfOtherWidths(const std::vector<int64_t>& tokens) {
  std::vector<std::unique_ptr<SmallEagle>> all;
  const TinyModelOptions wide = {.architecture = "qwen3", .n_layers = 4, .head_dim = 32};
  for (const bool eagle3 : {false, true}) {
    const EagleShape four = {.eagle3 = eagle3, .n_head = 4, .n_kv_head = 2};
    const EagleShape one = {.eagle3 = eagle3, .n_head = 1, .n_kv_head = 1};
    all.push_back(std::make_unique<SmallEagle>(four, tokens, "", wide));
    all.push_back(std::make_unique<SmallEagle>(four, tokens));
    all.push_back(std::make_unique<SmallEagle>(one, tokens));
  }
  return all;
}

TEST(EagleTree, HeadsThatTogetherAreNotAsWideAsTheModel) {
  for (const auto& eagle : EaglesOfOtherWidths(SomeTokens())) {
    ASSERT_NE(eagle->shape.n_head * eagle->shape.head_dim, eagle->tiny.spec.n_embd);
    EagleScene scene(eagle.get(), "3,4");
    scene.Follow(RandomTokens(18, 4));
    scene.Compute(7);
    ExpectTree(scene.Propose(7, 2), BeamSearch(scene.Specified(), {3, 4}));
    scene.Round(scene.Propose(7, 2), {1}, 50);
    ExpectTree(scene.Propose(7, 2), BeamSearch(scene.Specified(), {3, 4}));
  }
}

TEST(EagleTree, NormBeforeResidual) {
  SmallEagle eagle({.eagle3 = true}, {}, R"(, "norm_before_residual": true)");
  EagleScene scene(&eagle, "2,3");
  scene.Follow(RandomTokens(20, 5));
  scene.Compute();
  ExpectTree(scene.Propose(5, 2), BeamSearch(scene.Specified(0, 0, true), {2, 3}));
}

// Chunks of 256 positions end within the text, and chains are long.
TEST(EagleTree, AcrossChunks) {
  for (const auto& eagle : BothKinds(SomeTokens())) {
    EagleScene scene(eagle.get(), "chain");
    scene.Follow(RandomTokens(259, 6));
    scene.Compute(256);
    ExpectTree(scene.Propose(4, 4), BeamSearch(scene.Specified(), {1, 1, 1, 1}));
  }
}

// Behaviour 10, to the bit, for every shape of tree.
TEST(EagleTree, APathOfATreeIsAChain) {
  for (const auto& eagle : BothKinds(SomeTokens())) {
    std::map<std::string, std::map<Path, double>> trees;
    for (const char* tree : {"chain", "", "best:5", "opt:0.1:5", "eagle2:4:4:40", "4"}) {
      EagleScene scene(eagle.get(), tree);
      scene.Follow(RandomTokens(50, 7));
      scene.Compute();
      trees[tree] = PathsOf(scene.Propose(60, 5));
      EXPECT_GT(trees[tree].size(), 4U);
    }
    int n_same = 0;
    for (const auto& [path, score] : trees[""]) {
      for (const auto& [name, tree] : trees) {
        if (!tree.contains(path)) continue;
        EXPECT_EQ(tree.at(path), score) << name;
        ++n_same;
      }
    }
    EXPECT_GT(n_same, 80);
  }
}

// --- What is remembered. ---

// Behaviours 1 and 13: after any way to a text the draft stands where one stands that has read it at once.
TEST(EagleMemory, RoundsChunksAndRewindsLeaveWhatOnePassLeaves) {
  for (const auto& eagle : BothKinds(SomeTokens())) {
    EagleScene scene(eagle.get(), "3,6,6");
    const auto expect_fresh = [&] {
      EagleScene fresh(eagle.get(), "3,6,6");
      fresh.Follow(scene.committed());
      fresh.Compute(1000);
      const auto expected = PathsOf(fresh.Propose(15, 3));
      EXPECT_EQ(expected.size(), 15U);
      EXPECT_EQ(PathsOf(scene.Propose(15, 3)), expected);
    };
    scene.Follow(RandomTokens(250, 8));
    scene.Compute(31);
    expect_fresh();
    for (int round = 0; round < 6; ++round) {
      const TokenTree tree = scene.Propose(15, 3);
      std::vector<int32_t> accepted;  // none, or a path that skips rows
      if (round % 3 != 0) accepted = tree.PathTo(tree.size() - 1);
      if (!accepted.empty()) accepted.erase(accepted.begin());
      scene.Round(tree, accepted, 10 + round);
      expect_fresh();
    }
    // The same text is no news.
    scene.Follow(scene.committed());
    expect_fresh();
  }
}

// Back, and on with another text: of the last position before the fork there is no feature to go with the new
// token.
TEST(EagleMemory, AForkLosesOneSlot) {
  for (const auto& eagle : BothKinds(SomeTokens())) {
    EagleScene scene(eagle.get(), "3,6,6");
    scene.Follow(RandomTokens(70, 8));
    scene.Compute();
    std::vector<int32_t> other = scene.committed();
    other.resize(30);
    other.insert(other.end(), {1, 2, 3, 4, 5, 6});
    scene.Follow(other);
    scene.Compute(4);
    ExpectTree(scene.Propose(15, 3), BeamSearch(scene.Specified(29, 30), {3, 6, 6}));
    EXPECT_EQ(scene.drafter().notice(), "");
  }
}

// A conversation that was cleared: its session is saved, or goes on with another text.
TEST(EagleMemory, ItFollowsNothing) {
  for (const auto& eagle : BothKinds(SomeTokens())) {
    EagleScene scene(eagle.get(), "3,6");
    scene.Follow(RandomTokens(300, 8));
    scene.Compute();
    ASSERT_TRUE(scene.drafter().Follow({}).ok());
    scene.Follow(RandomTokens(40, 9));
    scene.Compute();
    ExpectTree(scene.Propose(9, 2), BeamSearch(scene.Specified(), {3, 6}));
  }
}

// After a rewind to a text whose last hidden state is gone, there is nothing to draft with until the next
// round.
TEST(EagleMemory, ARewindToARootProposesNothingForOneRound) {
  for (const auto& eagle : BothKinds(SomeTokens())) {
    EagleScene scene(eagle.get(), "3,6");
    scene.Follow(RandomTokens(60, 8));
    scene.Compute();
    std::vector<int32_t> shorter = scene.committed();
    shorter.resize(40);
    scene.Follow(shorter);
    const TokenTree none = scene.Propose(9, 2);
    EXPECT_EQ(none.size(), 1);
    scene.Round(none, {}, 17);
    ExpectTree(scene.Propose(9, 2), BeamSearch(scene.Specified(), {3, 6}));
    EXPECT_EQ(scene.drafter().notice(), "");
  }
}

// A beginning that was computed for another sequence: its hidden states are gone.
TEST(EagleMemory, ABeginningItHasNotReadIsLeftOut) {
  for (const auto& eagle : BothKinds(SomeTokens())) {
    EagleScene scene(eagle.get(), "3,6");
    std::vector<int32_t> text = RandomTokens(60, 8);
    text.resize(40);
    scene.Follow(text);
    scene.Compute(100, /*reads=*/false);
    text = RandomTokens(60, 8);
    scene.Follow(text);
    EXPECT_EQ(scene.Propose(9, 2).size(), 1);
    scene.Compute(7);
    ExpectTree(scene.Propose(9, 2), BeamSearch(scene.Specified(0, 39), {3, 6}));
    EXPECT_THAT(scene.drafter().notice(),
                HasSubstr("39 of 59 positions were computed while the draft model"));
    // Should the target compute it after all, all is well.
    scene.cache().Truncate(0);
    scene.Compute();
    ExpectTree(scene.Propose(9, 2), BeamSearch(scene.Specified(), {3, 6}));
    EXPECT_EQ(scene.drafter().notice(), "");
  }
}

// What one drafter has read another one finds, also when the first is gone.
TEST(EagleMemory, ABeginningThatAnotherReadIsKnown) {
  for (const auto& eagle : BothKinds(SomeTokens())) {
    DraftModels models;
    models.KeepKeys({.context = 10});
    {
      EagleScene first(eagle.get(), "3,6", &models);
      first.Follow(RandomTokens(300, 8));
      first.Compute(90);
      first.Round(first.Propose(9, 2), {}, 77);
    }
    for (const int common : {300, 290, 256, 257, 100}) {
      EagleScene second(eagle.get(), "3,6", &models);
      std::vector<int32_t> text = RandomTokens(300, 8);
      text.resize(static_cast<size_t>(common));
      second.Follow(text);
      second.Compute(1000, /*reads=*/false);
      text.insert(text.end(), {5, 6, 7, 8});
      second.Follow(text);
      second.Compute();
      ExpectTree(second.Propose(9, 2), BeamSearch(second.Specified(), {3, 6}));
      EXPECT_EQ(second.drafter().notice(), "");
    }
    EagleScene third(eagle.get(), "3,6", &models);
    third.Follow(RandomTokens(300, 9));
    third.Compute(1000, /*reads=*/false);
    EXPECT_EQ(third.Propose(9, 2).size(), 1);
  }
}

TEST(EagleMemory, OneLayerOfTheContext) {
  for (const auto& eagle : BothKinds(SomeTokens())) {
    EagleScene scene(eagle.get(), "2,2");
    size_t at_600 = 0;
    for (const int n : {600, 700, 860}) {
      scene.Follow(RandomTokens(n, 8));
      scene.Compute(512);
      EXPECT_EQ(scene.Propose(4, 2).size(), 5);
      const size_t chunk = KvChunkBytes({.k_type = CacheType::kF32,
                                         .v_type = CacheType::kF32,
                                         .n_kv_head = eagle->shape.n_kv_head,
                                         .head_dim = eagle->shape.head_dim},
                                        1);
      if (at_600 == 0) at_600 = scene.drafter().bytes();
      EXPECT_NEAR(static_cast<double>(scene.drafter().bytes()),
                  static_cast<double>(at_600 + (n > 768 ? chunk : 0)), 4096);
    }
  }
}

TEST(EagleMemory, BeyondItsTrainingItProposesNothingAndSaysSo) {
  SmallEagle eagle({}, SomeTokens(), R"(, "longspec_trained_positions": 50, "max_position_embeddings": 20)");
  EagleScene scene(&eagle, "2,2,2");
  scene.Follow(RandomTokens(50, 8));
  scene.Compute();
  EXPECT_EQ(scene.Propose(20, 3).max_depth(), 2);  // it runs at positions 48 and 49
  EXPECT_EQ(scene.drafter().notice(), "");
  scene.Follow(RandomTokens(52, 8));
  scene.Compute();
  EXPECT_EQ(scene.Propose(20, 3).size(), 1);
  EXPECT_THAT(scene.drafter().notice(),
              AllOf(HasSubstr("trained for 50 positions"), HasSubstr("nothing was proposed")));
}

// --- Parts of the layer. ---

// Behaviours 2 and 4: without MLP and attention's output a slot's output is fc of its feature, and a feature
// that is an output already does not pass fc.
TEST(Eagle3Forward, TheResidualIsTheFcOutputAndOutputsSkipFc) {
  SmallEagle eagle({.eagle3 = true});
  for (const char* name : {"midlayer.mlp.down_proj.weight", "midlayer.self_attn.o_proj.weight"}) {
    std::ranges::fill(eagle.draft[name], 0.0F);
  }
  WriteDraft(eagle.draft, eagle.path + "/model.safetensors");
  const auto checkpoint = OpenDraftCheckpoint(eagle.path);
  ASSERT_TRUE(checkpoint.ok());
  const auto model = Eagle3Model::Load(*checkpoint, "f32", eagle.tiny.parts());
  ASSERT_TRUE(model.ok()) << model.status().message();
  const size_t d = 64;
  const KvLayout layout = {
      .k_type = CacheType::kF32, .v_type = CacheType::kF32, .n_kv_head = 1, .head_dim = 32};
  const auto cache = MakeFullCache(layout, 1, 100);
  EagleForward forward(*model, cache.get(), 1, EagleForward::MakeLane(**model, eagle.tiny.parts()));
  std::vector<float> features(3 * d);
  for (size_t i = 0; i < features.size(); ++i) features[i] = std::sin(static_cast<float>(i));
  const std::vector<int32_t> path = {0}, second = {0, 1};
  EagleRow row = {.token = 5, .position = 0, .path = path};
  for (size_t tap = 0; tap < 3; ++tap) row.feature[tap] = features.data() + tap * d;
  std::vector<std::vector<TokenScore>> next;
  std::vector<float> output(d), again(d);
  ASSERT_TRUE(forward.Run({&row, 1}, false, 1, next, output.data()).ok());
  const std::vector<float>& fc = eagle.draft["fc.weight"];
  for (size_t o = 0; o < d; ++o) {
    double sum = 0;
    for (size_t i = 0; i < 3 * d; ++i) {
      sum += static_cast<double>(fc[o * 3 * d + i]) * static_cast<double>(features[i]);
    }
    EXPECT_NEAR(static_cast<double>(output[o]), sum, 1e-4);
  }
  row = {.token = 9, .position = 1, .feature = {output.data()}, .path = second};
  ASSERT_TRUE(forward.Run({&row, 1}, true, 1, next, again.data()).ok());
  EXPECT_EQ(again, output);
}

// Behaviour 3: the first half of what attention reads is the token's.
TEST(Eagle3Forward, TheTokenComesFirst) {
  SmallEagle eagle({.eagle3 = true});
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    std::vector<float>& w = eagle.draft["midlayer.self_attn." + std::string(name) + ".weight"];
    for (size_t i = 0; i < w.size(); ++i) {
      if (i % 128 < 64) w[i] = 0;
    }
  }
  WriteDraft(eagle.draft, eagle.path + "/model.safetensors");
  const auto checkpoint = OpenDraftCheckpoint(eagle.path);
  const auto model = Eagle3Model::Load(*checkpoint, "f32", eagle.tiny.parts());
  ASSERT_TRUE(model.ok()) << model.status().message();
  const KvLayout layout = {
      .k_type = CacheType::kF32, .v_type = CacheType::kF32, .n_kv_head = 1, .head_dim = 32};
  const auto cache = MakeFullCache(layout, 1, 100);
  EagleForward forward(*model, cache.get(), 1, EagleForward::MakeLane(**model, eagle.tiny.parts()));
  const std::vector<float> feature(64, 0.5F);
  const std::vector<int32_t> path = {0};
  std::vector<std::vector<TokenScore>> next;
  std::vector<float> one(64), other(64);
  EagleRow row = {.token = 5, .feature = {feature.data(), feature.data(), feature.data()}, .path = path};
  ASSERT_TRUE(forward.Run({&row, 1}, false, 1, next, one.data()).ok());
  row.token = 300;
  ASSERT_TRUE(forward.Run({&row, 1}, false, 1, next, other.data()).ok());
  EXPECT_EQ(one, other);
}

// --- The real loop. ---

// Few tokens are likely, so that even a draft that knows nothing is right now and then.
constexpr int kEagleLikely = 8;

std::vector<int64_t> EagleLikelyTokens() {
  std::vector<int64_t> tokens(kEagleLikely);
  std::iota(tokens.begin(), tokens.end(), 200);
  return tokens;
}

SamplingOptions Sampling(float temperature, uint64_t seed) {
  SamplingOptions sampling;
  sampling.temperature = temperature;
  sampling.seed = seed;
  for (int32_t t = 0; t < kEagleLikely; ++t) sampling.logit_bias.emplace_back(200 + t, 9.0F);
  return sampling;
}

struct EagleText {
  std::vector<int32_t> tokens;
  std::vector<float> logits;  // of every generated token, bit by bit
  DecodeStats stats;
  bool operator==(const EagleText& o) const {
    return tokens == o.tokens && logits.size() == o.logits.size() &&
           std::memcmp(logits.data(), o.logits.data(), logits.size() * sizeof(float)) == 0;
  }
};

// One sequence of a batch.
struct Running : BatchSequence {
  Running(SmallEagle* eagle, DraftModels* models, const SpeculationOptions& options, float temperature,
          uint64_t seed, int n_prompt)
      : BatchSequence(&eagle->tiny.target(), eagle->tiny.NewCache(n_prompt + 200, CacheType::kF16), options,
                      models, *Sampler::Create(Sampling(temperature, seed), eagle->tiny.spec.n_vocab),
                      RandomTokens(n_prompt, seed)) {}

  EagleText text;
};

// All of them in every pass until each has n_predict tokens.
void RunAll(SmallEagle* eagle, std::vector<std::unique_ptr<Running>>& all, int n_predict) {
  BatchDecoder decoder(&eagle->tiny.target());
  for (;;) {
    std::vector<Turn> turns;
    std::vector<Running*> whose;
    for (const auto& one : all) {
      const int left = n_predict - static_cast<int>(one->text.tokens.size());
      if (left <= 0) continue;
      turns.push_back({.sequence = &one->sequence, .max_rows = 64, .max_tokens = left});
      whose.push_back(one.get());
    }
    if (turns.empty()) break;
    ASSERT_TRUE(decoder.Run(turns).ok());
    for (size_t i = 0; i < turns.size(); ++i) {
      ASSERT_TRUE(turns[i].status.ok()) << turns[i].status.message();
      for (size_t t = 0; t < turns[i].tokens.size(); ++t) {
        whose[i]->text.tokens.push_back(turns[i].tokens[t]);
        const auto row = testing::ValuesOf(turns[i].logits[turns[i].path[t]]);
        whose[i]->text.logits.insert(whose[i]->text.logits.end(), row.begin(), row.end());
      }
    }
  }
  for (const auto& one : all) {
    EXPECT_EQ(one->sequence.draft_failure, "");
    one->text.stats = one->sequence.stats;
  }
}

EagleText Generate(SmallEagle* eagle, DraftModels* models, const SpeculationOptions& options,
                   float temperature, uint64_t seed, int n_prompt, int n_predict) {
  std::vector<std::unique_ptr<Running>> one;
  one.push_back(std::make_unique<Running>(eagle, models, options, temperature, seed, n_prompt));
  RunAll(eagle, one, n_predict);
  return one[0]->text;
}

TEST(EagleDrafters, SameBitsForEveryShapeAndTemperature) {
  for (const auto& eagle : BothKinds(EagleLikelyTokens())) {
    DraftModels models;
    int64_t accepted = 0;
    for (const float temperature : {0.0F, 0.7F, 1.0F}) {
      const EagleText plain = Generate(eagle.get(), &models, {.type = "none"}, temperature, 11, 70, 50);
      for (const char* tree : {"chain", "", "3,5,9", "best:3", "opt:0.1", "eagle2", "eagle2:3:4:20"}) {
        for (const int n_max : {1, 24, 100}) {
          SCOPED_TRACE(std::string(tree) + " " + std::to_string(n_max) + " at " +
                       std::to_string(temperature));
          const EagleText text =
              Generate(eagle.get(), &models, eagle->Options(tree, n_max), temperature, 11, 70, 50);
          EXPECT_EQ(text, plain);
          EXPECT_GT(text.stats.drafted, 0);
          EXPECT_EQ(text.stats.accepted + text.stats.steps, 50);
          accepted += text.stats.accepted;
        }
      }
    }
    EXPECT_GT(accepted, 300);  // else nothing was tested
  }
}

TEST(EagleDrafters, SameBitsWithHeadsOfOtherWidths) {
  for (const auto& eagle : EaglesOfOtherWidths(EagleLikelyTokens())) {
    DraftModels models;
    const EagleText plain = Generate(eagle.get(), &models, {.type = "none"}, 0.7F, 11, 40, 30);
    const EagleText text = Generate(eagle.get(), &models, eagle->Options("3,5,9"), 0.7F, 11, 40, 30);
    EXPECT_EQ(text, plain);
    EXPECT_GT(text.stats.accepted, 0);
  }
}

// SpecExtend, chain and trees, and one who takes over in the middle, as after a session from a file.
TEST(EagleDrafters, SameBitsWhateverTheySee) {
  for (const auto& eagle : BothKinds(EagleLikelyTokens())) {
    DraftModels models;
    int64_t accepted = 0;
    for (const float temperature : {0.0F, 0.7F}) {
      const EagleText plain = Generate(eagle.get(), &models, {.type = "none"}, temperature, 11, 170, 50);
      for (const char* tree : {"chain", "", "opt:0.1"}) {
        for (const int chunks : {1, 2, 100}) {
          for (const int every : {1, 4}) {
            SCOPED_TRACE(std::string(tree) + " " + std::to_string(chunks) + " " + std::to_string(every));
            eagle->extend_chunks = chunks;
            eagle->extend_every = every;
            eagle->extend_from = chunks == 2 ? 185 : 1;  // a gate in the middle
            const SpeculationOptions options = eagle->Options(tree, 16);
            std::vector<std::unique_ptr<Running>> one;
            one.push_back(std::make_unique<Running>(eagle.get(), &models, options, temperature, 11, 170));
            RunAll(eagle.get(), one, 20);
            one[0]->drafter = *MakeDrafter(
                options, {.target = &eagle->tiny.target(), .cache = one[0]->cache.get(), .models = &models});
            one[0]->sequence.drafter = one[0]->drafter.get();
            one[0]->sequence.Follow();
            RunAll(eagle.get(), one, 50);
            EXPECT_EQ(one[0]->text, plain);
            EXPECT_GT(one[0]->text.stats.drafted, 0);
            accepted += one[0]->text.stats.accepted;
          }
        }
      }
    }
    EXPECT_GT(accepted, 100);  // else nothing was tested
  }
}

TEST(EagleDrafters, SeveralInOnePassAreWhatEachIsAlone) {
  for (const int chunks : {0, 1}) {
    for (const auto& eagle : BothKinds(EagleLikelyTokens())) {
      DraftModels models;
      eagle->extend_chunks = chunks;
      const SpeculationOptions options = eagle->Options("3,6,6", 12);
      int64_t accepted = 0;
      for (const float temperature : {0.0F, 0.7F}) {
        std::vector<std::unique_ptr<Running>> all;
        for (uint64_t seed = 1; seed <= 4; ++seed) {
          all.push_back(std::make_unique<Running>(eagle.get(), &models,
                                                  seed == 3 ? SpeculationOptions{.type = "none"} : options,
                                                  temperature, seed, 40 + 30 * static_cast<int>(seed)));
        }
        RunAll(eagle.get(), all, 30);
        for (uint64_t seed = 1; seed <= 4; ++seed) {
          const EagleText& text = all[seed - 1]->text;
          EXPECT_EQ(text, Generate(eagle.get(), &models, {.type = "none"}, temperature, seed,
                                   40 + 30 * static_cast<int>(seed), 30))
              << seed;
          accepted += text.stats.accepted;
        }
      }
      EXPECT_GT(accepted, 10);
    }
  }
}

// Beside others, and by "auto".
TEST(EagleDrafters, AsOneOfSeveral) {
  for (const auto& eagle : BothKinds(EagleLikelyTokens())) {
    DraftModels models;
    const EagleText plain = Generate(eagle.get(), &models, {.type = "none"}, 0.7F, 3, 60, 60);
    for (const std::string& type : {std::string("auto"), "suffix," + eagle->Options("").type}) {
      SpeculationOptions options = eagle->Options("4", 12);
      options.type = type;
      const EagleText text = Generate(eagle.get(), &models, options, 0.7F, 3, 60, 60);
      EXPECT_EQ(text, plain);
      EXPECT_GT(text.stats.accepted, 5) << type;
    }
  }
}

// Weights that make no numbers are slow, not wrong.
TEST(EagleDrafters, NoWeightsCanChangeABit) {
  for (const auto& eagle : BothKinds(EagleLikelyTokens())) {
    const std::string layer = eagle->shape.eagle3 ? "midlayer." : "layers.0.";
    const DraftTensors draft = eagle->draft;
    for (const std::string& name :
         {layer + "mlp.down_proj.weight", std::string("fc.weight"), layer + "self_attn.k_proj.weight"}) {
      for (const float value : {0.0F, 3e38F}) {
        DraftTensors changed = draft;
        std::ranges::fill(changed[name], value);
        WriteEagle(eagle->folder, "draft", eagle->tiny.spec, eagle->shape, changed, eagle->tokens,
                   kLowLayers);
        DraftModels models;
        const EagleText plain = Generate(eagle.get(), &models, {.type = "none"}, 0.7F, 5, 30, 20);
        EXPECT_EQ(Generate(eagle.get(), &models, eagle->Options("3,6", 9), 0.7F, 5, 30, 20), plain)
            << name << value;
      }
    }
  }
}

TEST(EagleOptions, AreCheckedBeforeAnyModelIsRead) {
  for (const char* type : {"eagle", "eagle3"}) {
    const auto message = [&](SpeculationOptions options) {
      options.type = type;
      return CheckDrafter(options).message();
    };
    EXPECT_THAT(message({}), HasSubstr("needs a draft model"));
    EXPECT_THAT(message({.tree = "wide", .draft_model = "x"}), HasSubstr("--spec-tree wide: must be"));
    EXPECT_THAT(message({.draft_model = "x", .draft_weights = "q9"}),
                HasSubstr("--spec-draft-weights q9: must be"));
    EXPECT_THAT(message({.draft_model = "x", .spec_extend = {.every = -1}}),
                HasSubstr("--spec-extend-every -1"));
    EXPECT_THAT(message({.draft_model = "x", .spec_extend = {.from = -1}}),
                HasSubstr("--spec-extend-from -1"));
    EXPECT_EQ(message({.tree = "eagle2:8:5:48", .draft_model = "x"}), "");
  }
}

TEST(EagleOptions, AnotherKindsFileIsRefused) {
  SmallEagle eagle({});
  const auto cache = eagle.tiny.NewCache(10);
  SpeculationOptions options = eagle.Options("");
  options.type = "eagle3";
  const auto drafter = MakeDrafter(options, {.target = &eagle.tiny.target(), .cache = cache.get()});
  EXPECT_THAT(drafter.status().message(), HasSubstr("a draft model of kind eagle, not eagle3"));
}

}  // namespace
}  // namespace longspec::testing
