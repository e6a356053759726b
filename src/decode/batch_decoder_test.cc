// SPDX-License-Identifier: Apache-2.0
//
// Prompts, limits, errors in the middle of a round, and statistics.
#include "decode/batch_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>

#include "decode/owned_sequence.h"
#include "decode/row_reader.h"
#include "decode/testing/generate.h"
#include "decode/testing/tree_drafter.h"
#include "draft_model/registry.h"
#include "lab/testing/with_lab.h"

namespace longspec::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kVocab = 8;
const ToyLanguage& Language() {
  static const ToyLanguage language(kVocab, 3);
  return language;
}

const SpeculationOptions kNone = {.type = "none"};

struct Fixture {
  explicit Fixture(const Job& job, const SpeculationOptions& speculation = kNone)
      : drafter(std::move(*MakeDrafter(speculation))), rig(Language(), job, drafter.get(), speculation) {}
  std::unique_ptr<Drafter> drafter;
  Rig rig;
};

// The prompt, then what plain decoding makes of it.
std::vector<int32_t> Truth(const Job& job) {
  std::vector<int32_t> truth = job.prompt;
  const std::vector<int32_t> text = DecodePlainly(Language(), job);
  truth.insert(truth.end(), text.begin(), text.end());
  return truth;
}

TEST(Prefill, ACachedPromptKeepsItsLastTokenForTheRoot) {
  const Job job = {.prompt = {1, 2, 3, 4}, .n_predict = 5, .sampling = Temperature(0.0F)};
  Fixture f(job);
  {
    auto transaction = f.rig.cache.Begin(4);
    ASSERT_TRUE(transaction.ok());
    for (int i = 0; i < 4; ++i) f.rig.cache.Write(i, job.prompt[static_cast<size_t>(i)]);
    transaction->CommitAll();
  }
  f.rig.Run();
  EXPECT_EQ(f.rig.cache.n_truncated, 1);
  EXPECT_EQ(f.rig.decoder.stats().prompt_tokens, 0);
  EXPECT_TRUE(f.rig.target.prefill_rows.empty());
  EXPECT_EQ(f.rig.generated(), DecodePlainly(Language(), job));
}

TEST(Prefill, OneTokenPromptNeedsNoForwardPass) {
  Fixture f({.prompt = {3}, .n_predict = 3, .sampling = Temperature(0.0F)});
  EXPECT_TRUE(f.rig.decoder.Prefill().ok());
  EXPECT_TRUE(f.rig.target.prefill_rows.empty());
}

TEST(Prefill, AnErrorKeepsTheChunksBeforeIt) {
  const Job job = {.prompt = {1, 2, 3, 4, 5, 6, 7}, .prefill_chunk = 2, .sampling = Temperature(0.0F)};
  Fixture f(job);
  f.rig.target.calls_before_failure = 2;
  EXPECT_EQ(f.rig.decoder.Prefill().code(), StatusCode::kIo);
  EXPECT_EQ(f.rig.cache.length(), 4);
  EXPECT_EQ(f.rig.cache.n_rollback, 1);
  f.rig.Run();
  EXPECT_EQ(f.rig.generated(), DecodePlainly(Language(), job));
}

TEST(Step, TargetErrorsRollBackAndTheRoundCanBeRepeated) {
  const Job job = {.n_predict = 50, .sampling = AllPenalties(1.0F)};
  Job longer = job;
  longer.n_predict += 20;
  TreeDrafter drafter(Truth(longer), kVocab, 5, 1);
  Rig rig(Language(), job, &drafter, {.draft_n_max = 9});
  ASSERT_TRUE(rig.decoder.Prefill().ok());
  int n_failed = 0;
  while (!rig.done()) {
    const std::vector<int32_t> before = rig.committed;
    const int rollbacks = rig.cache.n_rollback;
    const int64_t steps = rig.decoder.stats().steps;
    rig.target.calls_before_failure = 0;
    const auto failed = rig.Step();
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.status().code(), StatusCode::kIo);
    ++n_failed;
    EXPECT_EQ(rig.committed, before);
    EXPECT_EQ(rig.cache.n_rollback, rollbacks + 1);
    EXPECT_EQ(rig.decoder.stats().steps, steps);
    ASSERT_NO_FATAL_FAILURE(rig.ExpectInvariant());
    ASSERT_TRUE(rig.Step().ok());
  }
  EXPECT_GT(n_failed, 5);
  EXPECT_EQ(rig.generated(), DecodePlainly(Language(), job));
}

TEST(Step, CacheErrorsBeforeTheCommitChangeNothing) {
  const Job job = {.n_predict = 20, .sampling = Temperature(0.0F)};
  TreeDrafter drafter(Truth(job), kVocab, 2, 1);
  Rig rig(Language(), job, &drafter, {.draft_n_max = 4});
  ASSERT_TRUE(rig.decoder.Prefill().ok());
  rig.cache.reserve_status = ResourceExhausted("no memory");
  EXPECT_EQ(rig.Step().status().message(), "no memory");
  rig.cache.reserve_status = {};
  EXPECT_EQ(rig.committed, job.prompt);
  rig.ExpectInvariant();
  rig.Run();
  EXPECT_EQ(rig.generated(), DecodePlainly(Language(), job));
}

TEST(Step, ADrafterThatFailsIsNotAskedAgainAndTheAnswerGoesOn) {
  const Job job = {.n_predict = 20, .sampling = Temperature(0.0F)};
  for (const bool reading : {false, true}) {
    for (const bool throws : {false, true}) {
      TreeDrafter drafter(Truth(job), kVocab, 0, 1);
      Rig rig(Language(), job, &drafter, {.draft_n_max = 4});
      ASSERT_TRUE(rig.decoder.Prefill().ok());
      ASSERT_TRUE(rig.Step().ok());
      if (throws) {
        (reading ? drafter.read_throws : drafter.propose_throws) = true;
      } else {
        (reading ? drafter.read_status : drafter.propose_status) = IoError("books lost");
      }
      ASSERT_TRUE(rig.Step().ok());
      EXPECT_EQ(rig.decoder.draft_failure(),
                throws ? "no speculation any more: out of memory" : "no speculation any more: books lost");
      drafter.read_status = drafter.propose_status = {};
      drafter.read_throws = drafter.propose_throws = false;
      const int64_t drafted = rig.decoder.stats().drafted;
      rig.Run();
      EXPECT_EQ(rig.decoder.stats().drafted, drafted);
      EXPECT_EQ(rig.generated(), DecodePlainly(Language(), job));
    }
  }
}

class ReaderWithoutMemory final : public RowReader {
 public:
  Taps taps() const override { return {}; }
  void Read(const CommittedRows&) override { throw std::bad_alloc(); }
};

// A sequence, and what it borrows.
struct Member {
  explicit Member(RowReader* reader = nullptr) { sequence.reader = reader; }

  ToyCache cache{100};
  std::unique_ptr<Drafter> drafter = std::move(*MakeDrafter(kNone));
  OwnedSequence text{
      {1}, &cache, drafter.get(), MakeFixedPolicy(kNone), MakeSampler(Temperature(0.0F), kVocab)};
  std::vector<int32_t>& tokens = text.tokens;
  Sequence& sequence = text.sequence;
};

// Whoever catches the exception may end the sequences, and their caches with them.
TEST(Step, AnExceptionLeavesNoCacheOpen) {
  ToyTarget target(&Language());
  ReaderWithoutMemory reader;
  BatchDecoder rounds(&target);
  Member third;
  {
    Member first(&reader), second;
    std::vector<Turn> turns = {{.sequence = &first.sequence}, {.sequence = &second.sequence}};
    EXPECT_THROW((void)rounds.Run(turns), std::bad_alloc);
    EXPECT_EQ(second.cache.n_rollback, 1);
    EXPECT_FALSE(first.cache.open() || second.cache.open());
  }
  std::vector<Turn> turns = {{.sequence = &third.sequence}};
  ASSERT_TRUE(rounds.Run(turns).ok());
  EXPECT_EQ(third.tokens.size(), 2U);
}

TEST(Step, TheTreeShrinksToTheContextAndThenThereIsNoRoom) {
  for (const char* tree : {"chain", "3"}) {
    const SamplingOptions sampling = Temperature(0.7F);
    const std::vector<int32_t> text = DecodePlainly(Language(), {.n_predict = 60, .sampling = sampling});
    const Job job = {.n_predict = 60, .capacity = 31, .sampling = sampling};
    Fixture f(job, {.type = "replay", .draft_n_max = 9, .tree = tree, .added = Replay({.tokens = text})});
    ASSERT_TRUE(f.rig.decoder.Prefill().ok());
    Status end;
    while (true) {
      const auto step = f.rig.Step();
      if (!step.ok()) {
        end = step.status();
        break;
      }
      ASSERT_NO_FATAL_FAILURE(f.rig.ExpectInvariant());
      ASSERT_FALSE(f.rig.done());
    }
    EXPECT_EQ(end.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(end.message(), HasSubstr("31 of 31"));
    // All positions are in use, and one token more is known than has a position.
    EXPECT_EQ(f.rig.cache.length(), 31);
    EXPECT_EQ(f.rig.n_generated(), 31 + 1 - 6);
    EXPECT_TRUE(std::equal(f.rig.committed.begin() + 6, f.rig.committed.end(), text.begin()));
  }
}

TEST(Step, DraftsShorterThanTheMinimumAreNotVerified) {
  const Job job = {.n_predict = 8, .sampling = Temperature(0.0F)};
  const std::vector<int32_t> truth = DecodePlainly(Language(), job);
  const std::vector<int32_t> three(truth.begin(), truth.begin() + 3);
  Fixture f(job, {.type = "replay", .draft_n_max = 5, .draft_n_min = 3, .added = Replay({.tokens = three})});
  ASSERT_TRUE(f.rig.decoder.Prefill().ok());
  EXPECT_EQ(f.rig.Step()->tokens.size(), 4U);  // three proposed
  EXPECT_EQ(f.rig.decoder.stats().drafted, 3);
  Fixture g(job, {.type = "replay", .draft_n_max = 5, .draft_n_min = 4, .added = Replay({.tokens = three})});
  ASSERT_TRUE(g.rig.decoder.Prefill().ok());
  EXPECT_EQ(g.rig.Step()->tokens.size(), 1U);
  EXPECT_EQ(g.rig.decoder.stats().drafted, 0);
}

TEST(Stats, CountsByDepth) {
  const Job job = {.n_predict = 10, .sampling = Temperature(0.0F)};
  const std::vector<int32_t> truth = DecodePlainly(Language(), job);
  std::vector<int32_t> drafts = truth;
  drafts[2] = (truth[2] + 1) % kVocab;  // round 1 accepts two of four; round 2 starts at output 3
  Fixture f(job, {.type = "replay", .draft_n_max = 4, .added = Replay({.tokens = drafts})});
  f.rig.Run();
  const DecodeStats& stats = f.rig.decoder.stats();
  EXPECT_EQ(stats.steps, 3);  // 3 + 5 + 2 tokens
  EXPECT_EQ(stats.committed, 10);
  EXPECT_EQ(stats.drafted, 4 + 4 + 1);
  EXPECT_EQ(stats.accepted, 2 + 4 + 1);
  EXPECT_THAT(stats.drafted_at, ElementsAre(3, 2, 2, 2));
  EXPECT_THAT(stats.accepted_at, ElementsAre(3, 2, 1, 1));
  EXPECT_DOUBLE_EQ(stats.mean_acceptance_length(), 1.0 + 7.0 / 3.0);
  EXPECT_EQ(stats.proposed, stats.drafted);
  EXPECT_THAT(stats.drafted_by, ElementsAre(9));
  EXPECT_THAT(stats.accepted_by, ElementsAre(7));
  ASSERT_EQ(stats.contexts.size(), 1U);
  EXPECT_EQ(stats.contexts[0].steps, 3);
  EXPECT_EQ(stats.contexts[0].drafted, 9);
  EXPECT_EQ(stats.contexts[0].accepted, 7);
  EXPECT_EQ(stats.prompt_tokens, 5);
  for (const double ms :
       {stats.prefill_ms, stats.draft_ms, stats.target_ms, stats.verify_ms, stats.commit_ms}) {
    EXPECT_GE(ms, 0.0);
  }
  EXPECT_GT(stats.target_ms, 0.0);
  EXPECT_EQ(DecodeStats().mean_acceptance_length(), 0.0);
}

TEST(BatchDecoderDeathTest, MisuseIsABug) {
  Fixture f({.sampling = Temperature(0.0F)});
  EXPECT_DEATH(static_cast<void>(f.rig.decoder.Step(0)), "max_tokens");
  ToyTarget target(&Language());
  BatchDecoder rounds(&target);
  Sequence nothing;
  Turn turn{.sequence = &nothing};
  EXPECT_DEATH(static_cast<void>(rounds.Run({&turn, 1})), "nullptr");
  Member member;
  member.tokens.clear();
  turn.sequence = &member.sequence;
  EXPECT_DEATH(static_cast<void>(rounds.Run({&turn, 1})), "missing");
}

TEST(FixedPolicy, CutsTheBudgetToRoomAndTokens) {
  const auto policy = MakeFixedPolicy({.draft_n_max = 8, .draft_n_min = 2});
  const auto budget = [&](int room, int max_tokens) {
    const DraftBudget b = policy->Budget({.context = 10, .room = room, .max_tokens = max_tokens});
    return std::pair(b.max_nodes, b.max_depth);
  };
  EXPECT_EQ(budget(100, 100), std::pair(8, 8));
  EXPECT_EQ(budget(5, 100), std::pair(4, 4));
  EXPECT_EQ(budget(100, 3), std::pair(8, 2));
  EXPECT_EQ(budget(100, 1), std::pair(0, 0));
  EXPECT_EQ(budget(1, 100), std::pair(0, 0));
  EXPECT_EQ(budget(0, 100), std::pair(0, 0));
  TokenTree tree(0);
  tree.AddChild(0, 1);
  EXPECT_EQ(policy->Choose(tree).size(), 1);
  tree.AddChild(0, 2);
  EXPECT_EQ(policy->Choose(tree).size(), 3);
  const Accepted nothing{.nodes = {0}, .tokens = {1}};
  policy->Observe({.tree = tree, .accepted = nothing});
  policy->Observe({.tree = TokenTree(0), .accepted = nothing});
  policy->Observe({.tree = TokenTree(0), .accepted = nothing});
  EXPECT_EQ(policy->report().policy, "fixed");
  EXPECT_THAT(policy->report().decisions, ElementsAre(std::pair("speculated", 1), std::pair("plain", 2)));
}

}  // namespace
}  // namespace longspec::testing
