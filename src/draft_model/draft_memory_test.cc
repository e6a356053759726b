// SPDX-License-Identifier: Apache-2.0
//
// A draft takes the memory that was planned for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "base/size.h"
#include "draft/drafter.h"
#include "draft/drafter_entry.h"
#include "draft_model/draft_models.h"
#include "draft_model/longspec.h"
#include "draft_model/registry.h"
#include "draft_model/spec_extend.h"
#include "draft_model/testing/longspec_files.h"
#include "formats/feature_shard.h"
#include "formats/gguf_writer.h"
#include "kv/full_cache.h"

namespace longspec {
namespace {

using testing::Folder;
using testing::TinyTarget;

class DraftMemoryTest : public ::testing::Test {
 protected:
  DraftMemoryTest() {
    EXPECT_TRUE(WriteTinyModel({}, Target()).ok());
    file_ = *GgufFile::Open(Target());
  }

  std::string Target() const { return folder_.File("target.gguf"); }
  Result<DraftMemory> Plan(const SpeculationOptions& speculation, bool on_card = false) const {
    DraftFiles files;
    const TargetFacts target = {.file = *file_,
                                .sizes = tiny_.spec,
                                .cache = tiny_.spec.kv_layout(CacheType::kF32, CacheType::kF32),
                                .is_on_card = on_card};
    return PlanDraftMemory(speculation, target, files);
  }

  TinyTarget tiny_;
  Folder folder_;
  std::shared_ptr<const GgufFile> file_;
};

TEST_F(DraftMemoryTest, ALongspecDraftTakesWhatWasPlanned) {
  const auto draft = testing::RandomDraft(tiny_.spec, 64, 2);
  const std::string whole = testing::WriteDraftFolder(folder_, tiny_.spec, draft, "");
  const Folder other;
  testing::WriteDraft(draft, other.File("model.safetensors"), "", DType::kF32, {3, 5, 8, 200, 201, 7});
  std::ofstream(other.File("config.json")) << testing::ConfigJson(tiny_.spec, "");
  // A draft's MLP may be wider than the target's (--ff).
  ModelSizes wide_config = tiny_.spec;
  wide_config.n_ff *= 4;
  const Folder wide_folder;
  const std::string wide =
      testing::WriteDraftFolder(wide_folder, wide_config, testing::RandomDraft(wide_config, 64, 2), "");
  DraftModels models;
  std::set<const void*> of_models;
  for (const std::string& path : {whole, other.path(), wide}) {
    for (const char* weights : {"", "q8_0", "bf16", "f32"}) {
      SCOPED_TRACE(path + " " + weights);
      const auto plan = Plan({.draft_model = path, .draft_weights = weights});
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      const auto model = models.Learned<LongspecModel>(path, weights, tiny_.parts());
      ASSERT_TRUE(model.ok()) << model.status().message();
      const auto lane =
          models.Lane(path, weights, 0, [&] { return LongspecForward::MakeLane(**model, tiny_.parts()); });
      const size_t ring = Z(LongspecForward::RingChunks((*model)->window)) *
                          tiny_.spec.kv_layout(CacheType::kF32, CacheType::kF32).layer_bytes();
      EXPECT_EQ(plan->fixed,
                (*model)->bytes() + ring +
                    DraftLane::Bytes(LongspecForward::Size((*model)->block, (*model)->head.matrix.n_out())));
      EXPECT_LE(lane->bytes(), plan->fixed - (*model)->bytes());
      EXPECT_EQ(plan->kv_chunk, 0U);
      // Made once for all sequences.
      const auto again =
          models.Lane(path, weights, 0, []() -> std::shared_ptr<DraftLane> { return nullptr; });
      EXPECT_EQ(again, lane);
      EXPECT_TRUE(of_models.insert(again.get()).second);
    }
  }
  EXPECT_EQ(Plan({.type = "none", .draft_model = whole})->fixed, 0U);
  EXPECT_EQ(Plan({})->fixed, 0U);
}

// Where the host cannot address the target's last layer, a draft without keys of its own copies it.
TEST_F(DraftMemoryTest, BesideACardALongspecDraftTakesACopyOfALayer) {
  const uint64_t layer = tiny_.spec.kv_layout(CacheType::kF32, CacheType::kF32).layer_bytes();
  const auto weights = testing::RandomDraft(tiny_.spec, 64, 2);
  for (const bool own_keys : {false, true}) {
    const Folder folder;
    const std::string path = testing::WriteDraftFolder(folder, tiny_.spec, weights,
                                                       own_keys ? ", \"longspec_own_keys\": true" : "");
    const auto near = Plan({.draft_model = path}), far = Plan({.draft_model = path}, true);
    ASSERT_TRUE(far.ok()) << far.status().message();
    EXPECT_EQ(near->kv_chunk, own_keys ? layer : 0);
    EXPECT_EQ(far->kv_chunk, layer);
    EXPECT_EQ(far->fixed, near->fixed);
    EXPECT_EQ(far->kept_chunk, near->kept_chunk);
  }
}

TEST_F(DraftMemoryTest, ALanguageModelTakesACacheToo) {
  const ModelMemory memory = PlanModelMemory(tiny_.spec, *file_, kLmMaxRows);
  const uint64_t chunk =
      KvChunkBytes(tiny_.spec.kv_layout(CacheType::kF32, CacheType::kF32), tiny_.spec.n_layer);
  const auto whole = Plan({.type = "lm", .draft_model = Target()});
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_EQ(whole->fixed, memory.weights + memory.scratch);
  EXPECT_EQ(whole->kv_chunk, chunk);
  EXPECT_EQ(whole->kept_chunk, chunk);
  const auto windowed = Plan({.type = "lm", .draft_model = Target(), .lm = {.window = 1000}});
  ASSERT_TRUE(windowed.ok());
  EXPECT_EQ(windowed->fixed, memory.weights + memory.scratch + 6 * chunk);
  EXPECT_EQ(windowed->kv_chunk, 0U);
  EXPECT_EQ(windowed->kept_chunk, 0U);
  // SpecExtend: the set, as large as the gate or the window of a prompt lets it become, a store of all
  // positions, and the queries of the largest tree in all layers of the target.
  const uint64_t queries =
      uint64_t{256} * static_cast<uint64_t>(tiny_.spec.n_layer * tiny_.spec.n_head * tiny_.spec.head_dim) *
      sizeof(float);
  for (const auto& [from, positions] : {std::pair(0, SpecExtend::kPromptWindow), std::pair(1000, 1000)}) {
    const auto extended =
        Plan({.type = "lm", .draft_model = Target(), .spec_extend = {.chunks = 2, .from = from}});
    ASSERT_TRUE(extended.ok());
    EXPECT_EQ(extended->fixed, memory.weights + memory.scratch + queries +
                                   static_cast<uint64_t>((positions + kLmMaxRows) / kKvChunk + 1) * chunk);
    EXPECT_EQ(extended->kv_chunk, chunk);  // here keys are in f32 anyway
  }
}

TEST_F(DraftMemoryTest, AutoTakesWhatTheDrafterOfItsFileTakes) {
  const auto lm = Plan({.type = "lm", .draft_model = Target()});
  const auto chosen = Plan({.type = "auto", .draft_model = Target()});
  ASSERT_TRUE(chosen.ok()) << chosen.status().message();
  EXPECT_EQ(chosen->fixed, lm->fixed);
  EXPECT_EQ(chosen->kv_chunk, lm->kv_chunk);
  EXPECT_GT(chosen->kv_chunk, 0U);
  // What only the other drafter takes is refused as soon as the file has said which it is.
  const SpeculationOptions weights = {.type = "auto", .draft_model = Target(), .draft_weights = "bf16"};
  EXPECT_TRUE(CheckDrafter(weights).ok());
  const auto refused = Plan(weights);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), ::testing::HasSubstr("--spec-draft-weights: has no effect"));
}

TEST_F(DraftMemoryTest, WhatDoesNotFitIsSaidBeforeWeightsAreRead) {
  TinyModelOptions larger;
  larger.n_vocab = 600;
  const std::string path = folder_.File("larger.gguf");
  ASSERT_TRUE(WriteTinyModel(larger, path).ok());
  for (const char* type : {"lm", "auto", "suffix,draft"}) {
    const auto plan = Plan({.type = type, .draft_model = path});
    EXPECT_EQ(plan.status().code(), StatusCode::kUnsupported) << type;
    EXPECT_THAT(
        plan.status().message(),
        ::testing::HasSubstr("does not fit the target: a vocabulary of 600 tokens, the target has 384"))
        << type;
  }
  // A model without an embedding is of the target that it names.
  const auto whole = GgufFile::Open(Target());
  GgufWriter writer;
  for (const auto& [key, value] : (*whole)->metadata()) writer.SetValue(key, value);
  for (const TensorView& t : (*whole)->tensors()) {
    if (t.name == "token_embd.weight" || t.name == "output.weight") continue;
    writer.AddTensor(t.name, t.dtype, {t.shape, t.shape + t.n_dims}, {t.data, t.n_bytes});
  }
  const std::string part = folder_.File("part.gguf");
  ASSERT_TRUE(writer.Write(part).ok());
  EXPECT_THAT(Plan({.type = "lm", .draft_model = part}).status().message(),
              ::testing::HasSubstr("longspec.target"));
  writer.SetString("longspec.target", "0123456789abcdef");
  const std::string foreign = folder_.File("foreign.gguf");
  ASSERT_TRUE(writer.Write(foreign).ok());
  EXPECT_THAT(Plan({.type = "lm", .draft_model = foreign}).status().message(),
              ::testing::HasSubstr("it was made for the model 0123456789abcdef, the target is "));
  writer.SetString("longspec.target", TargetFingerprint(**whole));
  const std::vector<float> numbers = {7, 9};
  GgufWriter of_numbers = writer;
  of_numbers.AddTensor("draft.vocab", DType::kF32, {2}, std::as_bytes(std::span(numbers)));
  const std::string floats = folder_.File("floats.gguf");
  ASSERT_TRUE(of_numbers.Write(floats).ok());
  EXPECT_THAT(Plan({.type = "lm", .draft_model = floats}).status().message(),
              ::testing::HasSubstr("draft.vocab must be a list of tokens"));
  const std::vector<int32_t> twice = {7, 9, 7};
  writer.AddTensor("draft.vocab", DType::kI32, {3}, std::as_bytes(std::span(twice)));
  const std::string doubled = folder_.File("doubled.gguf");
  ASSERT_TRUE(writer.Write(doubled).ok());
  EXPECT_THAT(Plan({.type = "lm", .draft_model = doubled}).status().message(),
              ::testing::HasSubstr("names token 7 twice"));
  ModelSizes other = tiny_.spec;
  other.n_embd *= 2;
  const std::string draft = testing::WriteDraftFolder(folder_, other, testing::RandomDraft(other, 64, 2));
  for (const char* type : {"longspec", "auto"}) {
    EXPECT_THAT(Plan({.type = type, .draft_model = draft}).status().message(),
                ::testing::HasSubstr("does not fit the target: hidden size"))
        << type;
  }
}

// A model that nobody has a use for is not opened: that is refused where it is to draft.
TEST_F(DraftMemoryTest, OnlyDraftersThatReadTheModelCount) {
  const std::string missing = folder_.File("nothing.gguf");
  for (const char* type : {"none", "ngram", "suffix", "pld,suffix"}) {
    const auto plan = Plan({.type = type, .draft_model = missing});
    ASSERT_TRUE(plan.ok()) << type << ": " << plan.status().message();
    EXPECT_EQ(plan->fixed + plan->kv_chunk, 0U) << type;
  }
  for (const char* type : {"lm", "draft", "suffix,lm", "auto", "longspec"}) {
    EXPECT_FALSE(Plan({.type = type, .draft_model = missing}).ok()) << type;
  }
  EXPECT_GT(Plan({.type = "draft,suffix", .draft_model = Target()})->kv_chunk, 0U);
}

TEST_F(DraftMemoryTest, WhatCannotBeReadIsSaid) {
  const auto missing = Plan({.draft_model = folder_.File("nothing.gguf")});
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.status().message(), ::testing::HasSubstr("nothing.gguf"));
}

}  // namespace
}  // namespace longspec
