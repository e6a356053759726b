// SPDX-License-Identifier: Apache-2.0
//
// A text with a hole ends where going on is not likely.
#include "sampling/infill_filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "sampling/sampler.h"
#include "tokenizer/tokenizer.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

enum Id : int32_t { kA, kAb, kAbc, kX, kY, kZ, kEos, kEot, kPad, kVocabulary };

class ListTokenizer final : public Tokenizer {
 public:
  explicit ListTokenizer(int32_t eot = kEot) {
    spec_.eos = kEos;
    spec_.eot = eot;
  }
  std::vector<int32_t> Encode(std::string_view, EncodeOptions) const override { return {}; }
  std::string Decode(const std::vector<int32_t>&, bool) const override { return {}; }
  const std::string& TokenBytes(int32_t id) const override { return texts_.at(static_cast<size_t>(id)); }
  int vocab_size() const override { return kVocabulary; }
  bool IsControl(int32_t id) const override { return id >= kEos; }
  bool IsEndOfGeneration(int32_t id) const override { return id >= kEos; }
  const TokenizerSpec& spec() const override { return spec_; }

 private:
  const std::vector<std::string> texts_ = {"a", "ab", "abc", "x", "y", "z", "x", "x", "x"};
  TokenizerSpec spec_;
};

using Chances = std::vector<std::pair<int32_t, double>>;

// Likeliest first, as the filter wants them.
std::vector<Candidate> CandidatesOf(const Chances& chances) {
  std::vector<Candidate> candidates;
  for (const auto& [token, chance] : chances)
    candidates.emplace_back(static_cast<float>(std::log(chance)), token);
  return candidates;
}

std::vector<float> RowOf(const Chances& chances) {
  std::vector<float> row(kVocabulary, -30.0F);
  for (const auto& [token, chance] : chances)
    row[static_cast<size_t>(token)] = static_cast<float>(std::log(chance));
  return row;
}

// The tokens that are left.
std::vector<int32_t> Left(const Chances& chances, const Tokenizer& tokenizer = ListTokenizer()) {
  std::vector<Candidate> candidates = CandidatesOf(chances);
  const size_t n = InfillFilter(tokenizer).Apply(candidates, RowOf(chances));
  std::vector<int32_t> left;
  for (size_t i = 0; i < n; ++i) left.push_back(candidates[i].second);
  return left;
}

// 3 * (chance of the ends) * (number of candidates) is more than the chance of the others.
TEST(InfillFilter, EndsThatAreLikelyTogetherAreAllThatIsLeft) {
  EXPECT_THAT(Left({{kX, 0.7}, {kEos, 0.2}, {kPad, 0.1}}), ElementsAre(kEos, kPad));
  EXPECT_THAT(Left({{kX, 0.85}, {kEot, 0.15}}), ElementsAre(kEot));      // 0.90 > 0.85
  EXPECT_THAT(Left({{kX, 0.86}, {kEot, 0.14}}), ElementsAre(kX, kEot));  // 0.84 < 0.86
}

TEST(InfillFilter, TokensThatBeginAlikeCountAsTheLikelierOne) {
  // a, ab and abc have 0.44 together, x has 0.36, y and z are too unlikely.
  EXPECT_THAT(Left({{kX, 0.36}, {kAb, 0.19}, {kA, 0.15}, {kY, 0.12}, {kAbc, 0.10}, {kZ, 0.08}}),
              ElementsAre(kX, kAb));
  // Without it none of them would be likely enough.
  EXPECT_THAT(Left({{kX, 0.36}, {kAb, 0.19}, {kY, 0.19}, {kZ, 0.16}, {kAbc, 0.10}}), ElementsAre(kX, kAb));
}

TEST(InfillFilter, WhatIsUnlikelyIsLeftOut) {
  EXPECT_THAT(Left({{kX, 0.5}, {kY, 0.31}, {kZ, 0.19}}), ElementsAre(kX, kY));
  // Of two that are likely enough, one that has less than a third of both.
  EXPECT_THAT(Left({{kX, 0.7}, {kY, 0.3}}), ElementsAre(kX));
  EXPECT_THAT(Left({{kX, 0.65}, {kY, 0.35}}), ElementsAre(kX, kY));
}

TEST(InfillFilter, IfNothingIsLikelyTheTextEnds) {
  // The last two are of the model's alone, which has more tokens than texts.
  const Chances many = {{kX, 0.19},   {kY, 0.19},          {kZ, 0.19},
                        {kAbc, 0.19}, {kVocabulary, 0.14}, {kVocabulary + 1, 0.10}};
  std::vector<Candidate> candidates = CandidatesOf(many);
  std::vector<float> row(kVocabulary + 2, -30.0F);
  const ListTokenizer tokenizer;
  EXPECT_EQ(InfillFilter(tokenizer).Apply(candidates, row), 1U);
  EXPECT_EQ(candidates[0].second, kEot);
  const ListTokenizer without_eot(-1);
  candidates = CandidatesOf(many);
  EXPECT_EQ(InfillFilter(without_eot).Apply(candidates, row), 1U);
  EXPECT_EQ(candidates[0].second, kEos);
  // An end that may not be is none.
  row[kEot] = -std::numeric_limits<float>::infinity();
  candidates = CandidatesOf(many);
  EXPECT_EQ(InfillFilter(tokenizer).Apply(candidates, row), 1U);
  EXPECT_EQ(candidates[0].second, kX);
}

TEST(InfillFilter, RunsBehindTheOtherFiltersAndBeforeTemperature) {
  const ListTokenizer tokenizer;
  SamplingOptions options = {.temperature = 1, .top_k = 3, .top_p = 1, .min_p = 0, .infill = true, .seed = 1};
  const auto law = [&] {
    const auto sampler = Sampler::Create(options, kVocabulary, 0, nullptr, &tokenizer);
    EXPECT_TRUE(sampler.ok()) << sampler.status().message();
    Sampler::Scratch scratch;
    std::vector<std::pair<int32_t, int>> percents;
    const Chances chances = {{kX, 0.4}, {kY, 0.3}, {kZ, 0.2}, {kEos, 0.1}};
    for (const auto& [token, chance] : sampler->Distribution(RowOf(chances), {}, scratch))
      percents.emplace_back(token, static_cast<int>(std::lround(100 * chance)));
    // What is drawn is always one of them.
    for (uint64_t position = 0; position < 50; ++position) {
      const int32_t drawn = sampler->Sample(RowOf(chances), {}, position, scratch);
      EXPECT_THAT(percents, ::testing::Contains(::testing::Key(drawn)));
    }
    return percents;
  };
  using Percents = std::vector<std::pair<int32_t, int>>;
  // The end is not among the three likeliest; z has less than a quarter of these.
  EXPECT_EQ(law(), (Percents{{kX, 57}, {kY, 43}}));
  options.temperature = 0.5;
  EXPECT_EQ(law(), (Percents{{kX, 64}, {kY, 36}}));
  options.top_k = 4;  // 3 * 0.1 * 4 > 0.9
  EXPECT_EQ(law(), (Percents{{kEos, 100}}));
  options.temperature = 0;
  EXPECT_EQ(law(), (Percents{{kEos, 100}}));
  options.top_k = 2;
  EXPECT_EQ(law(), (Percents{{kX, 100}}));
}

TEST(InfillFilter, NeedsTheTextsOfTokens) {
  const auto sampler = Sampler::Create({.infill = true, .seed = 1}, kVocabulary);
  EXPECT_THAT(sampler.status().message(), HasSubstr("infill"));
}

}  // namespace
}  // namespace longspec
