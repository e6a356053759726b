// SPDX-License-Identifier: Apache-2.0
//
// The same tokens with and without speculation, through the real loop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "decode/testing/generate.h"
#include "decode/testing/tree_drafter.h"
#include "draft_model/option_use.h"
#include "lab/testing/with_lab.h"
#include "sampling/testing/values_of.h"

namespace longspec::testing {
namespace {

constexpr int kVocab = 12;
const ToyLanguage& Language() {
  static const ToyLanguage language(kVocab, 11);
  return language;
}

std::vector<SamplingOptions> Samplings() {
  return {Temperature(0.0F),  Temperature(0.7F),  Temperature(1.0F),
          AllPenalties(0.0F), AllPenalties(0.7F), AllPenalties(1.0F)};
}

std::unique_ptr<Drafter> Make(const SpeculationOptions& options) {
  auto drafter = MakeDrafter(OnlyRead(options, options.type));
  EXPECT_TRUE(drafter.ok()) << drafter.status().message();
  return std::move(*drafter);
}

// Runs the job with this speculation; returns the decoder's statistics.
DecodeStats ExpectPlainText(const Job& job, const SpeculationOptions& speculation) {
  const auto drafter = Make(speculation);
  Rig rig(Language(), job, drafter.get(), speculation);
  rig.Run();
  EXPECT_EQ(rig.generated(), DecodePlainly(Language(), job));
  return rig.decoder.stats();
}

// Without a draft a step is a token, and nothing is counted as drafted.
TEST(Equality, NoDraft) {
  for (const SamplingOptions& sampling : Samplings()) {
    const Job job = {.sampling = sampling};
    const DecodeStats stats = ExpectPlainText(job, {.type = "none"});
    EXPECT_EQ(stats.steps, job.n_predict);
    EXPECT_EQ(stats.drafted, 0);
    EXPECT_EQ(stats.mean_acceptance_length(), 1.0);
  }
}

// Every rule of where an n-gram is looked for leaves the text as it is.
TEST(Equality, NgramRules) {
  int64_t accepted = 0;
  for (const char* rule : {"recent", "pld", "hf", "vllm", "tgi", "llama"}) {
    for (const SamplingOptions& sampling : Samplings()) {
      SCOPED_TRACE(rule);
      const Job job = {.n_predict = 100, .sampling = sampling};
      accepted +=
          ExpectPlainText(job, {.type = "ngram", .ngram = {.max = 3, .min = 1, .rule = rule}}).accepted;
    }
  }
  EXPECT_GT(accepted, 500);  // else nothing was tested
}

// Several continuations beside each other leave it as it is, too.
TEST(Equality, NgramTrees) {
  for (const char* tree : {"2", "4"}) {
    for (const SamplingOptions& sampling : Samplings()) {
      const Job job = {.n_predict = 100, .sampling = sampling};
      const DecodeStats stats =
          ExpectPlainText(job, {.draft_n_max = 12, .ngram = {.max = 3, .min = 1}, .tree = tree});
      EXPECT_GT(stats.accepted, 10);
      EXPECT_GT(stats.drafted_at.at(0), 10);
    }
  }
}

// Replaying the true text accepts everything; with a wrong token in it, what precedes it.
TEST(Equality, Replay) {
  for (const SamplingOptions& sampling : Samplings()) {
    const Job job = {.n_predict = 41, .sampling = sampling};
    const std::vector<int32_t> truth = DecodePlainly(Language(), job);
    for (const char* tree : {"chain", "3"}) {
      SpeculationOptions speculation = {
          .type = "replay", .draft_n_max = 12, .tree = tree, .added = Replay({.tokens = truth})};
      const int depth = tree[0] == 'c' ? 12 : 4;
      const DecodeStats stats = ExpectPlainText(job, speculation);
      EXPECT_EQ(stats.steps, (41 + depth) / (depth + 1));
      EXPECT_EQ(stats.accepted + stats.steps, 41);
      for (size_t wrong = 0; wrong < truth.size(); wrong += 5) {
        std::vector<int32_t> guesses = truth;
        guesses[wrong] = (truth[wrong] + 1) % kVocab;
        speculation.added = Replay({.tokens = guesses});
        ExpectPlainText(job, speculation);
      }
    }
  }
}

// Every length of accepted path, in random trees, chains among them.
TEST(Equality, RandomTreesWithEveryAcceptedLength) {
  for (const SamplingOptions& sampling : Samplings()) {
    for (const int n_wrong : {0, 1, 4, 20}) {
      Job job = {.n_predict = 120, .sampling = sampling};
      Job longer = job;
      longer.n_predict += 20;
      std::vector<int32_t> truth = job.prompt;
      const std::vector<int32_t> text = DecodePlainly(Language(), longer);
      truth.insert(truth.end(), text.begin(), text.end());

      TreeDrafter drafter(truth, kVocab, n_wrong, static_cast<uint64_t>(n_wrong));
      Rig rig(Language(), job, &drafter, {.draft_n_max = 24});
      ASSERT_TRUE(rig.decoder.Prefill().ok());
      std::vector<int> seen(25, 0);
      while (!rig.done()) {
        const int room = job.n_predict - rig.n_generated();
        const auto step = rig.Step();
        ASSERT_TRUE(step.ok()) << step.status().message();
        const auto n = static_cast<int>(step->tokens.size());
        ASSERT_EQ(n, room == 1 ? 1 : drafter.n_right + 1);
        ++seen[static_cast<size_t>(n - 1)];
        ASSERT_NO_FATAL_FAILURE(rig.ExpectInvariant());
      }
      EXPECT_EQ(rig.generated(), std::vector<int32_t>(text.begin(), text.begin() + job.n_predict));
      for (size_t i = 0; i < 12; ++i) EXPECT_GT(seen[i], 0) << "no round accepted " << i;
      EXPECT_EQ(drafter.n_committed, static_cast<int>(rig.committed.size()));
      // A chain needs no parents.
      EXPECT_TRUE(n_wrong > 0 ? rig.target.n_trees > 5 : rig.target.n_trees == 0) << n_wrong;
    }
  }
}

TEST(Equality, EndTokenAnywhereInThePath) {
  Job job = {.n_predict = 60, .sampling = Temperature(1.0F)};
  const std::vector<int32_t> endless = DecodePlainly(Language(), job);
  for (int32_t end = 0; end < kVocab; ++end) {
    job.end_token = end;
    for (const char* tree : {"chain", "2"}) {
      // The draft goes on past the end token.
      const SpeculationOptions speculation = {
          .type = "replay", .draft_n_max = 16, .tree = tree, .added = Replay({.tokens = endless})};
      const auto drafter = Make(speculation);
      Rig rig(Language(), job, drafter.get(), speculation);
      rig.Run();
      EXPECT_EQ(rig.generated(), DecodePlainly(Language(), job));
      const auto& stats = rig.decoder.stats();
      EXPECT_EQ(stats.committed, rig.n_generated());
      EXPECT_LE(stats.accepted, stats.committed);
    }
  }
}

TEST(Equality, TokenLimitAnywhereInThePath) {
  const SamplingOptions sampling = Temperature(0.7F);
  const std::vector<int32_t> truth = DecodePlainly(Language(), {.n_predict = 80, .sampling = sampling});
  for (int n = 1; n < 30; ++n) {
    const Job job = {.n_predict = n, .sampling = sampling};
    const DecodeStats stats =
        ExpectPlainText(job, {.type = "replay", .draft_n_max = 8, .added = Replay({.tokens = truth})});
    EXPECT_EQ(stats.committed, n);
    EXPECT_EQ(stats.steps, (n + 8) / 9);
  }
}

// A policy that ignores the token limit: the decoder must cut the path itself.
class GenerousPolicy final : public Policy {
 public:
  DraftBudget Budget(const PolicyInput&) override { return {.max_nodes = 10, .max_depth = 10}; }
  TokenTree Choose(TokenTree proposed) override { return proposed; }
  void Observe(const RoundResult& round) override {
    last_tree_size = round.tree.size();
    last_accepted = static_cast<int>(round.accepted.nodes.size()) - 1;
  }
  PolicyReport report() const override { return {}; }
  int last_tree_size = 0, last_accepted = 0;
};

TEST(Equality, TheDecoderCutsWhatThePolicyDidNot) {
  const Job job = {.n_predict = 40, .sampling = Temperature(0.7F)};
  const std::vector<int32_t> truth = DecodePlainly(Language(), job);
  ToyTarget target(&Language());
  for (int limit = 1; limit <= 11; ++limit) {
    ToyCache cache(100);
    auto own_policy = std::make_unique<GenerousPolicy>();
    const GenerousPolicy& policy = *own_policy;
    const auto drafter = Make({.type = "replay", .draft_n_max = 10, .added = Replay({.tokens = truth})});
    OneSequence decoder(&target, job.prompt, &cache, drafter.get(), std::move(own_policy),
                        MakeSampler(job.sampling, kVocab));
    ASSERT_TRUE(decoder.Prefill().ok());
    const auto step = decoder.Step(limit);
    ASSERT_TRUE(step.ok());
    EXPECT_THAT(step->tokens, ::testing::ElementsAreArray(truth.begin(), truth.begin() + limit));
    EXPECT_EQ(cache.length() + 1, static_cast<int>(decoder.tokens().size()));
    EXPECT_EQ(policy.last_tree_size, 11);
    EXPECT_EQ(policy.last_accepted, 10);
    EXPECT_EQ(decoder.stats().accepted, std::min(limit, 10));
  }
}

TEST(Equality, PrefillChunksDoNotMatter) {
  Job job = {.prompt = {}, .n_predict = 30, .sampling = Temperature(1.0F)};
  for (int i = 0; i < 130; ++i) job.prompt.push_back(i * i % kVocab);
  for (const int chunk : {1, 7, 64, 129, 130}) {
    job.prefill_chunk = chunk;
    const SpeculationOptions speculation = {.type = "ngram", .ngram = {.min = 1}};
    const auto drafter = Make(speculation);
    Rig rig(Language(), job, drafter.get(), speculation);
    rig.Run();
    EXPECT_EQ(rig.generated(), DecodePlainly(Language(), job));
    EXPECT_EQ(rig.decoder.stats().prompt_tokens, 129);
    EXPECT_EQ(rig.target.prefill_rows.size(), static_cast<size_t>((129 + chunk - 1) / chunk));
    EXPECT_LE(*std::max_element(rig.target.prefill_rows.begin(), rig.target.prefill_rows.end()), chunk);
  }
}

TEST(Equality, RowsOfTheResultAreTheRowsTheTokensWereDrawnFrom) {
  const Job job = {.n_predict = 60, .sampling = Temperature(0.0F)};
  std::vector<int32_t> truth = job.prompt;
  const std::vector<int32_t> text = DecodePlainly(Language(), {.n_predict = 80, .sampling = job.sampling});
  truth.insert(truth.end(), text.begin(), text.end());
  TreeDrafter drafter(truth, kVocab, 6, 3);
  Rig rig(Language(), job, &drafter, {.draft_n_max = 10});
  ASSERT_TRUE(rig.decoder.Prefill().ok());
  std::vector<float> expected(kVocab);
  while (!rig.done()) {
    std::vector<int32_t> before = rig.committed;
    const auto step = rig.Step();
    ASSERT_TRUE(step.ok());
    ASSERT_EQ(step->path.size(), step->tokens.size());
    for (size_t i = 0; i < step->tokens.size(); ++i) {
      Language().Logits(before, expected.data());
      const auto row = testing::ValuesOf(step->logits[step->path[i]]);
      ASSERT_EQ(std::vector<float>(row.begin(), row.end()), expected);
      before.push_back(step->tokens[i]);
    }
  }
  EXPECT_EQ(rig.target.last_taps.hidden_layers, (std::vector<int>{1, 3}));
  EXPECT_TRUE(rig.target.last_taps.final_hidden);
}

}  // namespace
}  // namespace longspec::testing
