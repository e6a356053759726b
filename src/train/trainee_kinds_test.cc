// SPDX-License-Identifier: Apache-2.0
//
// What holds for every kind of draft.
#include "train/trainee_kinds.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "draft_model/draft_checkpoint.h"
#include "draft_model/lm_file.h"
#include "formats/gguf_writer.h"
#include "train/testing/rig.h"
#include "train/testing/trainees.h"

namespace longspec::train {
namespace {

using testing::BatchOf;
using testing::DifferentRows;
using ::testing::HasSubstr;
using testing::KeepAll;
using testing::Range;
using testing::ReadText;
using testing::Relative;
using testing::Rig;
using testing::TraineeOf;

struct Variant {
  std::string name;
  TraineeOptions options;
};
void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }
// Every kind, and its variants.
std::vector<Variant> Variants() {
  std::vector<Variant> variants;
  for (const TraineeKind* kind : TraineeKinds()) variants.push_back({kind->name, {.kind = kind->name}});
  variants.push_back({"longspec_own_keys", {.kind = "longspec", .own_keys = true}});
  variants.push_back({"eagle_three_steps", {.kind = "eagle", .simulate = 3}});
  variants.push_back({"beagle_late", {.kind = "beagle", .simulate = 4}});
  variants.push_back({"exit_of_final", {.kind = "exit", .simulate = 3}});
  for (Variant& variant : variants) {
    if (variant.options.kind == "eagle3") variant.options.layers = {0, 1, 1};
  }
  return variants;
}

struct EveryKind : ::testing::TestWithParam<Variant> {
  // Features in bf16 with the target's distribution in hidden states.
  static std::unique_ptr<Rig> MakeRig(const std::vector<int>& lengths = {testing::kLength}) {
    auto rig = std::make_unique<testing::KindRig>(GetParam().options, lengths);
    rig->options.distill = 0.5;
    return rig;
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, EveryKind, ::testing::ValuesIn(Variants()),
                         [](const auto& variant) { return variant.param.name; });

// Whether losses are over all of its head or over some tokens, the one that validation finds is over all.
TEST_P(EveryKind, TheLossFalls) {
  for (const int tokens_of_loss : {0, 8}) {
    const auto rig = MakeRig();
    rig->options.steps = tokens_of_loss > 0 ? 30 : 50;
    rig->options.vocab = 20;
    rig->options.tokens_of_loss = tokens_of_loss;
    rig->options.optimiser.weight_decay = 0.0;
    rig->options.validation = rig->options.features;
    rig->options.checkpoint_every = rig->options.steps / 2;
    std::vector<Validation> seen;
    std::vector<double> losses;
    const auto trained = Train(rig->options, [&](const TrainProgress& p) {
      if (p.validation != nullptr) seen.push_back(*p.validation);
      if (p.end_of_step) losses.push_back(p.loss);
      return true;
    });
    ASSERT_TRUE(trained.ok()) << trained.status().message();
    EXPECT_LT(losses.back(), (tokens_of_loss > 0 ? 1.0 : 0.9) * losses.front()) << tokens_of_loss;
    ASSERT_EQ(seen.size(), 2U);
    EXPECT_LT(seen[1].all.loss, seen[0].all.loss) << tokens_of_loss;
  }
}

TEST_P(EveryKind, AStoppedRunEndsInTheSameWeights) {
  const auto whole = MakeRig({48, 17, 30}), rig = MakeRig({48, 17, 30});
  for (Rig* r : {whole.get(), rig.get()}) {
    r->options.steps = 4;
    r->options.tokens_of_loss = 16;
  }
  rig->options.threads = 2;
  ASSERT_TRUE(whole->Run().ok());
  ASSERT_FALSE(rig->Run(4).ok());
  ASSERT_TRUE(rig->Run().ok());
  EXPECT_EQ(rig->Weights(), whole->Weights());
  EXPECT_EQ(ReadText(CheckpointPath(rig->options.output)), ReadText(CheckpointPath(whole->options.output)));
}

// Wherever in a draft they stand.
TEST_P(EveryKind, WeightsThatAreNoNumbersEndARun) {
  const auto rig = MakeRig();
  ASSERT_FALSE(rig->Run(4).ok());
  const std::string path = CheckpointPath(rig->options.output), good = ReadText(path);
  const std::string weights = rig->Weights();
  std::vector<std::string> names;
  const auto trainee = TraineeOf(*rig);
  for (const auto& [name, tensor] : trainee->parameters().tensors()) {
    if (tensor.requires_grad()) names.push_back(name);
  }
  for (const auto& [name, value] : {std::pair(names.front(), std::numeric_limits<float>::infinity()),
                                    std::pair(names.back(), std::numeric_limits<float>::quiet_NaN())}) {
    std::string bad = good;
    testing::Fill(name, value, &bad);
    testing::WriteText(path, bad);
    const Status status = rig->Run().status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << name;
    EXPECT_THAT(status.message(),
                ::testing::AllOf(HasSubstr("step "), HasSubstr(" no finite number; the last")))
        << name;
    EXPECT_EQ(ReadText(path), bad) << name;
    EXPECT_EQ(rig->Weights(), weights) << name;
  }
}

TEST_P(EveryKind, FeaturesThatAreNoNumbersEndARun) {
  const auto rig = MakeRig();
  const std::string path = FeatureShardPath(rig->options.features.front(), 0);
  const std::string good = ReadText(path);
  for (const uint16_t bf16 : {uint16_t{0x7F80}, uint16_t{0x7FC0}}) {  // infinity, not a number
    std::string bad = good;
    for (const char* name : {"keys", "values", "final_hidden", "hidden.0", "hidden.1"})
      testing::Fill(name, bf16, &bad);
    testing::WriteText(path, bad);
    const Status status = rig->Run().status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr("step 1: the loss is no finite number"));
    EXPECT_FALSE(std::filesystem::exists(CheckpointPath(rig->options.output)));
  }
}

// But for noise, which is drawn by row.
TEST_P(EveryKind, PackingChangesNothing) {
  const auto rig = MakeRig({48, 17, 30});
  rig->options.draft.noise = StateNoise::kNone;
  const auto trainee = TraineeOf(*rig);
  const LabelOptions labels = {.distill = 0.5, .vocab = {}};
  const auto gradients = [&](const std::vector<int>& sequences, double* loss, double* rows) {
    const PassLoss sum =
        trainee->Loss(BatchOf(*rig, sequences, labels, {.anchors = 2, .offset = 100}), {.seed = 4});
    *loss += sum.sum.item<double>();
    *rows += static_cast<double>(sum.rows);
    for (const at::Tensor& parameter : trainee->parameters().Trained()) parameter.mutable_grad().reset();
    sum.sum.backward();
    std::vector<at::Tensor> all;
    for (const at::Tensor& parameter : trainee->parameters().Trained()) {
      all.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::zeros_like(parameter));
    }
    return all;
  };
  double loss = 0.0, rows = 0.0, loss_alone = 0.0, rows_alone = 0.0;
  const std::vector<at::Tensor> together = gradients({0, 1, 2}, &loss, &rows);
  std::vector<at::Tensor> alone = gradients({0}, &loss_alone, &rows_alone);
  for (const int i : {1, 2}) {
    const std::vector<at::Tensor> next = gradients({i}, &loss_alone, &rows_alone);
    for (size_t p = 0; p < alone.size(); ++p) alone[p] += next[p];
  }
  EXPECT_EQ(rows, rows_alone);
  EXPECT_NEAR(loss, loss_alone, 1e-5 * loss);
  double gradient = 0.0;
  for (size_t p = 0; p < alone.size(); ++p) {
    const double norm = alone[p].norm().item<double>();
    gradient += norm;
    EXPECT_LE((together[p] - alone[p]).norm().item<double>(), 1e-4 * norm) << p;
  }
  EXPECT_GT(gradient, 0.0);
  EXPECT_FALSE(trainee->setup().frozen.embedding.grad().defined());
  EXPECT_FALSE(trainee->setup().frozen.head.grad().defined());
}

// What a draft proposes after a row's token may depend on tokens up to it, and on what the target computed
// for tokens `lag` places before at the latest. (Early exit runs the target's first layers for drafted
// tokens.)
TEST_P(EveryKind, NothingComesFromTheFuture) {
  const auto rig = MakeRig();
  const auto trainee = TraineeOf(*rig);
  const at::NoGradGuard no_grad;
  const PlacedBatch before = BatchOf(*rig, {1, 2});
  const std::vector<at::Tensor> plain = trainee->Chain(before, 4);
  ASSERT_EQ(plain.size(), 4U);
  const int64_t at = 20;
  PlacedBatch tokens = before, states = before;
  tokens.embedded = before.embedded.clone();
  tokens.embedded[at] += 1.0;
  states.keys = before.keys.clone();
  states.values = before.values.clone();
  states.final_hidden = before.final_hidden.clone();
  states.keys[at] += 1.0;
  states.values[at] += 1.0;
  states.final_hidden[at] += 1.0;
  const bool is_exit = rig->options.draft.kind == "exit";
  const bool reads_states = is_exit ? GetParam().options.simulate > 0 : rig->options.draft.kind != "lm";
  for (auto& [layer, hidden] : states.hidden) {
    if (is_exit) continue;  // whose rows read their own token's
    hidden = hidden.clone();
    hidden[at] += 1.0;
  }
  const std::vector<at::Tensor> other_token = trainee->Chain(tokens, 4),
                                other_state = trainee->Chain(states, 4);
  for (size_t lag = 1; lag <= 4; ++lag) {
    EXPECT_EQ(plain[lag - 1].size(0), before.n());
    for (const int64_t row : DifferentRows(other_token[lag - 1], plain[lag - 1])) {
      EXPECT_GE(row, at);
      EXPECT_LT(row, testing::kLength);
    }
    const std::vector<int64_t> changed = DifferentRows(other_state[lag - 1], plain[lag - 1]);
    // TokenSwift has three heads, and drafts nothing behind them.
    const bool drafts = plain[lag - 1].abs().max().item<double>() > 0;
    EXPECT_TRUE(drafts || (lag == 4 && rig->options.draft.kind == "tokenswift")) << lag;
    EXPECT_EQ(changed.empty(), !reads_states || !drafts);
    for (const int64_t row : changed) {
      EXPECT_GE(row, at + static_cast<int64_t>(lag)) << lag;
      EXPECT_LT(row, testing::kLength);
    }
  }
}

TEST_P(EveryKind, ExportsWhatItCanBeginWith) {
  const auto rig = MakeRig();
  rig->options.steps = 3;
  rig->options.vocab = 20;
  rig->options.positions = Positions::kAnchorOffset;
  ASSERT_TRUE(rig->Run().ok());
  const auto config = nlohmann::json::parse(ReadText(rig->options.output + "/config.json"));
  const auto set = FeatureSet::Open(rig->options.features);
  EXPECT_EQ(config.at("longspec_draft"), rig->options.draft.kind);
  EXPECT_EQ(config.at("longspec_target"), set->target().fingerprint);
  EXPECT_EQ(config.at("hidden_size"), 64);
  EXPECT_EQ(config.at("intermediate_size"), set->target().n_ff);
  EXPECT_EQ(config.at("longspec_trained_positions"), set->target().n_ctx);
  const auto trained = TraineeOf(*rig, 1, set->FrequentTokens(20)),
             loaded = TraineeOf(*rig, 2, set->FrequentTokens(20));
  const auto positions = LoadDraft(rig->options.output, *loaded);
  ASSERT_TRUE(positions.ok()) << positions.status().message();
  EXPECT_EQ(*positions, set->target().n_ctx);
  bool differs = false;
  for (const auto& [name, tensor] : loaded->parameters().tensors()) {
    differs |= !tensor.equal(trained->parameters().Find(name));
  }
  EXPECT_TRUE(differs);
  // A GGUF file of it says the same, whoever wrote it.
  std::string gguf = rig->options.output + "/model.gguf";
  if (rig->options.draft.kind != "lm") {
    gguf = rig->folder.File("draft.gguf");
    const auto checkpoint = OpenDraftCheckpoint(rig->options.output);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    ASSERT_TRUE(WriteDraftGguf(*checkpoint, std::nullopt, gguf).ok());
  }
  const auto again = TraineeOf(*rig, 3, set->FrequentTokens(20));
  const auto as_gguf = LoadDraft(gguf, *again);
  ASSERT_TRUE(as_gguf.ok()) << as_gguf.status().message();
  EXPECT_EQ(*as_gguf, set->target().n_ctx);
  for (const auto& [name, tensor] : again->parameters().tensors()) {
    const at::Tensor& expected = loaded->parameters().Find(name);
    const bool halves = rig->options.draft.kind == "lm" && tensor.dim() == 2;
    EXPECT_TRUE(tensor.equal(halves ? expected.to(at::kHalf).to(at::kFloat) : expected)) << name;
  }
  for (const std::string& path : {rig->options.output, gguf}) {
    const auto vocab = LoadDraftVocab(path, set->target().n_vocab);
    ASSERT_TRUE(vocab.ok()) << vocab.status().message();
    EXPECT_EQ(*vocab, set->FrequentTokens(20));
  }
}

// Training goes on from what `longspec convert` made of it, in fewer bits.
TEST_P(EveryKind, GoesOnFromAGgufFile) {
  const auto first = MakeRig();
  first->options.steps = 12;
  ASSERT_TRUE(first->Run().ok());
  const std::string gguf = first->folder.File("draft.gguf");
  if (first->options.draft.kind == "lm") {
    const auto file = GgufFile::Open(first->options.output + "/model.gguf");
    ASSERT_TRUE(WriteLmGguf(**file, DType::kQ8_0, gguf).ok());
  } else {
    const auto checkpoint = OpenDraftCheckpoint(first->options.output);
    ASSERT_TRUE(WriteDraftGguf(*checkpoint, DType::kQ8_0, gguf).ok());
  }
  const auto next = MakeRig();
  next->options.init = gguf;
  next->options.steps = 1;
  const auto run = next->Run();
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_LT(next->losses.front(), first->losses.front());
  // A file of another kind is refused by name.
  next->options.draft.kind = first->options.draft.kind == "medusa" ? "tokenswift" : "medusa";
  next->options.draft.simulate = TraineeOptions{}.simulate;
  next->options.output = next->folder.File("other");
  EXPECT_THAT(next->Error(), HasSubstr("draft.gguf: has architecture"));
}

TEST(TraineeKinds, AnLmGoesOnFromAsManyLayersOfItsTargetsArchitecture) {
  testing::KindRig first({.kind = "lm", .layers = {0, 1}}), next({.kind = "lm", .layers = {0}});
  first.options.steps = 1;
  ASSERT_TRUE(first.Run().ok());
  next.options.init = first.options.output + "/model.gguf";
  EXPECT_THAT(next.Error(), HasSubstr("model.gguf: has 2 layers, --layers names 1"));
  GgufWriter writer;
  writer.SetString("general.architecture", "eagle");
  next.options.init = next.folder.File("eagle.gguf");
  ASSERT_TRUE(writer.Write(next.options.init).ok());
  EXPECT_THAT(next.Error(), HasSubstr("eagle.gguf: has architecture \"eagle\", a draft of --kind lm has"));
}

TEST(TraineeKinds, OptionsOfOtherKindsAreRefused) {
  const std::vector<std::string> window = {"--window"}, several = {"--ff", "--simulate", "--heads"};
  EXPECT_TRUE(CheckTraineeOptions("longspec", window).ok());
  EXPECT_TRUE(CheckTraineeOptions("medusa", {}).ok());
  EXPECT_EQ(CheckTraineeOptions("medusa", window).message(),
            "--window: not an option of --kind medusa, which has --heads");
  EXPECT_THAT(CheckTraineeOptions("eagle", several).message(),
              HasSubstr("--heads: not an option of --kind eagle"));
  EXPECT_THAT(CheckTraineeOptions("owl", {}).message(), HasSubstr("--kind owl: unknown"));
  // A block that begins as the target's is as wide.
  Rig rig({}, {testing::kLength}, {}, KeepAll(), 0);
  rig.options.draft.kind = "eagle";
  rig.options.draft.n_ff = 32;
  rig.options.init_from_target = true;
  EXPECT_THAT(rig.Error(), HasSubstr("--ff 32: with --init-from-target it is the target's, "));
}

TEST(TraineeKinds, UnknownOnesAndMissingFeaturesAreSaid) {
  Rig rig;
  rig.options.draft.kind = "owl";
  EXPECT_THAT(rig.Error(), HasSubstr("--kind owl: unknown; known are longspec"));
  rig.options.draft.kind = "eagle";
  EXPECT_THAT(rig.Error(), HasSubstr("holds kv, and this kind of draft needs final too"));
  Rig other({}, {testing::kLength}, {}, KeepAll(), 0);
  other.options.draft.kind = "eagle";
  other.options.draft.simulate = 0;
  EXPECT_THAT(other.Error(), HasSubstr("--simulate: must be at least 1"));
}

}  // namespace
}  // namespace longspec::train
