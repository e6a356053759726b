// SPDX-License-Identifier: Apache-2.0
//
// The same bits with drafters that need no training as without: on a toy target, and on a tiny model. With
// MagicDec, TriForce and exact partial verification goes TokenSwift, whose heads are random here.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "base/testing/files.h"
#include "base/thread_team.h"
#include "decode/testing/generate.h"
#include "decode/testing/samplings.h"
#include "draft_model/draft_models.h"
#include "draft_model/option_use.h"
#include "draft_model/testing/block_drafts.h"
#include "draft_model/testing/longspec_files.h"
#include "draft_text/suffix_corpus.h"
#include "draft_text/testing/priors.h"
#include "formats/gguf.h"
#include "formats/tiny_model.h"
#include "kernels/dispatch.h"
#include "kv/full_cache.h"
#include "model/transformer.h"
#include "sampling/testing/values_of.h"

namespace longspec::testing {
namespace {

constexpr int kVocab = 12;
const ToyLanguage& Language() {
  static const ToyLanguage language(kVocab, 11);
  return language;
}

std::vector<SamplingOptions> Samplings() {
  return {Temperature(0.0F), Temperature(0.7F), Temperature(1.0F), AllPenalties(0.7F)};
}

// A drafter that knows a target's vocabulary; the Rig's own target is made later.
std::unique_ptr<Drafter> Make(const SpeculationOptions& options, ToyTarget* target) {
  auto drafter = MakeDrafter(options, {.target = target});
  EXPECT_TRUE(drafter.ok()) << drafter.status().message();
  return std::move(*drafter);
}

DecodeStats ExpectPlainText(const Job& job, const SpeculationOptions& speculation) {
  ToyTarget vocabulary(&Language());
  const auto drafter = Make(speculation, &vocabulary);
  Rig rig(Language(), job, drafter.get(), speculation);
  rig.Run();
  EXPECT_EQ(rig.generated(), DecodePlainly(Language(), job));
  return rig.decoder.stats();
}

class TrainingFree : public ::testing::Test {
 protected:
  const Folder folder_;
  const std::string path_ = folder_.File("file");
};

// Chains and trees, of few nodes and of many, leave the text as it is.
TEST_F(TrainingFree, Suffix) {
  for (const char* tree : {"", "4"}) {
    for (const int nodes : {3, 12}) {
      int64_t accepted = 0;
      for (const SamplingOptions& sampling : Samplings()) {
        const Job job = {.n_predict = 150, .sampling = sampling};
        accepted += ExpectPlainText(job, {.type = "suffix", .draft_n_max = nodes, .tree = tree}).accepted;
      }
      EXPECT_GT(accepted, 30);  // else nothing was tested
    }
  }
}

TEST_F(TrainingFree, SuffixWithACorpusRepeatsAFormerAnswer) {
  for (const SamplingOptions& sampling : Samplings()) {
    const Job job = {.n_predict = 150, .sampling = sampling};
    std::vector<int32_t> former = job.prompt;
    const std::vector<int32_t> answer = DecodePlainly(Language(), job);
    former.insert(former.end(), answer.begin(), answer.end());
    ASSERT_TRUE(SuffixCorpus::Write(path_, kVocab, former).ok());
    SpeculationOptions speculation = {.type = "suffix", .draft_n_max = 12};
    const DecodeStats without = ExpectPlainText(job, speculation);
    speculation.suffix.corpus = path_;
    const DecodeStats with = ExpectPlainText(job, speculation);
    EXPECT_GT(with.mean_acceptance_length(), 6);
    EXPECT_GT(with.accepted, without.accepted);
  }
}

// The same of what recycling proposes from its table of successors.
TEST_F(TrainingFree, Recycling) {
  for (const char* tree : {"", "chain", "4"}) {
    for (const int nodes : {3, 80}) {
      int64_t accepted = 0;
      for (const SamplingOptions& sampling : Samplings()) {
        const Job job = {.n_predict = 150, .sampling = sampling};
        accepted += ExpectPlainText(job, {.type = "recycling", .draft_n_max = nodes, .tree = tree}).accepted;
      }
      EXPECT_GT(accepted, 50);
    }
  }
}

TEST_F(TrainingFree, RecyclingWarmAcceptsMoreThanCold) {
  const Job job = {.n_predict = 100, .sampling = Temperature(0.0F)};
  const SpeculationOptions speculation = {
      .type = "recycling", .draft_n_max = 20, .recycling = {.file = path_}};
  const DecodeStats cold = ExpectPlainText(job, speculation), warm = ExpectPlainText(job, speculation);
  EXPECT_GE(warm.mean_acceptance_length(), cold.mean_acceptance_length());
  EXPECT_GT(warm.accepted, 0);
}

TEST_F(TrainingFree, EndTokensAndLimitsAnywhere) {
  for (const char* type : {"suffix", "ppm", "recycling"}) {
    for (int32_t end = 0; end < kVocab; ++end) {
      const Job job = {.n_predict = 20 + 3 * end, .end_token = end, .sampling = Temperature(1.0F)};
      ExpectPlainText(job, {.type = type, .draft_n_max = 20, .tree = "3"});
    }
  }
}

// --- A tiny model. ---

class TinyModel : public TrainingFree {
 protected:
  void SetUp() override {
    TinyModelOptions tiny;
    tiny.n_heads = 2;  // heads of 32 can be stored in every type
    tiny.n_kv_heads = 1;
    tiny.dtype = DType::kQ4_1;
    tiny.context_length = 2048;
    ASSERT_TRUE(WriteTinyModel(tiny, path_).ok());
    file_ = *GgufFile::Open(path_);
    config_ = *ReadModelSpec(*file_, {});
    target_ = *LoadModel(file_, config_, {kernels::Available().front(), &team_});
    for (int i = 0; i < 280; ++i) prompt_.push_back(3 + i * i % 97);
    heads_ = WriteBlockDraft(folder_, "tokenswift", config_, RandomTokenswift(config_, 3, 5));
  }

  struct Generated {
    std::vector<int32_t> tokens;
    std::vector<float> logits;  // of the rows the tokens were drawn from
    DecodeStats stats;
  };

  Generated Generate(const SpeculationOptions& speculation, const SamplingOptions& sampling) {
    const auto cache = MakeFullCache(config_.kv_layout(k_type_, v_type_), config_.n_layer, 1024);
    auto drafter =
        MakeDrafter(speculation, {.target = target_.get(), .cache = cache.get(), .models = &draft_models_});
    EXPECT_TRUE(drafter.ok()) << drafter.status().message();
    OneSequence decoder(target_.get(), prompt_, cache.get(), drafter->get(), MakeFixedPolicy(speculation),
                        MakeSampler(sampling, target_->vocab_size()), 100);
    if (!speculation.dice) decoder.ForbidDice();
    EXPECT_TRUE(decoder.Prefill().ok());
    Generated generated;
    while (generated.tokens.size() < 60) {
      const auto step = decoder.Step(60 - static_cast<int>(generated.tokens.size()));
      if (!step.ok()) {
        ADD_FAILURE() << step.status().message();
        break;
      }
      for (size_t i = 0; i < step->tokens.size(); ++i) {
        generated.tokens.push_back(step->tokens[i]);
        const auto row = testing::ValuesOf(step->logits[step->path[i]]);
        generated.logits.insert(generated.logits.end(), row.begin(), row.end());
      }
    }
    generated.stats = decoder.stats();
    return generated;
  }

  DecodeStats ExpectPlainBits(const SpeculationOptions& speculation, const SamplingOptions& sampling) {
    return ExpectBits(Generate({.type = "none"}, sampling), speculation, sampling);
  }

  DecodeStats ExpectBits(const Generated& plain, const SpeculationOptions& speculation,
                         const SamplingOptions& sampling) {
    Generated drafted = Generate(speculation, sampling);
    EXPECT_EQ(drafted.tokens, plain.tokens);
    EXPECT_EQ(drafted.logits.size(), plain.logits.size());
    EXPECT_EQ(std::memcmp(drafted.logits.data(), plain.logits.data(), plain.logits.size() * sizeof(float)),
              0);
    return std::move(drafted.stats);
  }

  // With a working set so small that it is chosen several times.
  SpeculationOptions Partly(SpeculationOptions options) const {
    options.partial.sink = 0;
    options.partial.budget = 16;
    options.partial.window = 12;
    options.partial.refresh = 6;
    if (options.type == "tokenswift") options.draft_model = heads_;
    return OnlyRead(options, options.type);
  }

  std::shared_ptr<const GgufFile> file_;
  ModelSpec config_;
  std::string heads_;  // of TokenSwift
  CacheType k_type_ = CacheType::kF16, v_type_ = CacheType::kF16;
  ThreadTeam team_{2};
  std::unique_ptr<Target> target_;
  DraftModels draft_models_;  // without priors
  std::vector<int32_t> prompt_;
};

TEST_F(TinyModel, EveryDrafterAtEveryTemperature) {
  for (const char* type :
       {"suffix", "ppm", "recycling", "magicdec", "partial", "tokenswift", "ppm,suffix,partial"}) {
    for (const char* tree : {"", "4"}) {
      for (const float temperature : {0.0F, 0.7F, 1.0F}) {
        SCOPED_TRACE(std::string(type) + " " + tree + " " + std::to_string(temperature));
        ExpectPlainBits(Partly({.type = type, .tree = tree, .magicdec = {.window = 24}}),
                        Temperature(temperature));
      }
    }
  }
}

// With dice and without, with a prior and without, whatever the sampler is told.
TEST_F(TinyModel, EveryDrafterUnderEveryWayOfSampling) {
  const Folder folder;
  constexpr Hash128 kTokenizer = {.high = 1, .low = 2};
  const int vocab = target_->vocab_size();
  WritePrior(folder.File("x.ngrams"), Generate({.type = "none"}, Temperature(0.5F, 99)).tokens, vocab,
             kTokenizer);
  draft_models_.priors().SetSource({.tokenizer = kTokenizer, .vocab_size = vocab, .folder = folder.path()});
  std::map<std::string, int64_t> accepted;
  for (const SamplingOptions& sampling : EverySampling({7})) {
    const Generated plain = Generate({.type = "none"}, sampling);
    for (const char* type : {"suffix", "ppm", "recycling", "magicdec", "partial", "tokenswift", "auto",
                             "recycling,ppm,suffix", "ppm,suffix,partial"}) {
      for (const bool dice : {true, false}) {
        SCOPED_TRACE(Describe(sampling) + ", " + type + (dice ? "" : " without dice"));
        const SpeculationOptions speculation =
            Partly({.type = type, .tree = "4", .dice = dice, .magicdec = {.window = 24}});
        const DecodeStats stats = ExpectBits(plain, speculation, sampling);
        accepted[std::string(type) + (dice ? "" : " without dice")] += stats.accepted;
      }
    }
  }
  // A model of random weights is hard to guess without them.
  EXPECT_GT(accepted["magicdec"], accepted["magicdec without dice"]);
  for (const auto& [way, n] : accepted) EXPECT_GT(n, 0) << way;
}

// Keys that are stored as fewer bits are the same ones whether a guess or plain decoding stored them: the
// text is plain decoding's to the bit with caches of each type.
TEST_F(TinyModel, QuantisedCaches) {
  const bool skips_slow = std::getenv("LONGSPEC_SKIP_SLOW") != nullptr;
  for (const auto& [k, v] : {std::pair{CacheType::kQ8_0, CacheType::kQ8_0},
                             {CacheType::kQ4_0, CacheType::kQ4_0},
                             {CacheType::kBF16, CacheType::kBF16},
                             {CacheType::kBF16Amx, CacheType::kBF16Amx},
                             {CacheType::kI8, CacheType::kI8},
                             {CacheType::kQ8_0, CacheType::kF16}}) {
    k_type_ = k;
    v_type_ = v;
    for (const char* type : {"suffix", "magicdec", "partial", "tokenswift", "ppm,partial"}) {
      for (const char* tree : {"", "4"}) {
        for (const float temperature : {0.0F, 1.0F}) {
          // Dice and trees touch what the greedy chain does.
          if (skips_slow && (temperature == 0.0F || tree[0] == '\0')) continue;
          SCOPED_TRACE(std::string(type) + " " + tree + " " + std::to_string(temperature));
          ExpectPlainBits(Partly({.type = type, .tree = tree, .magicdec = {.window = 24}}),
                          Temperature(temperature));
        }
      }
    }
  }
}

// Nothing is left out: what the part says is what the whole says, whoever guesses inside.
TEST_F(TinyModel, PartialWithRoomForEverythingIsAlwaysRight) {
  for (const char* inner : {"none", "ppm", "suffix", "ngram"}) {
    for (const float temperature : {0.0F, 0.7F}) {
      SCOPED_TRACE(inner);
      const DecodeStats stats = ExpectPlainBits(
          {.type = "partial", .draft_n_max = 5, .partial = {.inner = inner}}, Temperature(temperature));
      EXPECT_GT(stats.drafted, 30);
      // With dice the drafter weighs them a little less than the sampler does.
      EXPECT_GE(stats.accepted * 10, stats.drafted * (temperature == 0.0F ? 10 : 8));
    }
  }
}

TEST_F(TinyModel, PartialAcceptsMoreWhenItSeesMore) {
  const auto accepted = [&](int budget) {
    SpeculationOptions options = Partly({.type = "partial", .draft_n_max = 4});
    options.partial.window = 1;
    options.partial.refresh = 1;
    options.partial.budget = budget;
    return ExpectPlainBits(options, Temperature(0.0F)).mean_acceptance_length();
  };
  EXPECT_LT(accepted(0), accepted(512));
}

// TokenSwift's contextual penalty: 1.2 over the last 1,024 tokens (here of a text that is shorter, and of the
// last 40). It holds at each position of a tree, so the text is that of plain decoding with the same penalty,
// and another one than without.
TEST_F(TinyModel, TokenSwiftWithAPenaltyIsPlainDecodingWithIt) {
  const auto options = [&](const char* tree) {
    return Partly({.type = "tokenswift", .draft_n_max = 40, .tree = tree});
  };
  const Generated free = Generate({.type = "none"}, Temperature(0.0F));
  for (const float temperature : {0.0F, 0.7F, 1.0F}) {
    for (const int last_n : {1024, 40}) {
      SamplingOptions sampling = Temperature(temperature);
      sampling.repeat_penalty = 1.2F;
      sampling.repeat_last_n = last_n;
      sampling.min_p = 0.1F;
      const Generated plain = Generate({.type = "none"}, sampling);
      if (temperature == 0.0F) {
        EXPECT_NE(plain.tokens, free.tokens);
      }
      for (const char* tree : {"tokenswift", "chain"}) {
        SCOPED_TRACE(std::string(tree) + " " + std::to_string(temperature) + " " + std::to_string(last_n));
        ExpectBits(plain, options(tree), sampling);
      }
    }
  }
}

// With all in sight the first token of each proposal is the target's own.
TEST_F(TinyModel, TokenSwiftWithRoomForEverythingAlwaysGainsAToken) {
  const DecodeStats stats =
      ExpectPlainBits({.type = "tokenswift", .draft_n_max = 12, .draft_model = heads_}, Temperature(0.0F));
  EXPECT_GE(stats.accepted, stats.steps - 1);
  EXPECT_GT(stats.drafted, 2 * stats.steps);
}

// Prompt and answer fit into the window: the draft is the target itself.
TEST_F(TinyModel, MagicDecWithAWindowOverEverythingIsAlwaysRight) {
  const DecodeStats stats = ExpectPlainBits({.type = "magicdec", .draft_n_max = 5}, Temperature(0.0F));
  EXPECT_GT(stats.drafted, 40);
  EXPECT_EQ(stats.accepted, stats.drafted);
  EXPECT_EQ(stats.steps, 10);
}

TEST_F(TinyModel, MagicDecAcceptsMoreWithMoreContext) {
  const auto accepted = [&](int window) {
    return ExpectPlainBits({.type = "magicdec", .draft_n_max = 4, .magicdec = {.window = window}},
                           Temperature(0.0F))
        .mean_acceptance_length();
  };
  const double small = accepted(1), all = accepted(512);
  EXPECT_LT(small, all);
}

}  // namespace
}  // namespace longspec::testing
