// SPDX-License-Identifier: Apache-2.0
//
// The target in LibTorch against the engine, and what it writes against itself.
#include "train/target_states.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "train/testing/trainees.h"

namespace longspec::train {
namespace {

using ::testing::HasSubstr;
using testing::KindRig;
using testing::Relative;
using testing::Rig;

const ShardNeeds kAll = {.keys_values = true, .final_hidden = true, .layers = {0, 1}};

TargetStates StatesOf(const Rig& rig) {
  at::set_num_threads(1);  // more only wait for each other
  const auto set = FeatureSet::Open(rig.options.features);
  const auto file = GgufFile::Open(rig.options.model);
  auto states = TargetStates::Load(**file, set->target(), at::kCPU, at::kFloat);
  EXPECT_TRUE(states.ok()) << states.status().message();
  return *std::move(states);
}

Rig EverythingOf(const std::vector<int>& lengths, const TinyModelOptions& model = {}) {
  return Rig({}, lengths, model, testing::KeepAll(), 0);
}

// The shards of `rig` without what the target computed, in a folder beside them.
std::string TokensOf(const Rig& rig) {
  const auto shards = OpenFeatureShards(rig.options.features.front());
  FeatureHeader header = shards->front()->header();
  header.keep = {.kv = false};
  header.top_k = 0;
  FeatureShardWriter writer;
  for (int i = 0; i < shards->front()->n_sequences(); ++i) {
    FeatureSequence s = shards->front()->sequence(i);
    s.kept = {};
    s.top_ids = {};
    s.top_log_probs = {};
    writer.Add(header, s);
  }
  std::filesystem::create_directories(rig.folder.File("tokens"));
  EXPECT_TRUE(writer.Write(header, FeatureShardPath(rig.folder.File("tokens"), 0)).ok());
  return rig.folder.File("tokens");
}

// As published files have them: matrices in Q4_K, the embedding in Q6_K; heads of qwen3 are not as wide as
// n_embd / n_heads.
TinyModelOptions InSuperBlocks(const std::string& architecture) {
  return {.architecture = architecture,
          .n_embd = 256,
          .head_dim = architecture == "qwen3" ? 128 : 0,
          .n_ff = 512,
          .dtype = DType::kQ4_K,
          .embedding_dtype = DType::kQ6_K};
}

TEST(TargetStates, AreTheEngines) {
  const std::vector<TinyModelOptions> models = {{.architecture = "llama"}, {.architecture = "qwen2"},
                                                {.architecture = "qwen3"}, InSuperBlocks("llama"),
                                                InSuperBlocks("qwen2"),    InSuperBlocks("qwen3")};
  for (const TinyModelOptions& model : models) {
    SCOPED_TRACE(model.architecture + " " + std::to_string(model.n_embd));
    const std::string& architecture = model.architecture;
    const Rig rig = EverythingOf({48, 17, 30}, model);
    const auto set = FeatureSet::Open(rig.options.features);
    const std::vector<int> sequences = {0, 1, 2, 3};
    const Batch engine = MakeBatch(*set, sequences, kAll, {});
    Batch torch = MakeBatch(*set, sequences, {}, {});
    StatesOf(rig).Compute(kAll, &torch);
    // The engine's weights and caches are in few bits, and shards in bf16.
    constexpr double kRounding = 0.02;
    EXPECT_LT(Relative(torch.final_hidden, engine.final_hidden), kRounding) << architecture;
    EXPECT_LT(Relative(torch.keys, engine.keys), kRounding) << architecture;
    EXPECT_LT(Relative(torch.values, engine.values), kRounding) << architecture;
    for (const int layer : {0, 1}) {
      EXPECT_LT(Relative(torch.hidden.at(layer), engine.hidden.at(layer)), kRounding)
          << architecture << layer;
    }
  }
}

// What a greedy text's last token was chosen by does not depend on what else was written beside it.
void ExpectWhatTheyFindLikeliest(const TinyModelOptions& model) {
  const Rig rig = EverythingOf({48}, model);
  const TargetStates states = StatesOf(rig);
  const std::vector<std::vector<int32_t>> beginnings = {{5, 16, 27}, {5}, {49, 5, 16, 27, 38, 60, 71}};
  const WriteOptions options = {.max_tokens = 9, .temperatures = {0.0F}, .ends = {}};
  const auto texts = states.Write(beginnings, 0, options, [](int) { return true; });
  ASSERT_EQ(texts.size(), 3U);
  const auto file = GgufFile::Open(rig.options.model);
  const auto set = FeatureSet::Open(rig.options.features);
  const auto parts = LoadFrozenParts(**file, set->target());
  for (size_t i = 0; i < texts.size(); ++i) {
    ASSERT_EQ(texts[i].size(), beginnings[i].size() + 9);
    Batch batch = {.ends = {static_cast<int64_t>(texts[i].size())},
                   .tokens = at::tensor(std::vector<int64_t>(texts[i].begin(), texts[i].end()), at::kLong)};
    states.Compute({.final_hidden = true}, &batch);
    const at::Tensor best = at::matmul(batch.final_hidden, parts->head.t()).argmax(1);
    for (size_t t = beginnings[i].size(); t < texts[i].size(); ++t) {
      EXPECT_EQ(best[static_cast<int64_t>(t) - 1].item<int64_t>(), texts[i][t]) << i << " " << t;
    }
  }
}

TEST(TargetStates, WriteWhatTheyFindLikeliest) {
  ExpectWhatTheyFindLikeliest({});
  ExpectWhatTheyFindLikeliest(InSuperBlocks("qwen2"));
  ExpectWhatTheyFindLikeliest(InSuperBlocks("qwen3"));
}

// Layers that do more than is known here are refused.
TEST(TargetStates, AreNotOfEveryArchitecture) {
  const Rig rig = EverythingOf({48}, {.architecture = "gemma3"});
  const auto set = FeatureSet::Open(rig.options.features);
  const auto file = GgufFile::Open(rig.options.model);
  EXPECT_THAT(TargetStates::Load(**file, set->target(), at::kCPU, at::kFloat).status().message(),
              HasSubstr("llama, qwen2 and qwen3 can be run, not of gemma3"));
}

TEST(TargetStates, StopAtAnEndAndWhenAsked) {
  const Rig rig = EverythingOf({48});
  const TargetStates states = StatesOf(rig);
  const std::vector<std::vector<int32_t>> beginnings = {{5, 16, 27}, {49}};
  WriteOptions options = {.max_tokens = 40, .temperatures = {0.0F}, .ends = {}};
  const auto all = states.Write(beginnings, 0, options, [](int) { return true; });
  options.ends = {all[0][5]};
  const auto ended = states.Write(beginnings, 0, options, [](int) { return true; });
  const auto first_end = std::ranges::find(all[0].begin() + 3, all[0].end(), options.ends[0]);
  EXPECT_EQ(ended[0], std::vector<int32_t>(all[0].begin(), first_end + 1));
  EXPECT_TRUE(states.Write(beginnings, 0, options, [](int step) { return step < 2; }).empty());
}

// As often as it is likely.
TEST(TargetStates, WriteByChanceAtATemperature) {
  const Rig rig = EverythingOf({48});
  const TargetStates states = StatesOf(rig);
  at::manual_seed(3);
  constexpr size_t kTexts = 4000;
  const std::vector<std::vector<int32_t>> beginnings(kTexts, {5, 16, 27});
  const WriteOptions options = {.max_tokens = 1, .temperatures = {0.5F}, .ends = {}};
  const auto texts = states.Write(beginnings, 0, options, [](int) { return true; });
  Batch batch = {.ends = {3}, .tokens = at::tensor(std::vector<int64_t>{5, 16, 27}, at::kLong)};
  states.Compute({.final_hidden = true}, &batch);
  const auto file = GgufFile::Open(rig.options.model);
  const auto set = FeatureSet::Open(rig.options.features);
  const auto parts = LoadFrozenParts(**file, set->target());
  const at::Tensor shares = (at::mv(parts->head, batch.final_hidden[2]) / 0.5).softmax(0);
  std::vector<double> count(static_cast<size_t>(shares.size(0)));
  for (const auto& text : texts) count[static_cast<size_t>(text.back())] += 1.0 / kTexts;
  for (size_t token = 0; token < count.size(); ++token) {
    EXPECT_NEAR(count[token], shares[static_cast<int64_t>(token)].item<double>(), 0.03) << token;
  }
}

// Of two steps, and of a look at other texts between them. Stopped: the end of a run measures the
// machine.
std::vector<double> FirstLosses(const Rig& rig) {
  std::vector<double> losses;
  const auto trained = Train(rig.options, [&](const TrainProgress& p) {
    if (p.validation != nullptr) losses.push_back(p.validation->all.loss);
    if (p.end_of_step) losses.push_back(p.loss);
    return losses.size() < 3;
  });
  EXPECT_EQ(trained.status().code(), StatusCode::kCancelled) << trained.status().message();
  return losses;
}

// Shards of tokens alone train the same draft, but for rounding. These kinds read all that shards can hold.
TEST(TargetStates, TrainWithoutFeatures) {
  for (const char* name : {"eagle", "longspec", "exit"}) {
    TraineeOptions draft;
    draft.kind = name;
    if (draft.kind == "exit") draft.layers = {0};
    KindRig rig(draft, {20, 9});
    rig.options.distill = 1.0;
    rig.options.checkpoint_every = 1;
    rig.options.validation = rig.options.features;
    const std::vector<double> with = FirstLosses(rig);
    rig.options.features = {TokensOf(rig)};
    rig.options.validation = rig.options.features;
    rig.options.output += "-tokens";
    const std::vector<double> without = FirstLosses(rig);
    ASSERT_EQ(with.size(), 3U) << name;
    ASSERT_EQ(without.size(), 3U) << name;
    for (size_t i = 0; i < with.size(); ++i) EXPECT_NEAR(without[i], with[i], 0.02) << name << i;
  }
}

TEST(TargetStates, TokensAloneDoNotGoWithMore) {
  Rig rig = EverythingOf({48});
  rig.options.features = {rig.options.features.front(), TokensOf(rig)};
  EXPECT_THAT(rig.Error(), HasSubstr("--keep none, and"));
}

}  // namespace
}  // namespace longspec::train
