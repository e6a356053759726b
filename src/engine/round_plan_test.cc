// SPDX-License-Identifier: Apache-2.0
//
// Plans of single rounds. What comes of many of them is in schedule_simulator_test.cc.
#include "engine/round_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/counter_rng.h"
#include "engine/testing/schedule_simulator.h"

namespace longspec::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SequenceState Decoding(int context, int chunks, int most_chunks = 40) {
  return {.running = true, .context = context, .missing = 1, .chunks = chunks, .most_chunks = most_chunks};
}
SequenceState Prompt(int tokens, int computed = 0) {
  return {.running = true,
          .context = tokens,
          .missing = tokens - computed,
          .chunks = (computed + 255) / 256,
          .most_chunks = MostChunks(tokens, 500, 1 << 20)};
}
SequenceState Waiting(int tokens, double waited_ms = 0) {
  SequenceState s = Prompt(tokens);
  s.running = false;
  s.waited_ms = waited_ms;
  return s;
}

class Plans : public ::testing::Test {
 protected:
  RoundPlan Plan(const RoundState& state) const { return PlanRound(state, PassCost(costs), options); }
  int RowsOf(const RoundPlan& plan, int sequence) const {
    for (const RoundPlan::Part& part : plan.parts) {
      if (part.sequence == sequence) return part.rows;
    }
    return 0;
  }

  CostModel costs = FastMachine();
  ScheduleOptions options;
};

TEST_F(Plans, NothingToDo) {
  const RoundPlan plan = Plan({});
  EXPECT_THAT(plan.parts, IsEmpty());
  EXPECT_THAT(plan.pass, IsEmpty());
}

TEST_F(Plans, EveryRootRunsAndPromptsFillTheTime) {
  const RoundState state{.sequences = {Decoding(1000, 4), Prompt(4000, 512), Decoding(300, 2)},
                         .free_chunks = 100};
  const RoundPlan plan = Plan(state);
  EXPECT_EQ(RowsOf(plan, 0), 1);
  EXPECT_EQ(RowsOf(plan, 2), 1);
  const int rows = RowsOf(plan, 1);
  EXPECT_GT(rows, 50);
  EXPECT_EQ(plan.parts[1].new_chunks, (512 + rows + 255) / 256 - 2);
  EXPECT_TRUE(plan.parts[0].completes);
  EXPECT_FALSE(plan.parts[1].completes);
  const PassCost cost(costs);
  std::vector<PassPart> pass = plan.pass;
  pass[1].rows = 0;
  const double limit = cost.Ms(pass) + options.prefill_ms;
  EXPECT_LE(cost.Ms(plan.pass), limit);
  pass[1] = ChainPart(rows + 1, 512);
  EXPECT_GT(cost.Ms(pass), limit);  // not a row more
}

// Pieces of prompts may be shorter than a pass may have rows.
TEST_F(Plans, GuessesMayHaveMoreRowsThanPrompts) {
  const RoundState state{.sequences = {Decoding(1000, 4)}, .free_chunks = 100};
  options.batch_rows = options.parallel = 1;
  EXPECT_EQ(Plan(state).parts[0].most_nodes, 0);
  options.most_rows = 64;
  EXPECT_EQ(Plan(state).parts[0].most_nodes, 63);
  options.batch_rows = 512;
  options.idle_ms = 0;
  EXPECT_EQ(RowsOf(Plan({.sequences = {Prompt(4000)}, .free_chunks = 100}), 0), 512);
}

TEST_F(Plans, TheSameTimeIsFewerRowsOnASlowMachine) {
  const RoundState state{.sequences = {Decoding(1000, 4), Prompt(4000)}, .free_chunks = 100};
  EXPECT_GT(RowsOf(Plan(state), 1), 150);
  costs = SlowMachine();
  const RoundPlan slow = Plan(state);
  EXPECT_GE(RowsOf(slow, 1), 2);
  EXPECT_LE(RowsOf(slow, 1), 6);
  // However little time there is, prompts get a share of it, and a row at least.
  options.prefill_ms = 0;
  EXPECT_GE(RowsOf(Plan(state), 1), 2);
  options.prefill_share = 0;
  EXPECT_EQ(RowsOf(Plan(state), 1), 1);
}

TEST_F(Plans, WhereNobodyDecodesPiecesAreLong) {
  RoundState state{.sequences = {Prompt(4000), Prompt(5000)}, .free_chunks = 100};
  EXPECT_EQ(RowsOf(Plan(state), 0), 512);
  std::swap(state.sequences[0], state.sequences[1]);
  EXPECT_EQ(RowsOf(Plan(state), 0), 1);  // the oldest never stands still
  EXPECT_EQ(RowsOf(Plan(state), 1), 511);
}

TEST_F(Plans, WhereNobodyDecodesAPassEndsInTime) {
  costs = SlowMachine();
  const RoundState state{.sequences = {Prompt(4000)}, .free_chunks = 100};
  const RoundPlan plan = Plan(state);
  EXPECT_GT(RowsOf(plan, 0), 8);
  EXPECT_LE(PassCost(costs).Ms(plan.pass), options.idle_ms);
  options.idle_ms = 0;
  EXPECT_EQ(RowsOf(Plan(state), 0), 512);
  options.idle_ms = 1;
  EXPECT_EQ(RowsOf(Plan(state), 0), 1);
}

TEST_F(Plans, ShortPromptsPassLongOnesThatHaveNotWaitedForLong) {
  RoundState state{.sequences = {Decoding(500, 2), Prompt(6000), Prompt(400)}, .free_chunks = 100};
  EXPECT_GT(RowsOf(Plan(state), 2), 100);
  EXPECT_EQ(RowsOf(Plan(state), 1), 0);
  const PassCost cost(costs);
  const auto alone = [&](int tokens) {
    const PassPart part = ChainPart(tokens, 0);
    return cost.Ms({&part, 1});
  };
  double& waited = state.sequences[1].waited_ms;
  for (const double patience : {0.5, 1.0, 3.0}) {
    options.patience = patience;
    const double turn = patience * (alone(6000) - alone(400));
    waited = 0.99 * turn;
    EXPECT_EQ(RowsOf(Plan(state), 1), 0);
    waited = 1.01 * turn;
    EXPECT_GT(RowsOf(Plan(state), 1), 100);
  }
  options.patience = 0;
  waited = 0.001;
  EXPECT_GT(RowsOf(Plan(state), 1), 100);
}

TEST_F(Plans, WhatIsLeftOfTheTimeGoesToTheNext) {
  const RoundState state{.sequences = {Decoding(500, 2), Prompt(6000), Prompt(400, 380)}, .free_chunks = 100};
  const RoundPlan plan = Plan(state);
  EXPECT_EQ(RowsOf(plan, 2), 20);
  EXPECT_TRUE(plan.parts[2].completes);
  EXPECT_GT(RowsOf(plan, 1), 50);
}

TEST_F(Plans, StartsWhatFits) {
  // 1,000 tokens and the one after them: 4 chunks; 1,024: 5.
  RoundState state{.sequences = {Waiting(1024)}, .free_chunks = 3, .reclaimable_chunks = 2};
  EXPECT_THAT(Plan(state).admit, ElementsAre(0));
  state.reclaimable_chunks = 1;
  EXPECT_THAT(Plan(state).admit, IsEmpty());
  EXPECT_THAT(Plan(state).parts, IsEmpty());
  state.sequences[0] = Waiting(1000);
  EXPECT_THAT(Plan(state).admit, ElementsAre(0));
}

TEST_F(Plans, WhatRunningOnesWillWantIsNotGivenAway) {
  // The prompt that runs holds 1 of the 5 chunks it needs, and will grow into a sixth.
  RoundState state{.sequences = {Prompt(1100, 256), Waiting(200)}, .free_chunks = 6};
  EXPECT_THAT(Plan(state).admit, ElementsAre(1));
  state.free_chunks = 5;
  EXPECT_THAT(Plan(state).admit, IsEmpty());
  state.sequences[0].most_chunks = 5;  // it will not grow
  EXPECT_THAT(Plan(state).admit, ElementsAre(1));
  // Two that start in the same round do not count on the same chunks.
  state = {.sequences = {Waiting(600), Waiting(600)}, .free_chunks = 6};
  EXPECT_THAT(Plan(state).admit, ElementsAre(0));
  state.free_chunks = 7;
  EXPECT_THAT(Plan(state).admit, ElementsAre(0, 1));
}

TEST_F(Plans, NoMoreThanParallel) {
  options.parallel = 3;
  const RoundState state{.sequences = {Decoding(300, 2), Waiting(900), Waiting(300), Waiting(600)},
                         .free_chunks = 100};
  EXPECT_THAT(Plan(state).admit, ElementsAre(2, 3));  // the shortest
}

TEST_F(Plans, SmallOnesPassOneThatDoesNotFitUntilItIsDue) {
  RoundState state{.sequences = {Decoding(300, 2), Waiting(8000), Waiting(300)}, .free_chunks = 20};
  options.patience = 1;
  const PassPart part = ChainPart(8000, 0);
  const double alone = PassCost(costs).Ms({&part, 1});
  state.sequences[1].waited_ms = 0.99 * alone;
  EXPECT_THAT(Plan(state).admit, ElementsAre(2));
  state.sequences[1].waited_ms = 1.01 * alone;
  EXPECT_THAT(Plan(state).admit, IsEmpty());
}

TEST_F(Plans, ThePrefixCacheGivesWayBeforeAnySequence) {
  RoundState state{.sequences = {Decoding(513, 2), Decoding(257, 1), Decoding(300, 2)},
                   .reclaimable_chunks = 2};
  RoundPlan plan = Plan(state);
  EXPECT_THAT(plan.preempt, IsEmpty());
  EXPECT_EQ(plan.new_chunks, 2);
  EXPECT_EQ(plan.parts.size(), 3U);
  state.reclaimable_chunks = 1;
  plan = Plan(state);
  EXPECT_THAT(plan.preempt, ElementsAre(2));  // the latest, though it asked for nothing
  EXPECT_EQ(plan.parts.size(), 2U);
}

TEST_F(Plans, TheLatestGiveWayAndNeverTheOldest) {
  RoundState state{.sequences = {Decoding(513, 2), Decoding(257, 1), Decoding(513, 2)}};
  // The last one's two chunks are enough for the others.
  EXPECT_THAT(Plan(state).preempt, ElementsAre(2));
  state.sequences = {Decoding(769, 3), Decoding(257, 1), Decoding(257, 1)};
  EXPECT_THAT(Plan(state).preempt, ElementsAre(2, 1));
  EXPECT_EQ(RowsOf(Plan(state), 0), 1);
  // Nobody starts in a round in which somebody gave way.
  state.sequences.push_back(Waiting(10));
  state.sequences[2].chunks = 20;
  EXPECT_THAT(Plan(state).preempt, ElementsAre(2));
  EXPECT_THAT(Plan(state).admit, IsEmpty());
  // Alone, and others than sequences hold the chunks: there is nothing to do.
  state.sequences = {Decoding(513, 2)};
  EXPECT_THAT(Plan(state).preempt, IsEmpty());
  EXPECT_THAT(Plan(state).parts, IsEmpty());
}

TEST_F(Plans, TheOldestMovesThoughItsPromptIsTheLongest) {
  const RoundState state{.sequences = {Prompt(8000, 512), Prompt(300), Decoding(300, 2)}, .free_chunks = 2};
  const RoundPlan plan = Plan(state);
  EXPECT_EQ(RowsOf(plan, 0), 1);
  EXPECT_GT(RowsOf(plan, 1), 100);
  // It needs a chunk for that: others give theirs.
  const RoundState full{.sequences = {Prompt(8000, 512), Prompt(300, 256), Decoding(300, 2)}};
  EXPECT_THAT(Plan(full).preempt, ElementsAre(2));
  EXPECT_GE(RowsOf(Plan(full), 0), 1);
}

TEST_F(Plans, APromptThatIsNotTheOldestWaitsForChunksWithoutTakingThem) {
  const RoundState state{.sequences = {Decoding(300, 2), Prompt(1000, 256), Decoding(300, 2)}};
  const RoundPlan plan = Plan(state);
  EXPECT_THAT(plan.preempt, IsEmpty());
  EXPECT_EQ(RowsOf(plan, 1), 0);
  EXPECT_EQ(plan.parts.size(), 2U);
}

// Eight chunks that two share come free with the last of them.
TEST_F(Plans, SharedChunksAreCountedOnce) {
  RoundState state{.sequences = {Decoding(257, 1), Decoding(2200, 9), Decoding(2200, 9)}};
  state.sequences[2].shared_with = 1;
  state.sequences[2].shared_chunks = 8;
  EXPECT_THAT(Plan(state).preempt, ElementsAre(2));  // its own one is enough
  state.sequences[1].chunks = 8;
  state.sequences[1].context = 2049;
  EXPECT_THAT(Plan(state).preempt, ElementsAre(2, 1));  // one for two needs
  state.sequences[2].shared_chunks = 7;                 // two of its own
  EXPECT_THAT(Plan(state).preempt, ElementsAre(2));
}

TEST_F(Plans, AStartThatSharesNeedsOnlyTheRest) {
  RoundState state{.sequences = {Decoding(2200, 9), Waiting(2300)}, .free_chunks = 2};
  state.sequences[0].most_chunks = 9;
  EXPECT_THAT(Plan(state).admit, IsEmpty());
  SequenceState& sharer = state.sequences[1];
  sharer.chunks = 8;
  sharer.missing = 2300 - 8 * 256;
  sharer.shared_with = 0;
  sharer.shared_chunks = 8;
  const RoundPlan plan = Plan(state);
  EXPECT_THAT(plan.admit, ElementsAre(1));
  ASSERT_EQ(plan.pass.size(), 2U);
  EXPECT_EQ(plan.pass[1].shared_with, 0);
  EXPECT_EQ(plan.pass[1].shared_keys, 2048);
  // The prefix cache alone holds them: the same chunks are not its to give as well.
  sharer.shared_with = -1;
  sharer.shared_chunks = 0;
  state.free_chunks = 0;
  state.reclaimable_chunks = 8;
  EXPECT_THAT(Plan(state).admit, IsEmpty());
  state.reclaimable_chunks = 9;
  EXPECT_THAT(Plan(state).admit, ElementsAre(1));
  EXPECT_EQ(Plan(state).new_chunks, 1);
}

// Who shares with whom is a tree: the third names the second, the pass has only the first and the third.
TEST_F(Plans, SharingIsSeenThroughThoseThatWait) {
  RoundState state{.sequences = {Decoding(2200, 9), Waiting(3000), Decoding(2300, 9)}, .free_chunks = 0};
  state.sequences[1].chunks = 8;
  state.sequences[1].missing = 3000 - 2048;
  state.sequences[1].shared_with = 0;
  state.sequences[1].shared_chunks = 8;
  state.sequences[2].shared_with = 1;
  state.sequences[2].shared_chunks = 6;
  const RoundPlan plan = Plan(state);
  ASSERT_EQ(plan.pass.size(), 2U);
  EXPECT_EQ(plan.pass[1].shared_with, 0);
  EXPECT_EQ(plan.pass[1].shared_keys, 6 * 256);
}

TEST_F(Plans, NodesHaveTheRoomThatIsLeft) {
  options.parallel = options.batch_rows = 64;
  RoundState state{.sequences = {Decoding(500, 2), Decoding(506, 2, 2), Prompt(300, 290)}, .free_chunks = 2};
  RoundPlan plan = Plan(state);
  EXPECT_EQ(plan.most_nodes, 64 - 12);
  EXPECT_EQ(plan.parts[0].node_chunks, 1);
  EXPECT_EQ(plan.parts[0].most_nodes, 52);
  EXPECT_EQ(plan.parts[1].node_chunks, 0);  // it may not need another
  EXPECT_EQ(plan.parts[1].most_nodes, 6);
  EXPECT_EQ(plan.parts[2].most_nodes, 52);
  EXPECT_EQ(plan.new_chunks, 2);
  state.free_chunks = 0;
  plan = Plan(state);
  EXPECT_EQ(plan.parts[0].most_nodes, 12);
  EXPECT_EQ(plan.new_chunks, 0);
  // Who does not complete verifies nothing.
  state.sequences[2] = Prompt(3000, 256);
  state.free_chunks = 9;
  plan = Plan(state);
  EXPECT_FALSE(plan.parts[2].completes);
  EXPECT_EQ(plan.parts[2].most_nodes, 0);
}

// Whatever the state: what is planned fits, the oldest and every root run, and it is said again.
TEST_F(Plans, OfAnyStateAreSound) {
  const RngStream rng{.seed = 8, .purpose = RngPurpose::kTest};
  int n_preempted = 0, n_admitted = 0, n_short = 0;
  for (uint64_t round = 0; round < 2000; ++round) {
    uint32_t draw = 0;
    const auto below = [&](int n) { return static_cast<int>(n * rng.Uniform(round, draw++)); };
    options.parallel = 6 + below(4);
    options.batch_rows = options.parallel + below(500);
    options.prefill_ms = 200 * rng.Uniform(round, draw++);
    RoundState state{.sequences = {}, .free_chunks = below(2) * below(12), .reclaimable_chunks = below(3)};
    const int n = 1 + below(8), n_running = std::min(1 + below(n), options.parallel);
    for (int i = 0; i < n; ++i) {
      SequenceState s =
          below(2) == 0 ? Prompt(1 + below(3000)) : Decoding(1 + 256 * below(12) + below(2) * below(256), 0);
      s.running = i < n_running;
      s.waited_ms = 100.0 * below(100);
      if (s.running) {
        s.missing = std::min(s.missing, 1 + below(s.context));
        s.chunks = (s.context - s.missing + 255) / 256;
      } else {
        s.missing = s.context;
      }
      s.most_chunks = std::max(s.most_chunks, (s.context + 256) / 256);
      state.sequences.push_back(s);
    }
    const RoundPlan plan = Plan(state);
    int available = state.free_chunks + state.reclaimable_chunks, rows = 0, chunks = 0;
    std::vector<bool> active;
    for (const SequenceState& s : state.sequences) active.push_back(s.running);
    for (const int i : plan.preempt) {
      ASSERT_NE(i, 0);
      available += state.sequences[static_cast<size_t>(i)].chunks;
      active[static_cast<size_t>(i)] = false;
      ++n_preempted;
    }
    for (const int i : plan.admit) {
      ASSERT_FALSE(active[static_cast<size_t>(i)]);
      active[static_cast<size_t>(i)] = true;
      ++n_admitted;
    }
    ASSERT_LE(std::count(active.begin(), active.end(), true), options.parallel);
    for (const RoundPlan::Part& part : plan.parts) {
      const SequenceState& s = state.sequences[static_cast<size_t>(part.sequence)];
      ASSERT_TRUE(active[static_cast<size_t>(part.sequence)]);
      ASSERT_GE((s.chunks + part.new_chunks) * 256, s.context - s.missing + part.rows);
      ASSERT_LE(part.rows, s.missing);
      if (part.completes) {
        ASSERT_LE(s.context + part.most_nodes, (s.chunks + part.new_chunks + part.node_chunks) * 256);
      } else {
        ASSERT_EQ(part.most_nodes, 0);
      }
      rows += part.rows;
      chunks += part.new_chunks + part.node_chunks;
    }
    ASSERT_EQ(chunks, plan.new_chunks);
    ASSERT_LE(chunks, available);
    ASSERT_LE(rows + plan.most_nodes, options.batch_rows);
    if (available == 0 && RowsOf(plan, 0) == 0) {  // nothing is left to give
      ++n_short;
      continue;
    }
    ASSERT_GE(RowsOf(plan, 0), 1);
    for (size_t i = 0; i < active.size(); ++i) {
      if (active[i] && state.sequences[i].missing == 1) {
        ASSERT_EQ(RowsOf(plan, static_cast<int>(i)), 1);
      }
    }
  }
  EXPECT_GT(n_preempted, 20);
  EXPECT_GT(n_admitted, 50);
  EXPECT_LT(n_short, 200);
}

TEST(CheckFits, SaysWhatIsNeededAndWhatThereIs) {
  EXPECT_EQ(MostChunks(1000, 24, 8192), 4);
  EXPECT_EQ(MostChunks(1000, 25, 8192), 5);
  EXPECT_EQ(MostChunks(1000, -1, 8192), 32);
  EXPECT_EQ(MostChunks(1000, 2000000000, 8192), 32);
  EXPECT_TRUE(CheckFits(7000, 500, 8192, 30).ok());
  const Status refused = CheckFits(7000, 500, 8192, 29);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("7000 tokens and up to 500 to generate need 30 chunks of 256"));
  EXPECT_THAT(refused.message(), HasSubstr("the cache has 29"));
  EXPECT_THAT(CheckFits(7000, -1, 8192, 29).message(), HasSubstr("context of 8192"));
}

}  // namespace
}  // namespace longspec::testing
