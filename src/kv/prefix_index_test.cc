// SPDX-License-Identifier: Apache-2.0
//
// The tree of known beginnings agrees with a list of all texts.
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
    for (size_t i = 0; i < tokens.size(); i += kKvChunk) chunks.push_back(*pool_->Take());
    return chunks;
  }
  // Chunks nobody but the index holds.
  void Insert(PrefixIndex& index, const Tokens& tokens) { index.Insert(tokens, Chunks(tokens)); }

  const std::shared_ptr<ChunkPool> pool_ = MakeHostPool(kLayout, 1);
};

TEST_F(PrefixIndexTest, FindsTheLongestBeginningDownToTheToken) {
  PrefixIndex index;
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
  PrefixIndex index;
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
  EXPECT_EQ(pool_->held(), 3U);
}

TEST_F(PrefixIndexTest, DropsWhatWasNotUsedForLongestAndNothingThatSomebodyHolds) {
  PrefixIndex index;
  const Tokens a = Counting(500), b = Counting(500, 1000), c = Counting(500, 2000);
  Insert(index, a);
  Insert(index, b);
  EXPECT_EQ(index.n_reclaimable(), 4U);
  EXPECT_EQ(index.Find(a).length, 500);  // used last
  Insert(index, c);
  EXPECT_EQ(index.n_reclaimable(), 6U);
  index.Trim(4);
  EXPECT_EQ(index.n_reclaimable(), 4U);
  EXPECT_EQ(index.Find(a).length, 500);
  EXPECT_EQ(index.Find(b).length, 0);
  const auto held = index.Find(a);
  EXPECT_EQ(index.n_reclaimable(), 2U);
  while (index.DropOldest()) {
  }
  EXPECT_EQ(index.Find(c).length, 0);
  EXPECT_EQ(index.Find(a).length, 500);
  EXPECT_EQ(pool_->held(), 2U);
}

TEST_F(PrefixIndexTest, GivesUpTheEndOfATextForItsOnlyOtherHolder) {
  PrefixIndex index;
  const Tokens a = Counting(500);
  std::vector<KvChunkRef> chunks = Chunks(a);
  index.Insert(a, chunks);
  EXPECT_FALSE(index.GiveUp(chunks[0], kKvChunk)) << "others lie under it";
  EXPECT_EQ(index.Find(a).length, 500);
  {
    const auto held = index.Find(a);
    EXPECT_FALSE(index.GiveUp(chunks[1], kKvChunk)) << "somebody else has it";
  }
  EXPECT_FALSE(index.GiveUp(*pool_->Take(), kKvChunk)) << "it does not know it";
  EXPECT_FALSE(index.GiveUp(chunks[1], 121))
      << "of the 244 tokens that are known of it that is less than half";
  EXPECT_EQ(index.Find(a).length, 500);
  EXPECT_TRUE(index.GiveUp(chunks[1], 122));
  EXPECT_EQ(index.Find(a).length, 256);
  EXPECT_EQ(chunks[1].use_count(), 1);
}

TEST_F(PrefixIndexTest, ForgetsATextBackToWhereOthersGoOn) {
  PrefixIndex index;
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

// All prompts of a chat begin with some words: those keep no text alive, and half of a text does.
TEST_F(PrefixIndexTest, AWordInCommonIsNoUse) {
  PrefixIndex index;
  const Tokens a = Counting(100), b = Counting(100, 1000);
  Insert(index, a);
  Insert(index, b);
  EXPECT_EQ(index.Find(Joined(Counting(49), Counting(100, 5000))).length, 49);
  ASSERT_TRUE(index.DropOldest());
  EXPECT_EQ(index.LengthKnown(a), 0);
  Insert(index, a);
  EXPECT_EQ(index.Find(Joined(Counting(50, 1000), Counting(100, 5000))).length, 50);
  ASSERT_TRUE(index.DropOldest());
  EXPECT_EQ(index.LengthKnown(b), 100);
  // A prompt that is no more than the words is found in what goes on with them, and that is its use.
  Insert(index, a);
  EXPECT_EQ(index.Find(Counting(3, 1000)).length, 3);
  ASSERT_TRUE(index.DropOldest());
  EXPECT_EQ(index.LengthKnown(b), 100);
}

// What is remembered, as a list: of each chunk all tokens up to its end, and when it was used last.
class NaiveIndex {
 public:
  int Find(const Tokens& tokens) {
    ++now_;
    int length = 0;
    for (size_t whole = 0; whole < tokens.size(); whole += kKvChunk) {
      const Tokens asked(tokens.begin(),
                         tokens.begin() + static_cast<int>(std::min(tokens.size(), whole + kKvChunk)));
      Known* best = nullptr;
      size_t most = whole;
      for (Known& known : all_) {
        if (BeginOf(known) != whole) continue;
        const auto common =
            static_cast<size_t>(std::ranges::mismatch(known.tokens, asked).in1 - known.tokens.begin());
        if (common <= whole || common < most) continue;
        // Of equals the first in the order of tokens that comes after what is asked for, else the last.
        const bool better = best == nullptr || common > most ||
                            (best->tokens < asked ? best->tokens < known.tokens
                                                  : known.tokens < best->tokens && !(known.tokens < asked));
        most = common;
        if (better) best = &known;
      }
      if (best == nullptr) break;
      length = static_cast<int>(most);
      if (2 * (most - whole) >= std::min(best->tokens.size(), asked.size()) - whole) best->used = now_;
      if (most - whole < kKvChunk) break;
    }
    return length;
  }
  void Insert(const Tokens& tokens) {
    ++now_;
    for (size_t whole = 0; whole < tokens.size(); whole += kKvChunk) {
      const Tokens part(tokens.begin(),
                        tokens.begin() + static_cast<int>(std::min(tokens.size(), whole + kKvChunk)));
      std::erase_if(all_, [&](const Known& known) {  // it is longer now
        return BeginOf(known) == whole && known.tokens.size() < part.size() && Begins(part, known.tokens);
      });
      Known* longer = nullptr;
      for (Known& known : all_) {
        if (BeginOf(known) != whole || !Begins(known.tokens, part)) continue;
        if (longer == nullptr || known.tokens < longer->tokens) longer = &known;
      }
      if (longer == nullptr) longer = &all_.emplace_back(Known{.tokens = part});
      longer->used = now_;
    }
  }
  bool DropOldest() {
    const Known* oldest = nullptr;
    for (const Known& known : all_) {
      const bool is_last = std::ranges::none_of(all_, [&](const Known& other) {
        return other.tokens.size() > known.tokens.size() && BeginOf(other) != BeginOf(known) &&
               Begins(other.tokens, known.tokens);
      });
      if (is_last && (oldest == nullptr || known.used < oldest->used)) oldest = &known;
    }
    if (oldest == nullptr) return false;
    all_.erase(all_.begin() + (oldest - all_.data()));
    return true;
  }
  size_t size() const { return all_.size(); }

 private:
  struct Known {
    Tokens tokens;
    uint64_t used = 0;
  };
  static size_t BeginOf(const Known& known) { return (known.tokens.size() - 1) / kKvChunk * kKvChunk; }
  static bool Begins(const Tokens& text, const Tokens& with) {
    return text.size() >= with.size() && std::equal(with.begin(), with.end(), text.begin());
  }
  std::vector<Known> all_;
  uint64_t now_ = 0;
};

TEST_F(PrefixIndexTest, DropsInTheOrderOfANaiveList) {
  std::mt19937 rng(11);
  const auto draw = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(rng); };
  PrefixIndex index;
  NaiveIndex naive;
  std::vector<Tokens> texts;
  size_t n_dropped = 0, n_found = 0;
  for (int round = 0; round < 1500; ++round) {
    Tokens tokens =
        texts.empty() || draw(5) == 0 ? Tokens() : texts[static_cast<size_t>(draw(std::ssize(texts)))];
    if (draw(3) > 0) {  // goes on otherwise
      tokens.resize(static_cast<size_t>(draw(std::ssize(tokens) + 1)));
      for (int more = 1 + draw(draw(2) == 0 ? 40 : 500); more > 0; --more) tokens.push_back(draw(3));
    }
    if (tokens.empty()) continue;
    const int found = naive.Find(tokens);
    ASSERT_EQ(index.LengthKnown(tokens), found) << round;
    ASSERT_EQ(index.Find(tokens).length, found) << round;
    n_found += found > 0 ? 1 : 0;
    naive.Insert(tokens);
    Insert(index, tokens);
    texts.push_back(std::move(tokens));
    ASSERT_EQ(index.n_reclaimable(), naive.size());
    for (; naive.size() > 30; ++n_dropped) {
      ASSERT_TRUE(naive.DropOldest());
      ASSERT_TRUE(index.DropOldest());
    }
    ASSERT_EQ(index.n_chunks(), naive.size()) << round;
    ASSERT_EQ(pool_->held(), naive.size()) << round;
  }
  EXPECT_GT(n_dropped, 500U);
  EXPECT_GT(n_found, 500U);
  while (naive.DropOldest()) ASSERT_TRUE(index.DropOldest());
  EXPECT_FALSE(index.DropOldest());
}

TEST_F(PrefixIndexTest, AgreesWithAListOfAllThatWasInserted) {
  std::mt19937 rng(3);
  PrefixIndex index;
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
