// SPDX-License-Identifier: Apache-2.0
//
// A corpus finds what a scan of its texts finds, and damaged files are refused.
#include "draft_text/suffix_corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <random>

#include "base/testing/files.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Text = std::vector<int32_t>;

class SuffixCorpusTest : public ::testing::Test {
 protected:
  std::unique_ptr<SuffixCorpus> Make(const Text& text, int vocab = 5) {
    const Status written = SuffixCorpus::Write(path_, vocab, text);
    EXPECT_TRUE(written.ok()) << written.message();
    auto corpus = SuffixCorpus::Open(path_, vocab);
    EXPECT_TRUE(corpus.ok()) << corpus.status().message();
    return std::move(*corpus);
  }

  std::string Bytes() const { return testing::ReadText(path_); }
  void Overwrite(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }
  // The error of opening the file with these bytes.
  Status Refusal(const std::string& bytes, int vocab = 5) {
    Overwrite(bytes);
    const auto corpus = SuffixCorpus::Open(path_, vocab);
    EXPECT_FALSE(corpus.ok());
    EXPECT_THAT(corpus.status().message(), HasSubstr(path_));
    return corpus.status();
  }

  const testing::Folder folder_;
  const std::string path_ = folder_.File("x.corpus");
};

int CorpusOccurrences(const Text& text, std::span<const int32_t> string) {
  int n = 0;
  for (size_t i = 0; i + string.size() <= text.size(); ++i) {
    n += std::equal(string.begin(), string.end(), text.begin() + static_cast<std::ptrdiff_t>(i)) ? 1 : 0;
  }
  return n;
}

TEST_F(SuffixCorpusTest, FindsWhatAScanFinds) {
  std::mt19937 rng(5);
  for (int round = 0; round < 20; ++round) {
    Text text;
    for (int i = 0; i < 200; ++i) text.push_back(static_cast<int32_t>(rng() % 4));
    const auto corpus = Make(text);
    EXPECT_EQ(corpus->size(), 200U);
    EXPECT_EQ(corpus->bytes(), 24U + 8U * 200U);
    for (int query = 0; query < 20; ++query) {
      Text sequence;
      for (unsigned i = 0; i < 1 + rng() % 12; ++i) sequence.push_back(static_cast<int32_t>(rng() % 4));
      std::vector<SuffixContext> matches;
      corpus->Matches(sequence, 8, 20, matches);
      const auto limit = std::min<size_t>(8, sequence.size());
      size_t longest = limit;
      while (longest > 0 && CorpusOccurrences(text, std::span(sequence).last(longest)) == 0) --longest;
      ASSERT_EQ(matches.size() > 0 ? static_cast<size_t>(matches[0].length) : 0, longest);
      for (const SuffixContext& match : matches) {
        Text string(sequence.end() - match.length, sequence.end());
        const int n = CorpusOccurrences(text, string);
        ASSERT_EQ(corpus->Count(match), n);
        std::vector<Continuation> found;
        corpus->Continuations(match, 8, found);
        std::map<int32_t, double> shares;
        for (const Continuation& c : found) shares[c.token] = c.share;
        string.push_back(0);
        for (int32_t token = 0; token < 4; ++token) {
          string.back() = token;
          const double share = static_cast<double>(CorpusOccurrences(text, string)) / n;
          if (n <= 64) {
            ASSERT_DOUBLE_EQ(shares.contains(token) ? shares[token] : 0.0, share);
          } else if (shares.contains(token)) {
            ASSERT_DOUBLE_EQ(shares[token], share);
          }
        }
      }
    }
  }
}

TEST_F(SuffixCorpusTest, InMemoryItIsWhatItIsInAFile) {
  std::mt19937 rng(6);
  Text text;
  for (int i = 0; i < 500; ++i) text.push_back(static_cast<int32_t>(rng() % 4));
  const auto file = Make(text), memory = SuffixCorpus::Make(text);
  EXPECT_EQ(memory->bytes(), 8U * 500U);
  for (size_t n = 1; n < 400; n += 7) {
    std::vector<SuffixContext> a, b;
    file->Matches(std::span(text).first(n), 8, 4, a);
    memory->Matches(std::span(text).first(n), 8, 4, b);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(file->Count(a[i]), memory->Count(b[i]));
      std::vector<Continuation> of_file, of_memory;
      file->Continuations(a[i], 8, of_file);
      memory->Continuations(b[i], 8, of_memory);
      ASSERT_EQ(of_file.size(), of_memory.size());
      for (size_t k = 0; k < of_file.size(); ++k) ASSERT_EQ(of_file[k].token, of_memory[k].token);
    }
  }
  std::vector<SuffixContext> none;
  SuffixCorpus::Make({})->Matches(text, 8, 4, none);
  EXPECT_TRUE(none.empty());
}

TEST_F(SuffixCorpusTest, FrequentContinuationsAreSampled) {
  Text text;
  for (int i = 0; i < 3000; ++i) {
    text.push_back(0);
    text.push_back(i % 3 == 0 ? 1 + i % 900 : 1000);
  }
  const auto corpus = Make(text, 2000);
  std::vector<SuffixContext> matches;
  corpus->Matches(Text{5000, 0}, 8, 4, matches);
  ASSERT_EQ(matches.size(), 1U);
  EXPECT_EQ(corpus->Count(matches[0]), 3000);
  std::vector<Continuation> found;
  corpus->Continuations(matches[0], 3, found);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].token, 1000);
  EXPECT_NEAR(found[0].share, 2.0 / 3, 1e-9);
}

TEST_F(SuffixCorpusTest, NoContextGoesAcrossTexts) {
  const auto corpus = Make({1, 2, SuffixCorpus::kSeparator, 3, 4});
  std::vector<SuffixContext> matches;
  corpus->Matches(Text{1, 2}, 8, 4, matches);
  ASSERT_EQ(matches.size(), 1U);
  EXPECT_EQ(matches[0].length, 2);
  std::vector<Continuation> found;
  corpus->Continuations(matches[0], 8, found);
  EXPECT_THAT(found, IsEmpty());
  corpus->Matches(Text{2, 3}, 8, 4, matches);
  EXPECT_EQ(matches[0].length, 1);
}

TEST_F(SuffixCorpusTest, AnEmptyCorpusKnowsNothing) {
  const auto corpus = Make({});
  std::vector<SuffixContext> matches(2);
  corpus->Matches(Text{1, 2}, 8, 4, matches);
  EXPECT_THAT(matches, IsEmpty());
}

TEST_F(SuffixCorpusTest, ContextsEndWhereSortingDid) {
  const auto corpus = Make(Text(500, 1));
  std::vector<SuffixContext> matches;
  corpus->Matches(Text(400, 1), 1000, 1, matches);
  ASSERT_EQ(matches.size(), 1U);
  EXPECT_EQ(matches[0].length, 127);
  std::vector<Continuation> found;
  corpus->Continuations(matches[0], 1, found);
  ASSERT_EQ(found.size(), 1U);
  corpus->Continuations(SuffixContext(found[0].context), 1, found);
  EXPECT_THAT(found, IsEmpty());
}

TEST_F(SuffixCorpusTest, RefusesFilesThatAreNotWhole) {
  Make({1, 2, 3, 1, 2});
  const std::string good = Bytes();
  for (size_t n = 0; n < good.size(); ++n) {
    EXPECT_EQ(Refusal(good.substr(0, n)).code(), StatusCode::kCorrupt) << n;
  }
  EXPECT_EQ(Refusal(good + "x").code(), StatusCode::kCorrupt);
  const auto with = [&](size_t at, uint64_t value, size_t size) {
    std::string bytes = good;
    std::memcpy(bytes.data() + at, &value, size);
    return bytes;
  };
  EXPECT_THAT(Refusal(with(0, 'X', 1)).message(), HasSubstr("not a corpus file"));
  EXPECT_EQ(Refusal(with(8, 2, 4)).code(), StatusCode::kUnsupported);
  EXPECT_THAT(Refusal(with(12, 6, 4)).message(),
              HasSubstr("made for a vocabulary of 6 tokens; this model has 5"));
  EXPECT_THAT(Refusal(with(16, 4, 8)).message(), HasSubstr("promises 4 tokens"));
  EXPECT_EQ(Refusal(with(16, ~uint64_t{0}, 8)).code(), StatusCode::kCorrupt);
  EXPECT_EQ(Refusal(with(16, uint64_t{1} << 61, 8)).code(), StatusCode::kCorrupt);
  EXPECT_THAT(Refusal(with(24, 5, 4)).message(), HasSubstr("token 0 is 5"));
  EXPECT_THAT(Refusal(with(28, 0xFFFFFFFE, 4)).message(), HasSubstr("token 1 is -2"));
  EXPECT_THAT(Refusal(with(44, 5, 4)).message(), HasSubstr("place 5 of 5"));
  Overwrite(good);
  EXPECT_TRUE(SuffixCorpus::Open(path_, 5).ok());
  EXPECT_EQ(SuffixCorpus::Open(path_ + ".none", 5).status().code(), StatusCode::kNotFound);
}

// A wrong order can only make wrong drafts.
TEST_F(SuffixCorpusTest, AWrongOrderDoesNoHarm) {
  Text text;
  std::mt19937 rng(9);
  for (int i = 0; i < 100; ++i) text.push_back(static_cast<int32_t>(rng() % 4));
  Make(text);
  std::string bytes = Bytes();
  for (size_t i = 0; i < 100; ++i) {
    const uint32_t place = rng() % 100;
    std::memcpy(bytes.data() + 24 + 400 + 4 * i, &place, 4);
  }
  Overwrite(bytes);
  const auto corpus = SuffixCorpus::Open(path_, 5);
  ASSERT_TRUE(corpus.ok());
  for (int query = 0; query < 200; ++query) {
    const Text sequence = {static_cast<int32_t>(rng() % 4), static_cast<int32_t>(rng() % 4)};
    std::vector<SuffixContext> matches;
    (*corpus)->Matches(sequence, 8, 4, matches);
    for (const SuffixContext& match : matches) {
      std::vector<Continuation> found;
      (*corpus)->Continuations(match, 4, found);
      for (const Continuation& c : found) EXPECT_LT(c.token, 5);
    }
  }
}

TEST_F(SuffixCorpusTest, WritingSaysWhatFailed) {
  const Status status = SuffixCorpus::Write("/nonexistent/corpus", 5, Text{1});
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("/nonexistent/corpus"));
}

}  // namespace
}  // namespace longspec
