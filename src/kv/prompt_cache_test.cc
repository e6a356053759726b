// SPDX-License-Identifier: Apache-2.0
//
// What of earlier prompts is kept, and what goes first, against a plain list.
#include "kv/prompt_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

namespace longspec {
namespace {

constexpr KvLayout kPromptLayout = {
    .k_type = CacheType::kF16, .v_type = CacheType::kF16, .n_kv_head = 1, .head_dim = 16};

using Tokens = std::vector<int32_t>;

// Texts of these lengths that begin with different tokens.
Tokens PromptText(int n, int which) {
  Tokens tokens(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) tokens[static_cast<size_t>(i)] = 1000 * which + i;
  return tokens;
}

class PromptCacheTest : public ::testing::Test {
 protected:
  static constexpr int kContext = 4096;

  void Make(PromptCache::Room room) { cache_ = std::make_unique<PromptCache>(pool_, room); }

  // A sequence that takes over what is known of all but the last of these tokens. `needed`: as in Fit.
  struct Started {
    std::unique_ptr<FullCache> cache;
    int known = 0;
  };
  Started Start(const Tokens& tokens, bool is_wanted = false) {
    Started started{.cache = MakeFullCache(pool_, kContext)};
    const auto asked = std::span(tokens).first(tokens.size() - 1);
    PrefixIndex::Match match = cache_->Find(asked);
    const auto needed = (asked.size() + kKvChunk) / kKvChunk - static_cast<size_t>(match.length / kKvChunk);
    (void)cache_->Fit(match, needed, is_wanted);
    started.known = match.length;
    if (match.length > 0) started.cache->Adopt(match.chunks, match.length);
    return started;
  }
  void Evaluate(FullCache& cache, const Tokens& tokens) {
    auto rows = cache.Begin(static_cast<int>(tokens.size()) - cache.length());
    ASSERT_TRUE(rows.ok()) << rows.status().message();
    rows->CommitAll();
  }
  // One that evaluates all of them, is remembered and ends. Returns how many tokens it knew.
  int Run(const Tokens& tokens) {
    Started started = Start(tokens);
    Evaluate(*started.cache, tokens);
    cache_->Remember(tokens, *started.cache, tokens.size());
    return started.known;
  }
  int Known(const Tokens& tokens) const { return cache_->LengthKnown(tokens); }

  std::shared_ptr<ChunkPool> pool_ = MakeHostPool(kPromptLayout, 1);
  std::unique_ptr<PromptCache> cache_;
};

TEST_F(PromptCacheTest, KeepsWhatSequencesLeaveOfAContextAndAsMuchBesideIt) {
  Make({.context = 4, .beside = 2});
  for (int i = 0; i < 8; ++i) {
    Run(PromptText(100, i));
    cache_->Trim();
  }
  EXPECT_EQ(pool_->held(), 6U);
  EXPECT_EQ(Known(PromptText(100, 1)), 0);
  EXPECT_EQ(Known(PromptText(100, 2)), 100);
  // What a session holds is not kept, and takes the place of what is.
  const auto session = MakeFullCache(pool_, kContext);
  Evaluate(*session, PromptText(3 * kKvChunk, 9));
  cache_->Trim();
  EXPECT_EQ(cache_->n_reclaimable(), 3U);
  const auto other = MakeFullCache(pool_, kContext);
  Evaluate(*other, PromptText(9 * kKvChunk, 10));
  cache_->Trim();
  EXPECT_EQ(cache_->n_reclaimable(), 2U) << "as many as beside whatever others hold";
  EXPECT_EQ(Known(PromptText(100, 7)), 100);
}

TEST_F(PromptCacheTest, WhoTakesChunksWithinALimitMakesTheOldestGo) {
  Make({.context = 4});
  for (int i = 0; i < 4; ++i) Run(PromptText(100, i));
  const auto sequence = MakeFullCache(pool_, kContext);
  {
    const PromptCache::Limit limit(cache_.get(), 4);
    Evaluate(*sequence, PromptText(2 * kKvChunk, 9));
    EXPECT_EQ(pool_->held(), 4U);
    EXPECT_EQ(Known(PromptText(100, 1)), 0);
    EXPECT_EQ(Known(PromptText(100, 2)), 100);
    Evaluate(*sequence, PromptText(5 * kKvChunk, 9));
    EXPECT_EQ(pool_->held(), 5U) << "what sequences hold stays, and nobody is refused";
  }
  Run(PromptText(100, 5));
  EXPECT_EQ(pool_->held(), 6U) << "no limit, nobody goes";
  sequence->Truncate(kKvChunk);
  const PromptCache::Limit limit(cache_.get(), 1);
  EXPECT_EQ(pool_->held(), 1U) << "what was taken before goes where a limit begins";
}

// A session that another thread loads leaves the index alone.
TEST_F(PromptCacheTest, OthersThreadsMakeNothingGo) {
  Make({.context = 2});
  Run(PromptText(100, 1));
  Run(PromptText(100, 2));
  const PromptCache::Limit limit(cache_.get(), 2);
  KvChunkRef chunk;
  std::thread([&] { chunk = *pool_->Take(); }).join();
  EXPECT_EQ(pool_->held(), 3U);
  EXPECT_EQ(Known(PromptText(100, 1)), 100);
}

// Where memory is full, the end of a text is written over by who repeats it, and no other text goes.
TEST_F(PromptCacheTest, WhoRepeatsATextTakesItsEndOver) {
  Make({.context = 2});
  const PromptCache::Limit limit(cache_.get(), 2);
  const Tokens a = PromptText(100, 1), b = PromptText(100, 2);
  Run(a);
  Run(b);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Run(a), 99);
    EXPECT_EQ(Run(b), 99);
    EXPECT_EQ(pool_->held(), 2U);
  }
  // It is its own now.
  const Started started = Start(b);
  EXPECT_EQ(started.known, 99);
  EXPECT_EQ(Known(b), 0);
  EXPECT_EQ(Known(a), 100);
}

TEST_F(PromptCacheTest, WhereThereIsRoomOrOthersWaitItIsCopied) {
  Make({.context = 3});
  const PromptCache::Limit limit(cache_.get(), 3);
  const Tokens a = PromptText(100, 1), b = PromptText(100, 2), c = PromptText(100, 3);
  Run(a);
  Run(b);
  {
    Started started = Start(b);
    Evaluate(*started.cache, b);
    EXPECT_EQ(Known(b), 100);
    EXPECT_EQ(pool_->held(), 3U);
  }
  Run(c);
  {
    Started started = Start(c, true);
    Evaluate(*started.cache, c);
    EXPECT_EQ(Known(c), 100);
    EXPECT_EQ(Known(b), 100);
    EXPECT_EQ(Known(a), 0) << "the oldest made room for the copy";
  }
  // Another text that begins alike, but has little of it in common.
  Tokens d = c;
  for (size_t i = 20; i < d.size(); ++i) d[i] = -1;
  Run(a);
  Started started = Start(d);
  EXPECT_EQ(started.known, 20);
  EXPECT_EQ(Known(c), 100);
  EXPECT_EQ(Known(b), 100) << "nothing goes before it is needed";
  Evaluate(*started.cache, d);
  EXPECT_EQ(Known(b), 0);
}

// Where all memory is the sequence's, it takes what it can.
TEST_F(PromptCacheTest, WhereNothingElseMayGoATextGoes) {
  Make({.context = 1});
  const PromptCache::Limit limit(cache_.get(), 1);
  const Tokens a = PromptText(100, 1);
  Tokens b = a;
  for (size_t i = 20; i < b.size(); ++i) b[i] = -1;
  Run(a);
  {
    Started started = Start(b, true);
    EXPECT_EQ(started.known, 20);
    EXPECT_EQ(Known(a), 0);
    Evaluate(*started.cache, b);
    EXPECT_EQ(pool_->held(), 1U);
    cache_->Remember(b, *started.cache, b.size());
    // The end of what runs is taken back: it need not be copied.
    cache_->TakeBackEnd(*started.cache, 1, true);
    Tokens more = b;
    more.push_back(5);
    Evaluate(*started.cache, more);
    EXPECT_EQ(pool_->held(), 1U);
    EXPECT_EQ(Known(b), 0);
    cache_->Remember(more, *started.cache, more.size());
    EXPECT_EQ(Known(b), 100);
    // Somebody holds what is known: no room.
    EXPECT_EQ(Start(b).known, 0);
  }
  EXPECT_EQ(Start(b).known, 99);
}

// Prompts with nothing in common, as a list: their chunks that are left, least recently used first.
class NaiveList {
 public:
  explicit NaiveList(int most_chunks) : most_(most_chunks) {}

  // Tokens that one who asks for `n` of them finds; all of it is kept afterwards.
  int Use(int which, int n) {
    const auto at = std::ranges::find(list_, which, &Kept::which);
    Kept used = at == list_.end() ? Kept{.which = which} : *at;
    if (at != list_.end()) list_.erase(at);
    const int known = std::min(n - 1, used.chunks * kKvChunk);
    const int all = (n + kKvChunk - 1) / kKvChunk;
    int left = most_ - all;  // for others
    for (const Kept& kept : list_) left -= kept.chunks;
    for (; left < 0; ++left) {
      Kept& oldest = list_.front();
      if (--oldest.chunks == 0) list_.erase(list_.begin());
    }
    used.chunks = all;
    list_.push_back(used);
    return known;
  }

 private:
  struct Kept {
    int which = 0, chunks = 0;
  };
  const int most_;
  std::vector<Kept> list_;
};

TEST_F(PromptCacheTest, KeepsWhatAListOfPromptsByTheirLastUseKeeps) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    std::mt19937 rng(seed);
    const auto draw = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(rng); };
    std::vector<int> lengths;
    for (int i = 0; i < 12; ++i) {
      lengths.push_back(2 + draw(draw(3) == 0 ? 1200 : 300));
      // All but its last token are whole chunks: the last one's is evaluated anew, beside the one that is
      // known.
      if (lengths.back() % kKvChunk == 1) ++lengths.back();
    }
    const int most = 5 + draw(6);
    Make({.context = static_cast<size_t>(most)});
    std::optional<PromptCache::Limit> limit(std::in_place, cache_.get(), static_cast<size_t>(most));
    NaiveList naive(most);
    int n_whole = 0, n_part = 0, n_nothing = 0;
    for (int round = 0; round < 400; ++round) {
      const int which = draw(4) > 0 ? draw(4) : draw(12);
      const int n = lengths[static_cast<size_t>(which)];
      const int known = Run(PromptText(n, which));
      ASSERT_EQ(known, naive.Use(which, n)) << "seed " << seed << ", round " << round << ", text " << which;
      ASSERT_LE(pool_->held(), static_cast<size_t>(most));
      (known == n - 1 ? n_whole : known > 0 ? n_part : n_nothing) += 1;
    }
    EXPECT_GT(n_whole, 20);
    EXPECT_GT(n_part + n_nothing, 20);
    limit.reset();
    cache_.reset();
    ASSERT_EQ(pool_->held(), 0U);
  }
}

// The table of docs/caches.md.
TEST_F(PromptCacheTest, KeepsWhatTheDocsSay) {
  Make({.context = 4});
  const PromptCache::Limit limit(cache_.get(), 4);
  const Tokens a = PromptText(100, 1), b = PromptText(100, 2), c = PromptText(400, 3);
  Tokens other = c;
  for (size_t i = kKvChunk; i < other.size(); ++i) other[i] += 500;
  const auto known = [&] { return std::vector<int>{Known(a), Known(b), Known(c), Known(other)}; };
  for (const auto& [text, found] : {std::pair(a, 0), {b, 0}, {a, 99}, {c, 0}}) EXPECT_EQ(Run(text), found);
  EXPECT_EQ(known(), (std::vector<int>{100, 100, 400, 256}));
  EXPECT_EQ(Run(other), 256);
  EXPECT_EQ(known(), (std::vector<int>{100, 0, 400, 400}));
  EXPECT_EQ(Run(b), 0);
  EXPECT_EQ(known(), (std::vector<int>{0, 100, 400, 400}));
  EXPECT_TRUE(cache_->GiveUpChunk());
  EXPECT_EQ(known(), (std::vector<int>{0, 100, 256, 400}));
  EXPECT_TRUE(cache_->GiveUpChunk());
  EXPECT_EQ(known(), (std::vector<int>{0, 100, 256, 256}));
  EXPECT_TRUE(cache_->GiveUpChunk());
  EXPECT_EQ(known(), (std::vector<int>{0, 100, 0, 0}));
}

// Two conversations in turn, each prompt what was said before and some more.
TEST_F(PromptCacheTest, ConversationsInTurnFindAllThatTheySaid) {
  Make({.context = 8});
  const PromptCache::Limit limit(cache_.get(), 8);
  Run(PromptText(700, 9));  // one that nobody asks for again
  for (int n = 100; n <= 900; n += 100) {
    for (const int which : {1, 2}) EXPECT_EQ(Run(PromptText(n, which)), n - 100);
  }
}

}  // namespace
}  // namespace longspec
