// SPDX-License-Identifier: Apache-2.0
#include "draft/draft_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "draft/draft_models.h"
#include "draft/testing/longspec_files.h"
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
  Result<DraftMemory> Plan(const SpeculationOptions& speculation) const {
    return PlanDraftMemory(speculation, tiny_.config, *file_,
                           tiny_.config.kv_layout(CacheType::kF32, CacheType::kF32));
  }

  TinyTarget tiny_;
  Folder folder_;
  std::shared_ptr<const GgufFile> file_;
};

TEST_F(DraftMemoryTest, ALongspecDraftTakesWhatWasPlanned) {
  const auto draft = testing::RandomDraft(tiny_.config, 64, 2);
  const std::string whole = testing::WriteDraftFolder(folder_, tiny_.config, draft, "");
  const Folder other;
  testing::WriteDraft(draft, other.File("model.safetensors"), "", DType::kF32, {3, 5, 8, 200, 201, 7});
  std::ofstream(other.File("config.json")) << testing::ConfigJson(tiny_.config, "");
  DraftModels models;
  for (const std::string& path : {whole, other.path()}) {
    for (const char* weights : {"", "q8_0", "bf16", "f32"}) {
      SCOPED_TRACE(path + " " + weights);
      const auto plan = Plan({.draft_model = path, .draft_weights = weights});
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      const auto model = models.Longspec(path, weights, tiny_.parts());
      ASSERT_TRUE(model.ok()) << model.status().message();
      EXPECT_EQ(plan->fixed, (*model)->bytes());
      EXPECT_EQ(plan->kv_chunk, 0U);
    }
  }
  EXPECT_EQ(Plan({.type = "none", .draft_model = whole})->fixed, 0U);
  EXPECT_EQ(Plan({})->fixed, 0U);
}

TEST_F(DraftMemoryTest, ALanguageModelTakesACacheToo) {
  const LlamaMemory memory = PlanLlamaMemory(tiny_.config, *file_, kLmMaxRows);
  const uint64_t chunk =
      KvChunkBytes(tiny_.config.kv_layout(CacheType::kF32, CacheType::kF32), tiny_.config.n_layer);
  const auto whole = Plan({.type = "lm", .draft_model = Target()});
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_EQ(whole->fixed, memory.weights + memory.scratch);
  EXPECT_EQ(whole->kv_chunk, chunk);
  const auto windowed = Plan({.type = "lm", .draft_model = Target(), .draft_window = 1000});
  ASSERT_TRUE(windowed.ok());
  EXPECT_EQ(windowed->fixed, memory.weights + memory.scratch + 4 * chunk);
  EXPECT_EQ(windowed->kv_chunk, 0U);
}

// As before a plan existed: -md beside a type that has no use for it is no error.
TEST_F(DraftMemoryTest, OnlyDraftersThatReadTheModelCount) {
  const std::string missing = folder_.File("nothing.gguf");
  for (const char* type : {"none", "ngram", "suffix", "pld,suffix"}) {
    const auto plan = Plan({.type = type, .draft_model = missing});
    ASSERT_TRUE(plan.ok()) << type << ": " << plan.status().message();
    EXPECT_EQ(plan->fixed + plan->kv_chunk, 0U) << type;
  }
  for (const char* type : {"lm", "draft", "suffix,lm", "auto", "longspec", "glide"}) {
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
