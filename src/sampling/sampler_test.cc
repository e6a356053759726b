// SPDX-License-Identifier: Apache-2.0
//
// Tokens are drawn by the law of their filters and penalties, as a function of seed and position.
#include "sampling/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <tuple>

#include "base/testing/floats.h"
#include "kernels/dispatch.h"
#include "kernels/tables.h"
#include "sampling/candidates.h"
#include "sampling/logits_processors.h"
#include "verify/testing/chi_square.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;
using testing::kInfinity;
using testing::kNan;

// Nothing but temperature 1.
SamplingOptions Plain() {
  SamplingOptions options;
  options.temperature = 1.0F;
  options.top_k = 0;
  options.top_p = 1.0F;
  options.min_p = 0.0F;
  options.seed = 42;
  return options;
}

SamplingOptions Greedy() {
  SamplingOptions options = Plain();
  options.temperature = 0.0F;
  return options;
}

Sampler Make(const SamplingOptions& options, size_t vocab) {
  auto sampler = Sampler::Create(options, static_cast<int>(vocab));
  EXPECT_TRUE(sampler.ok()) << sampler.status().message();
  return *sampler;
}

std::vector<float> RandomLogits(uint64_t seed, size_t n, double spread = 8.0) {
  const RngStream rng{.seed = seed, .purpose = RngPurpose::kTest};
  std::vector<float> logits(n);
  // Coarse values, so that ties occur.
  for (size_t i = 0; i < n; ++i)
    logits[i] = static_cast<float>(std::floor(rng.Uniform(i) * spread * 16) / 16);
  return logits;
}

std::vector<TokenProbability> Copy(std::span<const TokenProbability> view) {
  return {view.begin(), view.end()};
}

std::vector<TokenProbability> Law(const SamplingOptions& options, std::span<const float> logits,
                                  std::vector<int32_t> history = {}) {
  Sampler::Scratch scratch;
  return Copy(Make(options, logits.size()).Distribution(logits, {history, {}}, scratch));
}

int32_t Pick(const SamplingOptions& options, std::span<const float> logits, std::vector<int32_t> history = {},
             uint64_t position = 0) {
  Sampler::Scratch scratch;
  return Make(options, logits.size()).Sample(logits, {history, {}}, position, scratch);
}

// The specification, as plainly as it can be said.
std::vector<TokenProbability> NaiveLaw(const SamplingOptions& o, std::vector<float> logits,
                                       const std::vector<int32_t>& history) {
  for (const auto& [token, bias] : o.logit_bias) logits[static_cast<size_t>(token)] += bias;
  std::map<int32_t, int> counts;
  for (size_t i = 0; i < history.size(); ++i) {
    const bool inside = o.repeat_last_n < 0 || history.size() - i <= static_cast<size_t>(o.repeat_last_n);
    if (inside) ++counts[history[i]];
  }
  for (const auto& [token, count] : counts) {
    float& logit = logits[static_cast<size_t>(token)];
    logit = logit > 0 ? logit / o.repeat_penalty : logit * o.repeat_penalty;
    logit -= static_cast<float>(count) * o.frequency_penalty + o.presence_penalty;
  }
  std::vector<std::pair<double, int32_t>> ranked;
  for (size_t i = 0; i < logits.size(); ++i) {
    ranked.emplace_back(std::isnan(logits[i]) ? -kInfinity : logits[i], static_cast<int32_t>(i));
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](auto& a, auto& b) { return a.first > b.first; });
  if (o.top_k > 0) ranked.resize(std::min(ranked.size(), static_cast<size_t>(o.top_k)));
  const auto probabilities = [&](double temperature) {
    std::vector<double> p;
    double sum = 0;
    for (const auto& [logit, token] : ranked) {
      p.push_back(std::exp((logit - ranked[0].first) / temperature));
      sum += p.back();
    }
    for (double& x : p) x /= sum;
    return p;
  };
  std::vector<double> p = probabilities(1.0);
  size_t kept = ranked.size();
  double cumulative = 0;
  for (size_t i = 0; i < ranked.size() && o.top_p < 1; ++i) {
    cumulative += p[i];
    if (cumulative >= static_cast<double>(o.top_p)) {
      kept = i + 1;
      break;
    }
  }
  while (kept > 1 && p[kept - 1] < static_cast<double>(o.min_p) * p[0]) --kept;
  ranked.resize(kept);
  p = probabilities(static_cast<double>(o.temperature));
  std::vector<TokenProbability> law;
  for (size_t i = 0; i < kept && p[i] > 0; ++i) law.push_back({ranked[i].second, p[i]});
  return law;
}

void ExpectSameLaw(const std::vector<TokenProbability>& actual,
                   const std::vector<TokenProbability>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].token, expected[i].token) << "rank " << i;
    ASSERT_NEAR(actual[i].probability, expected[i].probability, 1e-12) << "rank " << i;
  }
}

TEST(Greedy, LargestLogitLowestIdOnTies) {
  EXPECT_EQ(Pick(Greedy(), std::vector<float>{1, 3, 3, 2}), 1);
  EXPECT_EQ(Pick(Greedy(), std::vector<float>{kNan, -5, kNan, -4}), 3);
  EXPECT_EQ(Pick(Greedy(), std::vector<float>{kNan, kNan}), kNoToken);
  EXPECT_EQ(Pick(Greedy(), std::vector<float>{kNan, -kInfinity}), kNoToken);
  EXPECT_EQ(Pick(Greedy(), std::vector<float>{0, kInfinity, kInfinity}), 1);
  SamplingOptions negative = Greedy();
  negative.temperature = -1;
  EXPECT_EQ(Pick(negative, std::vector<float>{0, 2, 1}), 1);
}

TEST(Greedy, ArgMaxEqualsTheScan) {
  for (size_t n = 1; n < 70; ++n) {
    std::vector<float> logits = RandomLogits(n, n, 1.0);
    if (n % 3 == 0) logits[n / 2] = kNan;
    size_t best = n;
    for (size_t i = 0; i < n; ++i) {
      if (!std::isnan(logits[i]) && (best == n || logits[i] > logits[best])) best = i;
    }
    EXPECT_EQ(ArgMax(logits), static_cast<int32_t>(best)) << n;
  }
}

TEST(Greedy, WithoutPenaltiesTheRowIsNotCopied) {
  Sampler::Scratch scratch;
  const std::vector<float> logits = {1, 2, 3};
  const std::vector<int32_t> history = {2, 2};
  EXPECT_EQ(Make(Greedy(), 3).Sample(logits, {history, {}}, 0, scratch), 2);
  EXPECT_EQ(scratch.logits.capacity(), 0U);
  SamplingOptions penalised = Greedy();
  penalised.repeat_penalty = 4.0F;
  EXPECT_EQ(Make(penalised, 3).Sample(logits, {history, {}}, 0, scratch), 1);
  EXPECT_EQ(scratch.logits.size(), 3U);
  EXPECT_EQ(logits[2], 3.0F);
}

TEST(Greedy, DistributionIsOnePoint) {
  const auto law = Law(Greedy(), std::vector<float>{0, 5, 5});
  ASSERT_EQ(law.size(), 1U);
  EXPECT_EQ(law[0].token, 1);
  EXPECT_EQ(law[0].probability, 1.0);
}

TEST(Penalties, RepeatDividesPositiveAndMultipliesNegativeOnce) {
  SamplingOptions options = Plain();
  options.repeat_penalty = 2.0F;
  // 4 -> 2, -1 -> -2, token 2 untouched; a second occurrence changes nothing more.
  const auto law = Law(options, std::vector<float>{4, -1, 0}, {0, 1, 0, 1});
  const double sum = std::exp(2) + std::exp(-2) + 1;
  ExpectSameLaw(law, {{0, std::exp(2) / sum}, {2, 1 / sum}, {1, std::exp(-2) / sum}});
}

TEST(Penalties, FrequencyCountsAndPresenceDoesNot) {
  SamplingOptions options = Plain();
  options.frequency_penalty = 0.5F;
  options.presence_penalty = 0.25F;
  const auto law = Law(options, std::vector<float>{0, 0, 0}, {1, 1, 1, 2});
  const double b = std::exp(-1.75), c = std::exp(-0.75), sum = 1 + b + c;
  ExpectSameLaw(law, {{0, 1 / sum}, {2, c / sum}, {1, b / sum}});
}

TEST(Penalties, WindowIsTheLastTokensAcrossCommittedAndDrafted) {
  SamplingOptions options = Greedy();
  options.presence_penalty = 10.0F;
  options.repeat_last_n = 2;
  const std::vector<float> logits = {3, 2, 1};
  Sampler::Scratch scratch;
  const Sampler sampler = Make(options, 3);
  const std::vector<int32_t> a = {0, 1}, b = {1}, none;
  EXPECT_EQ(sampler.Sample(logits, {a, none}, 0, scratch), 2);
  EXPECT_EQ(sampler.Sample(logits, {a, b}, 0, scratch), 0);  // window {1, 1}
  EXPECT_EQ(sampler.Sample(logits, {none, a}, 0, scratch), 2);
  options.repeat_last_n = 0;
  EXPECT_EQ(Pick(options, logits, {0, 1}), 0);
  options.repeat_last_n = -1;
  EXPECT_EQ(Pick(options, logits, {0, 2, 2, 2, 2}), 1);
}

TEST(Penalties, TokensOutsideTheVocabularyAreIgnored) {
  SamplingOptions options = Greedy();
  options.presence_penalty = 10.0F;
  EXPECT_EQ(Pick(options, std::vector<float>{1, 2}, {-1, 2, 1000000}), 1);
}

TEST(LogitBias, AddsAndForbids) {
  SamplingOptions options = Greedy();
  options.logit_bias = {{0, 2.5F}, {1, -kInfinity}};
  EXPECT_EQ(Pick(options, std::vector<float>{1, 9, 3}), 0);
  options.temperature = 1.0F;
  const auto law = Law(options, std::vector<float>{1, 9, 3});
  ASSERT_EQ(law.size(), 2U);  // what cannot occur is left out
  EXPECT_EQ(law[0].token, 0);
}

TEST(LogitBias, MayLeaveNothing) {
  for (const float temperature : {0.0F, 1.0F}) {
    for (const auto& [top_k, top_p, min_p] :
         {std::tuple(0, 1.0F, 0.0F), std::tuple(2, 1.0F, 0.0F), std::tuple(0, 0.5F, 0.0F),
          std::tuple(0, 1.0F, 0.1F), std::tuple(40, 0.95F, 0.05F)}) {
      SamplingOptions options = Plain();
      options.temperature = temperature;
      options.top_k = top_k;
      options.top_p = top_p;
      options.min_p = min_p;
      options.logit_bias = {{0, -kInfinity}, {2, -kInfinity}};
      const std::vector<float> logits = {1, -kInfinity, 2, kNan};
      EXPECT_EQ(Pick(options, logits), kNoToken) << temperature << " " << top_k;
      EXPECT_TRUE(Law(options, logits).empty());
      options.logit_bias.pop_back();
      EXPECT_EQ(Pick(options, logits), 2) << temperature << " " << top_k;
      EXPECT_EQ(Law(options, logits).size(), 1U);
    }
  }
}

// The smallest number of tokens that have at least this share together, and never none.
TEST(Filters, TopP) {
  SamplingOptions options = Plain();
  std::vector<float> logits;
  for (const double p : {0.5, 0.25, 0.125, 0.125}) logits.push_back(static_cast<float>(std::log(p)));
  options.top_p = 0.7F;
  EXPECT_EQ(Law(options, logits).size(), 2U);
  options.top_p = 0.8F;
  EXPECT_EQ(Law(options, logits).size(), 3U);
  options.top_p = 0.0F;
  EXPECT_EQ(Law(options, logits).size(), 1U);
}

TEST(Filters, TopPLooksAtTheTopKOnly) {
  SamplingOptions options = Plain();
  options.top_k = 2;
  options.top_p = 0.6F;  // 0.5 of the whole, two thirds of the top 2
  std::vector<float> logits;
  for (const double p : {0.5, 0.25, 0.125, 0.125}) logits.push_back(static_cast<float>(std::log(p)));
  EXPECT_EQ(Law(options, logits).size(), 1U);
}

TEST(Filters, MinPIsRelativeToTheMostProbable) {
  SamplingOptions options = Plain();
  std::vector<float> logits;
  for (const double p : {0.5, 0.25, 0.125, 0.125}) logits.push_back(static_cast<float>(std::log(p)));
  options.min_p = 0.49F;
  EXPECT_EQ(Law(options, logits).size(), 2U);
  options.min_p = 1.0F;
  EXPECT_EQ(Law(options, logits).size(), 1U);
}

TEST(Filters, TemperatureComesLast) {
  SamplingOptions options = Plain();
  options.temperature = 100.0F;
  options.min_p = 0.5F;  // a filter after so high a temperature would keep everything
  EXPECT_EQ(Law(options, std::vector<float>{3, 1, 0}).size(), 1U);
}

TEST(Filters, TiesKeepTheLowerIds) {
  SamplingOptions options = Plain();
  options.top_k = 3;
  const std::vector<float> logits(200, 1.0F);
  const auto law = Law(options, logits);
  ASSERT_EQ(law.size(), 3U);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(law[static_cast<size_t>(i)].token, i);
}

TEST(Law, EqualsTheSpecificationForRandomOptions) {
  const RngStream rng{.seed = 5, .purpose = RngPurpose::kTest};
  for (uint64_t round = 0; round < 400; ++round) {
    const auto u = [&](uint32_t i) { return rng.Uniform(round, i); };
    const size_t vocab = 1 + static_cast<size_t>(u(0) * 700);
    SamplingOptions options = Plain();
    options.temperature = static_cast<float>(0.2 + 2 * u(1));
    if (u(2) < 0.6) options.top_k = static_cast<int>(u(3) * 100);
    if (u(4) < 0.6) options.top_p = static_cast<float>(u(5));
    if (u(6) < 0.6) options.min_p = static_cast<float>(u(7));
    std::vector<int32_t> history;
    if (u(8) < 0.5) {
      options.repeat_penalty = static_cast<float>(0.5 + u(9) * 2);
      options.frequency_penalty = static_cast<float>(u(10) - 0.5);
      options.presence_penalty = static_cast<float>(u(11) - 0.5);
      options.repeat_last_n = static_cast<int>(u(12) * 30) - 1;
      for (uint32_t i = 0; i < 40; ++i)
        history.push_back(static_cast<int32_t>(u(100 + i) * static_cast<double>(vocab)));
      options.logit_bias = {{static_cast<int32_t>(vocab) / 2, 1.5F}};
    }
    std::vector<float> logits = RandomLogits(round, vocab);
    if (round % 5 == 0) logits[vocab / 3] = kNan;
    SCOPED_TRACE(round);
    const auto expected = NaiveLaw(options, logits, history);
    ExpectSameLaw(Law(options, logits, history), expected);
    if (HasFatalFailure()) return;
    // The choice is the largest log p + g of the position.
    const Dice dice({.seed = 42}, round);
    const auto key = [&](const TokenProbability& t) {
      return std::log(t.probability) + dice.Gumbel(t.token);
    };
    const auto best = std::ranges::max_element(expected, {}, key);
    ASSERT_EQ(Pick(options, logits, history, round), best->token);
  }
}

TEST(Law, SurvivesInfinitiesAndNaN) {
  const SamplingOptions options = Plain();
  EXPECT_TRUE(Law(options, std::vector<float>{kNan, kNan}).empty());
  const auto infinite = Law(options, std::vector<float>{3, kInfinity, kInfinity, -kInfinity});
  ASSERT_EQ(infinite.size(), 2U);
  EXPECT_EQ(infinite[0].token, 1);
  EXPECT_EQ(infinite[1].probability, 0.5);
  SamplingOptions cold = Plain();
  cold.temperature = 1e-38F;
  EXPECT_EQ(Law(cold, std::vector<float>{0, 1e30F, -1e30F}).size(), 1U);
  for (uint64_t position = 0; position < 20; ++position) {
    EXPECT_EQ(Pick(options, std::vector<float>{-kInfinity, kNan, 0, -kInfinity}, {}, position), 2);
  }
}

// Draws at many positions against the processed distribution, by chi-square; and against one that is a little
// different, which has to be told apart.
TEST(Draw, FrequenciesFollowTheLawOfEveryFilter) {
  struct Case {
    const char* name;
    void (*change)(SamplingOptions&);
  };
  const Case cases[] = {
      {"nothing", [](SamplingOptions&) {}},
      {"temperature", [](SamplingOptions& o) { o.temperature = 0.7F; }},
      {"hot", [](SamplingOptions& o) { o.temperature = 1.5F; }},
      {"top-k", [](SamplingOptions& o) { o.top_k = 9; }},
      {"top-p", [](SamplingOptions& o) { o.top_p = 0.8F; }},
      {"min-p", [](SamplingOptions& o) { o.min_p = 0.2F; }},
      {"all, hot",
       [](SamplingOptions& o) {
         o.temperature = 1.5F;
         o.top_k = 12;
         o.top_p = 0.95F;
         o.min_p = 0.05F;
       }},
      {"penalties and bias",
       [](SamplingOptions& o) {
         o.repeat_penalty = 1.3F;
         o.frequency_penalty = 0.2F;
         o.presence_penalty = 0.4F;
         o.logit_bias = {{7, 1.5F}, {3, -kInfinity}};
       }},
  };
  constexpr int kDraws = 40000;
  const std::vector<float> logits = RandomLogits(9, 30, 3.0);
  const std::vector<int32_t> history = {1, 2, 2, 5, 7};
  for (const Case& c : cases) {
    SamplingOptions options = Plain();
    c.change(options);
    std::vector<double> law(logits.size(), 0.0), other = law;
    for (const auto& [token, p] : Law(options, logits, history)) law[static_cast<size_t>(token)] = p;
    options.temperature *= 1.5F;
    for (const auto& [token, p] : Law(options, logits, history)) other[static_cast<size_t>(token)] = p;
    options.temperature /= 1.5F;
    const Sampler sampler = Make(options, logits.size());
    Sampler::Scratch scratch;
    std::vector<int64_t> counts(logits.size(), 0);
    for (uint64_t i = 0; i < kDraws; ++i) {
      ++counts[static_cast<size_t>(sampler.Sample(logits, {history, {}}, i, scratch))];
    }
    EXPECT_GT(testing::ChiSquarePValue(counts, law), 1e-6) << c.name;
    EXPECT_LT(testing::ChiSquarePValue(counts, other), 1e-6) << c.name;
  }
}

// Filters that leave everything take the same way to the same token as none.
TEST(Draw, IsTheSameOverARowAndOverItsCandidates) {
  SamplingOptions wide = Plain();
  wide.min_p = 1e-30F;
  const Sampler whole = Make(Plain(), 500), listed = Make(wide, 500);
  Sampler::Scratch scratch;
  for (uint64_t i = 0; i < 300; ++i) {
    const std::vector<float> logits = RandomLogits(i, 500);
    EXPECT_EQ(whole.Sample(logits, {}, i, scratch), listed.Sample(logits, {}, i, scratch));
  }
}

// Of a row that lies elsewhere few logits are needed: those that bias and penalties change, and the first
// candidates after that.
TEST(Draw, IsTheSameOfTheFewLogitsThatMatter) {
  const RngStream rng{.seed = 6, .purpose = RngPurpose::kTest};
  constexpr int kVocab = 300;
  int n_chosen = 0;
  for (uint64_t round = 0; round < 300; ++round) {
    const auto u = [&](uint32_t i) { return rng.Uniform(round, i); };
    SamplingOptions options = Plain();
    options.top_k = 1 + static_cast<int>(u(0) * 60);
    if (u(1) < 0.6) options.top_p = static_cast<float>(u(2));
    if (u(3) < 0.6) options.min_p = static_cast<float>(u(4));
    if (u(5) < 0.5) options.repeat_penalty = static_cast<float>(0.5 + u(6) * 2);
    if (u(7) < 0.5) options.frequency_penalty = static_cast<float>(u(8) - 0.5);
    if (u(9) < 0.5) options.presence_penalty = static_cast<float>(u(10) - 0.5);
    options.repeat_last_n = static_cast<int>(u(11) * 30) - 1;
    std::vector<int32_t> committed, drafted;
    for (uint32_t i = 0; i < 30; ++i)
      (i < 20 ? committed : drafted).push_back(static_cast<int32_t>(u(20 + i) * (kVocab + 20)) - 10);
    for (uint32_t i = 0; i < static_cast<uint32_t>(u(12) * 4); ++i) {
      options.logit_bias.emplace_back(static_cast<int32_t>(u(60 + i) * 7),
                                      u(70 + i) < 0.3 ? -kInfinity : static_cast<float>(u(80 + i) * 9));
    }
    const TokenHistory history = {.committed = committed, .drafted = drafted};
    std::vector<float> logits = RandomLogits(round, kVocab);
    if (round % 3 == 0) std::fill(logits.begin() + static_cast<int>(u(13) * 9), logits.end(), -kInfinity);
    const Sampler sampler = Make(options, kVocab);
    Sampler::Scratch scratch;
    const int32_t expected = sampler.Sample(logits, history, round, scratch);
    const std::vector<float> whole =
        ChangesLogits(options) ? std::vector<float>(scratch.logits) : std::vector<float>(logits);

    const LogitChanges changes(options, history, kVocab);
    std::vector<float> few;
    for (const int32_t token : changes.tokens()) few.push_back(logits[static_cast<size_t>(token)]);
    changes.Apply(few);
    for (size_t i = 0; i < few.size(); ++i) logits[static_cast<size_t>(changes.tokens()[i])] = few[i];
    EXPECT_EQ(std::memcmp(whole.data(), logits.data(), kVocab * sizeof(float)), 0) << round;
    FirstCandidates(logits, static_cast<size_t>(options.top_k), scratch.candidates);
    std::erase_if(scratch.candidates, [](const Candidate& of) { return of.first == -kInfinity; });
    EXPECT_EQ(sampler.SampleAmong(round, scratch), expected) << round;
    n_chosen += expected != kNoToken ? 1 : 0;
  }
  EXPECT_GT(n_chosen, 200);
}

TEST(Draw, IsTheSameWithEveryKernelTable) {
  const std::vector<float> logits = RandomLogits(3, 49152, 20.0);
  Sampler::Scratch scratch;
  for (uint64_t i = 0; i < 30; ++i) {
    const int32_t expected =
        Sampler::Create(Plain(), 49152, 0, &kernels::kReferenceTable)->Sample(logits, {}, i, scratch);
    for (const kernels::KernelTable* table : kernels::Available()) {
      EXPECT_EQ(Sampler::Create(Plain(), 49152, 0, table)->Sample(logits, {}, i, scratch), expected)
          << table->name;
    }
  }
}

TEST(Draw, DependsOnSeedSequenceAndPositionOnly) {
  const std::vector<float> logits(1000, 0.0F);
  SamplingOptions options = Plain();
  Sampler::Scratch scratch, used;
  const Sampler sampler = Make(options, logits.size());
  static_cast<void>(sampler.Sample(RandomLogits(1, 1000), {}, 3, used));
  EXPECT_EQ(sampler.Sample(logits, {}, 7, scratch), sampler.Sample(logits, {}, 7, used));
  EXPECT_NE(sampler.Sample(logits, {}, 7, scratch), sampler.Sample(logits, {}, 8, scratch));
  const auto other_sequence = Sampler::Create(options, 1000, 1);
  EXPECT_NE(sampler.Sample(logits, {}, 7, scratch), other_sequence->Sample(logits, {}, 7, scratch));
  options.seed = 43;
  EXPECT_NE(sampler.Sample(logits, {}, 7, scratch), Make(options, 1000).Sample(logits, {}, 7, scratch));
}

TEST(Create, RefusesWhatIsOutOfRange) {
  struct Case {
    void (*change)(SamplingOptions&);
    const char* option;
  };
  const Case cases[] = {
      {[](SamplingOptions& o) { o.temperature = kNan; }, "--temp"},
      {[](SamplingOptions& o) { o.temperature = kInfinity; }, "--temp"},
      {[](SamplingOptions& o) { o.top_p = 1.5F; }, "--top-p 1.5"},
      {[](SamplingOptions& o) { o.top_p = kNan; }, "--top-p"},
      {[](SamplingOptions& o) { o.min_p = -0.1F; }, "--min-p -0.1"},
      {[](SamplingOptions& o) { o.repeat_last_n = -2; }, "--repeat-last-n -2"},
      {[](SamplingOptions& o) { o.repeat_penalty = 0.0F; }, "--repeat-penalty 0"},
      {[](SamplingOptions& o) { o.repeat_penalty = kInfinity; }, "--repeat-penalty"},
      {[](SamplingOptions& o) { o.presence_penalty = kNan; }, "--presence-penalty"},
      {[](SamplingOptions& o) { o.frequency_penalty = -kInfinity; }, "--frequency-penalty"},
      {[](SamplingOptions& o) {
         o.logit_bias = {{10, 0.0F}};
       },
       "--logit-bias: token 10: must be from 0 to 9"},
      {[](SamplingOptions& o) {
         o.logit_bias = {{-1, 0.0F}};
       },
       "--logit-bias"},
      {[](SamplingOptions& o) {
         o.logit_bias = {{3, kNan}};
       },
       "--logit-bias: bias"},
      {[](SamplingOptions& o) { o.seed.reset(); }, "--seed"},
  };
  for (const Case& c : cases) {
    SamplingOptions options = Plain();
    c.change(options);
    const auto sampler = Sampler::Create(options, 10);
    ASSERT_FALSE(sampler.ok()) << c.option;
    EXPECT_EQ(sampler.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(sampler.status().message(), HasSubstr(c.option));
  }
  EXPECT_FALSE(Sampler::Create(Plain(), 0).ok());
}

TEST(CreateDeathTest, ARowMustHaveTheVocabularysWidth) {
  const std::vector<float> logits(3, 0.0F);
  Sampler::Scratch scratch;
  const Sampler sampler = Make(Greedy(), 4);
  EXPECT_DEATH(static_cast<void>(sampler.Sample(logits, {}, 0, scratch)), "vocab_size_");
}

}  // namespace
}  // namespace longspec
