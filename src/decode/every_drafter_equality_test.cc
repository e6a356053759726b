// SPDX-License-Identifier: Apache-2.0
//
// Whatever drafts, and whatever it knows of the choices to come, the text is that of plain decoding. On a toy
// language, so that there may be many texts; drafters that need a model are compared in
// training_free_equality_test.cc and in the engine's draft_model_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "decode/testing/generate.h"
#include "decode/testing/samplings.h"
#include "draft_model/draft_models.h"
#include "draft_model/option_use.h"
#include "draft_model/testing/longspec_files.h"
#include "draft_text/testing/priors.h"
#include "lab/testing/with_lab.h"

namespace longspec::testing {
namespace {

constexpr int kVocab = 12;
constexpr Hash128 kTokenizer = {.high = 1, .low = 2};
const std::vector<std::string> kNeedAModel = {"magicdec", "partial", "longspec",   "eagle", "eagle3",
                                              "beagle",   "medusa",  "tokenswift", "exit",  "lm"};

const ToyLanguage& Language() {
  static const ToyLanguage language(kVocab, 11);
  return language;
}

class EveryDrafter : public ::testing::Test {
 protected:
  EveryDrafter() : vocabulary_(&Language()) {
    std::vector<int32_t> text;
    for (uint64_t seed = 90; seed < 94; ++seed) {
      const auto more = DecodePlainly(Language(), {.n_predict = 100, .sampling = Temperature(1.0F, seed)});
      text.insert(text.end(), more.begin(), more.end());
    }
    WritePrior(folder_.File("toy.ngrams"), text, kVocab, kTokenizer);
    models_.priors().SetSource({.tokenizer = kTokenizer, .vocab_size = kVocab, .folder = folder_.path()});
  }

  std::unique_ptr<Drafter> Make(const SpeculationOptions& options) {
    auto drafter = MakeDrafter(OnlyRead(options, options.type), {.target = &vocabulary_, .models = &models_});
    EXPECT_TRUE(drafter.ok()) << drafter.status().message();
    return std::move(*drafter);
  }

  Folder folder_;
  ToyTarget vocabulary_;  // for drafters that ask for its size; the Rig has a target of its own
  DraftModels models_;
};

TEST_F(EveryDrafter, LeavesTheTextAsItIs) {
  std::vector<std::string> types = {"ngram,ppm", "replay,suffix,recycling"};
  for (const std::string& name : DrafterNames()) {
    if (std::ranges::find(kNeedAModel, name) == kNeedAModel.end()) types.push_back(name);
  }
  ASSERT_GE(types.size(), 9U);
  std::map<std::string, int64_t> accepted;  // by type and what it was not allowed to use
  std::map<bool, int64_t> unfiltered;       // by dice
  for (const SamplingOptions& sampling : EverySampling({7, 8, 9})) {
    const Job job = {.n_predict = 50, .sampling = sampling};
    const std::vector<int32_t> truth = DecodePlainly(Language(), job);
    for (const std::string& type : types) {
      for (const bool dice : {true, false}) {
        for (const char* prior : {"", "none"}) {
          SpeculationOptions options = {.type = type, .draft_n_max = 12, .ngram = {.min = 1}, .tree = "4"};
          std::vector<int32_t> guesses = truth;
          for (size_t i = 3; i < truth.size(); i += 7) guesses[i] = (truth[i] + 1) % kVocab;
          options.added = Replay({.tokens = guesses});
          options.prediction.tokens = guesses;
          options.dice = dice;
          options.ppm.prior = prior;
          const auto drafter = Make(options);
          if (*prior != '\0' && drafter->uses().empty()) continue;  // it has no use for one
          const std::string way =
              type + (dice ? "" : " without dice") + (*prior == '\0' ? "" : " without a prior");
          SCOPED_TRACE(way + ", " + Describe(sampling));
          Rig rig(Language(), job, drafter.get(), options);
          rig.Run();
          ASSERT_EQ(rig.generated(), truth);
          accepted[way] += rig.decoder.stats().accepted;
          if (sampling.top_k == 0 && sampling.temperature > 0) {
            unfiltered[dice] += rig.decoder.stats().accepted;
          }
        }
      }
    }
  }
  // Else nothing was tested.
  for (const auto& [way, n] : accepted) {
    if (way.starts_with("none") || way.starts_with("grammar")) {  // there is no grammar
      EXPECT_EQ(n, 0) << way;
    } else {
      EXPECT_GT(n, 200) << way;
    }
  }
  EXPECT_GT(accepted["ppm"], accepted["ppm without a prior"]);
  EXPECT_GT(unfiltered[true], unfiltered[false]);
}

// --- The comparison can fail. ---

TEST_F(EveryDrafter, ChoicesByAnotherSeedAreNoticed) {
  for (const SamplingOptions& sampling : EverySampling({7, 8})) {
    const Job job = {.n_predict = 50, .sampling = sampling};
    Job other = job;
    other.sampling.seed = 1000;
    const SpeculationOptions options = {.type = "ppm"};
    const auto drafter = Make(options);
    Rig rig(Language(), other, drafter.get(), options);
    rig.Run();
    EXPECT_EQ(rig.generated() == DecodePlainly(Language(), job), sampling.temperature <= 0)
        << Describe(sampling);
  }
}

// While the target chooses, the token before the last one is another.
class Forger final : public Drafter {
 public:
  std::string_view name() const override { return "forger"; }
  Status Follow(std::span<const int32_t>) override { return {}; }
  Status Propose(const DraftBudget&, std::span<const int32_t> committed, TokenTree&) override {
    forged_ = committed.size() - 2;
    truth_ = committed[forged_];
    Write(committed, (truth_ + 1) % kVocab);
    return {};
  }
  Status Read(const CommittedRows& rows) override {
    Write(rows.sequence, truth_);
    return {};
  }

 private:
  void Write(std::span<const int32_t> committed, int32_t token) const {
    const_cast<int32_t*>(committed.data())[forged_] = token;
  }

  size_t forged_ = 0;
  int32_t truth_ = 0;
};

TEST_F(EveryDrafter, OneThatChangesWhatTheSamplerSeesIsNoticed) {
  for (const SamplingOptions& sampling : EverySampling({7, 8})) {
    const Job job = {.n_predict = 50, .sampling = sampling};
    Forger forger;
    Rig rig(Language(), job, &forger, SpeculationOptions());
    ASSERT_TRUE(rig.decoder.Prefill().ok());
    while (!rig.done()) ASSERT_TRUE(rig.Step().ok());
    // Only penalties look at what was said before.
    EXPECT_EQ(rig.generated() == DecodePlainly(Language(), job), sampling.repeat_penalty == 1)
        << Describe(sampling);
  }
}

}  // namespace
}  // namespace longspec::testing
