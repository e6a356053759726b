// SPDX-License-Identifier: Apache-2.0
//
// Whole runs on a tiny target: what they make of their options and features.
#include "train/trainer.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <span>

#include "draft_model/draft_checkpoint.h"
#include "draft_model/longspec.h"
#include "tensor/dequantize.h"
#include "train/feature_set.h"
#include "train/files.h"
#include "train/schedule.h"
#include "train/testing/rig.h"
#include "train/testing/trainees.h"

namespace longspec::train {
namespace {

using testing::Folder;
using ::testing::HasSubstr;
using testing::kLength;
using testing::kSequences;
using testing::ReadText;
using testing::Rig;

TEST(Train, TheLossFalls) {
  Rig rig;
  rig.options.steps = 60;
  const auto trained = rig.Run();
  ASSERT_TRUE(trained.ok()) << trained.status().message();
  EXPECT_EQ(trained->steps, 60);
  EXPECT_EQ(trained->tokens, 60 * 4 * kLength);
  EXPECT_LT(rig.losses.back(), 0.5 * rig.losses.front());
  EXPECT_EQ(rig.last.steps, 60);
  EXPECT_GT(rig.last.gradient_norm, 0.0);
}

TEST(Train, IsAFunctionOfItsOptions) {
  Rig a, b, c;
  c.options.seed = 43;
  for (Rig* rig : {&a, &b, &c}) ASSERT_TRUE(rig->Run().ok());
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.Weights(), b.Weights());
  EXPECT_NE(a.Weights(), c.Weights());
}

TEST(Train, ThreadsChangeNothing) {
  Rig one, three;
  three.options.threads = 3;
  one.options.micro_batch = three.options.micro_batch = 1;
  ASSERT_TRUE(one.Run().ok());
  const auto summary = three.Run();
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(one.Weights(), three.Weights());
  EXPECT_GT(summary->giga_macs, 0.0);
  EXPECT_GT(summary->seconds, 0.0);
  EXPECT_GT(summary->peak_giga_macs, 0.0);
}

TEST(Train, LooksAtOtherFeatures) {
  Rig rig;
  rig.options.validation = rig.options.features;
  rig.options.steps = 60;
  rig.options.checkpoint_every = 20;
  std::vector<Validation> seen;
  const auto trained = Train(rig.options, [&](const TrainProgress& p) {
    if (p.validation != nullptr) seen.push_back(*p.validation);
    return true;
  });
  ASSERT_TRUE(trained.ok()) << trained.status().message();
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen[0].all.rows, kSequences * (kLength - 1));
  EXPECT_LT(seen[2].all.loss, seen[0].all.loss);
  ASSERT_EQ(seen[0].buckets.size(), 1U);
  EXPECT_EQ(seen[0].buckets[0].loss, seen[0].all.loss);
  ASSERT_EQ(seen[2].all.agreement.size(), 4U);
  for (const double share : seen[2].all.agreement) {
    EXPECT_GE(share, 0.0);
    EXPECT_LE(share, 1.0);
  }
  const AcceptedLengths& accepted = seen[2].all.accepted;
  EXPECT_LE(accepted.chain, accepted.tree_8);
  EXPECT_LE(accepted.tree_8, accepted.tree_16);
  EXPECT_GE(accepted.tree_16, seen[0].all.accepted.tree_16);  // so small a draft may yet foresee nothing
  // What is looked at does not change the draft.
  Rig blind;
  blind.options.steps = 60;
  blind.options.checkpoint_every = 20;
  ASSERT_TRUE(blind.Run().ok());
  EXPECT_EQ(blind.Weights(), rig.Weights());
  Rig other([](FeatureHeader& header, std::vector<int8_t>&) { header.target.n_ctx = 400; });
  blind.options.validation = other.options.features;
  EXPECT_THAT(blind.Error(), HasSubstr("--validate"));
}

// Sequences are packed: however they are grouped, the loss is the mean over tokens.
TEST(Train, MicroBatchesChangeHardlyAnything) {
  const std::vector<int> lengths = {48, 17, 30};
  Rig rig({}, lengths), other({}, lengths);
  for (Rig* r : {&rig, &other}) {
    r->options.steps = 0;
    r->options.positions = Positions::kPlain;
    r->options.draft.most_lag = 1;
  }
  other.options.micro_batch = 1;
  const auto together = rig.Run(), alone = other.Run();
  ASSERT_TRUE(together.ok() && alone.ok());
  EXPECT_EQ(together->tokens, 4 * (48 + 17 + 30));
  EXPECT_EQ(alone->tokens, together->tokens);
  ASSERT_EQ(rig.losses.size(), 3U);
  ASSERT_EQ(rig.losses.size(), other.losses.size());
  for (size_t i = 0; i < rig.losses.size(); ++i) EXPECT_NEAR(rig.losses[i], other.losses[i], 1e-4) << i;
}

// Features of several folders are trained on together, if they are of the same model.
TEST(Train, SeveralFolders) {
  Rig rig;
  rig.options.features.push_back(rig.options.features.front());
  rig.options.steps = 0;
  const auto summary = rig.Run();
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(summary->tokens, 2 * kSequences * kLength);
  Rig other([](FeatureHeader& header, std::vector<int8_t>&) { header.target.n_ctx = 400; });
  rig.options.features.back() = other.options.features.front();
  rig.options.output = rig.folder.File("other");
  EXPECT_THAT(rig.Error(), HasSubstr("features of another model"));
}

// The tiny target is of llama's architecture with a layer or more: its parts fit.
TEST(Train, BeginsWithTheTargetsWeights) {
  Rig rig;
  rig.options.draft.n_ff = 0;
  rig.options.init_from_target = true;
  rig.options.steps = 1;
  ASSERT_TRUE(rig.Run().ok());
  const auto trainee = testing::TraineeOf(rig);
  const Parameters& net = trainee->parameters();
  const at::NoGradGuard no_grad;
  const auto file = GgufFile::Open(rig.options.model);
  ASSERT_TRUE(trainee->InitFromTarget().ok());
  const TensorView* q = (*file)->FindTensor("blk.0.attn_q.weight");
  std::vector<float> row(64);
  DequantizeRow(q->dtype, q->row(16 + 3), 64, row.data());  // of head 1, the second of pair 1
  EXPECT_EQ(net.Find("self_attn.q_proj.weight")[16 + 8 + 1][5].item<float>(), row[5]);
  rig.options.init = rig.options.output;
  EXPECT_THAT(rig.Error(), HasSubstr("--init-from-target"));
  rig.options.init.clear();
  rig.options.draft.n_ff = 32;
  rig.options.output = rig.folder.File("narrow");
  EXPECT_THAT(rig.Error(), HasSubstr("--ff 32: with --init-from-target it is the target's, 128"));
}

// Of a qwen2 target the biases too, and nothing changes places.
TEST(Train, BeginsWithTheWeightsOfAQwen) {
  Rig rig({}, {kLength}, {.architecture = "qwen2"});
  rig.options.draft.n_ff = 0;
  rig.options.init_from_target = true;
  rig.options.steps = 1;
  ASSERT_TRUE(rig.Run().ok());
  const auto trainee = testing::TraineeOf(rig);
  const Parameters& net = trainee->parameters();
  const at::NoGradGuard no_grad;
  const auto file = GgufFile::Open(rig.options.model);
  ASSERT_TRUE(trainee->InitFromTarget().ok());
  const auto expect_row = [&](const char* from, int64_t row, const at::Tensor& to) {
    const TensorView* tensor = (*file)->FindTensor(from);
    std::vector<float> values(static_cast<size_t>(to.numel()));
    DequantizeRow(tensor->dtype, tensor->row(row), to.numel(), values.data());
    EXPECT_TRUE(at::equal(to, at::tensor(values))) << from;
  };
  expect_row("blk.0.attn_k.weight", 19, net.Find("self_attn.k_proj.weight")[19]);
  expect_row("blk.0.attn_q.bias", 0, net.Find("self_attn.q_proj.bias"));
  expect_row("blk.0.attn_v.bias", 0, net.Find("self_attn.v_proj.bias"));
  expect_row("blk.1.attn_q.bias", 0, net.Find("cross_attn.q_proj.bias"));
}

// Other features have other frequent tokens.
TEST(Train, ADraftThatGoesOnKeepsItsTokens) {
  Rig first;
  first.options.vocab = 5;
  first.options.steps = 2;
  ASSERT_TRUE(first.Run().ok());
  const auto vocab = LoadDraftVocab(first.options.output, 384);
  ASSERT_TRUE(vocab.ok()) << vocab.status().message();
  ASSERT_EQ(vocab->size(), 5U);
  Rig second([](FeatureHeader&, std::vector<int8_t>& loss) { std::fill(loss.begin() + 3, loss.end(), 0); });
  const auto others = FeatureSet::Open(second.options.features);
  ASSERT_NE(others->FrequentTokens(5), *vocab);
  second.options.init = first.options.output;
  second.options.steps = 2;
  for (const int n : {0, 5}) {
    second.options.vocab = n;
    second.options.output = second.folder.File("on" + std::to_string(n));
    const auto run = second.Run();
    ASSERT_TRUE(run.ok()) << run.status().message();
    EXPECT_EQ(*LoadDraftVocab(second.options.output, 384), *vocab);
  }
  second.options.vocab = 30;
  second.options.output = second.folder.File("other");
  EXPECT_THAT(second.Error(), HasSubstr("--draft-vocab 30: the draft of --init chooses among 5 tokens"));
  EXPECT_EQ(LoadDraftVocab(first.options.output, 6).status().code(), StatusCode::kCorrupt);
}

// Tokens of a reduced head as files may have them (docs/formats.md).
TEST(Train, TokensOfAHeadAreReadInAnyOrderAndEitherType) {
  const testing::Folder folder;
  const auto read = [&](const std::string& name, DType type, std::span<const std::byte> bytes, int64_t n) {
    SafetensorsWriter writer;
    writer.AddTensor(name, type, {n}, bytes);
    EXPECT_TRUE(writer.Write(folder.File("model.safetensors")).ok());
    return LoadDraftVocab(folder.path(), 384);
  };
  const std::vector<int32_t> narrow = {9, 3, 200};
  const std::vector<int64_t> wide = {9, 3, 200}, sorted = {3, 9, 200}, twice = {3, 3}, beyond = {3, 384};
  EXPECT_EQ(*read("draft.vocab", DType::kI32, std::as_bytes(std::span(narrow)), 3), sorted);
  EXPECT_EQ(*read("draft.vocab", DType::kI64, std::as_bytes(std::span(wide)), 3), sorted);
  // EAGLE-3's are what is added to a row's number.
  EXPECT_EQ(*read("d2t", DType::kI64, std::as_bytes(std::span(sorted)), 3),
            (std::vector<int64_t>{3, 10, 202}));
  const std::vector<int64_t> wraps = {3, std::numeric_limits<int64_t>::max()};
  for (const auto& [name, tokens] : {std::pair("draft.vocab", twice), std::pair("draft.vocab", beyond),
                                     std::pair("d2t", wraps), std::pair("d2t", std::vector<int64_t>{9, 3})}) {
    const auto refused = read(name, DType::kI64, std::as_bytes(std::span(tokens)), 2);
    EXPECT_EQ(refused.status().code(), StatusCode::kCorrupt) << name;
    EXPECT_THAT(refused.status().message(), HasSubstr(name));
  }
}

// The same sequences in another order are other batches.
TEST(Train, ARunThatGoesOnHasTheFoldersItBeganWith) {
  const auto named = [](FeatureHeader& header, std::vector<int8_t>&) { header.source = "others"; };
  Rig rig, other(named);
  rig.options.features.push_back(other.options.features.front());
  ASSERT_TRUE(rig.Run().ok());
  std::ranges::reverse(rig.options.features);
  EXPECT_THAT(rig.Error(), HasSubstr("a run with other options or features"));
}

TEST(Train, NamesThatAreNoUtf8AreKept) {
  Rig first, second;
  first.options.output = first.folder.File("entw\xfcrfe");
  first.options.steps = 2;
  ASSERT_TRUE(first.Run().ok());
  second.options.init = first.options.output;
  second.options.steps = 2;
  ASSERT_TRUE(second.Run().ok());
  second.options.steps = 4;  // of a cosine: another run
  EXPECT_THAT(second.Error(), HasSubstr("a run with other options"));
  second.options.steps = 2;
  second.options.tokens_of_loss = 16;
  EXPECT_THAT(second.Error(), HasSubstr("a run with other options"));
}

TEST(Train, WhatIsValidatedHasTheSameLabels) {
  Rig rig({}, {testing::kLength}, {}, KeepAll(), 0), without;
  rig.options.distill = 1.0;
  rig.options.validation = without.options.features;
  EXPECT_THAT(rig.Error(), ::testing::AllOf(HasSubstr("--distill: these features of --validate"),
                                            HasSubstr(without.options.features.front())));
}

TEST(Train, BeginsWithAnotherDraft) {
  Rig first;
  first.options.steps = 40;
  ASSERT_TRUE(first.Run().ok());
  Rig second;
  second.options.init = first.options.output;
  second.options.steps = 2;
  ASSERT_TRUE(second.Run().ok());
  EXPECT_LT(second.losses.front(), 0.7 * first.losses.front());
  second.options.init = first.folder.File("tiny.gguf");
  second.options.output = second.folder.File("other");
  EXPECT_THAT(second.Error(), HasSubstr("tiny.gguf"));
  first.options.draft.n_ff = 64;
  first.options.init = first.options.output;
  first.options.output = first.folder.File("wider");
  EXPECT_THAT(first.Error(), HasSubstr("mlp.gate_proj.weight must have the shape (64, 64)"));
}

// The last step leaves what it trained on 0.0001 of the rate; a reduced head and soft labels train too.
TEST(Train, ReducedVocabularyAndDistillation) {
  Rig rig;
  rig.options.vocab = 10;
  rig.options.distill = 0.5;
  rig.options.steps = 30;
  ASSERT_TRUE(rig.Run().ok());
  EXPECT_LT(rig.losses.back(), rig.losses.front());
  const auto checkpoint = OpenDraftCheckpoint(rig.options.output);
  ASSERT_TRUE(checkpoint.ok());
  ASSERT_NE(checkpoint->Find(kDraftVocabTensor), nullptr);
  EXPECT_EQ(checkpoint->Find(kDraftVocabTensor)->n_elements(), 10);
  EXPECT_TRUE(LongspecModel::Load(*checkpoint, "f32", rig.tiny.parts()).ok());
}

TEST(Train, TheExportSaysWhatItWasTrainedFor) {
  Rig rig;
  ASSERT_TRUE(rig.Run().ok());
  auto checkpoint = OpenDraftCheckpoint(rig.options.output);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->config.hidden_size, 64);
  const auto model = LongspecModel::Load(*checkpoint, "f32", rig.tiny.parts());
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ((*model)->window, 512);
  EXPECT_EQ(checkpoint->config.rope_theta, 10000.0);
  EXPECT_EQ(checkpoint->config.trained_positions, 512);  // offsets reach the end of the context
  Rig far([](FeatureHeader& header, std::vector<int8_t>&) { header.target.n_ctx = 8192; });
  ASSERT_TRUE(far.Run().ok());
  checkpoint = OpenDraftCheckpoint(far.options.output);
  EXPECT_EQ(checkpoint->config.trained_positions, 8192);
}

TEST(Train, WhatCannotWorkIsSaid) {
  const auto error = [](const std::function<void(TrainOptions&)>& change) {
    Rig rig;
    change(rig.options);
    return rig.Error();
  };
  EXPECT_THAT(error([](TrainOptions& o) { o.learning_rate = 0; }), HasSubstr("--lr"));
  EXPECT_THAT(error([](TrainOptions& o) { o.micro_batch = 3; }), HasSubstr("--micro-batch"));
  EXPECT_THAT(error([](TrainOptions& o) { o.draft.most_lag = 0; }), HasSubstr("--noise-max"));
  EXPECT_THAT(error([](TrainOptions& o) { o.distill = 2; }), HasSubstr("--distill"));
  EXPECT_THAT(error([](TrainOptions& o) { o.tokens_of_loss = -1; }), HasSubstr("--sampled-softmax"));
  EXPECT_THAT(error([](TrainOptions& o) { o.draft.n_ff = 33; }), HasSubstr("--ff"));
  EXPECT_THAT(error([](TrainOptions& o) { o.batch = 100; }), HasSubstr("only 12 sequences"));
  EXPECT_THAT(error([](TrainOptions& o) { o.features[0] += "x"; }), HasSubstr("no feature shards"));
  EXPECT_THAT(error([](TrainOptions& o) { o.model += "x"; }), HasSubstr("tiny.ggufx"));
  EXPECT_THAT(error([](TrainOptions& o) { o.device = "tpu"; }), HasSubstr("--device tpu"));
  EXPECT_THAT(error([](TrainOptions& o) { o.output = o.model + "/x"; }), HasSubstr("tiny.gguf/x"));
  Rig empty([](FeatureHeader&, std::vector<int8_t>& loss) { std::ranges::fill(loss, int8_t{0}); });
  EXPECT_THAT(empty.Error(), HasSubstr("no sequence has anything to learn"));
  Rig other([](FeatureHeader& header, std::vector<int8_t>&) { header.target.fingerprint = "x"; });
  EXPECT_THAT(other.Error(), HasSubstr("not the model the features were made with"));
  Rig small([](FeatureHeader& header, std::vector<int8_t>&) { header.target.n_ctx = 40; });
  EXPECT_THAT(small.Error(), HasSubstr("longer than the model's context of 40"));
}

}  // namespace
}  // namespace longspec::train
