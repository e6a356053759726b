// SPDX-License-Identifier: Apache-2.0
//
// Answers with a constraint: the same tokens with and without speculation, for one sequence and for several,
// and no row for a guess that cannot be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "decode/owned_sequence.h"
#include "decode/testing/generate.h"
#include "decode/testing/tree_drafter.h"
#include "draft_model/registry.h"
#include "grammar/testing/toy_constraint.h"
#include "lab/testing/with_lab.h"

namespace longspec::testing {
namespace {

constexpr int kVocab = 12;
constexpr int32_t kEnd = 11;

const ToyLanguage& Language() {
  static const ToyLanguage language(kVocab, 11);
  return language;
}

// Rules with choices, with forced stretches, and with an end.
const std::vector<ToyConstraint::Rule>& Rules() {
  static const std::vector<ToyConstraint::Rule> rules = {
      // No token twice in a row, and the end after 20.
      [](std::span<const int32_t> answer, int32_t token) {
        if (token == kEnd) return answer.size() >= 20;
        return answer.empty() || answer.back() != token;
      },
      // Of every four places three are forced.
      [](std::span<const int32_t> answer, int32_t token) {
        if (token == kEnd) return answer.size() >= 41;
        return answer.size() % 4 == 3 ? token < 8 : token == static_cast<int32_t>(answer.size() % 4);
      },
      // Even and odd ones in turn, for ever.
      [](std::span<const int32_t> answer, int32_t token) {
        return token != kEnd && static_cast<size_t>(token % 2) == answer.size() % 2;
      },
  };
  return rules;
}

// One token at a time: forbidden ones at minus infinity, and nothing else of the decoder.
std::vector<int32_t> DecodePlainly(const Job& job, const ToyConstraint::Rule& rule) {
  const Sampler sampler = MakeSampler(job.sampling, kVocab);
  Sampler::Scratch scratch;
  std::vector<int32_t> sequence = job.prompt, answer;
  std::vector<float> logits(kVocab);
  while (static_cast<int>(answer.size()) < job.n_predict && (answer.empty() || answer.back() != kEnd)) {
    Language().Logits(sequence, logits.data());
    for (int32_t token = 0; token < kVocab; ++token) {
      if (!rule(answer, token)) logits[static_cast<size_t>(token)] = -INFINITY;
    }
    answer.push_back(sampler.Sample(logits, {sequence, {}}, sequence.size(), scratch));
    sequence.push_back(answer.back());
  }
  return answer;
}

std::vector<SamplingOptions> Samplings() {
  return {Temperature(0.0F), Temperature(0.7F), AllPenalties(1.0F)};
}

// A sequence with all that belongs to it, over one target.
struct Party {
  Party(const Job& job, const ToyConstraint::Rule& rule, const SpeculationOptions& speculation,
        std::unique_ptr<Drafter> own)
      : cache(job.capacity),
        drafter(std::move(own)),
        text(job.prompt, &cache, drafter.get(), MakeFixedPolicy(speculation),
             MakeSampler(job.sampling, kVocab)),
        constraint(rule, kVocab, kEnd),
        n_prompt(job.prompt.size()),
        n_predict(job.n_predict) {
    sequence.constraint = &constraint;
    sequence.Follow();
  }

  std::vector<int32_t> answer() const {
    return {tokens.begin() + static_cast<ptrdiff_t>(n_prompt), tokens.end()};
  }
  bool done() const { return static_cast<int>(answer().size()) >= n_predict || constraint.ended(); }
  Turn NextTurn() {
    const int missing = sequence.n_missing();
    return {.sequence = &sequence,
            .max_rows = missing,
            .max_tokens = n_predict - static_cast<int>(answer().size()),
            .is_end = &is_end};
  }

  ToyCache cache;
  std::unique_ptr<Drafter> drafter;
  OwnedSequence text;
  std::vector<int32_t>& tokens = text.tokens;
  Sequence& sequence = text.sequence;
  ToyConstraint constraint;
  size_t n_prompt;
  int n_predict;
  const std::function<bool(int32_t)> is_end = [](int32_t token) { return token == kEnd; };
};

// Rounds of all that are not done. Each answer is the constraint's, too.
void RunAll(ToyTarget& target, std::vector<std::unique_ptr<Party>>& parties) {
  BatchDecoder rounds(&target);
  while (true) {
    std::vector<Turn> turns;
    for (const auto& party : parties) {
      if (!party->done()) turns.push_back(party->NextTurn());
    }
    if (turns.empty()) return;
    ASSERT_TRUE(rounds.Run(turns).ok());
    for (const Turn& turn : turns) ASSERT_TRUE(turn.status.ok()) << turn.status.message();
    for (const auto& party : parties) ASSERT_EQ(party->constraint.accepted, party->answer());
  }
}

std::unique_ptr<Drafter> Make(const SpeculationOptions& options) {
  auto drafter = MakeDrafter(options);
  EXPECT_TRUE(drafter.ok()) << drafter.status().message();
  return std::move(*drafter);
}

TEST(ConstraintEquality, EveryDrafterChainsAndTrees) {
  std::vector<SpeculationOptions> speculations = {{.type = "none"}, {.type = "grammar"}, {.type = "auto"}};
  for (const char* tree : {"chain", "3"}) {
    speculations.push_back({.type = "ngram", .draft_n_max = 12, .ngram = {.max = 3, .min = 1}, .tree = tree});
  }
  int64_t accepted = 0;
  for (const SamplingOptions& sampling : Samplings()) {
    for (const ToyConstraint::Rule& rule : Rules()) {
      const Job job = {.n_predict = 60, .sampling = sampling};
      const std::vector<int32_t> truth = DecodePlainly(job, rule);
      for (const SpeculationOptions& speculation : speculations) {
        ToyTarget target(&Language());
        std::vector<std::unique_ptr<Party>> parties;
        parties.push_back(std::make_unique<Party>(job, rule, speculation, Make(speculation)));
        RunAll(target, parties);
        EXPECT_EQ(parties[0]->answer(), truth) << speculation.type << " " << speculation.tree;
        accepted += parties[0]->sequence.stats.accepted;
      }
    }
  }
  EXPECT_GT(accepted, 500);  // else nothing was tested
}

// Random trees with every length of accepted path, and wrong nodes that are allowed and forbidden.
TEST(ConstraintEquality, RandomTreesOfSeveralSequencesInOnePass) {
  for (const SamplingOptions& sampling : Samplings()) {
    for (const int n_wrong : {0, 4, 20}) {
      ToyTarget target(&Language());
      std::vector<std::unique_ptr<Party>> parties;
      std::vector<std::vector<int32_t>> truths;
      for (size_t i = 0; i < Rules().size(); ++i) {
        Job job = {.n_predict = 50, .sampling = sampling};
        job.prompt.push_back(static_cast<int32_t>(i));
        truths.push_back(DecodePlainly(job, Rules()[i]));
        std::vector<int32_t> text = job.prompt;
        text.insert(text.end(), truths[i].begin(), truths[i].end());
        const SpeculationOptions speculation = {.draft_n_max = 24};
        parties.push_back(std::make_unique<Party>(job, Rules()[i], speculation,
                                                  std::make_unique<TreeDrafter>(text, kVocab, n_wrong, i)));
      }
      RunAll(target, parties);
      for (size_t i = 0; i < parties.size(); ++i) EXPECT_EQ(parties[i]->answer(), truths[i]) << i;
    }
  }
}

TEST(ConstraintEquality, ForcedTokensAreDraftedAndAllAccepted) {
  const Job job = {.n_predict = 60, .sampling = Temperature(0.7F)};
  const SpeculationOptions speculation = {.type = "grammar"};
  ToyTarget target(&Language());
  std::vector<std::unique_ptr<Party>> parties;
  parties.push_back(std::make_unique<Party>(job, Rules()[1], speculation, Make(speculation)));
  RunAll(target, parties);
  const DecodeStats& stats = parties[0]->sequence.stats;
  EXPECT_GT(stats.drafted, 25);
  EXPECT_EQ(stats.accepted, stats.drafted);
  EXPECT_LT(stats.steps, 15);
}

// A draft of forbidden tokens is no draft: every pass has one row.
TEST(ConstraintEquality, ForbiddenGuessesCostNoRow) {
  const Job job = {.n_predict = 12, .sampling = Temperature(0.0F)};
  const SpeculationOptions speculation = {.type = "replay",
                                          .added = Replay({.tokens = std::vector<int32_t>(12, kEnd)})};
  ToyTarget target(&Language());
  std::vector<std::unique_ptr<Party>> parties;
  parties.push_back(std::make_unique<Party>(job, Rules()[2], speculation, Make(speculation)));
  RunAll(target, parties);
  EXPECT_GT(parties[0]->sequence.stats.proposed, 12);
  EXPECT_EQ(parties[0]->sequence.stats.drafted, 0);
  EXPECT_EQ(parties[0]->constraint.n_masks, 12);  // and one mask for each token
}

// A guess on which the grammar gives up, as one that is too ambiguous does, is not the answer's failure.
TEST(ConstraintEquality, AGuessThatBreaksTheConstraintBreaksNothing) {
  class Fragile final : public Constraint {
   public:
    explicit Fragile(const ToyConstraint& rule) : rule_(rule) {}
    Result<std::span<const uint32_t>> Mask() override {
      if (broken_) return ResourceExhausted("too ambiguous");
      return rule_.Mask();
    }
    bool Accept(int32_t token) override {
      broken_ = broken_ || token == kEnd;
      return !broken_ && rule_.Accept(token);
    }
    void Rollback(int n) override { rule_.Rollback(n); }
    std::unique_ptr<Constraint> Fork() const override { return std::make_unique<Fragile>(*this); }
    bool complete() const override { return rule_.complete(); }
    bool ended() const override { return rule_.ended(); }
    std::vector<int32_t> Forced(int most) override { return rule_.Forced(most); }

   private:
    ToyConstraint rule_;
    bool broken_ = false;
  };
  const Job job = {.n_predict = 12, .sampling = Temperature(0.0F)};
  const SpeculationOptions speculation = {.type = "replay",
                                          .added = Replay({.tokens = std::vector<int32_t>(12, kEnd)})};
  ToyTarget target(&Language());
  Party party(job, Rules()[2], speculation, Make(speculation));
  Fragile fragile(ToyConstraint(Rules()[2], kVocab, kEnd));
  party.sequence.constraint = &fragile;
  BatchDecoder rounds(&target);
  while (!party.done()) {
    Turn turn = party.NextTurn();
    ASSERT_TRUE(rounds.Run({&turn, 1}).ok());
    ASSERT_TRUE(turn.status.ok()) << turn.status.message();
  }
  EXPECT_GT(party.sequence.stats.proposed, 12);
  EXPECT_EQ(party.answer(), DecodePlainly(job, Rules()[2]));
}

// Masks are made for the nodes of the verified path only.
TEST(ConstraintEquality, OneMaskForEachTokenHoweverWideTheTree) {
  const Job job = {.n_predict = 40, .sampling = Temperature(0.7F)};
  const std::vector<int32_t> truth = DecodePlainly(job, Rules()[2]);
  std::vector<int32_t> text = job.prompt;
  text.insert(text.end(), truth.begin(), truth.end());
  ToyTarget target(&Language());
  std::vector<std::unique_ptr<Party>> parties;
  parties.push_back(std::make_unique<Party>(job, Rules()[2], SpeculationOptions{.draft_n_max = 24},
                                            std::make_unique<TreeDrafter>(text, kVocab, 20, 3)));
  RunAll(target, parties);
  EXPECT_EQ(parties[0]->answer(), truth);
  EXPECT_LE(parties[0]->constraint.n_masks, 40 + 1);
}

TEST(ConstraintEquality, ARowWithNothingLeftIsAnErrorAfterTheSameTokens) {
  SamplingOptions sampling = Temperature(0.0F);
  for (int32_t token = 0; token < 8; ++token) sampling.logit_bias.emplace_back(token, -INFINITY);
  const Job job = {.n_predict = 20, .sampling = sampling};
  for (const char* type : {"none", "grammar"}) {
    ToyTarget target(&Language());
    Party party(
        job,
        [](std::span<const int32_t> answer, int32_t token) { return token == (answer.size() < 3 ? 9 : 5); },
        {.type = type}, Make({.type = type}));
    BatchDecoder rounds(&target);
    Status status;
    while (status.ok() && !party.done()) {
      Turn turn = party.NextTurn();
      ASSERT_TRUE(rounds.Run({&turn, 1}).ok());
      status = turn.status;
    }
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << type;
    EXPECT_THAT(status.message(),
                ::testing::HasSubstr("at position 9: none of the tokens that the grammar allows"));
    EXPECT_EQ(party.answer(), (std::vector<int32_t>{9, 9, 9}));
    EXPECT_EQ(party.constraint.accepted, party.answer());
  }
}

}  // namespace
}  // namespace longspec::testing
