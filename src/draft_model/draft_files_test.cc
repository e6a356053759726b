// SPDX-License-Identifier: Apache-2.0
//
// Files of draft models are opened once: what was opened for a question answers the next ones too.
#include "draft_model/draft_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "draft/drafter.h"
#include "draft/drafter_entry.h"
#include "draft_model/draft_models.h"
#include "draft_model/registry.h"
#include "draft_model/testing/longspec_files.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;
using testing::Folder;
using ::testing::HasSubstr;
using testing::TinyTarget;

class DraftFilesTest : public ::testing::Test {
 protected:
  DraftFilesTest()
      : draft_(testing::WriteDraftFolder(folder_, tiny_.spec, testing::RandomDraft(tiny_.spec, 64, 2))) {
    EXPECT_TRUE(WriteTinyModel({}, lm_).ok());
    EXPECT_TRUE(WriteDraftGguf(*OpenDraftCheckpoint(draft_), std::nullopt, gguf_).ok());
    target_ = *GgufFile::Open(lm_);
    tokens_ = *target_->GetStrings("tokenizer.ggml.tokens");
    models_.SetVocabulary(&tokens_);
  }

  static void Remove(const std::string& path) { std::filesystem::remove_all(path); }

  TinyTarget tiny_;
  Folder folder_;
  std::string draft_;
  const std::string lm_ = folder_.File("lm.gguf"), gguf_ = folder_.File("draft.gguf");
  std::shared_ptr<const GgufFile> target_;
  std::vector<std::string> tokens_;
  DraftFiles files_;
  DraftModels models_;
};

TEST_F(DraftFilesTest, AFileSaysWhatItIs) {
  EXPECT_EQ(*files_.Architecture(lm_), "llama");
  EXPECT_EQ(*files_.Architecture(gguf_), "longspec");
  EXPECT_EQ(*files_.Architecture(draft_), "longspec");
  EXPECT_EQ(*files_.Architecture(draft_ + "/model.safetensors"), "longspec");
  const std::string junk = folder_.File("junk");
  std::ofstream(junk) << "GGUF and no more";
  for (const std::string& path : {folder_.File("nothing"), junk}) {
    const auto architecture = files_.Architecture(path);
    ASSERT_FALSE(architecture.ok());
    EXPECT_THAT(architecture.status().message(), HasSubstr(path));
  }
}

TEST_F(DraftFilesTest, WhatIsOpenIsNotOpenedAgain) {
  for (const std::string& path : {draft_, gguf_}) {
    ASSERT_TRUE(files_.Architecture(path).ok());
    Remove(path);
    EXPECT_EQ(*files_.Architecture(path), "longspec");
    const auto checkpoint = files_.Draft(path, "longspec");
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_EQ(*files_.Draft(path, "longspec"), *checkpoint);
    files_.Close(path);
    EXPECT_FALSE(files_.Draft(path, "longspec").ok());
  }
  const auto lm = files_.Gguf(lm_);
  ASSERT_TRUE(lm.ok());
  Remove(lm_);
  EXPECT_EQ(*files_.Gguf(lm_), *lm);
  files_.Close(lm_);
  EXPECT_FALSE(files_.Gguf(lm_).ok());
}

// From the memory plan to the drafters of every generation, a header is read once.
TEST_F(DraftFilesTest, WhatThePlanOpenedIsLoaded) {
  const TargetFacts facts = {
      .file = *target_, .sizes = tiny_.spec, .cache = tiny_.spec.kv_layout(CacheType::kF32, CacheType::kF32)};
  const std::vector<std::pair<std::string, std::string>> drafts = {
      {draft_, "longspec"}, {gguf_, "longspec"}, {lm_, "lm"}};
  for (const auto& [path, type] : drafts) {
    ASSERT_TRUE(PlanDraftMemory({.type = "auto", .draft_model = path}, facts, files_).ok());
  }
  models_.SetFiles(files_);
  const auto cache = tiny_.NewCache(10);
  for (const auto& [path, type] : drafts) {
    Remove(path);
    for (int generation = 0; generation < 2; ++generation) {
      const auto drafter = MakeDrafter({.type = "auto", .draft_model = path},
                                       {.target = &tiny_.target(), .cache = cache.get(), .models = &models_});
      ASSERT_TRUE(drafter.ok()) << drafter.status().message();
      EXPECT_THAT((*drafter)->sources(), ElementsAre("ppm", "suffix", type, "grammar"));
    }
  }
}

// What was refused may be put right under the same name.
TEST_F(DraftFilesTest, FailuresAreNotRemembered) {
  const auto cache = tiny_.NewCache(10);
  for (const char* type : {"auto", "lm"}) {
    const auto make = [&] {
      return MakeDrafter({.type = type, .draft_model = lm_},
                         {.target = &tiny_.target(), .cache = cache.get(), .models = &models_})
          .status()
          .message();
    };
    TinyModelOptions larger;
    larger.n_vocab = 600;
    const std::string path = folder_.File(std::string(type) + ".gguf");
    ASSERT_TRUE(WriteTinyModel(larger, path).ok());
    std::filesystem::rename(path, lm_);
    EXPECT_THAT(make(), HasSubstr("a vocabulary of 600 tokens"));
    ASSERT_TRUE(WriteTinyModel({}, path).ok());
    std::filesystem::rename(path, lm_);
    EXPECT_EQ(make(), "");
    models_ = {};
    models_.SetVocabulary(&tokens_);
  }
}

}  // namespace
}  // namespace longspec
