// SPDX-License-Identifier: Apache-2.0
//
// Counts of n-grams are those of a scan, in memory, merged, pruned and in files.
#include "formats/ngram_prior.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <vector>

#include "base/testing/files.h"
#include "base/testing/source_path.h"
#include "draft_text/ngram_counter.h"
#include "formats/ngram_exercise.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;
using Text = std::vector<int32_t>;
using Mask = std::vector<int8_t>;
using ngram_format::CodeOfCount;
using ngram_format::CountOfCode;
using ngram_format::Header;

constexpr Hash128 kTokenizer = {.high = 7, .low = 9};
constexpr NgramOptions kEverything = {.min_count = 1, .successors = 1 << 20};

// What every n-gram counts, by a scan.
struct Naive {
  std::map<Text, int64_t> counts, followed;

  void Add(const Text& text, const Mask& learn, int order, int64_t weight) {
    for (size_t end = 1; end <= text.size(); ++end) {
      if (!learn.empty() && learn[end - 1] == 0) continue;
      for (size_t n = 1; n <= std::min(end, static_cast<size_t>(order) + 1); ++n) {
        const auto last = text.begin() + static_cast<std::ptrdiff_t>(end);
        const Text ngram(last - static_cast<std::ptrdiff_t>(n), last);
        counts[ngram] += weight;
        followed[Text(ngram.begin(), ngram.end() - 1)] += weight;
      }
    }
  }
};

int64_t Rounded(int64_t count) { return CountOfCode(CodeOfCount(static_cast<uint64_t>(count))); }

class NgramPriorTest : public ::testing::Test {
 protected:
  std::shared_ptr<const NgramPrior> Write(NgramCounter& counter, int vocab_size,
                                          const NgramOptions& options = kEverything) {
    const auto written = counter.Write(path_, options, kTokenizer);
    EXPECT_TRUE(written.ok()) << written.status().message();
    auto prior = NgramPrior::Open(path_, vocab_size, kTokenizer);
    EXPECT_TRUE(prior.ok()) << prior.status().message();
    EXPECT_EQ((*prior)->bytes(), std::filesystem::file_size(path_));
    EXPECT_EQ(written->bytes, static_cast<int64_t>((*prior)->bytes()));
    const std::string bytes = Bytes();
    EXPECT_TRUE(ExerciseNgrams(std::as_bytes(std::span(bytes))).ok());
    return *prior;
  }

  // The table and the scan say the same of every n-gram there is, and of many that there are not.
  static void ExpectSame(const NgramPrior& prior, const Naive& naive) {
    size_t n = 0;
    prior.Visit([&](std::span<const int32_t> span, int64_t count, int64_t followed) {
      const Text ngram(span.begin(), span.end());
      if (!ngram.empty()) {
        ASSERT_EQ(naive.counts.contains(ngram), count > 0);
        ASSERT_EQ(count, count > 0 ? Rounded(naive.counts.at(ngram)) : 0);
        n += count > 0 ? 1 : 0;
      }
      const bool context = naive.followed.contains(ngram);
      ASSERT_EQ(context, followed > 0);
      if (context) {
        const int64_t exact = naive.followed.at(ngram);
        ASSERT_LE(std::abs(followed - exact) * 32, exact <= 31 ? 0 : exact);
      }
    });
    ASSERT_EQ(n, naive.counts.size());
    for (const auto& [context, followed] : naive.followed) {
      NgramPrior::Contexts contexts;
      prior.Start(context, contexts);
      const int32_t node = contexts.node[context.size()];
      ASSERT_NE(node, NgramPrior::kUnknown);
      std::vector<int64_t> counts;
      prior.ForSuccessors(node, [&, &context = context](int32_t token, int64_t count) {
        Text ngram = context;
        ngram.push_back(token);
        ASSERT_EQ(count, Rounded(naive.counts.at(ngram)));
        counts.push_back(count);
      });
      ASSERT_FALSE(counts.empty());
      ASSERT_TRUE(std::is_sorted(counts.rbegin(), counts.rend()));
    }
  }

  std::string Bytes() const { return testing::ReadText(path_); }
  // The error of opening the file with these bytes.
  Status Refusal(const std::string& bytes, int vocab_size = 5, Hash128 tokenizer = kTokenizer) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
    const auto prior = NgramPrior::Open(path_, vocab_size, tokenizer);
    EXPECT_FALSE(prior.ok());
    EXPECT_THAT(prior.status().message(), HasSubstr(path_));
    EXPECT_EQ(prior.status().message().find('\n'), std::string::npos);
    return prior.status();
  }
  // As if the bytes had been written so.
  static std::string Sealed(std::string bytes) {
    const Hash128 hash = HashOf(std::as_bytes(std::span(bytes)).subspan(ngram_format::kHashedFrom));
    std::memcpy(bytes.data() + offsetof(Header, checksum_high), &hash.high, 8);
    std::memcpy(bytes.data() + offsetof(Header, checksum_low), &hash.low, 8);
    return bytes;
  }

  const testing::Folder folder_;
  const std::string path_ = folder_.File("x.ngrams");
};

Text Random(std::mt19937& rng, int n, int vocab_size) {
  Text text;
  for (int i = 0; i < n; ++i) {
    // Some tokens are more frequent than others.
    text.push_back(static_cast<int32_t>(std::min(rng(), rng()) % static_cast<unsigned>(vocab_size)));
  }
  return text;
}

TEST(NgramCountTest, CountsAreExactUpTo31AndWithinAThirtySecondAbove) {
  for (int code = 0; code < 256; ++code) {
    EXPECT_EQ(CodeOfCount(CountOfCode(static_cast<uint8_t>(code))), code);
  }
  int64_t last = 0;
  for (int64_t count = 0; count <= 515000; ++count) {
    const int64_t rounded = Rounded(count);
    ASSERT_LE(last, rounded);
    ASSERT_LE(std::abs(rounded - count) * 32, count <= 31 ? 0 : count);
    last = rounded;
  }
  EXPECT_EQ(CodeOfCount(~uint64_t{0}), 255);
}

TEST_F(NgramPriorTest, CountsWhatAScanCounts) {
  std::mt19937 rng(5);
  for (int round = 0; round < 24; ++round) {
    const int order = 1 + round % 4, vocab_size = round < 12 ? 5 : 300;
    NgramCounter counter(order, vocab_size);
    Naive naive;
    int64_t learned = 0;
    for (int i = 0; i < 5; ++i) {
      const Text text = Random(rng, static_cast<int>(rng() % 400), vocab_size);
      Mask learn;
      if (round % 3 != 0) {
        for (size_t j = 0; j < text.size(); ++j) learn.push_back(static_cast<int8_t>(rng() % 8 != 0 ? 1 : 0));
      }
      const int weight = round % 2 == 0 ? 1 : 1 + static_cast<int>(rng() % 3);
      counter.Add(text, learn, weight);
      naive.Add(text, learn, order, weight);
      learned += learn.empty() ? static_cast<int64_t>(text.size()) : std::ranges::count(learn, 1);
    }
    EXPECT_EQ(counter.tokens(), learned);
    const auto prior = Write(counter, vocab_size);
    EXPECT_EQ(prior->order(), order);
    ASSERT_NO_FATAL_FAILURE(ExpectSame(*prior, naive)) << round;
    // Contexts that go along with a text are those of its end.
    Text text;
    NgramPrior::Contexts along, there;
    prior->Start(text, along);
    for (const int32_t token : Random(rng, 100, vocab_size)) {
      text.push_back(token);
      prior->Extend(along, token, along);
      prior->Start(text, there);
      ASSERT_EQ(along.node, there.node);
      for (size_t k = 1; k < along.node.size(); ++k) {
        const Text context(text.end() - static_cast<std::ptrdiff_t>(std::min(k, text.size())), text.end());
        const bool occurs =
            k <= text.size() && static_cast<int>(k) <= order && naive.followed.contains(context);
        // What was only passed on the way to longer contexts is known, but counts nothing.
        const int32_t node = along.node[k];
        ASSERT_EQ(node != NgramPrior::kUnknown && prior->Count(node) > 0, occurs);
      }
    }
  }
}

TEST_F(NgramPriorTest, VocabulariesOfEverySizeAreCounted) {
  std::mt19937 rng(6);
  for (const int vocab_size : {1, 2, 65536, 65537, 128256, 1 << 25}) {
    for (const int order : {3, 4}) {
      NgramCounter counter(order, vocab_size);
      Naive naive;
      Text text = Random(rng, 500, std::min(vocab_size, 4));
      for (int32_t& token : text) token = vocab_size - 1 - token;  // the largest numbers
      counter.Add(text);
      naive.Add(text, {}, order, 1);
      const auto prior = Write(counter, vocab_size);
      ASSERT_NO_FATAL_FAILURE(ExpectSame(*prior, naive)) << vocab_size;
    }
  }
}

TEST_F(NgramPriorTest, NodesMayHaveManyChildren) {
  const int vocab_size = 3000;
  NgramCounter counter(2, vocab_size);
  Naive naive;
  Text text;
  std::mt19937 rng(7);
  for (int i = 0; i < 20000; ++i) {
    text.push_back(static_cast<int32_t>(rng() % 3));
    text.push_back(static_cast<int32_t>(rng() % vocab_size));
  }
  counter.Add(text);
  naive.Add(text, {}, 2, 1);
  const auto prior = Write(counter, vocab_size);
  ExpectSame(*prior, naive);
  EXPECT_EQ(prior->ranked(), 64);
  NgramPrior::Contexts contexts;
  prior->Start(Text{1}, contexts);
  int n = 0;
  prior->ForSuccessors(contexts.node[1], [&](int32_t, int64_t) { ++n; });
  EXPECT_EQ(n, 64);
}

TEST_F(NgramPriorTest, SaysWhichTokensOccurMostOften) {
  NgramCounter counter(1, 9);
  counter.Add(Text{7, 7, 7, 2, 2, 5, 5, 8, 1}, {}, 1);
  const auto prior = Write(counter, 9);
  EXPECT_EQ(prior->FrequentTokens(0), Text());
  EXPECT_EQ(prior->FrequentTokens(2), (Text{7, 2}));
  EXPECT_EQ(prior->FrequentTokens(4), (Text{7, 2, 5, 1}));
  EXPECT_EQ(prior->FrequentTokens(100), (Text{7, 2, 5, 1, 8}));
  const auto counted = prior->TokensByCount();
  ASSERT_EQ(counted.size(), 5U);
  EXPECT_EQ(counted[0].token, 7);
  EXPECT_EQ(counted[4].token, 8);
  for (size_t i = 1; i < counted.size(); ++i) EXPECT_GE(counted[i - 1].count, counted[i].count);
}

TEST_F(NgramPriorTest, TokensOutsideTheVocabularyPartTexts) {
  NgramCounter counter(2, 5);
  counter.Add(Text{1, 2, -1, 3, 4, 5, 0});
  EXPECT_EQ(counter.tokens(), 5);
  const auto prior = Write(counter, 5);
  Naive naive;
  for (const Text& text : {Text{1, 2}, Text{3, 4}, Text{0}}) naive.Add(text, {}, 2, 1);
  ExpectSame(*prior, naive);
}

TEST_F(NgramPriorTest, MergingCountsBoth) {
  std::mt19937 rng(8);
  for (int round = 0; round < 8; ++round) {
    const int order = 1 + round % 4;
    // Few of a kind, so that counts stay below 32, but for the shortest contexts.
    const int vocab_size = 40;
    const Text one = Random(rng, 300, vocab_size), two = Random(rng, 300, vocab_size);
    Mask learn;
    for (size_t i = 0; i < two.size(); ++i) learn.push_back(rng() % 4 != 0 ? 1 : 0);
    NgramCounter first(order, vocab_size), both(order, vocab_size), merged(order, vocab_size);
    first.Add(one);
    both.Add(one);
    both.Add(two, learn);
    merged.Add(two, learn);
    merged.Add(*Write(first, vocab_size));
    std::map<Text, std::pair<int64_t, int64_t>> expected;
    Write(both, vocab_size)->Visit([&](std::span<const int32_t> ngram, int64_t count, int64_t followed) {
      expected[Text(ngram.begin(), ngram.end())] = {count, followed};
    });
    size_t n = 0;
    const auto near = [](int64_t a, int64_t b) { return a == b || (a > 31 && std::abs(a - b) * 12 <= a); };
    Write(merged, vocab_size)->Visit([&](std::span<const int32_t> ngram, int64_t count, int64_t followed) {
      ++n;
      const auto& [exact, exact_followed] = expected.at(Text(ngram.begin(), ngram.end()));
      EXPECT_TRUE(near(exact, count)) << exact << " " << count;
      EXPECT_TRUE(near(exact_followed, followed)) << exact_followed << " " << followed;
    });
    EXPECT_EQ(n, expected.size());
  }
}

TEST_F(NgramPriorTest, WhatWasPrunedIsStillCountedOfItsContextWhenMerged) {
  NgramCounter counter(1, 50);
  Text text;
  for (int i = 0; i < 5; ++i) text.insert(text.end(), {0, 1});
  for (int i = 0; i < 9; ++i) text.insert(text.end(), {0, 10 + i});
  counter.Add(text);
  const auto prior = Write(counter, 50, {.min_count = 3, .successors = 8});
  const auto look = [](const NgramPrior& table, std::map<int32_t, int64_t>& successors) {
    NgramPrior::Contexts contexts;
    table.Start(Text{0}, contexts);
    table.ForSuccessors(contexts.node[1], [&](int32_t token, int64_t count) { successors[token] = count; });
    return table.Count(contexts.node[1]);
  };
  std::map<int32_t, int64_t> successors;
  EXPECT_EQ(look(*prior, successors), 14);
  EXPECT_EQ(successors, (std::map<int32_t, int64_t>{{1, 5}}));
  NgramCounter merged(1, 50);
  merged.Add(*prior);
  merged.Add(*prior);
  merged.Add(Text{0, 1});
  EXPECT_EQ(look(*Write(merged, 50), successors), 29);
  EXPECT_EQ(successors, (std::map<int32_t, int64_t>{{1, 11}}));
}

// A table of longer or shorter contexts, or of a larger vocabulary, gives what fits.
TEST_F(NgramPriorTest, TablesOfOtherShapesGiveWhatFits) {
  std::mt19937 rng(9);
  const Text text = Random(rng, 500, 6);
  NgramCounter deep(4, 6);
  deep.Add(text);
  const auto prior = Write(deep, 6);
  for (const int order : {1, 2}) {
    NgramCounter counter(order, 6), merged(order, 6);
    counter.Add(text);
    merged.Add(*prior);
    std::map<Text, int64_t> counts;
    Write(counter, 6)->Visit([&](auto ngram, int64_t count, int64_t) {
      counts[Text(ngram.begin(), ngram.end())] = count;
    });
    size_t n = 0;
    Write(merged, 6)->Visit([&](auto ngram, int64_t count, int64_t) {
      ++n;
      EXPECT_EQ(count, counts.at(Text(ngram.begin(), ngram.end())));
    });
    EXPECT_EQ(n, counts.size());
  }
  NgramCounter small(2, 3);
  small.Add(*prior);
  Write(small, 3)->Visit([](auto ngram, int64_t, int64_t) {
    for (const int32_t token : ngram) EXPECT_LT(token, 3);
  });
}

TEST_F(NgramPriorTest, PrunesRareOnesAndAllButTheMostFrequent) {
  std::mt19937 rng(10);
  const int order = 3;
  for (const NgramOptions options :
       {NgramOptions{.min_count = 3, .successors = 2}, NgramOptions{.min_count = 1, .successors = 1},
        NgramOptions{.min_count = 20, .successors = 8}}) {
    NgramCounter counter(order, 12);
    Naive naive;
    const Text text = Random(rng, 3000, 12);
    Mask learn;
    for (size_t i = 0; i < text.size(); ++i) learn.push_back(rng() % 16 != 0 ? 1 : 0);
    counter.Add(text, learn);
    naive.Add(text, learn, order, 1);
    // Kept by itself: frequent enough, and fewer than `successors` siblings come before it.
    std::map<Text, bool> kept;
    for (const auto& [ngram, count] : naive.counts) {
      const Text context(ngram.begin(), ngram.end() - 1);
      int before = 0;
      for (int32_t token = 0; token < 12; ++token) {
        Text sibling = context;
        sibling.push_back(token);
        const auto it = naive.counts.find(sibling);
        const int64_t other = it == naive.counts.end() ? 0 : it->second;
        before += other > count || (other == count && token < ngram.back()) ? 1 : 0;
      }
      if (count < options.min_count || before >= options.successors) continue;
      for (Text path = ngram; !path.empty(); path.pop_back()) kept[path] = true;
    }
    std::map<Text, bool> found;
    Write(counter, 12, options)->Visit([&](std::span<const int32_t> span, int64_t count, int64_t followed) {
      const Text ngram(span.begin(), span.end());
      if (!ngram.empty()) {
        found[ngram] = true;
        EXPECT_EQ(count, Rounded(naive.counts[ngram]));
      }
      if (followed > 0 && naive.followed[ngram] <= 31) {
        EXPECT_EQ(followed, naive.followed[ngram]);
      }
    });
    EXPECT_EQ(found, kept);
  }
}

TEST_F(NgramPriorTest, SaysHowMuchWasWritten) {
  NgramCounter counter(2, 5);
  counter.Add(Text{1, 2, 3, 1, 2, 4});
  const auto written = counter.Write(path_, kEverything, kTokenizer);
  ASSERT_TRUE(written.ok());
  EXPECT_THAT(written->contexts, ::testing::ElementsAre(1, 3, 3, 0, 0));
  EXPECT_THAT(written->pairs, ::testing::ElementsAre(4, 4, 4, 0, 0));
  EXPECT_EQ((*NgramPrior::Open(path_, 5, kTokenizer))->n_pairs(), 12);
}

TEST_F(NgramPriorTest, TheSameInputGivesTheSameBytes) {
  std::mt19937 rng(11);
  std::vector<Text> texts;
  for (int i = 0; i < 6; ++i) texts.push_back(Random(rng, 300, 30));
  const auto bytes = [&](const std::vector<Text>& order, int weight) {
    NgramCounter counter(3, 30);
    for (size_t i = 0; i < order.size(); ++i) counter.Add(order[i], {}, i == 0 ? weight : 1);
    for (int i = 1; weight == 1 && i < 3; ++i) counter.Add(order[0]);
    Write(counter, 30, {.min_count = 2, .successors = 3});
    return Bytes();
  };
  const std::string first = bytes(texts, 1);
  EXPECT_EQ(bytes(texts, 1), first);
  EXPECT_EQ(bytes(texts, 3), first);  // a weight is as many times the text
  std::reverse(texts.begin() + 1, texts.end());
  EXPECT_EQ(bytes(texts, 1), first);
}

TEST_F(NgramPriorTest, NothingToWriteIsAnError) {
  NgramCounter counter(3, 5);
  EXPECT_EQ(counter.Write(path_, {}, kTokenizer).status().code(), StatusCode::kInvalidArgument);
  counter.Add(Text{1, 2, 3, 1, 2});
  const Status status = counter.Write(path_, {}, kTokenizer).status();
  EXPECT_THAT(status.message(), HasSubstr("no token occurs 3 times"));
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_EQ(counter.Write("/nonexistent/x", kEverything, kTokenizer).status().code(), StatusCode::kIo);
}

TEST_F(NgramPriorTest, AnotherTokenizerOrVocabularyIsRefused) {
  NgramCounter counter(3, 5);
  counter.Add(Text{1, 2, 3, 1, 2});
  Write(counter, 5);
  EXPECT_EQ(*NgramPrior::TokenizerOf(path_), kTokenizer);
  EXPECT_TRUE(NgramPrior::Open(path_, 6, kTokenizer).ok());  // some models have more logits than tokens
  const std::string bytes = Bytes();
  const Status tokenizer = Refusal(bytes, 5, {.high = 7, .low = 8});
  EXPECT_EQ(tokenizer.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(tokenizer.message(), HasSubstr("made for another tokenizer than this model's"));
  EXPECT_THAT(Refusal(bytes, 4).message(), HasSubstr("a vocabulary of 5 tokens; this model has 4"));
  EXPECT_EQ(NgramPrior::Open(path_ + ".none", 5, kTokenizer).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(NgramPrior::TokenizerOf(path_ + ".none").status().code(), StatusCode::kNotFound);
}

TEST_F(NgramPriorTest, NoDamagedFileIsOpened) {
  NgramCounter counter(3, 5);
  std::mt19937 rng(12);
  counter.Add(Random(rng, 120, 5));
  Write(counter, 5);
  const std::string good = Bytes();
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(Refusal(good.substr(0, good.size() * i / 64)).code(), StatusCode::kCorrupt) << i;
  }
  EXPECT_EQ(Refusal(good + "x").code(), StatusCode::kCorrupt);
  EXPECT_THAT(Refusal("LSCORPUS" + good.substr(8)).message(), HasSubstr("'longspec corpus --ngrams'"));
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bytes = good;
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << rng() % 8));
    EXPECT_FALSE(Refusal(bytes).ok());
  }
}

TEST_F(NgramPriorTest, AbsurdHeadersAreRefused) {
  NgramCounter counter(3, 5);
  std::mt19937 rng(13);
  counter.Add(Random(rng, 400, 5));
  Write(counter, 5);
  const std::string good = Bytes();
  Header header;
  std::memcpy(&header, good.data(), sizeof(header));
  const auto refused = [&](auto change, const std::string& part) {
    Header changed = header;
    change(changed);
    std::string bytes = good;
    std::memcpy(bytes.data(), &changed, sizeof(changed));
    EXPECT_THAT(Refusal(Sealed(bytes)).message(), HasSubstr(part));
    EXPECT_FALSE(ExerciseNgrams(std::as_bytes(std::span(bytes))).ok());
  };
  refused([](Header& h) { h.version = 2; }, "version 2");
  refused([](Header& h) { h.zero = 1; }, "is 1, not from 0 to 0");
  refused([](Header& h) { h.vocab_size = 0; }, "its vocabulary is 0");
  refused([](Header& h) { h.vocab_size = ~0U; }, "its vocabulary is 4294967295");
  refused([](Header& h) { h.vocab_size = 70000; }, "promises");
  refused([](Header& h) { h.vocab_size = 4; }, "outside its vocabulary of 4");
  for (const uint32_t order : {0U, 5U, ~0U}) refused([&](Header& h) { h.order = order; }, "its order is");
  refused([](Header& h) { h.order = 2; }, "below its last");
  refused([](Header& h) { h.order = 4; }, "promises");
  for (const uint32_t n : {0U, 65U, ~0U}) refused([&](Header& h) { h.ranked = n; }, "ranked");
  refused([](Header& h) { h.ranked = 1; }, "not in order");
  refused([](Header& h) { h.n_totals = 0; }, "its number of totals is 0");
  refused([](Header& h) { h.n_totals = ~0U; }, "its number of totals");
  refused([](Header& h) { h.n_many = ~0U; }, "many children is 4294967295");
  refused([](Header& h) { h.n_totals -= 1, h.n_many += 1; }, "damaged");
  for (size_t i = 0; i < 5; ++i) {
    refused([&](Header& h) { h.n_level[i] = ~0U; }, "damaged");
    refused([&](Header& h) { h.n_level[i] = 1U << 31; }, "damaged");
    refused([&](Header& h) { h.n_level[i] += 1; }, "damaged");
  }
  // The same number of n-grams, elsewhere.
  refused([](Header& h) { h.n_level[0] += 1, h.n_level[1] -= 1; }, "damaged");
  refused([](Header& h) { h.n_level[0] -= 1, h.n_level[1] += 1; }, "damaged");
}

// Whatever one number of the file becomes, it is refused or does no harm.
TEST_F(NgramPriorTest, WrongNumbersDoNoHarm) {
  NgramCounter counter(2, 400);
  std::mt19937 rng(14);
  Text text = Random(rng, 1500, 400);
  for (int i = 0; i < 400; ++i) text.insert(text.end(), {7, i});  // a node of many children
  counter.Add(text);
  Write(counter, 400, {.min_count = 1, .successors = 500});
  const std::string good = Bytes();
  const int n_rounds = std::getenv("LONGSPEC_SKIP_SLOW") != nullptr ? 150 : 600;
  int n_refused = 0;
  for (int round = 0; round < n_rounds; ++round) {
    std::string bytes = good;
    const size_t at = sizeof(Header) + rng() % (good.size() - sizeof(Header));
    bytes[at] = static_cast<char>(round % 3 == 0 ? 255 : rng());
    n_refused += ExerciseNgrams(std::as_bytes(std::span(bytes))).ok() ? 0 : 1;
  }
  EXPECT_GT(n_refused, n_rounds / 3);
}

TEST_F(NgramPriorTest, SeedsOfTheFuzzerAreTables) {
  const std::filesystem::path folder = testing::SourcePath("src/formats/testdata/fuzz_ngram_prior");
  int n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string bytes = testing::ReadText(entry.path());
    EXPECT_TRUE(ExerciseNgrams(std::as_bytes(std::span(bytes))).ok()) << entry.path();
    ++n;
  }
  EXPECT_GE(n, 3);
}

}  // namespace
}  // namespace longspec
