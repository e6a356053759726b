// SPDX-License-Identifier: Apache-2.0
#include "kv/prefix_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace longspec {
namespace {

constexpr KvLayout kLayout = {
    .k_type = CacheType::kF16, .v_type = CacheType::kF16, .n_kv_head = 1, .head_dim = 16};

using Tokens = std::vector<int32_t>;

Tokens Counting(int n, int first = 0) {
  Tokens tokens(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) tokens[static_cast<size_t>(i)] = first + i;
  return tokens;
}

Tokens Joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class PrefixIndexTest : public ::testing::Test {
 protected:
  std::vector<KvChunkRef> Chunks(const Tokens& tokens) {
    std::vector<KvChunkRef> chunks;
    for (size_t i = 0; i < tokens.size(); i += kKvChunk) chunks.push_back(*pool_.Take());
    return chunks;
  }
  // Chunks nobody but the index holds.
  void Insert(PrefixIndex& index, const Tokens& tokens) {
    index.Insert(tokens, Chunks(tokens));
    index.Trim();
  }

  ChunkPool pool_{kLayout, 1};
};

TEST_F(PrefixIndexTest, FindsTheLongestBeginningDownToTheToken) {
  PrefixIndex index(100);
  EXPECT_EQ(index.Find(Counting(10)).length, 0);
  const Tokens a = Counting(700);
  const auto chunks = Chunks(a);
  index.Insert(a, chunks);
  for (const int n : {1, 255, 256, 257, 512, 513, 699, 700}) {
    const auto match = index.Find(Counting(n));
    EXPECT_EQ(match.length, n);
    ASSERT_EQ(match.chunks.size(), static_cast<size_t>((n + 255) / 256));
    for (size_t i = 0; i < match.chunks.size(); ++i) EXPECT_EQ(match.chunks[i], chunks[i]);
  }
  EXPECT_EQ(index.Find(Counting(900)).length, 700);
  EXPECT_EQ(index.Find(Joined(Counting(300), Counting(50, 5000))).length, 300);
  EXPECT_EQ(index.Find(Counting(100, 1)).length, 0);
  EXPECT_EQ(index.LengthKnown(Joined(Counting(300), Counting(50, 5000))), 300);
}

TEST_F(PrefixIndexTest, KeepsWhatIsCommonOnceAndLongerTextInThePlaceOfShorter) {
  PrefixIndex index(100);
  Insert(index, Counting(300));
  EXPECT_EQ(index.n_chunks(), 2U);
  Insert(index, Counting(300));
  Insert(index, Counting(280));
  EXPECT_EQ(index.n_chunks(), 2U);
  Insert(index, Counting(310));  // the second chunk grew
  EXPECT_EQ(index.n_chunks(), 2U);
  EXPECT_EQ(index.Find(Counting(400)).length, 310);
  Insert(index, Joined(Counting(290), Counting(100, 7000)));
  EXPECT_EQ(index.n_chunks(), 3U);
  EXPECT_EQ(index.Find(Joined(Counting(290), Counting(3, 7000))).length, 293);
  EXPECT_EQ(index.Find(Counting(400)).length, 310);
  EXPECT_EQ(pool_.held(), 3U);
}

TEST_F(PrefixIndexTest, DropsWhatWasNotUsedForLongestAndNothingThatSomebodyHolds) {
  PrefixIndex index(4);
  const Tokens a = Counting(500), b = Counting(500, 1000), c = Counting(500, 2000);
  Insert(index, a);
  Insert(index, b);
  EXPECT_EQ(index.n_reclaimable(), 4U);
  EXPECT_EQ(index.Find(a).length, 500);  // used last
  Insert(index, c);
  EXPECT_EQ(index.n_reclaimable(), 4U);
  EXPECT_EQ(index.Find(a).length, 500);
  EXPECT_EQ(index.Find(b).length, 0);
  const auto held = index.Find(a);
  EXPECT_EQ(index.n_reclaimable(), 2U);
  while (index.DropOldest()) {
  }
  EXPECT_EQ(index.Find(c).length, 0);
  EXPECT_EQ(index.Find(a).length, 500);
  EXPECT_EQ(pool_.held(), 2U);
}

TEST_F(PrefixIndexTest, ForgetsTheEndOfABeginningForItsOnlyOtherHolder) {
  PrefixIndex index(10);
  const Tokens a = Counting(500);
  std::vector<KvChunkRef> chunks = Chunks(a);
  index.Insert(a, chunks);
  index.Forget(chunks[0]);  // others lie under it
  EXPECT_EQ(index.Find(a).length, 500);
  {
    const auto held = index.Find(a);
    index.Forget(chunks[1]);  // somebody else has it
  }
  EXPECT_EQ(index.Find(a).length, 500);
  index.Forget(chunks[1]);
  EXPECT_EQ(index.Find(a).length, 256);
  EXPECT_EQ(chunks[1].use_count(), 1);
}

TEST_F(PrefixIndexTest, ForgetsATextBackToWhereOthersGoOn) {
  PrefixIndex index(10);
  const Tokens a = Counting(700);
  Tokens b = a;
  b[600] = -5;
  Insert(index, a);
  Insert(index, b);
  index.Forget(Tokens{99, 98});  // not known at all
  EXPECT_EQ(index.Find(a).length, 700);
  Tokens longer = a;
  longer.push_back(7);  // whose keys are not there
  index.Forget(longer);
  EXPECT_EQ(index.Find(a).length, 600);  // what both begin with
  EXPECT_EQ(index.Find(b).length, 700);
  index.Forget(b);
  EXPECT_EQ(index.Find(b).length, 0);
  EXPECT_EQ(index.n_chunks(), 0U);
}

TEST_F(PrefixIndexTest, AgreesWithAListOfAllThatWasInserted) {
  std::mt19937 rng(3);
  PrefixIndex index(1 << 20);
  std::vector<Tokens> all;
  const auto draw = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(rng); };
  for (int round = 0; round < 400; ++round) {
    Tokens tokens =
        all.empty() || draw(4) == 0 ? Tokens() : all[static_cast<size_t>(draw(static_cast<int>(all.size())))];
    tokens.resize(static_cast<size_t>(draw(static_cast<int>(tokens.size()) + 1)));
    const int more = 1 + draw(600);
    for (int i = 0; i < more; ++i) tokens.push_back(draw(2));
    int longest = 0;
    for (const Tokens& other : all) {
      longest =
          std::max(longest, static_cast<int>(std::ranges::mismatch(tokens, other).in1 - tokens.begin()));
    }
    // A chunk that others go on differently in is kept for each of them, so nothing known is lost.
    ASSERT_EQ(index.LengthKnown(tokens), longest) << round;
    ASSERT_EQ(index.Find(tokens).length, longest) << round;
    Insert(index, tokens);
    all.push_back(tokens);
  }
}

}  // namespace
}  // namespace longspec
