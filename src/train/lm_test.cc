// SPDX-License-Identifier: Apache-2.0
//
// A small language model against its target, and in the engine.
#include "draft_model/lm.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "formats/draft_names.h"
#include "formats/safetensors.h"
#include "kv/full_cache.h"
#include "sampling/testing/values_of.h"
#include "tensor/dequantize.h"
#include "train/testing/rig.h"
#include "train/testing/trainees.h"

namespace longspec::train {
namespace {

using testing::BatchOf;
using ::testing::ElementsAre;
using testing::KindRig;
using testing::ReadText;
using testing::SequenceTokens;
using testing::TraineeOf;

TEST(Lm, BeginsWithTheFirstAndTheLastLayerAndSomeBetween) {
  TraineeOptions options;
  ASSERT_TRUE(LmKind().resolve(&options, {}, 30).ok());
  EXPECT_THAT(options.layers, ElementsAre(0, 9, 19, 29));
  options.layers.clear();
  ASSERT_TRUE(LmKind().resolve(&options, {}, 2).ok());
  EXPECT_THAT(options.layers, ElementsAre(0, 1));
  options.layers = {0, 2};
  EXPECT_THAT(LmKind().resolve(&options, {}, 2).message(), ::testing::HasSubstr("--layers"));
}

TEST(Lm, OfAllLayersItIsTheTarget) {
  const KindRig rig({.kind = "lm"});
  const auto trainee = TraineeOf(rig);
  ASSERT_TRUE(trainee->InitFromTarget().ok());
  const at::NoGradGuard no_grad;
  const PlacedBatch batch = BatchOf(rig, {1, 2});
  EXPECT_LT(testing::Relative(trainee->Chain(batch, 1)[0], batch.final_hidden), 0.02);
}

// The GGUF file is a model to the engine, with the target's tokenizer, whose logits are the trainer's; rotary
// heads have changed their order twice.
TEST(Lm, TheEngineRunsWhatIsExported) {
  for (const auto& [architecture, scaled] :
       {std::pair<std::string, bool>("llama", false), {"qwen2", false}, {"llama", true}}) {
    // Features of a target whose positions are scaled otherwise than its file says.
    const auto scale = [of = scaled](FeatureHeader& header, std::vector<int8_t>&) {
      if (!of) return;
      header.target.rope_scaling = "yarn";
      header.target.rope_factor = 4;
      std::vector<double>& frequencies = header.target.rope_frequencies;
      for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= 1 + 0.5 * static_cast<double>(i);
      header.target.rope_magnitude = 1.25;
    };
    testing::Rig rig(scale, {testing::kLength}, {.architecture = architecture});
    rig.options.draft = {.kind = "lm", .layers = {1, 0}};
    rig.options.steps = 3;
    rig.options.learning_rate = 1e-3;
    ASSERT_TRUE(rig.Run().ok());
    const auto target = GgufFile::Open(rig.options.model),
               draft = GgufFile::Open(rig.options.output + "/model.gguf");
    ASSERT_TRUE(draft.ok()) << draft.status().message();
    const auto tokens = (*target)->GetStrings("tokenizer.ggml.tokens");
    for (const auto& [key, value] : (*target)->metadata()) {
      EXPECT_TRUE(!key.starts_with("tokenizer.") || (*draft)->Find(key) != nullptr) << key;
    }
    EXPECT_EQ(*(*draft)->GetStrings("tokenizer.ggml.tokens"), *tokens);
    const auto model = LoadLmModel(*draft, rig.tiny.parts(), *tokens, {});
    ASSERT_TRUE(model.ok()) << model.status().message();
    const auto cache = rig.tiny.NewCache(512, CacheType::kF32);
    const std::vector<int32_t> sequence = SequenceTokens(1);
    auto kv = cache->Begin(testing::kLength);
    const Taps taps = {.hidden_layers = {}, .final_hidden = true, .logits = false};
    const ForwardSegment segment = {
        .tokens = sequence, .parents = {}, .kv = &*kv, .logits = LogitsFor::kNone, .taps = &taps};
    const auto output = (*model)->target->Forward({&segment, 1});
    ASSERT_TRUE(output.ok());
    const at::Tensor got = at::empty({testing::kLength, 64});
    output->segments[0].final_hidden.Copy(got.data_ptr<float>());
    const auto trainee = TraineeOf(rig);
    ASSERT_TRUE(LoadDraft(rig.options.output, *trainee).ok());
    const at::NoGradGuard no_grad;
    const at::Tensor expected = trainee->Chain(BatchOf(rig, {1}), 1)[0];
    EXPECT_LT(testing::Relative(got, expected), 0.02) << architecture << " " << scaled;
    const auto folder = SafetensorsFile::Open(rig.options.output + "/model.safetensors");
    EXPECT_NE((*folder)->FindTensor("model.embed_tokens.weight"), nullptr);
    const auto config = nlohmann::json::parse(ReadText(rig.options.output + "/config.json"));
    EXPECT_EQ(config.at("num_hidden_layers"), 2);
    EXPECT_EQ(config.at("architectures")[0],
              architecture == "llama" ? "LlamaForCausalLM" : "Qwen2ForCausalLM");
  }
}

// With fewer tokens to choose among it has its target's embedding and head: logits are those of the trainer's
// head, and another target is refused.
TEST(Lm, WithAReducedHeadItIsOfItsTargetAlone) {
  KindRig rig({.kind = "lm", .layers = {0, 1}});
  rig.options.vocab = 24;
  rig.options.steps = 3;
  ASSERT_TRUE(rig.Run().ok());
  const auto target = GgufFile::Open(rig.options.model),
             draft = GgufFile::Open(rig.options.output + "/model.gguf");
  ASSERT_TRUE(draft.ok()) << draft.status().message();
  EXPECT_EQ((*draft)->FindTensor("token_embd.weight"), nullptr);
  EXPECT_EQ((*draft)->FindTensor("output.weight"), nullptr);
  EXPECT_FALSE((*draft)->Has("tokenizer.ggml.tokens"));
  EXPECT_EQ(*(*draft)->GetString(kLmTargetKey), TargetFingerprint(**target));
  const auto tokens = (*target)->GetStrings("tokenizer.ggml.tokens");
  const auto model = LoadLmModel(*draft, rig.tiny.parts(), *tokens, {});
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto set = FeatureSet::Open(rig.options.features);
  EXPECT_EQ(*(*draft)->GetUint("llama.context_length"), static_cast<uint64_t>(set->longest()));
  const std::vector<int64_t> vocab = set->FrequentTokens(24);
  EXPECT_EQ(std::vector<int64_t>((*model)->vocab.begin(), (*model)->vocab.end()), vocab);
  EXPECT_EQ((*model)->target->vocab_size(), 24);
  const auto cache = rig.tiny.NewCache(512, CacheType::kF32);
  const std::vector<int32_t> sequence = SequenceTokens(1);
  auto kv = cache->Begin(testing::kLength);
  const ForwardSegment segment = {
      .tokens = sequence, .parents = {}, .kv = &*kv, .logits = LogitsFor::kLastRow};
  const auto output = (*model)->target->Forward({&segment, 1});
  ASSERT_TRUE(output.ok());
  EXPECT_EQ(output->vocab, 24);
  const at::Tensor got =
      at::from_blob(const_cast<float*>(longspec::testing::ValuesOf(output->segments[0].logits[0]).data()),
                    {24})
          .clone();
  const auto trainee = TraineeOf(rig, 7, vocab);
  ASSERT_TRUE(LoadDraft(rig.options.output, *trainee).ok());
  const at::NoGradGuard no_grad;
  const at::Tensor state = trainee->Chain(BatchOf(rig, {1}), 1)[0][testing::kLength - 1];
  EXPECT_LT(testing::Relative(got, at::mv(trainee->Head(1), state)), 0.02);
}

// A smaller model with the same vocabulary beside a rig's target, in types as published files have them.
std::string WriteSibling(const testing::Rig& rig, bool tied) {
  const TinyModelOptions options = {.architecture = "qwen2",
                                    .seed = 3,
                                    .n_layers = 3,
                                    .n_embd = 32,
                                    .n_heads = 2,
                                    .n_kv_heads = 1,
                                    .n_ff = 96,
                                    .dtype = DType::kQ8_0,
                                    .tied = tied};
  EXPECT_TRUE(WriteTinyModel(options, rig.folder.File("sibling.gguf")).ok());
  return rig.folder.File("sibling.gguf");
}

// Cut out of a smaller model it has that one's width, and rows of its embedding and head for its own tokens:
// logits are those of the trainer, whatever the target's tokens are.
TEST(Lm, MayBeCutOutOfASmallerModel) {
  for (const bool tied : {true, false}) {
    SCOPED_TRACE(tied);
    KindRig rig({.kind = "lm", .layers = {1, 0}});
    rig.options.draft.sibling = WriteSibling(rig, tied);
    rig.options.vocab = 24;
    rig.options.steps = 3;
    rig.options.distill = 0.5;
    ASSERT_TRUE(rig.Run().ok());
    EXPECT_LT(rig.losses.back(), rig.losses.front());
    const auto target = GgufFile::Open(rig.options.model),
               draft = GgufFile::Open(rig.options.output + "/model.gguf");
    ASSERT_TRUE(draft.ok()) << draft.status().message();
    EXPECT_EQ(*(*draft)->GetString(kLmTargetKey), TargetFingerprint(**target));
    const auto tokens = (*target)->GetStrings("tokenizer.ggml.tokens");
    const auto model = LoadLmModel(*draft, rig.tiny.parts(), *tokens, {});
    ASSERT_TRUE(model.ok()) << model.status().message();
    const auto vocab = FeatureSet::Open(rig.options.features)->FrequentTokens(24);
    EXPECT_EQ(std::vector<int64_t>((*model)->vocab.begin(), (*model)->vocab.end()), vocab);
    ASSERT_EQ((*model)->stand_ins.size(), tokens->size());
    for (size_t i = 0; i < vocab.size(); ++i)
      EXPECT_EQ((*model)->stand_ins[static_cast<size_t>(vocab[i])], static_cast<int>(i));
    // A token that has no row of its own is among them.
    std::vector<int32_t> sequence = SequenceTokens(1), read;
    ASSERT_FALSE(std::ranges::binary_search(vocab, int64_t{200}));
    const auto trainee = TraineeOf(rig, 7, vocab);
    ASSERT_TRUE(LoadDraft(rig.options.output, *trainee).ok());
    PlacedBatch batch = BatchOf(rig, {1});
    sequence[5] = 200;
    batch.tokens[5] = 200;
    for (const int32_t token : sequence) read.push_back((*model)->stand_ins[static_cast<size_t>(token)]);
    auto cache = (*model)->target->NewPool(
        LmCacheLayout((*model)->spec, rig.tiny.NewCache(64)->Span(0).layout), 2, {});
    const auto kept = MakeFullCache(std::move(cache), 64);
    auto kv = kept->Begin(testing::kLength);
    const ForwardSegment segment = {.tokens = read, .parents = {}, .kv = &*kv, .logits = LogitsFor::kLastRow};
    const auto output = (*model)->target->Forward({&segment, 1});
    ASSERT_TRUE(output.ok()) << output.status().message();
    ASSERT_EQ(output->vocab, 24);
    const at::Tensor got =
        at::from_blob(const_cast<float*>(longspec::testing::ValuesOf(output->segments[0].logits[0]).data()),
                      {24})
            .clone();
    const at::Tensor state = trainee->Chain(batch, 1)[0][testing::kLength - 1];
    EXPECT_LT(testing::Relative(got, at::mv(trainee->Head(1), state)), 0.02);
    // It goes on from its own file.
    const auto again = TraineeOf(rig, 8, vocab);
    ASSERT_TRUE(LoadDraft(rig.options.output + "/model.gguf", *again).ok());
    EXPECT_LT(testing::Relative(again->Chain(batch, 1)[0], trainee->Chain(batch, 1)[0]), 0.01);
    rig.options.init = rig.options.output + "/model.gguf";
    rig.options.output += "-again";
    rig.options.draft.sibling.clear();
    rig.options.draft.layers = {0, 1};
    rig.options.vocab = 0;
    rig.options.learning_rate = 1e-9;
    ASSERT_TRUE(rig.Run().ok()) << rig.Error();
    const auto trained = GgufFile::Open(rig.options.output + "/model.gguf");
    for (const TensorView& tensor : (*draft)->tensors()) {
      const TensorView* const now = (*trained)->FindTensor(tensor.name);
      ASSERT_NE(now, nullptr) << tensor.name;
      EXPECT_EQ(now->n_bytes, tensor.n_bytes) << tensor.name;
    }
  }
}

// A token without a row of its own is read as the one whose embedding points most nearly the same way.
TEST(Lm, TheNearestTokenStandsIn) {
  const KindRig rig({.kind = "lm"});
  const auto file = GgufFile::Open(WriteSibling(rig, true));
  const auto target = GgufFile::Open(rig.options.model);
  const auto set = FeatureSet::Open(rig.options.features);
  const std::vector<int64_t> vocab = {3, 40, 77, 120, 300};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const auto sibling = LoadSibling(*file, **target, set->target(), vocab, at::kCPU, type);
    ASSERT_TRUE(sibling.ok()) << sibling.status().message();
    const at::Tensor rows = *LoadRows(**file, "token_embd.weight", 384, 32);
    const at::Tensor unit = rows / rows.norm(2, 1, true);
    const at::Tensor chosen = unit.index_select(0, at::tensor(vocab, at::kLong));
    const at::Tensor nearness = at::mm(unit, chosen.t());
    const at::Tensor& stands = (*sibling)->stand_ins;
    ASSERT_EQ(stands.numel(), 384);
    const at::Tensor taken = nearness.gather(1, stands.unsqueeze(1)).squeeze(1);
    EXPECT_LT((nearness.amax(1) - taken).max().item<double>(), type == at::kFloat ? 1e-5 : 0.02);
    for (size_t i = 0; i < vocab.size(); ++i)
      EXPECT_EQ(stands[vocab[i]].item<int64_t>(), static_cast<int64_t>(i));
  }
}

TEST(Lm, ASiblingThatDoesNotFitIsRefused) {
  KindRig rig({.kind = "lm"});
  rig.options.draft.sibling = WriteSibling(rig, true);
  EXPECT_THAT(rig.Error(), ::testing::HasSubstr("--sibling: must be with --draft-vocab"));
  rig.options.vocab = 24;
  rig.options.draft.layers = {3};
  EXPECT_THAT(rig.Error(), ::testing::HasSubstr("must be layers of the sibling, 0 to 2"));
  rig.options.draft.layers = {};
  ASSERT_TRUE(WriteTinyModel({.fills_holes = true}, rig.options.draft.sibling).ok());
  EXPECT_THAT(rig.Error(), ::testing::HasSubstr("is not the target's"));
}

}  // namespace
}  // namespace longspec::train
