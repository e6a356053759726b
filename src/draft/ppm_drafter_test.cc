// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>

#include "base/clock.h"
#include "base/median.h"
#include "draft/drafter.h"
#include "draft/ppm_model.h"
#include "draft/testing/prose.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;
using Text = std::vector<int32_t>;

Text Letters(std::string_view text) { return {text.begin(), text.end()}; }

Text RandomText(std::mt19937& rng, int n, int n_letters) {
  Text text;
  for (int i = 0; i < n; ++i) {
    // Copies now and then, so that there are long contexts.
    const bool copies = i > 20 && rng() % 3 != 0;
    text.push_back(copies ? text[static_cast<size_t>(i) - 7 - rng() % 3]
                          : static_cast<int32_t>(rng() % static_cast<unsigned>(n_letters)));
  }
  return text;
}

// The recursion as it is written, over counts by scanning: what followed `context` in `text`.
std::map<int32_t, double> Blend(const Text& text, const Text& context) {
  std::map<int32_t, double> p;
  const size_t most = std::min<size_t>(PpmModel::kMaxOrder, context.size());
  for (size_t order = 1; order <= most; ++order) {
    std::map<int32_t, int> counts;
    int n = 0;
    for (size_t at = 0; at + order < text.size(); ++at) {
      if (!std::equal(context.end() - static_cast<ptrdiff_t>(order), context.end(),
                      text.begin() + static_cast<ptrdiff_t>(at)))
        continue;
      ++counts[text[at + order]];
      ++n;
    }
    if (n == 0) break;
    for (auto& [token, chance] : p) chance *= PpmModel::kDoubt / (n + PpmModel::kDoubt);
    for (const auto& [token, count] : counts) p[token] += count / (n + PpmModel::kDoubt);
  }
  return p;
}

void ExpectSame(const std::vector<Guess>& actual, const std::map<int32_t, double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [token, chance] : actual) EXPECT_NEAR(chance, expected.at(token), 1e-12) << token;
}

TEST(PpmModel, SaysWhatTheRecursionSays) {
  std::mt19937 rng(7);
  for (int round = 0; round < 60; ++round) {
    const Text text = RandomText(rng, 20 + static_cast<int>(rng() % 150), 2 + static_cast<int>(rng() % 6));
    PpmModel model;
    for (const int32_t token : text) model.Append(token);
    EXPECT_EQ(model.size(), static_cast<int64_t>(text.size()));
    PpmModel::Contexts contexts, next;
    std::vector<Guess> predictions;
    model.Current(contexts);
    model.Predict(contexts, true, 0, predictions);
    ExpectSame(predictions, Blend(text, text));
    // Further along a path of likely tokens. Contexts that occur at the very end too are counted there, which
    // the scan does not do: followed by a token that occurs nowhere, the text has no such place.
    Text longer = text;
    longer.push_back(1000);
    model.Append(1000);
    Text context = text;
    for (int step = 0; step < 5 && !predictions.empty(); ++step) {
      const int32_t token =
          std::max_element(predictions.begin(), predictions.end(), [](const auto& a, const auto& b) {
            return a.chance < b.chance;
          })->token;
      context.push_back(token);
      // From the contexts of the text's end before the last token.
      if (step == 0) {
        PpmModel before;
        for (const int32_t t : text) before.Append(t);
        before.Current(contexts);
        before.Append(1000);
        before.Extend(contexts, token, next);
        before.Predict(next, false, 0, predictions);
      } else {
        model.Extend(contexts, token, next);
        model.Predict(next, false, 0, predictions);
      }
      contexts = next;
      ExpectSame(predictions, Blend(longer, context));
    }
  }
}

TEST(PpmModel, BelievesLongContextsAndFrequentOnes) {
  const auto chance = [](std::string_view text, char token) {
    PpmModel model;
    for (const int32_t t : Letters(text)) model.Append(t);
    PpmModel::Contexts contexts;
    std::vector<Guess> predictions;
    model.Current(contexts);
    model.Predict(contexts, true, 0.01, predictions);
    for (const auto& p : predictions) {
      if (p.token == token) return p.chance;
    }
    return 0.0;
  };
  // One occurrence of one token, of two, of eight: 1 - 0.8^n.
  EXPECT_NEAR(chance("abXa", 'b'), 0.2, 1e-12);
  EXPECT_NEAR(chance("zabXza", 'b'), 1 - 0.8 * 0.8, 1e-12);
  EXPECT_GT(chance("abcdefghiXabcdefgh", 'i'), 0.8);
  EXPECT_NEAR(chance("abXabXabXabXYa", 'b'), 0.5, 1e-12);  // four occurrences of one token
  EXPECT_EQ(chance("abc", 'a'), 0);
  EXPECT_EQ(chance("", 'a'), 0);
}

// What the drafter does for a committed token: it is appended, and the likeliest path after it predicted.
void AppendAndPropose(PpmModel& model, int32_t token) {
  model.Append(token);
  PpmModel::Contexts contexts, next;
  std::vector<Guess> predictions;
  model.Current(contexts);
  double chance = 1;
  for (int depth = 0; depth < 8; ++depth) {
    model.Predict(contexts, depth == 0, 0.08 / chance, predictions);
    if (predictions.empty()) return;
    const auto best = std::max_element(predictions.begin(), predictions.end(),
                                       [](const auto& a, const auto& b) { return a.chance < b.chance; });
    chance *= best->chance;
    model.Extend(contexts, best->token, next);
    std::swap(contexts, next);
  }
}

TEST(PpmModel, ATokenCostsAboutTheSameInALongText) {
  struct Cost {
    double steps, nanoseconds, bytes;
  };
  const auto cost = [](size_t n) {
    constexpr size_t kMeasured = 1000;
    const Text text = testing::Prose(n + kMeasured);
    PpmModel model;
    for (size_t i = 0; i < n; ++i) model.Append(text[i]);
    const uint64_t steps = model.steps();
    std::vector<double> ms;
    for (size_t i = n; i < text.size(); ++i) {
      const double start = NowMs();
      AppendAndPropose(model, text[i]);
      ms.push_back(NowMs() - start);
    }
    return Cost{.steps = static_cast<double>(model.steps() - steps) / kMeasured,
                .nanoseconds = 1e6 * Median(ms),
                .bytes = static_cast<double>(model.bytes()) / static_cast<double>(text.size())};
  };
  const Cost small = cost(1000), large = cost(100000);
  for (const auto& [length, c] : {std::pair("1K", small), std::pair("100K", large)}) {
    std::printf("a token after %s, with a proposal: %.1f steps, %.0f ns, %.0f bytes\n", length, c.steps,
                c.nanoseconds, c.bytes);
  }
  EXPECT_LE(large.steps, 2 * small.steps);
  EXPECT_LE(large.bytes, 2 * small.bytes);
}

std::unique_ptr<Drafter> Make(SpeculationOptions options) {
  options.type = "ppm";
  auto drafter = MakeDrafter(options);
  EXPECT_TRUE(drafter.ok()) << drafter.status().message();
  return std::move(*drafter);
}

TokenTree Propose(Drafter& drafter, const Text& text, DraftBudget budget) {
  TokenTree tree(text.back());
  EXPECT_TRUE(drafter.Propose(budget, text, tree).ok());
  EXPECT_LE(tree.size() - 1, budget.max_nodes);
  EXPECT_LE(tree.max_depth(), budget.max_depth);
  return tree;
}

TEST(Ppm, DraftsTheLikelyAndStopsWhereNothingIs) {
  const auto drafter = Make({});
  const Text text = Letters("the cat sat on the mat. the cat sat on the");
  ASSERT_TRUE(drafter->Prefill(text).ok());
  const TokenTree tree = Propose(*drafter, text, {5, 5});
  EXPECT_EQ(tree.size(), 6);
  Text chain;
  for (int32_t node = tree.node(0).first_child; node >= 0; node = tree.node(node).first_child) {
    chain.push_back(tree.node(node).token);
    EXPECT_GT(tree.node(node).score, 0.08F);
  }
  EXPECT_EQ(Text(chain.begin(), chain.begin() + 3), Letters(" ma"));
  EXPECT_EQ(Propose(*drafter, text, {0, 0}).size(), 1);
  EXPECT_EQ(Propose(*drafter, Letters("abc"), {8, 8}).size(), 1);  // another text
  EXPECT_GT(drafter->bytes(), 0U);
}

TEST(Ppm, WidthAndLeastChanceShapeTheTree) {
  const Text text = Letters("abxabyabxabyab");
  const auto size = [&](SpeculationOptions options) {
    const auto drafter = Make(std::move(options));
    EXPECT_TRUE(drafter->Prefill(text).ok());
    return Propose(*drafter, text, {32, 4}).size();
  };
  const int all = size({});
  EXPECT_GT(all, size({.tree = "chain"}));
  EXPECT_EQ(size({.tree = "chain"}), 5);
  EXPECT_LT(size({.ppm_min_prob = 0.4F}), all);
  EXPECT_EQ(size({.ppm_min_prob = 1.0F}), 1);
  for (const float bad : {0.0F, -1.0F, 1.5F}) {
    EXPECT_THAT(CheckDrafter({.type = "ppm", .ppm_min_prob = bad}).message(),
                HasSubstr("--spec-ppm-min-prob"));
  }
  EXPECT_FALSE(CheckDrafter({.type = "ppm", .tree = "x"}).ok());
}

TEST(Ppm, LearnsWhatIsCommittedAsIfItHadBeenThere) {
  std::mt19937 rng(3);
  const Text text = RandomText(rng, 200, 5);
  const auto fresh = Make({}), growing = Make({});
  size_t n = 10;
  ASSERT_TRUE(growing->Prefill(std::span(text).first(n)).ok());
  while (n < text.size()) {
    const size_t added = std::min<size_t>(1 + rng() % 5, text.size() - n);
    n += added;
    ASSERT_TRUE(growing->Accept(std::span(text).first(n), static_cast<int>(added), {}).ok());
    const Text now(text.begin(), text.begin() + static_cast<ptrdiff_t>(n));
    const auto again = Make({});
    ASSERT_TRUE(again->Prefill(now).ok());
    const TokenTree a = Propose(*growing, now, {12, 6}), b = Propose(*again, now, {12, 6});
    ASSERT_EQ(a.size(), b.size());
    for (int i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a.node(i).token, b.node(i).token);
      EXPECT_EQ(a.node(i).parent, b.node(i).parent);
      EXPECT_EQ(a.node(i).score, b.node(i).score);
    }
  }
  // A text that does not go on from the known one.
  const Text other = RandomText(rng, 50, 5);
  ASSERT_TRUE(growing->Accept(other, 1, {}).ok());
  ASSERT_TRUE(fresh->Prefill(other).ok());
  EXPECT_EQ(Propose(*growing, other, {12, 6}).size(), Propose(*fresh, other, {12, 6}).size());
}

}  // namespace
}  // namespace longspec
