// SPDX-License-Identifier: Apache-2.0
//
// What is trained is what drafts: the trees of the engine's drafters over exported drafts of every kind have
// the chances that the trainer's own forward pass gives their tokens.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <optional>

#include "decode/testing/one_sequence.h"
#include "draft/testing/table_model.h"
#include "draft_model/registry.h"
#include "policy/policy.h"
#include "sampling/sampler.h"
#include "train/files.h"
#include "train/testing/rig.h"
#include "train/testing/trainees.h"

namespace longspec::train {
namespace {

using longspec::testing::OneSequence;
using longspec::testing::Path;
using longspec::testing::PathsOf;
using testing::Rig;
using testing::TraineeOf;

constexpr double kBound = 0.02;  // of log-probabilities: the trainer reads states of 16 bits

struct DraftVariant {
  std::string name;
  TraineeOptions draft;
  int depth = 3;  // of its trees
  // Levels that the target itself chooses, over a part of its cache that holds all of a text as short as
  // here.
  int own_levels = 0;
  size_t n_nodes = 9;
  int n_committed = 40;         // tokens; of tokenswift three, which have no 4-gram
  TinyModelOptions model = {};  // the target
};
// With everything that a file can say of it.
const TinyModelOptions kYarn = {
    .rope_scaling = "yarn",
    .rope_original_context = 16,
    .rope_scaling_numbers = {{"factor", 4}, {"yarn_beta_fast", 4}, {"yarn_attn_factor", 1.25F}}};
// Of Qwen3-4B's kind: the heads together are wider than the states.
const TinyModelOptions kWideHeads = {.architecture = "qwen3", .head_dim = 32};
void PrintTo(const DraftVariant& variant, std::ostream* out) { *out << variant.name; }

class DraftParity : public ::testing::TestWithParam<DraftVariant> {};
INSTANTIATE_TEST_SUITE_P(
    Kinds, DraftParity,
    ::testing::Values(
        DraftVariant{"longspec", {.kind = "longspec"}},
        DraftVariant{"longspec_own_keys", {.kind = "longspec", .own_keys = true}},
        DraftVariant{"eagle", {.kind = "eagle"}},
        DraftVariant{"eagle3", {.kind = "eagle3", .layers = {0, 1, 1}}},
        DraftVariant{"beagle", {.kind = "beagle"}}, DraftVariant{"medusa", {.kind = "medusa"}},
        DraftVariant{"tokenswift",
                     {.kind = "tokenswift"},
                     /*depth=*/4,
                     /*own_levels=*/1,
                     /*n_nodes=*/10,
                     /*n_committed=*/3},
        DraftVariant{"exit", {.kind = "exit"}},
        DraftVariant{"exit_of_final", {.kind = "exit", .simulate = 2}},
        DraftVariant{.name = "eagle_of_yarn", .draft = {.kind = "eagle"}, .model = kYarn},
        DraftVariant{.name = "beagle_of_yarn", .draft = {.kind = "beagle"}, .model = kYarn},
        DraftVariant{.name = "exit_of_yarn", .draft = {.kind = "exit"}, .model = kYarn},
        DraftVariant{
            .name = "exit_of_final_of_yarn", .draft = {.kind = "exit", .simulate = 2}, .model = kYarn},
        DraftVariant{.name = "eagle_of_wide_heads", .draft = {.kind = "eagle"}, .model = kWideHeads},
        DraftVariant{.name = "beagle_of_wide_heads", .draft = {.kind = "beagle"}, .model = kWideHeads}),
    [](const auto& variant) { return variant.param.name; });

FeatureKeep KeepAllIn16Bits() {
  FeatureKeep keep = testing::KeepAll();
  keep.type = DType::kF16;  // nearer to what the engine's drafters read, which is f32
  return keep;
}

// The tree that the engine drafts below the last of these tokens.
TokenTree Drafted(Rig& rig, const std::vector<int32_t>& tokens, const SpeculationOptions& options,
                  int depth) {
  const auto cache = rig.tiny.NewCache(512, CacheType::kF16);
  auto drafter = MakeDrafter(options, {.target = &rig.tiny.target(), .cache = cache.get()});
  EXPECT_TRUE(drafter.ok()) << drafter.status().message();
  auto sampler = Sampler::Create({.seed = 1}, rig.tiny.spec.n_vocab);
  EXPECT_TRUE(sampler.ok()) << sampler.status().message();
  OneSequence decoder(&rig.tiny.target(), tokens, cache.get(), drafter->get(), MakeFixedPolicy(options),
                      *sampler);
  Status status = decoder.Prefill();
  EXPECT_TRUE(status.ok()) << status.message();
  TokenTree tree(tokens.back());
  status = (*drafter)->Propose({.max_nodes = 12, .max_depth = depth}, tokens, tree);
  EXPECT_TRUE(status.ok()) << status.message();
  return tree;
}

// Log-probabilities of what follows the last of these tokens, the draft knowing of the target's states those
// up to `lag` tokens before it. At lag 0 they are the target's own.
at::Tensor Trained(const Trainee& trainee, const TinyModelOptions& model, const std::vector<int32_t>& tokens,
                   int lag) {
  const Rig seen({tokens}, {}, model, KeepAllIn16Bits(), 0);
  const PlacedBatch batch = testing::BatchOf(seen, {0});
  if (lag == 0) {
    const at::Tensor state = batch.final_hidden[static_cast<int64_t>(tokens.size()) - 1];
    return at::matmul(trainee.Head(1), state).log_softmax(0);
  }
  const at::Tensor states = trainee.Chain(batch, lag)[static_cast<size_t>(lag) - 1];
  return at::matmul(trainee.Head(lag), states[static_cast<int64_t>(tokens.size()) - 1]).log_softmax(0);
}

TEST_P(DraftParity, TreesHaveTheTrainersChances) {
  Rig rig({}, {testing::kLength}, GetParam().model, KeepAllIn16Bits(), 0);
  rig.options.draft = GetParam().draft;
  rig.options.steps = 15;
  rig.options.distill = 0.5;
  ASSERT_TRUE(rig.Run().ok());
  const auto trainee = TraineeOf(rig);
  const auto loaded = LoadDraft(rig.options.output, *trainee);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const at::NoGradGuard no_grad;

  SpeculationOptions options;
  options.type = GetParam().draft.kind;
  options.draft_model = rig.options.output;
  options.draft_weights = "f32";
  options.tree = "4,3,2";
  options.draft_n_max = 12;
  const std::vector<int32_t> committed = testing::SequenceTokens(1, GetParam().n_committed);
  const std::map<Path, double> paths = PathsOf(Drafted(rig, committed, options, GetParam().depth));
  size_t deepest = 0;
  double likeliest = -1e9;
  for (const auto& [path, chance] : paths) {
    deepest = std::max(deepest, path.size());
    std::vector<int32_t> tokens = committed;
    double expected = 0.0;
    for (const int32_t token : path) {
      const auto lag = static_cast<int>(tokens.size()) - GetParam().n_committed + 1 - GetParam().own_levels;
      const at::Tensor next = Trained(*trainee, GetParam().model, tokens, lag);
      expected += next[token].item<double>();
      tokens.push_back(token);
    }
    EXPECT_NEAR(std::log(chance), expected, kBound) << "depth " << path.size();
    likeliest = std::max(likeliest, expected);
  }
  EXPECT_NEAR(likeliest,
              Trained(*trainee, GetParam().model, committed, 1 - GetParam().own_levels).max().item<double>(),
              kBound);
  EXPECT_EQ(paths.size(), GetParam().n_nodes);
  EXPECT_EQ(deepest, static_cast<size_t>(GetParam().depth));
}

}  // namespace
}  // namespace longspec::train
