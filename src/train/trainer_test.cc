// SPDX-License-Identifier: Apache-2.0
//
// Whole runs on a tiny target: the loss falls, a stopped run ends in the same weights, and the engine
// computes from the exported draft what the trainer does.
#include "train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "draft/longspec_checkpoint.h"
#include "draft/longspec_forward.h"
#include "draft/longspec_model.h"
#include "draft/testing/longspec_files.h"
#include "features/run.h"
#include "tensor/dequantize.h"
#include "tensor/half.h"
#include "train/feature_set.h"
#include "train/files.h"

namespace longspec::train {
namespace {

using longspec::testing::Folder;
using longspec::testing::ReadText;
using longspec::testing::TinyTarget;
using ::testing::HasSubstr;

constexpr int kLength = 48, kSequences = 12, kTopK = 5;

std::vector<int32_t> SequenceTokens(int i) {
  std::vector<int32_t> tokens;
  // Much is repeated, so that there is something to learn.
  for (int t = 0; t < kLength; ++t) tokens.push_back(5 + (t * (1 + i % 3)) % 7 * 11);
  return tokens;
}

// A tiny model, and features of some sequences.
struct Rig {
  explicit Rig(const std::function<void(FeatureHeader&, std::vector<int8_t>&)>& change = {}) {
    TinyModelOptions tiny_options;
    tiny_options.context_length = 512;
    EXPECT_TRUE(WriteTinyModel(tiny_options, folder.File("tiny.gguf")).ok());
    const auto file = GgufFile::Open(folder.File("tiny.gguf"));
    FeatureHeader header;
    header.target = DescribeTarget(tiny.parts(), **file);
    header.top_k = kTopK;
    FeatureExtractor extractor(&tiny.target(), tiny.NewCache(512, CacheType::kF16), 64, kTopK);
    FeatureShardWriter writer;
    for (int i = 0; i < kSequences; ++i) {
      const std::vector<int32_t> tokens = SequenceTokens(i);
      const auto f = extractor.Extract(tokens, [](int) { return true; });
      EXPECT_TRUE(f.ok());
      std::vector<int8_t> loss(tokens.size(), 1);
      if (change) change(header, loss);
      writer.Add(header, {tokens, f->positions, loss, f->keys, f->values, f->top_ids, f->top_log_probs});
    }
    std::filesystem::create_directories(folder.File("features"));
    EXPECT_TRUE(writer.Write(header, FeatureShardPath(folder.File("features"), 0)).ok());
    options.features = {folder.File("features")};
    options.model = folder.File("tiny.gguf");
    options.output = folder.File("draft");
    options.batch = 4;
    options.n_ff = 32;
    options.learning_rate = 5e-3;
    options.steps = 12;
    options.checkpoint_every = 3;
    options.threads = 1;
  }

  // Stops after so many forward passes.
  Result<TrainSummary> Run(int passes = 1 << 30) {
    return Train(options, [&](const TrainProgress& p) {
      last = p;
      if (p.end_of_step) losses.push_back(p.loss);
      return --passes > 0;
    });
  }
  std::string Error() { return Run().status().message(); }
  std::string Weights() const { return ReadText(options.output + "/model.safetensors"); }

  Folder folder;
  TinyTarget tiny{{.context_length = 512}};
  TrainOptions options;
  TrainProgress last;
  std::vector<double> losses;
};

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
  EXPECT_NEAR(ExpectedAccepted({.agreement = {0.5, 0.5, 0.0}}), 0.75, 1e-12);
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
  rig.options.n_ff = 0;
  rig.options.init_from_target = true;
  rig.options.steps = 1;
  ASSERT_TRUE(rig.Run().ok());
  const auto set = FeatureSet::Open(rig.options.features);
  const DraftNet net({.target = set->target(), .n_ff = set->target().n_ff, .window = 512}, 0, at::kCPU);
  const at::NoGradGuard no_grad;
  ASSERT_TRUE(InitFromTarget(rig.options.model, net).ok());
  const auto file = GgufFile::Open(rig.options.model);
  const TensorView* q = (*file)->FindTensor("blk.0.attn_q.weight");
  std::vector<float> row(64);
  DequantizeRow(q->dtype, q->row(16 + 3), 64, row.data());  // of head 1, the second of pair 1
  EXPECT_EQ(net.Find("self_attn.q_proj.weight")[16 + 8 + 1][5].item<float>(), row[5]);
  rig.options.init = rig.options.output;
  EXPECT_THAT(rig.Error(), HasSubstr("--init-from-target"));
  rig.options.init.clear();
  rig.options.n_ff = 32;
  rig.options.output = rig.folder.File("narrow");
  EXPECT_THAT(rig.Error(), HasSubstr("blk.0.ffn_gate.weight does not have"));
}

TEST(Train, AStoppedRunEndsInTheSameWeights) {
  Rig whole;
  ASSERT_TRUE(whole.Run().ok());
  for (const int passes : {1, 5, 8}) {  // in the first step, in a later one, at its end
    Rig rig;
    int stops = 0;
    while (true) {
      const auto trained = rig.Run(passes + stops);
      if (trained.ok()) break;
      ASSERT_EQ(trained.status().code(), StatusCode::kCancelled) << trained.status().message();
      EXPECT_FALSE(rig.Weights().empty());
      ASSERT_LT(++stops, 40);
    }
    EXPECT_GE(stops, 2);
    EXPECT_EQ(rig.Weights(), whole.Weights()) << passes;
    EXPECT_EQ(ReadText(CheckpointPath(rig.options.output)), ReadText(CheckpointPath(whole.options.output)));
  }
}

TEST(Train, ADoneRunStaysDone) {
  Rig rig;
  ASSERT_TRUE(rig.Run().ok());
  const std::string weights = rig.Weights();
  ASSERT_TRUE(rig.Run().ok());
  EXPECT_EQ(rig.losses.size(), 12U);
  EXPECT_EQ(rig.Weights(), weights);
  rig.options.learning_rate = 1e-3;
  EXPECT_THAT(rig.Error(), HasSubstr("a run with other options"));
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
  first.options.n_ff = 64;
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
  const auto checkpoint = OpenLongspecCheckpoint(rig.options.output);
  ASSERT_TRUE(checkpoint.ok());
  ASSERT_NE(checkpoint->Find(kLongspecVocabTensor), nullptr);
  EXPECT_EQ(checkpoint->Find(kLongspecVocabTensor)->n_elements(), 10);
  EXPECT_TRUE(LoadLongspecModel(rig.options.output, "f32", rig.tiny.parts()).ok());
}

TEST(Train, TheExportSaysWhatItWasTrainedFor) {
  Rig rig;
  ASSERT_TRUE(rig.Run().ok());
  auto checkpoint = OpenLongspecCheckpoint(rig.options.output);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->config.hidden_size, 64);
  EXPECT_EQ(checkpoint->config.window, 512);
  EXPECT_EQ(checkpoint->config.rope_theta, 10000.0);
  EXPECT_EQ(checkpoint->config.trained_positions, kLength);  // a context of 512 has no room for offsets
  Rig far([](FeatureHeader& header, std::vector<int8_t>&) { header.target.n_ctx = 8192; });
  ASSERT_TRUE(far.Run().ok());
  checkpoint = OpenLongspecCheckpoint(far.options.output);
  EXPECT_EQ(checkpoint->config.trained_positions, 7192);
}

TEST(Train, WhatCannotWorkIsSaid) {
  const auto error = [](const std::function<void(TrainOptions&)>& change) {
    Rig rig;
    change(rig.options);
    return rig.Error();
  };
  EXPECT_THAT(error([](TrainOptions& o) { o.learning_rate = 0; }), HasSubstr("--lr"));
  EXPECT_THAT(error([](TrainOptions& o) { o.micro_batch = 3; }), HasSubstr("--micro-batch"));
  EXPECT_THAT(error([](TrainOptions& o) { o.most_lag = 0; }), HasSubstr("--noise-max"));
  EXPECT_THAT(error([](TrainOptions& o) { o.distill = 2; }), HasSubstr("--distill"));
  EXPECT_THAT(error([](TrainOptions& o) { o.n_ff = 33; }), HasSubstr("--ff"));
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

TEST(Train, ALossThatIsNoNumberKeepsTheLastCheckpoint) {
  Rig rig;
  ASSERT_FALSE(rig.Run(9).ok());
  const std::string path = CheckpointPath(rig.options.output);
  std::string bytes = ReadText(path);
  // One weight of the checkpoint becomes an infinity: the last values are those of the optimiser's state and
  // the first those of self_attn.q_proj.weight, just behind the header.
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  const float infinity = INFINITY;
  std::memcpy(bytes.data() + 8 + header, &infinity, 4);
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_THAT(rig.Error(), HasSubstr("no finite number"));
  EXPECT_EQ(ReadText(path), bytes);
}

TEST(Train, AnotherFileIsNoCheckpoint) {
  Rig rig;
  std::filesystem::create_directories(rig.options.output);
  SafetensorsWriter writer;
  ASSERT_TRUE(writer.Write(CheckpointPath(rig.options.output)).ok());
  EXPECT_THAT(rig.Error(), HasSubstr("not a checkpoint of longspec-train"));
  writer.SetMetadata("longspec.trainer", "{}");
  ASSERT_TRUE(writer.Write(CheckpointPath(rig.options.output)).ok());
  EXPECT_THAT(rig.Error(), HasSubstr("malformed"));
}

TEST(MakeBatch, TargetsAreTheTokensThatFollow) {
  Rig rig([](FeatureHeader&, std::vector<int8_t>& loss) {
    loss[3] = 0;
    loss[0] = 1;
  });
  const auto set = FeatureSet::Open(rig.options.features);
  ASSERT_TRUE(set.ok());
  const std::vector<int> sequences = {2, 0};
  const Batch batch = MakeBatch(*set, sequences, {});
  EXPECT_EQ(batch.tokens.sizes(), (std::vector<int64_t>{2, kLength}));
  EXPECT_EQ(batch.rows.numel(), 2 * (kLength - 2));  // the last row and the one before token 3 have none
  const std::vector<int32_t> tokens = SequenceTokens(2);
  for (int64_t i = 0; i < kLength - 2; ++i) {
    const int64_t row = batch.rows[i].item<int64_t>();
    EXPECT_EQ(row, i < 2 ? i : i + 1);
    EXPECT_EQ(batch.targets.ids[i][0].item<int64_t>(), tokens[static_cast<size_t>(row) + 1]);
    EXPECT_EQ(batch.targets.weights[i][0].item<float>(), 1.0F);
  }
  EXPECT_EQ(batch.rows[kLength - 2].item<int64_t>(), kLength);
  EXPECT_EQ(batch.keys[0][5][1][3].item<float>(), HalfToFloat(set->sequence(2).keys[5 * 32 + 16 + 3]));
}

TEST(MakeBatch, ReducedAndSoftTargets) {
  Rig rig;
  const auto set = FeatureSet::Open(rig.options.features);
  ASSERT_TRUE(set.ok());
  const std::vector<int64_t> frequent = set->FrequentTokens(4);
  ASSERT_EQ(frequent.size(), 4U);
  EXPECT_TRUE(std::ranges::is_sorted(frequent));
  const std::vector<int> sequences = {1};
  const Batch hard = MakeBatch(*set, sequences, {.distill = 0.0, .vocab = frequent});
  EXPECT_LT(hard.rows.numel(), kLength - 1);
  for (int64_t i = 0; i < hard.rows.numel(); ++i) {
    const auto next = static_cast<size_t>(hard.rows[i].item<int64_t>()) + 1;
    EXPECT_EQ(frequent[static_cast<size_t>(hard.targets.ids[i][0].item<int64_t>())], SequenceTokens(1)[next]);
  }
  const Batch soft = MakeBatch(*set, sequences, {.distill = 0.25, .vocab = {}});
  EXPECT_EQ(soft.targets.ids.size(1), 1 + kTopK);
  EXPECT_NEAR(soft.targets.weights[0][0].item<double>(), 0.75, 1e-6);
  const at::Tensor sums = soft.targets.weights.sum(1);
  EXPECT_LT((sums - 1.0).abs().max().item<double>(), 1e-5);
  EXPECT_EQ(soft.targets.ids[3][1].item<int64_t>(), set->sequence(1).top_ids[3 * kTopK]);
}

// What training optimises is what decoding runs: logits of the trainer's forward pass at lag j against the
// engine's at a node j - 1 levels below the root, where the tree holds the sequence's own tokens.
TEST(Parity, EngineAndTrainerAgree) {
  Rig rig;
  rig.options.steps = 20;
  ASSERT_TRUE(rig.Run().ok());
  const auto set = FeatureSet::Open(rig.options.features);
  const DraftNet net({.target = set->target(), .n_ff = 32, .window = 512}, 0, at::kCPU);
  ASSERT_TRUE(LoadDraft(rig.options.output, net).ok());
  const auto frozen = LoadFrozenParts(rig.options.model, set->target());
  ASSERT_TRUE(frozen.ok());
  const auto model = LoadLongspecModel(rig.options.output, "f32", rig.tiny.parts());
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto layout = rig.tiny.config.kv_layout(CacheType::kF32, CacheType::kF32);
  const std::vector<int32_t> tokens = SequenceTokens(1);
  const std::vector<int> sequences = {1};
  const Batch batch = MakeBatch(*set, sequences, {});
  for (int lag = 1; lag <= 4; ++lag) {
    DraftNet::Input input;
    input.embedded = frozen->embedding.index_select(0, batch.tokens.flatten()).unsqueeze(0);
    input.positions = at::arange(kLength, at::kLong);
    input.keys = batch.keys;
    input.values = batch.values;
    input.lag = lag;
    const at::NoGradGuard no_grad;
    const at::Tensor logits = at::matmul(net.Forward(input)[0], frozen->head.t());
    const double deviation = logits.std().item<double>();
    for (const int row : {8, 20, kLength - 1}) {
      // The root is lag - 1 tokens before the row; the rest of the path are nodes.
      const int root = row - (lag - 1);
      const auto cache = rig.tiny.NewCache(512, CacheType::kF16);
      {
        auto kv = cache->Begin(root);
        const ForwardSegment segment = {.tokens = std::span(tokens).first(static_cast<size_t>(root)),
                                        .parents = {},
                                        .kv = &*kv,
                                        .logits = LogitsFor::kNone};
        ASSERT_TRUE(rig.tiny.target().Forward({&segment, 1}, {}).ok());
        kv->CommitAll();
      }
      LongspecForward forward(*model, rig.tiny.parts(), layout);
      ASSERT_TRUE(forward.Extend(std::span(tokens).first(static_cast<size_t>(root) + 1)).ok());
      std::vector<std::vector<TokenScore>> next;
      const KvSpan span = cache->Span(rig.tiny.config.n_layer - 1);
      const LongspecRow first = {.token = tokens[static_cast<size_t>(root)], .position = root};
      ASSERT_TRUE(forward.Run({&first, 1}, span, 1, next).ok());
      std::vector<int32_t> path;
      for (int depth = 1; depth < lag; ++depth) {
        path.push_back(depth - 1);
        const int p = root + depth;
        const LongspecRow node = {tokens[static_cast<size_t>(p)], p, depth - 1, path};
        ASSERT_TRUE(forward.Run({&node, 1}, span, 1, next).ok());
      }
      double most = 0;
      for (int i = 0; i < forward.n_logits(); ++i) {
        most = std::max(most,
                        std::abs(logits[row][i].item<double>() - static_cast<double>(forward.logits()[i])));
      }
      EXPECT_LT(most, 1e-3 * deviation) << "lag " << lag << " row " << row;
    }
  }
}

}  // namespace
}  // namespace longspec::train
