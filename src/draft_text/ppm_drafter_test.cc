// SPDX-License-Identifier: Apache-2.0
//
// Prediction by partial matching has the probabilities of its recursion, and drafts by them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>

#include "base/clock.h"
#include "base/median.h"
#include "base/testing/files.h"
#include "draft/drafter.h"
#include "draft/testing/table_model.h"
#include "draft/testing/trees.h"
#include "draft_model/draft_models.h"
#include "draft_model/registry.h"
#include "draft_text/ppm.h"
#include "draft_text/testing/letters.h"
#include "draft_text/testing/priors.h"
#include "draft_text/testing/prose.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;
using testing::Letters;
using Text = std::vector<int32_t>;

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

constexpr Hash128 kPpmTokenizer = {.high = 4, .low = 5};

std::shared_ptr<const NgramPrior> PriorOf(const Text& text, int vocab_size, int order,
                                          const NgramOptions& options = testing::kEveryNgram) {
  const testing::Folder folder;
  testing::WritePrior(folder.File("prior"), text, vocab_size, kPpmTokenizer, order, options);
  auto prior = NgramPrior::Open(folder.File("prior"), vocab_size, kPpmTokenizer);
  EXPECT_TRUE(prior.ok()) << prior.status().message();
  return *prior;
}

// How often which token followed the last `order` tokens of `context` in `text`, by scanning.
std::map<int32_t, int> Followed(const Text& text, const Text& context, size_t order) {
  std::map<int32_t, int> counts;
  for (size_t at = 0; at + order < text.size(); ++at) {
    if (std::equal(context.end() - static_cast<ptrdiff_t>(order), context.end(),
                   text.begin() + static_cast<ptrdiff_t>(at))) {
      ++counts[text[at + order]];
    }
  }
  return counts;
}

// Counts of other texts, the lowest orders of the recursion.
struct OtherTexts {
  Text text = {};
  size_t order = 0;  // 0: there are none
};

// Weighted by when each token came last in `text`, the sum unchanged.
std::map<int32_t, double> PreferRecent(std::map<int32_t, double> p, const Text& text) {
  double before = 0, after = 0;
  for (auto& [token, chance] : p) {
    before += chance;
    const auto last = std::find(text.rbegin(), text.rend(), token);
    const auto ago = last - text.rbegin();
    if (last != text.rend() && ago < PpmModel::kNotLongAgo) chance *= ago < PpmModel::kRecent ? 4 : 2;
    after += chance;
  }
  for (auto& [token, chance] : p) chance *= before / after;
  return p;
}

// The recursion as it is written: what followed `context` in `text`.
std::map<int32_t, double> Blend(const Text& text, const Text& context, const OtherTexts& others = {}) {
  std::map<int32_t, double> p;
  // Returns whether the context was followed by anything.
  const auto blend = [&](const Text& in, size_t order, double doubt) {
    const std::map<int32_t, int> counts = Followed(in, context, order);
    int n = 0;
    for (const auto& [token, count] : counts) n += count;
    for (auto& [token, chance] : p) chance *= doubt / (n + doubt);
    for (const auto& [token, count] : counts) p[token] += count / (n + doubt);
    return n > 0;
  };
  for (size_t order = 1; order <= std::min(others.order, context.size()); ++order) {
    if (!blend(others.text, order, PpmModel::kDoubt)) break;
  }
  const size_t most = std::min<size_t>(PpmModel::kMaxOrder, context.size());
  for (size_t order = 1; order <= most; ++order) {
    const bool alone = order == 1 && others.order > 0;
    if (!blend(text, order, alone ? PpmModel::kDoubtOfOneBesidePrior : PpmModel::kDoubt)) break;
  }
  return PreferRecent(p, text);
}

void ExpectSame(const std::vector<Guess>& actual, const std::map<int32_t, double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [token, chance] : actual) EXPECT_NEAR(chance, expected.at(token), 1e-12) << token;
}

TEST(PpmModel, SaysWhatTheRecursionSays) {
  std::mt19937 rng(7);
  for (int round = 0; round < 60; ++round) {
    const int n_letters = 2 + static_cast<int>(rng() % 6);
    const Text text = RandomText(rng, 20 + static_cast<int>(rng() % 150), n_letters);
    OtherTexts others;
    std::shared_ptr<const NgramPrior> prior;
    if (round >= 20) {
      // So short that the table's counts are exact; of letters that the text does not have too.
      others.order = 1 + static_cast<size_t>(round) % NgramPrior::kMaxOrder;
      others.text = RandomText(rng, 10 + static_cast<int>(rng() % 22), n_letters + 2);
      prior = PriorOf(others.text, 10, static_cast<int>(others.order));
    }
    PpmModel model(prior);
    for (const int32_t token : text) model.Append(token);
    EXPECT_EQ(model.size(), static_cast<int64_t>(text.size()));
    PpmModel::Contexts contexts, next;
    std::vector<Guess> predictions;
    model.Current(contexts);
    const double rest = model.Predict(contexts, true, 0, predictions);
    ASSERT_NO_FATAL_FAILURE(ExpectSame(predictions, Blend(text, text, others)));
    double said = 0;
    for (const Guess& guess : predictions) said += guess.chance;
    EXPECT_NEAR(rest, 1 - said, 1e-12);
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
        PpmModel before(prior);
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
      ASSERT_NO_FATAL_FAILURE(ExpectSame(predictions, Blend(longer, context, others)));
    }
  }
}

// What one token was followed by says less beside a prior; longer contexts say as much.
TEST(PpmModel, BesideAPriorOneTokenSaysLess) {
  const auto chance = [](const Text& text, const std::shared_ptr<const NgramPrior>& prior, int32_t token) {
    PpmModel model(prior);
    for (const int32_t t : text) model.Append(t);
    PpmModel::Contexts contexts;
    std::vector<Guess> predictions;
    model.Current(contexts);
    model.Predict(contexts, true, 0.001, predictions);
    const auto found = std::ranges::find(predictions, token, &Guess::token);
    return found == predictions.end() ? 0 : found->chance;
  };
  const auto prior = PriorOf({1, 5, 1, 6}, 9, 2);
  // Of the text: one occurrence against a doubt of 16, then of 4. Of the prior: 5 and 6 once each, against 4.
  // The texts hold 5 and 6 as well, so that all are as recent.
  const Text one = {5, 6, 1, 2, 9, 1}, two = {5, 6, 7, 1, 2, 9, 7, 1};
  EXPECT_NEAR(chance(one, prior, 2), 1.0 / 17, 1e-12);
  EXPECT_NEAR(chance(one, prior, 5), 16.0 / 17 / 6, 1e-12);
  EXPECT_NEAR(chance(two, prior, 2), 1.0 / 5 + 4.0 / 5 / 17, 1e-12);
  EXPECT_NEAR(chance(one, nullptr, 2), 1.0 / 5, 1e-12);
  EXPECT_EQ(chance(one, nullptr, 5), 0);
  EXPECT_NEAR(chance({1}, prior, 6), 1.0 / 6, 1e-12);  // nothing was said yet
  EXPECT_EQ(chance({3}, prior, 6), 0);
  EXPECT_EQ(chance({}, prior, 6), 0);
}

TEST(PpmModel, WordsComeBack) {
  const auto chances = [](size_t n_between) {
    Text text = {1, 2, 1, 3, 4};
    for (size_t i = 0; i < n_between; ++i) text.push_back(5);
    text.insert(text.end(), {3, 1});
    PpmModel model;
    for (const int32_t t : text) model.Append(t);
    PpmModel::Contexts contexts;
    std::vector<Guess> guesses;
    model.Current(contexts);
    model.Predict(contexts, true, 0, guesses);
    std::map<int32_t, double> p;
    for (const auto& [token, chance] : guesses) p[token] = chance;
    return p;
  };
  // 1 was followed by 2 and by 3; 3 came again just now.
  for (const auto& [between, weight] : {std::pair<size_t, double>{10, 1}, {150, 2}, {500, 4}}) {
    const auto p = chances(between);
    EXPECT_NEAR(p.at(3) / p.at(2), weight, 1e-9) << between;
    EXPECT_NEAR(p.at(2) + p.at(3), 2.0 / 6, 1e-12);
  }
}

// Cleared, it knows its prior and nothing else.
TEST(PpmModel, ClearingKeepsThePrior) {
  const auto prior = PriorOf({1, 5, 1, 6}, 9, 2);
  PpmModel model(prior), fresh(prior);
  for (const int32_t t : {1, 2, 9, 1}) model.Append(t);
  model.Clear();
  for (PpmModel* m : {&model, &fresh}) m->Append(1);
  std::vector<Guess> a, b;
  PpmModel::Contexts contexts;
  model.Current(contexts);
  model.Predict(contexts, true, 0, a);
  fresh.Current(contexts);
  fresh.Predict(contexts, true, 0, b);
  ASSERT_EQ(a.size(), 2U);
  ASSERT_EQ(b.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(a[i].token, b[i].token);
    EXPECT_EQ(a[i].chance, b[i].chance);
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

// What the drafter does for a committed token, the last one of the text: it is appended, and the likeliest
// path after it predicted. `sampler`: whose dice are thrown; null: none are. Returns the nodes that were
// asked for what may follow them.
int AppendAndPropose(PpmModel& model, std::span<const int32_t> text, const Sampler* sampler) {
  constexpr double kLeast = 0.03, kLuck = 16;
  model.Append(text.back());
  PpmModel::Contexts contexts, next;
  std::vector<Guess> predictions;
  Text path;
  model.Current(contexts);
  double chance = 1;
  int depth = 0;
  while (depth < 8) {
    const double least = kLeast / chance;
    const double rest =
        model.Predict(contexts, depth++ == 0, sampler != nullptr ? least / kLuck : least, predictions);
    Foresight(sampler, true).Refine(kDiceOfCounts, {.committed = text, .drafted = path}, rest, predictions);
    if (predictions.empty() || predictions[0].chance < least) break;
    chance *= predictions[0].chance;
    path.push_back(predictions[0].token);
    model.Extend(contexts, path.back(), next);
    std::swap(contexts, next);
  }
  return depth;
}

struct PpmCost {
  double nodes, steps, nanoseconds, bytes;
};

PpmCost CostAfter(size_t n, const std::shared_ptr<const NgramPrior>& prior, const Sampler* sampler) {
  constexpr size_t kMeasured = 1000;
  const Text text = testing::Prose(n + kMeasured);
  PpmModel model(prior);
  for (size_t i = 0; i < n; ++i) model.Append(text[i]);
  const uint64_t steps = model.steps();
  std::vector<double> ms;
  int nodes = 0;
  for (size_t i = n; i < text.size(); ++i) {
    const double start = NowMs();
    nodes += AppendAndPropose(model, std::span(text).first(i + 1), sampler);
    ms.push_back(NowMs() - start);
  }
  return {.nodes = static_cast<double>(nodes) / kMeasured,
          .steps = static_cast<double>(model.steps() - steps) / kMeasured,
          .nanoseconds = 1e6 * Median(ms),
          .bytes = static_cast<double>(model.bytes()) / static_cast<double>(text.size())};
}

// In a long text more is known, and proposals are a little deeper.
TEST(PpmModel, ATokenCostsAboutTheSameInALongText) {
  // Another part of the same law.
  const Text prose = testing::Prose(140000);
  const auto prior = PriorOf({prose.begin() + 101000, prose.end()}, 20001, 3, NgramOptions());
  const Sampler sampler = testing::UnfilteredSampler(20001);
  for (const bool with_prior : {false, true}) {
    for (const bool with_dice : {false, true}) {
      // With sanitizers it takes long: both or neither will do.
      if (std::getenv("LONGSPEC_SKIP_SLOW") != nullptr && with_prior != with_dice) continue;
      const auto cost = [&](size_t n) {
        return CostAfter(n, with_prior ? prior : nullptr, with_dice ? &sampler : nullptr);
      };
      const PpmCost small = cost(1000), large = cost(100000);
      for (const auto& [length, c] : {std::pair("1K", small), std::pair("100K", large)}) {
        std::printf("a token after %s%s%s, with a proposal: %.1f nodes, %.1f steps, %.0f ns, %.0f bytes\n",
                    length, with_prior ? ", a prior" : "", with_dice ? ", dice" : "", c.nodes, c.steps,
                    c.nanoseconds, c.bytes);
      }
      EXPECT_LE(large.steps, 2 * small.steps) << with_prior << with_dice;
      EXPECT_LE(large.bytes, 2 * small.bytes);
    }
  }
}

std::unique_ptr<Drafter> MakePpm(SpeculationOptions options) {
  options.type = "ppm";
  auto drafter = MakeDrafter(options);
  EXPECT_TRUE(drafter.ok()) << drafter.status().message();
  return std::move(*drafter);
}

TokenTree ProposePpm(Drafter& drafter, const Text& text, DraftBudget budget) {
  TokenTree tree(text.back());
  EXPECT_TRUE(drafter.Propose(budget, text, tree).ok());
  EXPECT_LE(tree.size() - 1, budget.max_nodes);
  EXPECT_LE(tree.max_depth(), budget.max_depth);
  return tree;
}

TEST(Ppm, DraftsTheLikelyAndStopsWhereNothingIs) {
  const auto drafter = MakePpm({});
  const Text text = Letters("the cat sat on the mat. the cat sat on the");
  ASSERT_TRUE(drafter->Follow(text).ok());
  const TokenTree tree = ProposePpm(*drafter, text, {5, 5});
  EXPECT_EQ(tree.size(), 6);
  Text chain;
  for (int32_t node = tree.node(0).first_child; node >= 0; node = tree.node(node).first_child) {
    chain.push_back(tree.node(node).token);
    EXPECT_GT(tree.node(node).score, 0.08F);
  }
  EXPECT_EQ(Text(chain.begin(), chain.begin() + 3), Letters(" ma"));
  EXPECT_EQ(ProposePpm(*drafter, text, {0, 0}).size(), 1);
  EXPECT_EQ(ProposePpm(*drafter, Letters("abc"), {8, 8}).size(), 1);  // another text
  EXPECT_GT(drafter->bytes(), 0U);
}

TEST(Ppm, WidthAndLeastChanceShapeTheTree) {
  const Text text = Letters("abxabyabxabyab");
  const auto size = [&](SpeculationOptions options) {
    const auto drafter = MakePpm(std::move(options));
    EXPECT_TRUE(drafter->Follow(text).ok());
    return ProposePpm(*drafter, text, {32, 4}).size();
  };
  const int all = size({});
  EXPECT_GT(all, size({.tree = "chain"}));
  EXPECT_EQ(size({.tree = "chain"}), 5);
  EXPECT_LT(size({.ppm = {.min_prob = 0.4F}}), all);
  EXPECT_EQ(size({.ppm = {.min_prob = 1.0F}}), 1);
  for (const float bad : {0.0F, -1.0F, 1.5F}) {
    EXPECT_THAT(CheckDrafter({.type = "ppm", .ppm = {.min_prob = bad}}).message(),
                HasSubstr("--spec-ppm-min-prob"));
  }
  EXPECT_FALSE(CheckDrafter({.type = "ppm", .tree = "x"}).ok());
}

TEST(Ppm, LearnsWhatIsCommittedAsIfItHadBeenThere) {
  std::mt19937 rng(3);
  const Text text = RandomText(rng, 200, 5);
  const auto fresh = MakePpm({}), growing = MakePpm({});
  size_t n = 10;
  ASSERT_TRUE(growing->Follow(std::span(text).first(n)).ok());
  while (n < text.size()) {
    const size_t added = std::min<size_t>(1 + rng() % 5, text.size() - n);
    n += added;
    ASSERT_TRUE(growing->Read({.sequence = std::span(text).first(n), .n_new = static_cast<int>(added)}).ok());
    const Text now(text.begin(), text.begin() + static_cast<ptrdiff_t>(n));
    const auto again = MakePpm({});
    ASSERT_TRUE(again->Follow(now).ok());
    const TokenTree a = ProposePpm(*growing, now, {12, 6}), b = ProposePpm(*again, now, {12, 6});
    ASSERT_EQ(a.size(), b.size());
    for (int i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a.node(i).token, b.node(i).token);
      EXPECT_EQ(a.node(i).parent, b.node(i).parent);
      EXPECT_EQ(a.node(i).score, b.node(i).score);
    }
  }
  // A text that does not go on from the known one.
  const Text other = RandomText(rng, 50, 5);
  ASSERT_TRUE(growing->Read({.sequence = other, .n_new = 1}).ok());
  ASSERT_TRUE(fresh->Follow(other).ok());
  EXPECT_EQ(ProposePpm(*growing, other, {12, 6}).size(), ProposePpm(*fresh, other, {12, 6}).size());
}

// --- With a prior. ---

class PpmWithPrior : public ::testing::Test {
 protected:
  PpmWithPrior() {
    Text text;
    for (int i = 0; i < 4; ++i) {
      for (const int32_t letter : Letters("the cat sat on the mat. ")) text.push_back(letter);
    }
    testing::WritePrior(folder_.File("cats.ngrams"), text, 256, kPpmTokenizer);
    models_.priors().SetSource({.tokenizer = kPpmTokenizer, .vocab_size = 256, .folder = folder_.path()});
  }
  std::unique_ptr<Drafter> MakePpm(const std::string& prior) {
    auto drafter = MakeDrafter({.type = "ppm", .ppm = {.prior = prior}}, {.models = &models_});
    EXPECT_TRUE(drafter.ok()) << drafter.status().message();
    return std::move(*drafter);
  }

  testing::Folder folder_;
  DraftModels models_;
};

TEST_F(PpmWithPrior, ATextWithoutPrecedentGetsDrafts) {
  const Text text = Letters("zq th");
  EXPECT_EQ(ProposePpm(*MakePpm("none"), text, {4, 4}).size(), 1);
  for (const std::string& prior : {std::string(), folder_.File("cats.ngrams")}) {
    const TokenTree tree = ProposePpm(*MakePpm(prior), text, {4, 4});
    ASSERT_GT(tree.size(), 2) << prior;
    EXPECT_EQ(tree.node(1).token, 'e');
    EXPECT_EQ(tree.node(2).token, ' ');
    // After one token and after two 8 times out of 8, after three 7 times out of 7.
    EXPECT_NEAR(tree.node(1).score, 1 - 4.0 / 12 * 4 / 12 * 4 / 11, 1e-6);
  }
}

// What the text says weighs more than what others said.
TEST_F(PpmWithPrior, TheTextComesFirst) {
  const Text text = Letters("thin thin th");
  const TokenTree tree = ProposePpm(*MakePpm(""), text, {8, 1});
  EXPECT_EQ(tree.node(1).token, 'i');
  const int other = tree.FindChild(0, 'e');
  ASSERT_GE(other, 0);
  EXPECT_LT(tree.node(other).score, tree.node(1).score);
}

TEST_F(PpmWithPrior, WithoutOneEverythingIsAsItWas) {
  std::mt19937 rng(9);
  for (int round = 0; round < 10; ++round) {
    const Text text = RandomText(rng, 100, 5);
    const auto without = MakeDrafter({.type = "ppm"});
    const TokenTree a = ProposePpm(*MakePpm("none"), text, {12, 6}), b = ProposePpm(**without, text, {12, 6});
    EXPECT_EQ(testing::PathsOf(a), testing::PathsOf(b));
    EXPECT_GT(a.size(), 1);
  }
}

TEST_F(PpmWithPrior, LearnsWhatIsCommittedAsIfItHadBeenThere) {
  std::mt19937 rng(4);
  Text text = Letters("the cat");
  const auto growing = MakePpm("");
  ASSERT_TRUE(growing->Follow(text).ok());
  for (int i = 0; i < 40; ++i) {
    const int added = 1 + static_cast<int>(rng() % 4);
    for (int j = 0; j < added; ++j) text.push_back(Letters("the cat sat")[rng() % 11]);
    ASSERT_TRUE(growing->Read({.sequence = text, .n_new = added}).ok());
    const auto fresh = MakePpm("");
    ASSERT_TRUE(fresh->Follow(text).ok());
    EXPECT_EQ(testing::PathsOf(ProposePpm(*growing, text, {12, 6})),
              testing::PathsOf(ProposePpm(*fresh, text, {12, 6})));
  }
}

// --- With dice. ---

TEST_F(PpmWithPrior, WithDiceTheNumbersDecideBetweenTheLikely) {
  std::mt19937 rng(5);
  int drafted = 0, inversions_elsewhere = 0, changed = 0;
  for (const std::string& prior : {std::string("none"), std::string()}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      Text text = RandomText(rng, 80, 6);
      for (int32_t& token : text) token = Letters("the ca")[static_cast<size_t>(token)];
      const Sampler sampler = testing::UnfilteredSampler(256, seed);
      DraftBudget budget = {.max_nodes = 24, .max_depth = 5};
      const TokenTree plain = ProposePpm(*MakePpm(prior), text, budget);
      budget.foresight = Foresight(&sampler, false);
      EXPECT_EQ(testing::PathsOf(ProposePpm(*MakePpm(prior), text, budget)), testing::PathsOf(plain));
      budget.foresight = Foresight(&sampler, true);
      const TokenTree tree = ProposePpm(*MakePpm(prior), text, budget);
      ASSERT_NO_FATAL_FAILURE(testing::ExpectWellFormed(tree, budget));
      drafted += tree.size() - 1;
      changed += testing::PathsOf(tree) != testing::PathsOf(plain) ? 1 : 0;

      PpmModel model(prior == "none" ? nullptr : *models_.priors().Get(prior));
      for (const int32_t token : text) model.Append(token);
      const auto chance_of = [&](int node) {
        PpmModel::Contexts contexts, next;
        model.Current(contexts);
        const std::vector<int32_t> path = tree.TokensTo(tree.node(node).parent);
        for (const int32_t on_path : path) {
          model.Extend(contexts, on_path, next);
          std::swap(contexts, next);
        }
        std::vector<Guess> guesses;
        model.Predict(contexts, path.empty(), 0, guesses);
        return std::ranges::find(guesses, tree.node(node).token, &Guess::token)->chance;
      };
      EXPECT_EQ(testing::DiceInversions(tree, text.size(), sampler, chance_of), 0);
      inversions_elsewhere += testing::DiceInversions(tree, text.size() + 1, sampler, chance_of);
    }
  }
  EXPECT_GT(drafted, 200);
  EXPECT_GT(changed, 30);
  EXPECT_GT(inversions_elsewhere, 20);  // the numbers of another position would be noticed
}

}  // namespace
}  // namespace longspec
