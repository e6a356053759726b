// SPDX-License-Identifier: Apache-2.0
//
// Which prior is found, and what is said where it cannot be used.
#include "draft_model/draft_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "draft/drafter.h"
#include "draft_model/registry.h"
#include "draft_model/testing/longspec_files.h"
#include "draft_text/testing/priors.h"

namespace longspec {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::StartsWith;

constexpr int kModelsVocab = 9;
constexpr Hash128 kOwn = {.high = 1, .low = 2}, kForeign = {.high = 1, .low = 3};

class PriorTest : public ::testing::Test {
 protected:
  PriorTest() {
    models_.priors().SetSource({.tokenizer = kOwn, .vocab_size = kModelsVocab, .folder = folder_.path()});
  }

  std::string Table(const std::string& name, const Hash128& tokenizer = kOwn, int vocab_size = kModelsVocab) {
    const std::vector<int32_t> text = {1, 2, 3, 1, 2, 4, 1, 2, 3};
    testing::WritePrior(folder_.File(name), text, vocab_size, tokenizer);
    return folder_.File(name);
  }
  // The header, which says whose it is, stays whole.
  static void Damage(const std::string& path) {
    std::string bytes = testing::ReadText(path);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    std::ofstream(path, std::ios::binary) << bytes;
  }
  void Junk(const std::string& name) const { std::ofstream(folder_.File(name)) << "LSNGRAMS and no more"; }

  // The path of the prior that an option stands for; "" if it stands for none.
  std::string Path(const std::string& option) {
    const auto prior = models_.priors().Get(option);
    EXPECT_TRUE(prior.ok()) << prior.status().message();
    return prior.ok() && *prior != nullptr ? (*prior)->path() : "";
  }

  testing::Folder folder_;
  DraftModels models_;
};

TEST_F(PriorTest, TheFirstOfThisTokenizerIsFoundAmongWhatElseThereIs) {
  EXPECT_EQ(Path(""), "");
  Table("a.ngrams", kForeign);
  Junk("b.ngrams");
  std::ofstream(folder_.File("c.ngrams"));
  std::filesystem::create_directory(folder_.File("d.ngrams"));
  Table("e.ngrams.tmp");
  const std::string second = Table("g.ngrams"), first = Table("f.ngrams");
  DraftModels models;
  models.priors().SetSource({.tokenizer = kOwn, .vocab_size = kModelsVocab, .folder = folder_.path()});
  const auto found = models.priors().Get("");
  ASSERT_TRUE(found.ok()) << found.status().message();
  ASSERT_NE(*found, nullptr);
  EXPECT_EQ((*found)->path(), first);
  EXPECT_EQ(*models.priors().Get(""), *found);  // opened once
  EXPECT_EQ((*models.priors().Get(second))->path(), second);
  EXPECT_EQ(*models.priors().Get("none"), nullptr);
  EXPECT_THAT(models.priors().problem(), IsEmpty());
}

TEST_F(PriorTest, WhereThereIsNoneNothingIsSaid) {
  Table("a.ngrams", kForeign);
  Junk("b.ngrams");
  EXPECT_EQ(Path(""), "");
  for (const std::string& folder : {folder_.File("nowhere"), folder_.File("b.ngrams"), std::string()}) {
    DraftModels models;
    models.priors().SetSource({.tokenizer = kOwn, .vocab_size = kModelsVocab, .folder = folder});
    EXPECT_EQ(*models.priors().Get(""), nullptr);
    EXPECT_THAT(models.priors().problem(), IsEmpty());
  }
  EXPECT_THAT(models_.priors().problem(), IsEmpty());
}

TEST_F(PriorTest, ADamagedOneThatWasFoundIsNotUsedAndSaysSo) {
  const std::string path = Table("a.ngrams");
  Damage(path);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(Path(""), "");
    EXPECT_THAT(models_.priors().problem(), AllOf(StartsWith(path + ": "), EndsWith("; it was not used")));
    EXPECT_THAT(models_.priors().problem(), Not(HasSubstr("\n")));
  }
  EXPECT_EQ(Path("none"), "");
  const std::string good = Table("b.ngrams");
  EXPECT_EQ(Path(good), good);
}

TEST_F(PriorTest, OneOfMoreTokensThanTheModelHasIsNotUsedAndSaysSo) {
  const std::string path = Table("a.ngrams", kOwn, kModelsVocab + 1);
  EXPECT_EQ(Path(""), "");
  EXPECT_THAT(models_.priors().problem(), AllOf(HasSubstr(path), HasSubstr("a vocabulary of 10 tokens")));
}

TEST_F(PriorTest, WhatIsAskedForByNameMustBeUsable) {
  const std::string damaged = Table("damaged"), foreign = Table("foreign", kForeign);
  Damage(damaged);
  Junk("junk");
  const auto refusal = [&](const std::string& option) {
    const Status status = models_.priors().Get(option).status();
    EXPECT_THAT(status.message(), AllOf(HasSubstr(option), Not(HasSubstr("\n"))));
    return status.code();
  };
  EXPECT_EQ(refusal(damaged), StatusCode::kCorrupt);
  EXPECT_EQ(refusal(foreign), StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal(folder_.File("junk")), StatusCode::kCorrupt);
  EXPECT_EQ(refusal(folder_.File("nowhere")), StatusCode::kNotFound);
  EXPECT_NE(refusal(folder_.path()), StatusCode::kOk);
  EXPECT_THAT(models_.priors().problem(), IsEmpty());
  // Failures are not remembered.
  EXPECT_EQ(Path(Table("damaged")), damaged);
}

TEST(Priors, NeedATokenizer) {
  DraftModels models;
  EXPECT_EQ(*models.priors().Get(""), nullptr);
  EXPECT_EQ(*models.priors().Get("none"), nullptr);
  const Status status = models.priors().Get("x.ngrams").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("--spec-prior x.ngrams"));
}

// --- What drafters do with them. ---

using Uses = std::vector<std::pair<std::string, std::string>>;

TEST_F(PriorTest, DraftersSayWhatTheyUse) {
  const std::string path = Table("a.ngrams");
  const std::string pairs = std::to_string((*models_.priors().Get(path))->n_pairs()) + " pairs";
  const auto make = [&](const std::string& type, const std::string& prior) {
    auto drafter = MakeDrafter({.type = type, .ppm = {.prior = prior}}, {.models = &models_});
    EXPECT_TRUE(drafter.ok()) << drafter.status().message();
    return std::move(*drafter);
  };
  for (const char* type : {"ppm", "auto", "suffix,ppm"}) {
    for (const std::string& prior : {std::string(), path}) {
      const auto drafter = make(type, prior);
      EXPECT_THAT(drafter->uses(), ElementsAre(Pair("prior", path + ", " + pairs))) << type;
      EXPECT_THAT(drafter->notice(), IsEmpty());
    }
    EXPECT_THAT(make(type, "none")->uses(), ElementsAre(Pair("prior", "none"))) << type;
    EXPECT_THAT((*MakeDrafter({.type = type}))->uses(), ElementsAre(Pair("prior", "none"))) << type;
  }
  EXPECT_THAT(make("suffix", "")->uses(), IsEmpty());
  EXPECT_THAT(make("ngram,suffix", "")->uses(), IsEmpty());
}

TEST_F(PriorTest, DraftersSayWhyTheOneThatWasFoundIsNotUsed) {
  const std::string path = Table("a.ngrams");
  Damage(path);
  const std::string good = Table("good");
  for (const char* type : {"ppm", "auto", "suffix,ppm"}) {
    const auto notice = [&](const std::string& prior) {
      return (*MakeDrafter({.type = type, .ppm = {.prior = prior}}, {.models = &models_}))->notice();
    };
    EXPECT_THAT(notice(""), AllOf(StartsWith(path), EndsWith("; it was not used"))) << type;
    EXPECT_THAT(notice("none"), IsEmpty()) << type;
    EXPECT_THAT(notice(good), IsEmpty()) << type;
    const auto drafter = MakeDrafter({.type = type}, {.models = &models_});
    EXPECT_THAT((*drafter)->uses(), ElementsAre(Pair("prior", "none"))) << type;
    const Status refused = MakeDrafter({.type = type, .ppm = {.prior = path}}, {.models = &models_}).status();
    EXPECT_EQ(refused.code(), StatusCode::kCorrupt) << type;
    EXPECT_THAT(refused.message(), HasSubstr(path)) << type;
  }
}

TEST_F(PriorTest, AFileWithoutATokenizerToCompareIsRefused) {
  const std::string path = Table("a.ngrams");
  for (const char* type : {"ppm", "auto", "suffix,ppm"}) {
    const Status status = MakeDrafter({.type = type, .ppm = {.prior = path}}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << type;
    EXPECT_THAT(status.message(), HasSubstr("--spec-prior " + path)) << type;
    EXPECT_TRUE(MakeDrafter({.type = type, .ppm = {.prior = "none"}}).ok()) << type;
  }
}

}  // namespace
}  // namespace longspec
