// SPDX-License-Identifier: Apache-2.0
//
// What is retrieved against a choice made from the keys one by one, for every type of cache.
#include "kv/retrieval_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "attention/testing/store_row.h"
#include "kv/full_cache.h"

namespace longspec {
namespace {

constexpr int kLayers = 2, kHeads = 2, kGroup = 3, kDim = 32, kQueryWidth = kHeads * kGroup * kDim;

KvLayout Layout(CacheType type) {
  return {.k_type = type, .v_type = type, .n_kv_head = kHeads, .head_dim = kDim};
}

// Appends n positions of random keys and values.
void Grow(KvCache& cache, int n, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  auto rows = cache.Begin(n);
  ASSERT_TRUE(rows.ok());
  for (int i = 0; i < n; ++i) {
    const int slot = rows->slot() + i;
    for (int layer = 0; layer < kLayers; ++layer) {
      const KvWriter to = rows->Writer(layer);
      for (int head = 0; head < kHeads; ++head) {
        float k[kDim], v[kDim];
        for (float& x : k) x = normal(rng);
        for (float& x : v) x = normal(rng);
        testing::StoreRow(to, slot, head, k, v);
      }
    }
  }
  rows->CommitAll();
}

// Queries of all layers, as the target gives them.
struct Queries {
  explicit Queries(uint32_t seed) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal;
    for (auto& layer : numbers) {
      layer.resize(static_cast<size_t>(kHeads) * kGroup * kDim);
      for (float& x : layer) x = normal(rng);
    }
    for (const auto& layer : numbers) views.emplace_back(layer.data(), 1, kQueryWidth);
  }
  float At(int layer, int head, int in_group, int d) const {
    return numbers[static_cast<size_t>(layer)][static_cast<size_t>(((head * kGroup) + in_group) * kDim + d)];
  }
  std::vector<float> numbers[kLayers];
  std::vector<StateRows> views;
};

// The score of a block as the enumeration's comments say it, from the keys themselves.
float NaiveScore(const KvCache& cache, int layer, int head, int block, const Queries& q, BlockScore score) {
  const KvSpan span = cache.Span(layer);
  const auto key = [&](int i, int d) { return span.KeyAt(block * kKeyBlock + i, head, d); };
  float sum = 0;
  for (int h = 0; h < kGroup; ++h) {
    float with_least = 0, with_most = 0, bound = 0, with_mean = 0;
    for (int d = 0; d < kDim; ++d) {
      float least = key(0, d), most = least, mean = 0;
      for (int i = 0; i < kKeyBlock; ++i) {
        least = std::min(least, key(i, d));
        most = std::max(most, key(i, d));
        mean += key(i, d);
      }
      const float x = q.At(layer, head, h, d);
      with_least += x * least;
      with_most += x * most;
      bound += std::max(x * least, x * most);
      with_mean += x * (mean / kKeyBlock);
    }
    float lengths = 0;
    for (int i = 0; i < kKeyBlock; ++i) {
      float square = 0;
      for (int d = 0; d < kDim; ++d) square += key(i, d) * key(i, d);
      lengths += std::sqrt(square);
    }
    sum += score == BlockScore::kMinMax  ? std::max(with_most, with_least)
           : score == BlockScore::kQuest ? bound
           : score == BlockScore::kMean  ? with_mean
                                         : lengths / kKeyBlock;
  }
  return sum / kGroup;
}

void ExpectSamePosition(const KvCache& source, int position, const KvCache& part, int slot, int layer,
                        int head) {
  for (int d = 0; d < kDim; ++d) {
    ASSERT_EQ(source.Span(layer).KeyAt(position, head, d), part.Span(layer).KeyAt(slot, head, d))
        << position << " " << slot;
    ASSERT_EQ(source.Span(layer).ValueAt(position, head, d), part.Span(layer).ValueAt(slot, head, d));
  }
}

// Sink, blocks and recent positions, each where it belongs.
void ExpectHolds(const KvCache& source, const RetrievalCache& part, const RetrievalOptions& options) {
  ASSERT_EQ(part.length(), source.length());
  const bool chosen = !part.blocks(0, 0).empty();
  const int n_blocks = chosen ? options.budget / kKeyBlock : 0;
  const int n_fixed = chosen ? options.sink + n_blocks * kKeyBlock : 0;
  ASSERT_EQ(part.n_slots(), n_fixed + source.length() - part.recent_begin());
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int head = 0; head < kHeads; ++head) {
      if (chosen) {
        for (int p = 0; p < options.sink; ++p) ExpectSamePosition(source, p, part, p, layer, head);
      }
      const auto blocks = part.blocks(layer, head);
      for (int b = 0; b < n_blocks; ++b) {
        for (int i = 0; i < kKeyBlock; ++i) {
          ExpectSamePosition(source, blocks[static_cast<size_t>(b)] * kKeyBlock + i, part,
                             options.sink + b * kKeyBlock + i, layer, head);
        }
      }
      for (int p = part.recent_begin(); p < source.length(); ++p) {
        ExpectSamePosition(source, p, part, n_fixed + p - part.recent_begin(), layer, head);
      }
    }
  }
}

constexpr RetrievalOptions kSmall = {.sink = 16, .budget = 64, .window = 24, .refresh = 16};

TEST(RetrievalCache, ChoosesTheBlocksOfTheHighestScores) {
  for (const CacheType type : {CacheType::kF32, CacheType::kF16, CacheType::kBF16, CacheType::kBF16Amx,
                               CacheType::kQ8_0, CacheType::kQ4_0, CacheType::kI8}) {
    for (const BlockScore score :
         {BlockScore::kMinMax, BlockScore::kQuest, BlockScore::kMean, BlockScore::kNorm}) {
      std::mt19937 rng(3);
      RetrievalOptions options = kSmall;
      options.score = score;
      const auto source = MakeFullCache(Layout(type), kLayers, 1000);
      const auto part = MakeRetrievalCache(MakeHostPool(Layout(type), kLayers), kHeads * kGroup, options);
      EXPECT_EQ(part->wants_queries(), score != BlockScore::kNorm);
      Grow(*source, 350, rng);
      const Queries queries(5);
      part->SetQueries(queries.views);
      ASSERT_TRUE(part->Follow(*source).ok());
      EXPECT_EQ(part->recent_begin(), (350 - 24) / 16 * 16);
      for (int layer = 0; layer < kLayers; ++layer) {
        for (int head = 0; head < kHeads; ++head) {
          std::vector<int> all(static_cast<size_t>(part->recent_begin() / kKeyBlock - 1));
          std::iota(all.begin(), all.end(), 1);
          std::map<int, float> scores;
          for (const int b : all) scores[b] = NaiveScore(*source, layer, head, b, queries, score);
          std::ranges::stable_sort(all, [&](int a, int b) { return scores[a] > scores[b]; });
          all.resize(4);
          std::ranges::sort(all);
          const auto blocks = part->blocks(layer, head);
          EXPECT_EQ(std::vector<int>(blocks.begin(), blocks.end()), all) << layer << " " << head;
        }
      }
      ExpectHolds(*source, *part, options);
    }
  }
}

// Of several rows' queries a block's score is the mean of what each says.
TEST(RetrievalCache, SeveralRowsChooseByTheMeanScore) {
  std::mt19937 rng(3);
  const auto source = MakeFullCache(Layout(CacheType::kF32), kLayers, 1000);
  const auto part =
      MakeRetrievalCache(MakeHostPool(Layout(CacheType::kF32), kLayers), kHeads * kGroup, kSmall);
  Grow(*source, 350, rng);
  const Queries rows[] = {Queries(5), Queries(6), Queries(7)};
  std::vector<std::vector<float>> together(kLayers);
  std::vector<StateRows> views;
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const Queries& row : rows) {
      together[static_cast<size_t>(layer)].insert(together[static_cast<size_t>(layer)].end(),
                                                  row.numbers[layer].begin(), row.numbers[layer].end());
    }
    views.emplace_back(together[static_cast<size_t>(layer)].data(), 3, kQueryWidth);
  }
  part->SetQueries(views);
  ASSERT_TRUE(part->Follow(*source).ok());
  int n_other = 0;  // than what the first row alone would choose
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int head = 0; head < kHeads; ++head) {
      const auto best = [&](std::span<const Queries> of) {
        std::vector<int> all(static_cast<size_t>(part->recent_begin() / kKeyBlock - 1));
        std::iota(all.begin(), all.end(), 1);
        std::map<int, float> scores;
        for (const int b : all) {
          for (const Queries& q : of) scores[b] += NaiveScore(*source, layer, head, b, q, kSmall.score);
        }
        std::ranges::stable_sort(all, [&](int a, int b) { return scores[a] > scores[b]; });
        all.resize(4);
        std::ranges::sort(all);
        return all;
      };
      const auto blocks = part->blocks(layer, head);
      EXPECT_EQ(std::vector<int>(blocks.begin(), blocks.end()), best(rows));
      n_other += best(rows) != best(std::span(rows).first(1));
    }
  }
  EXPECT_GT(n_other, 0);
  // The next choice is by what was given last.
  part->SetQueries(rows[1].views);
  Grow(*source, 41, rng);
  ASSERT_TRUE(part->Follow(*source).ok());
  EXPECT_EQ(part->work().choices, 2);
  ExpectHolds(*source, *part, kSmall);
}

// A set of exactly the text's size has all of it, each position in its place; where the text is a block
// longer, each KV head leaves out one of its own.
TEST(RetrievalCache, ASetOfTheTextsSizeHasAllOfIt) {
  std::mt19937 rng(3);
  const auto source = MakeFullCache(Layout(CacheType::kF16), kLayers, 1000);
  const int size = kSmall.sink + kSmall.budget + kSmall.window;
  Grow(*source, size, rng);
  const auto part =
      MakeRetrievalCache(MakeHostPool(Layout(CacheType::kF16), kLayers), kHeads * kGroup, kSmall);
  const Queries queries(5);
  part->SetQueries(queries.views);
  ASSERT_TRUE(part->Choose(*source, kSmall.sink + kSmall.budget).ok());
  EXPECT_EQ(part->blocks(0, 0).size(), 4U);  // they were chosen
  ASSERT_EQ(part->n_slots(), size);
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int head = 0; head < kHeads; ++head) {
      for (int p = 0; p < size; ++p) ExpectSamePosition(*source, p, *part, p, layer, head);
    }
  }
  Grow(*source, kKeyBlock, rng);
  ASSERT_TRUE(part->Choose(*source, kSmall.sink + kSmall.budget + kKeyBlock).ok());
  EXPECT_EQ(part->n_slots(), size);
  ExpectHolds(*source, *part, kSmall);
  int n_other = 0;
  for (int layer = 0; layer < kLayers; ++layer) {
    n_other += !std::ranges::equal(part->blocks(layer, 0), part->blocks(layer, 1));
  }
  EXPECT_GT(n_other, 0);
}

// Which head of a group a query is of changes nothing.
TEST(RetrievalCache, HeadsOfAGroupHaveOneVoteEach) {
  std::mt19937 rng(3);
  const auto source = MakeFullCache(Layout(CacheType::kF32), kLayers, 1000);
  Grow(*source, 350, rng);
  const Queries queries(5);
  Queries turned = queries;
  for (size_t layer = 0; layer < kLayers; ++layer) {
    std::vector<float>& numbers = turned.numbers[layer];
    for (size_t head = 0; head < kHeads; ++head) {
      const auto begin = numbers.begin() + static_cast<std::ptrdiff_t>(head * kGroup * kDim);
      std::rotate(begin, begin + kDim, begin + kGroup * kDim);
    }
    turned.views[layer] = {numbers.data(), 1, kQueryWidth};
  }
  EXPECT_NE(turned.numbers[0], queries.numbers[0]);
  const auto choose = [&](const Queries& by) {
    const auto part =
        MakeRetrievalCache(MakeHostPool(Layout(CacheType::kF32), kLayers), kHeads * kGroup, kSmall);
    part->SetQueries(by.views);
    EXPECT_TRUE(part->Follow(*source).ok());
    std::vector<int32_t> all;
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int head = 0; head < kHeads; ++head) {
        all.insert(all.end(), part->blocks(layer, head).begin(), part->blocks(layer, head).end());
      }
    }
    return all;
  };
  EXPECT_EQ(choose(turned), choose(queries));
}

// How several rows' scores are reduced makes no difference for one, and does for
// three: each KV head chooses as its scores, head by head, say.
TEST(RetrievalCache, ReductionsAreOfRowsAndEqualForOne) {
  std::mt19937 rng(3);
  const auto source = MakeFullCache(Layout(CacheType::kF32), kLayers, 1000);
  Grow(*source, 350, rng);
  const Queries rows[] = {Queries(5), Queries(6), Queries(7)};
  using Chosen = std::vector<std::vector<int32_t>>;  // by layer and KV head
  const auto choose = [&](size_t n_rows, QueryReduction reduce) {
    RetrievalOptions options = kSmall;
    options.reduce = reduce;
    const auto part =
        MakeRetrievalCache(MakeHostPool(Layout(CacheType::kF32), kLayers), kHeads * kGroup, options);
    std::vector<std::vector<float>> together(kLayers);
    std::vector<StateRows> views;
    for (size_t layer = 0; layer < kLayers; ++layer) {
      for (const Queries& row : std::span(rows).first(n_rows)) {
        together[layer].insert(together[layer].end(), row.numbers[layer].begin(), row.numbers[layer].end());
      }
      views.emplace_back(together[layer].data(), static_cast<int>(n_rows), kQueryWidth);
    }
    part->SetQueries(views);
    EXPECT_TRUE(part->Follow(*source).ok());
    Chosen chosen;
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int head = 0; head < kHeads; ++head) {
        chosen.emplace_back(part->blocks(layer, head).begin(), part->blocks(layer, head).end());
      }
    }
    return chosen;
  };
  const Chosen mean = choose(1, QueryReduction::kMean);
  EXPECT_EQ(choose(1, QueryReduction::kMax), mean);
  EXPECT_EQ(choose(1, QueryReduction::kLast), mean);
  EXPECT_EQ(choose(3, QueryReduction::kLast), mean);  // of the first row alone
  EXPECT_NE(choose(3, QueryReduction::kMean), mean);
  EXPECT_NE(choose(3, QueryReduction::kMax), mean);
  EXPECT_NE(choose(3, QueryReduction::kMax), choose(3, QueryReduction::kMean));
}

TEST(BlockSummaries, ReductionsByTheirNames) {
  for (const auto& [name, reduce] : {std::pair("mean", QueryReduction::kMean),
                                     {"max", QueryReduction::kMax},
                                     {"last", QueryReduction::kLast}}) {
    const auto parsed = ParseQueryReduction(name, "--x");
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, reduce);
  }
  EXPECT_EQ(ParseQueryReduction("sum", "--x").status().message(), "--x sum: must be mean, max or last");
}

// One block with most (2, 3) and least (-1, -2) in its first two elements.
std::unique_ptr<KvCache> SpecPvsBlock() {
  const KvLayout layout = {
      .k_type = CacheType::kF32, .v_type = CacheType::kF32, .n_kv_head = 1, .head_dim = 16};
  auto source = MakeFullCache(layout, 1, 16);
  auto rows = source->Begin(16);
  for (int i = 0; i < 16; ++i) {
    float k[16] = {}, v[16] = {};
    k[0] = i == 3 ? 2 : i == 4 ? -1 : 0;
    k[1] = i == 5 ? 3 : i == 6 ? -2 : 0;
    testing::StoreRow(rows->Writer(0), i, 0, k, v);
  }
  rows->CommitAll();
  return source;
}

// SpecPV's own example: q (1, -1), most (2, 3), least (-1, -2): 1, where Quest's bound is 4.
TEST(BlockSummaries, ScoreSpecPvsExample) {
  const auto source = SpecPvsBlock();
  std::vector<float> q(16), score(1);
  q[0] = 1;
  q[1] = -1;
  for (const auto& [kind, expected] : {std::pair(BlockScore::kMinMax, 1.0F), {BlockScore::kQuest, 4.0F}}) {
    HostSummaries summaries(source->Span(0).layout, 1, 1, kind);
    summaries.Follow(*source);
    ASSERT_EQ(summaries.n_blocks(), 1);
    summaries.Score(0, 0, q, 0, score);
    EXPECT_EQ(score[0], expected);
  }
}

// Three rows of two query heads, whose scores of that block are 1 and 4, 3 and 2, 1 and 0.
TEST(BlockSummaries, ScoresOfSeveralRowsAreReducedHeadByHead) {
  const auto source = SpecPvsBlock();
  HostSummaries summaries(source->Span(0).layout, 1, 2, BlockScore::kMinMax);
  summaries.Follow(*source);
  std::vector<float> queries, score(1);
  for (const auto& [x, y] :
       {std::pair(1.0F, -1.0F), {2.0F, 0.0F}, {0.0F, 1.0F}, {0.0F, -1.0F}, {-1.0F, 0.0F}, {0.0F, 0.0F}}) {
    queries.insert(queries.end(), {x, y});
    queries.resize(queries.size() + 14);
  }
  for (const auto& [reduce, expected] : {std::pair(QueryReduction::kMean, 11.0F / 6),
                                         {QueryReduction::kMax, (3.0F + 4.0F) / 2},
                                         {QueryReduction::kLast, (1.0F + 4.0F) / 2}}) {
    summaries.Score(0, 0, queries, 0, score, 3, reduce);
    EXPECT_EQ(score[0], expected) << static_cast<int>(reduce);
  }
}

TEST(BlockSummaries, GrownInPiecesTheyAreTheSame) {
  std::mt19937 rng(4);
  const auto source = MakeFullCache(Layout(CacheType::kF16), kLayers, 1000);
  HostSummaries pieces(Layout(CacheType::kF16), kLayers, kHeads * kGroup, BlockScore::kQuest);
  for (const int n : {5, 30, 1, 100, 12}) {
    Grow(*source, n, rng);
    pieces.Follow(*source);
  }
  pieces.Truncate(70);
  EXPECT_EQ(pieces.n_blocks(), 4);
  pieces.Follow(*source);
  HostSummaries whole(Layout(CacheType::kF16), kLayers, kHeads * kGroup, BlockScore::kQuest);
  whole.Follow(*source);
  ASSERT_EQ(pieces.n_blocks(), 148 / 16);
  std::vector<float> a(9), b(9);
  const Queries queries(1);
  for (int layer = 0; layer < kLayers; ++layer) {
    const auto q = std::span(queries.numbers[layer]).first(static_cast<size_t>(kGroup) * kDim);
    pieces.Score(layer, 1, q, 0, a);
    whole.Score(layer, 1, q, 0, b);
    EXPECT_EQ(a, b);
  }
}

TEST(BestBlocks, OfEqualScoresTheEarlier) {
  const std::vector<float> scores = {1, 5, 2, 5, 5, 0};
  std::vector<int32_t> blocks;
  BestBlocks(scores, 10, 2, &blocks);
  EXPECT_EQ(blocks, (std::vector<int32_t>{11, 13}));
  BestBlocks(scores, 0, 9, &blocks);
  EXPECT_EQ(blocks.size(), 6U);
  BestBlocks(scores, 0, 0, &blocks);
  EXPECT_TRUE(blocks.empty());
}

// While everything fits, slots are positions; then it follows for `refresh` positions and chooses anew.
TEST(RetrievalCache, FollowsASourceThatGrows) {
  std::mt19937 rng(7);
  const auto source = MakeFullCache(Layout(CacheType::kF16), kLayers, 1000);
  const auto part =
      MakeRetrievalCache(MakeHostPool(Layout(CacheType::kF16), kLayers), kHeads * kGroup, kSmall);
  const auto fresh_choice = [&] {
    const auto fresh =
        MakeRetrievalCache(MakeHostPool(Layout(CacheType::kF16), kLayers), kHeads * kGroup, kSmall);
    fresh->SetQueries(Queries(static_cast<uint32_t>(source->length())).views);
    EXPECT_TRUE(fresh->Choose(*source, part->recent_begin()).ok());
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int head = 0; head < kHeads; ++head) {
        EXPECT_TRUE(std::ranges::equal(fresh->blocks(layer, head), part->blocks(layer, head)));
      }
    }
  };
  int64_t choices = 0;
  for (int step = 0; step < 60; ++step) {
    Grow(*source, 1 + step % 7, rng);
    part->SetQueries(Queries(static_cast<uint32_t>(source->length())).views);
    const int recent = part->recent_begin();
    ASSERT_TRUE(part->Follow(*source).ok());
    ExpectHolds(*source, *part, kSmall);
    if (source->length() <= 16 + 64 + 24 + 16) {
      EXPECT_EQ(part->work().choices, 0);
      EXPECT_EQ(part->n_slots(), source->length());
    }
    if (part->work().choices != choices) {
      EXPECT_GT(part->recent_begin(), recent);
      fresh_choice();
    } else {
      EXPECT_EQ(part->recent_begin(), recent);
    }
    choices = part->work().choices;
    // Rows of its own are forgotten by the next Follow.
    Grow(*part, 3, rng);
    EXPECT_EQ(part->length(), source->length() + 3);
  }
  EXPECT_GT(choices, 4);
  EXPECT_LT(choices, 12);
}

TEST(RetrievalCache, TruncateForgetsAndFollowsAgain) {
  for (const int length : {0, 40, 180, 200, 299, 300}) {
    std::mt19937 rng(9);
    const auto source = MakeFullCache(Layout(CacheType::kF16), kLayers, 1000);
    const auto part =
        MakeRetrievalCache(MakeHostPool(Layout(CacheType::kF16), kLayers), kHeads * kGroup, kSmall);
    Grow(*source, 300, rng);
    ASSERT_TRUE(part->Follow(*source).ok());
    part->Truncate(length);
    EXPECT_EQ(part->length(), length);
    source->Truncate(length);
    for (int i = 0; i < 9; ++i) {
      Grow(*source, 11, rng);
      ASSERT_TRUE(part->Follow(*source).ok());
      ExpectHolds(*source, *part, kSmall);
    }
  }
}

// What a prompt's chunks were prepared for is not computed again when is chosen, and neither is what a text
// has in common with the one before.
TEST(RetrievalCache, PreparesSummariesOnce) {
  std::mt19937 rng(9);
  const auto source = MakeFullCache(Layout(CacheType::kF16), kLayers, 1000);
  const auto part =
      MakeRetrievalCache(MakeHostPool(Layout(CacheType::kF16), kLayers), kHeads * kGroup, kSmall);
  for (int i = 0; i < 10; ++i) {
    Grow(*source, 40, rng);
    part->Prepare(*source);
    EXPECT_EQ(part->work().blocks_summarised, source->length() / kKeyBlock);
  }
  ASSERT_TRUE(part->Follow(*source).ok());
  EXPECT_EQ(part->work().blocks_summarised, 400 / kKeyBlock);
  EXPECT_EQ(part->work().choices, 1);
  EXPECT_EQ(part->work().blocks_copied, kLayers * kHeads * 4);
  EXPECT_EQ(part->work().positions_copied, 400 - part->recent_begin());
  for (const int kept : {399, 330, 50, 0}) {
    part->Forget(kept);
    source->Truncate(kept);
    Grow(*source, 400 - kept, rng);
    const int64_t before = part->work().blocks_summarised;
    part->Prepare(*source);
    const Queries queries(5);
    part->SetQueries(queries.views);
    ASSERT_TRUE(part->Follow(*source).ok());
    EXPECT_EQ(part->work().blocks_summarised - before, 400 / kKeyBlock - kept / kKeyBlock) << kept;
    ExpectHolds(*source, *part, kSmall);
    const auto fresh =
        MakeRetrievalCache(MakeHostPool(Layout(CacheType::kF16), kLayers), kHeads * kGroup, kSmall);
    fresh->SetQueries(queries.views);
    ASSERT_TRUE(fresh->Choose(*source, part->recent_begin()).ok());
    if (kept < 300) {  // it had to choose anew
      EXPECT_TRUE(std::ranges::equal(fresh->blocks(1, 1), part->blocks(1, 1)));
    }
  }
}

// Rows are speculated after what it holds, and some are kept.
TEST(RetrievalCache, KeepsARowOfATree) {
  std::mt19937 rng(2);
  const auto source = MakeFullCache(Layout(CacheType::kF16), kLayers, 1000);
  const auto part =
      MakeRetrievalCache(MakeHostPool(Layout(CacheType::kF16), kLayers), kHeads * kGroup, kSmall);
  Grow(*source, 300, rng);
  ASSERT_TRUE(part->Follow(*source).ok());
  const int slots = part->n_slots();
  {
    auto rows = part->Begin(5);
    ASSERT_TRUE(rows.ok());
    EXPECT_EQ(rows->base(), 300);
    EXPECT_EQ(rows->slot(), slots);
    EXPECT_EQ(part->Span(0).n_speculated, 5);
    const std::vector<int32_t> kept = {0, 3};
    rows->Commit(kept);
  }
  EXPECT_EQ(part->length(), 302);
  EXPECT_EQ(part->n_slots(), slots + 2);
  { const auto rows = part->Begin(4); }  // rolled back
  EXPECT_EQ(part->n_slots(), slots + 2);
  EXPECT_EQ(part->Span(1).n_speculated, 0);
}

TEST(RetrievalCache, MemoryDoesNotGrowWithTheContextButForSummaries) {
  std::mt19937 rng(2);
  RetrievalOptions options = kSmall;
  options.budget = 0;  // no summaries to speak of
  options.score = BlockScore::kNorm;
  const auto source = MakeFullCache(Layout(CacheType::kF16), kLayers, 5000);
  const auto part =
      MakeRetrievalCache(MakeHostPool(Layout(CacheType::kF16), kLayers), kHeads * kGroup, options);
  Grow(*source, 200, rng);
  ASSERT_TRUE(part->Follow(*source).ok());
  const size_t before = part->bytes();
  for (int i = 0; i < 40; ++i) {
    Grow(*source, 100, rng);
    ASSERT_TRUE(part->Follow(*source).ok());
  }
  EXPECT_LT(part->bytes() - before, 8192U);
}

}  // namespace
}  // namespace longspec
