// SPDX-License-Identifier: Apache-2.0
//
// EAGLE drafters with SpecExtend: what they see is what the target looks at.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "draft_model/testing/eagle_scene.h"

namespace longspec::testing {
namespace {

using ::testing::HasSubstr;

TEST(EagleExtended, WithRoomForEverythingItIsTheSpecifications) {
  for (const auto& eagle : BothKinds(SomeTokens())) {
    eagle->extend_chunks = 100;
    EagleScene scene(eagle.get(), "3,5,4");
    scene.Follow(RandomTokens(270, 4));
    scene.Compute(17);
    ExpectTree(scene.Propose(12, 3), BeamSearch(scene.Specified(), {3, 5, 4}));
    scene.Round(scene.Propose(12, 3), {1}, 50);
    ExpectTree(scene.Propose(12, 3), BeamSearch(scene.Specified(), {3, 5, 4}));
    EXPECT_EQ(scene.drafter().notice(), "");
  }
}

// Before anything was verified: the last chunks. Then those of the naive choice, every other round, with the
// newest one always there.
TEST(EagleExtended, ItSeesTheNaiveChoice) {
  for (const auto& eagle : BothKinds(SomeTokens())) {
    eagle->extend_chunks = 3;
    eagle->extend_every = 2;
    EagleScene scene(eagle.get(), "3,5");
    scene.Follow(RandomTokens(282, 8));
    scene.Compute(31);
    std::vector<int> chunks = {6, 7, 8};  // of 280 slots
    ExpectTree(scene.Propose(8, 2), BeamSearch(scene.Extended(chunks), {3, 5}));
    int n_not_last = 0;
    for (int round = 0; round < 7; ++round) {
      const TokenTree tree = scene.Propose(8, 2);
      EXPECT_EQ(scene.drafter().taps().query_rows > 0, round % 2 == 0);
      std::vector<int32_t> accepted;
      if (round % 3 != 1) accepted = tree.PathTo(tree.size() - 1);
      if (!accepted.empty()) accepted.erase(accepted.begin());
      scene.Round(tree, accepted, 10 + round);
      const int newest = (static_cast<int>(scene.committed().size()) - 3) / 32;
      if (round % 2 == 0) {
        chunks = scene.Choice(3);
      } else if (chunks.back() != newest) {
        chunks.push_back(newest);
      }
      n_not_last += chunks.front() < newest - 3;
      SCOPED_TRACE(round);
      ExpectTree(scene.Propose(8, 2), BeamSearch(scene.Extended(chunks), {3, 5}));
    }
    EXPECT_GT(n_not_last, 3);  // else the choice was of the last ones
    EXPECT_EQ((static_cast<int>(scene.committed().size()) - 3) / 32, 9);  // a chunk was begun
  }
}

// The golden sequence across the gate at 285 tokens: all, all, then the last chunks, and from then on what
// the naive choice of the first round with all of the text at the gate says, and of every second one after.
TEST(EagleExtended, BelowTheGateItSeesAll) {
  for (const auto& eagle : BothKinds(SomeTokens())) {
    eagle->extend_chunks = 2;
    eagle->extend_every = 2;
    eagle->extend_from = 285;
    EagleScene scene(eagle.get(), "3,5");
    scene.Follow(RandomTokens(282, 8));
    scene.Compute(31);
    const auto expect_all = [&] {
      EXPECT_EQ(scene.drafter().taps().query_rows, 0);
      ExpectTree(scene.Propose(8, 2), BeamSearch(scene.Specified(), {3, 5}));
    };
    const auto round = [&](size_t n_accepted) {
      const TokenTree tree = scene.Propose(8, 2);
      std::vector<int32_t> accepted = tree.PathTo(tree.size() - 1);
      accepted.erase(accepted.begin());
      accepted.resize(n_accepted);
      scene.Round(tree, accepted, 17);
    };
    const auto expect_chunks = [&](const std::vector<int>& chunks, bool asks) {
      EXPECT_EQ(scene.drafter().taps().query_rows > 0, asks) << scene.committed().size();
      ExpectTree(scene.Propose(8, 2), BeamSearch(scene.Extended(chunks), {3, 5}));
    };
    expect_all();
    round(1);
    ASSERT_EQ(scene.committed().size(), 284U);
    expect_all();
    round(0);  // 285: of 283 slots the last chunks
    expect_chunks({7, 8}, true);
    round(0);
    const std::vector<int> first = scene.Choice(2);
    EXPECT_LT(first.front(), 7);  // else the choice is of the last ones
    expect_chunks(first, false);
    round(1);
    expect_chunks(first, true);
    round(0);
    expect_chunks(scene.Choice(2), false);
    // Back below the gate, and on over it.
    std::vector<int32_t> shorter = scene.committed();
    shorter.resize(280);
    scene.Follow(shorter);
    scene.Round(scene.Propose(8, 2), {}, 9);
    expect_all();
    std::vector<int32_t> longer = scene.committed();
    longer.resize(330, 44);
    scene.Follow(longer);
    scene.Compute();
    expect_chunks({9, 10}, true);
  }
}

// Back, into what it sees and before it, and on: with each round the choice is that of the text as it is.
TEST(EagleExtended, Rewinds) {
  for (const auto& eagle : BothKinds(SomeTokens())) {
    eagle->extend_chunks = 2;
    eagle->extend_every = 1;
    EagleScene scene(eagle.get(), "3,5");
    scene.Follow(RandomTokens(300, 8));
    scene.Compute();
    scene.Round(scene.Propose(8, 2), {}, 9);
    for (const size_t length : {297U, 180U, 40U}) {
      std::vector<int32_t> shorter = scene.committed();
      shorter.resize(length);
      scene.Follow(shorter);
      const TokenTree none = scene.Propose(8, 2);
      EXPECT_EQ(none.size(), 1);
      scene.Round(none, {}, 17);
      ExpectTree(scene.Propose(8, 2), BeamSearch(scene.Extended(scene.Choice(2)), {3, 5}));
    }
  }
}

// As of a session from a file: what was computed without it is left out, and the rest is scored where it is.
TEST(EagleExtended, ABeginningItHasNotReadIsLeftOut) {
  for (const auto& eagle : BothKinds(SomeTokens())) {
    eagle->extend_chunks = 2;
    EagleScene scene(eagle.get(), "3,5");
    std::vector<int32_t> text = RandomTokens(300, 8);
    text.resize(60);
    scene.Follow(text);
    scene.Compute(100, /*reads=*/false);
    scene.Follow(RandomTokens(300, 8));
    scene.Compute();
    EXPECT_THAT(scene.drafter().notice(), "");
    scene.Round(scene.Propose(8, 2), {}, 9);
    const std::vector<int> chunks = scene.Choice(2, 0, 59);
    ExpectTree(scene.Propose(8, 2), BeamSearch(scene.Extended(chunks, 0, 59), {3, 5}));
    EXPECT_THAT(scene.drafter().notice(), HasSubstr("59 of 300 positions were computed while"));
  }
}

// Two texts one after the other are as in sessions of their own: nothing that
// the first one's rounds said chooses for the second.
TEST(EagleExtended, NothingOfATextBeforeIsLeft) {
  for (const auto& eagle : BothKinds(SomeTokens())) {
    eagle->extend_chunks = 2;
    eagle->extend_every = 3;
    const auto shapes_of = [&](EagleScene& scene) {
      std::vector<int32_t> text = RandomTokens(300, 8);
      for (int32_t& token : text) token = (token + 77) % 380;
      scene.Follow(text);
      scene.Compute();
      std::vector<std::pair<int32_t, float>> nodes;
      for (int round = 0; round < 5; ++round) {
        EXPECT_EQ(scene.drafter().taps().query_rows > 0, round % 3 == 0);
        const TokenTree tree = scene.Propose(8, 2);
        for (const TreeNode& node : tree.nodes()) nodes.emplace_back(node.token, node.score);
        scene.Round(tree, {}, 20 + round);
      }
      return nodes;
    };
    EagleScene fresh(eagle.get(), "3,5"), second(eagle.get(), "3,5");
    second.Follow(RandomTokens(290, 4));
    second.Compute();
    for (int round = 0; round < 4; ++round) second.Round(second.Propose(8, 2), {}, 30 + round);
    EXPECT_EQ(shapes_of(second), shapes_of(fresh));
  }
}

TEST(EagleExtended, TheSetStaysAsLargeAndTheStoreGrows) {
  for (const auto& eagle : BothKinds(SomeTokens())) {
    eagle->extend_chunks = 2;
    EagleScene scene(eagle.get(), "2,2");
    size_t at_400 = 0;
    const auto n_chunks = [](int n) { return static_cast<size_t>((n + kKvChunk - 1) / kKvChunk); };
    for (const int n : {400, 700, 990}) {
      scene.Follow(RandomTokens(n, 8));
      scene.Compute(100);
      scene.Round(scene.Propose(4, 2), {}, 9);
      EXPECT_EQ(scene.Propose(4, 2).size(), 5);
      const size_t bytes = scene.drafter().bytes();
      if (at_400 == 0) at_400 = bytes;
      // Chunks of the store, keys and values of 32 numbers in f32, and some bytes a token. A set that grew,
      // too, would take as much again.
      constexpr size_t kStoreChunk = size_t{kKvChunk} * 2 * 32 * sizeof(float);
      EXPECT_LE(bytes, at_400 + (n_chunks(n) - n_chunks(400)) * kStoreChunk + 16 * static_cast<size_t>(n));
    }
  }
}

// It stands at positions of its set, so it goes on where one that sees all must stop.
TEST(EagleExtended, ItDraftsBeyondItsTraining) {
  SmallEagle eagle({}, SomeTokens(), R"(, "longspec_trained_positions": 120)");
  for (const int chunks : {0, 2, 100}) {
    eagle.extend_chunks = chunks;
    EagleScene scene(&eagle, "2,2,2");
    scene.Follow(RandomTokens(300, 8));
    scene.Compute();
    EXPECT_EQ(scene.Propose(20, 3).size() > 1, chunks == 2);
    EXPECT_EQ(scene.drafter().notice().empty(), chunks == 2);
  }
}

}  // namespace
}  // namespace longspec::testing
