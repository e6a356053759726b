// SPDX-License-Identifier: Apache-2.0
//
// Guesses by suffixes of this text and of a corpus.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <string_view>

#include "base/testing/files.h"
#include "draft/drafter.h"
#include "draft/testing/trees.h"
#include "draft_model/registry.h"
#include "draft_text/suffix_corpus.h"
#include "draft_text/suffix_growth.h"
#include "draft_text/testing/letters.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Letters;
using Text = std::vector<int32_t>;

class SuffixTarget final : public Target {
 public:
  explicit SuffixTarget(int vocab) : vocab_(vocab) {}
  int vocab_size() const override { return vocab_; }
  int context_length() const override { return 1000; }
  Result<TargetOutput> Forward(std::span<const ForwardSegment>) override {
    return Unsupported("no forward pass");
  }

 private:
  int vocab_;
};

SpeculationOptions Options(const std::string& tree = "") {
  SpeculationOptions options;
  options.type = "suffix";
  options.tree = tree;
  return options;
}

std::unique_ptr<Drafter> MakeSuffix(const SpeculationOptions& options, const DraftContext& context = {}) {
  auto drafter = MakeDrafter(options, context);
  EXPECT_TRUE(drafter.ok()) << drafter.status().message();
  return std::move(*drafter);
}

TokenTree ProposeSuffix(Drafter& drafter, const Text& text, DraftBudget budget) {
  TokenTree tree(text.back());
  EXPECT_TRUE(drafter.Propose(budget, text, tree).ok());
  EXPECT_LE(tree.size() - 1, budget.max_nodes);
  EXPECT_LE(tree.max_depth(), budget.max_depth);
  return tree;
}

Text DraftSuffix(const SpeculationOptions& options, const Text& text, int n,
                 const DraftContext& context = {}) {
  const auto drafter = MakeSuffix(options, context);
  EXPECT_TRUE(drafter->Follow(text).ok());
  const TokenTree tree = ProposeSuffix(*drafter, text, {n, n});
  EXPECT_TRUE(tree.is_chain());
  Text tokens;
  for (int i = 1; i < tree.size(); ++i) tokens.push_back(tree.node(i).token);
  return tokens;
}

TEST(Suffix, CopiesAsFarAsTheMatchIsLong) {
  EXPECT_EQ(DraftSuffix(Options(), Letters("abcdefghXabc"), 8), Letters("def"));
  EXPECT_EQ(DraftSuffix(Options(), Letters("abcdefghXabc"), 2), Letters("de"));
  EXPECT_THAT(DraftSuffix(Options(), Letters("abcdef"), 8), IsEmpty());
  EXPECT_THAT(DraftSuffix(Options(), Letters("abcabc"), 0), IsEmpty());
  SpeculationOptions options = Options();
  options.suffix.factor = 2;
  EXPECT_EQ(DraftSuffix(options, Letters("abcdefghXabc"), 8), Letters("defghX"));
  options.suffix.factor = 0.5F;
  EXPECT_EQ(DraftSuffix(options, Letters("abcdefghXabc"), 8), Letters("d"));
  options.suffix.max_depth = 1;
  options.suffix.factor = 3;
  EXPECT_EQ(DraftSuffix(options, Letters("abcdefghXabc"), 8), Letters("def"));
}

TEST(Suffix, DraftsAreNeverDeeperThanTheirMatchAllows) {
  std::mt19937 rng(3);
  for (int round = 0; round < 300; ++round) {
    Text text;
    for (unsigned i = 0; i < 5 + rng() % 60; ++i) text.push_back(static_cast<int32_t>(rng() % 3));
    int longest = 0;
    for (int n = 1; n < static_cast<int>(text.size()); ++n) {
      for (size_t at = 0; at + static_cast<size_t>(n) < text.size(); ++at) {
        if (std::equal(text.end() - n, text.end(), text.begin() + static_cast<std::ptrdiff_t>(at)))
          longest = n;
      }
    }
    EXPECT_LE(DraftSuffix(Options(), text, 60).size(), static_cast<size_t>(longest));
  }
}

TEST(Suffix, FrequencyDecidesBetweenContinuations) {
  // "ab" was followed by x twice, then by y once, more recently.
  const Text text = Letters("abx1abx2aby3ab");
  const auto drafter = MakeSuffix(Options("4"));
  ASSERT_TRUE(drafter->Follow(text).ok());
  const TokenTree tree = ProposeSuffix(*drafter, text, {8, 8});
  ASSERT_GE(tree.FindChild(0, 'x'), 0);
  ASSERT_GE(tree.FindChild(0, 'y'), 0);
  EXPECT_FLOAT_EQ(tree.node(tree.FindChild(0, 'x')).score, 2.0F / 4);
  EXPECT_FLOAT_EQ(tree.node(tree.FindChild(0, 'y')).score, 1.0F / 4);
  const int one = tree.FindChild(tree.FindChild(0, 'x'), '1');
  ASSERT_GE(one, 0);
  EXPECT_FLOAT_EQ(tree.node(one).score, 0.25F);  // half of the times that x came
  EXPECT_EQ(DraftSuffix(Options(), text, 1), Letters("x"));
}

TEST(Suffix, UnlikelyNodesAreLeftOut) {
  SpeculationOptions options = Options("4");
  options.suffix.min_prob = 0.3F;
  const Text text = Letters("abx1abx2aby3ab");
  const auto drafter = MakeSuffix(options);
  ASSERT_TRUE(drafter->Follow(text).ok());
  const TokenTree tree = ProposeSuffix(*drafter, text, {8, 8});
  EXPECT_EQ(tree.size(), 2);
  EXPECT_GE(tree.FindChild(0, 'x'), 0);
}

TEST(Suffix, TreesKeepTheBestNodesWithinTheBudget) {
  std::mt19937 rng(8);
  Text text;
  for (int i = 0; i < 400; ++i) text.push_back(static_cast<int32_t>(rng() % 3));
  for (const char* width : {"chain", "2", "3", "64"}) {
    const auto drafter = MakeSuffix(Options(width));
    ASSERT_TRUE(drafter->Follow(text).ok());
    for (const auto& [nodes, depth] : {std::pair{1, 1}, {4, 2}, {9, 9}, {40, 3}, {3, 0}}) {
      const TokenTree tree = ProposeSuffix(*drafter, text, {nodes, depth});
      const auto most = static_cast<unsigned>(std::max(1, std::atoi(width)));
      std::map<int, unsigned> children;
      for (int i = 1; i < tree.size(); ++i) {
        EXPECT_LE(++children[tree.node(i).parent], most);
        EXPECT_LE(tree.node(i).score, tree.node(tree.node(i).parent).score);
        EXPECT_GE(tree.node(i).score, 0.1F);
        if (i > 1) {
          EXPECT_LE(tree.node(i).score, tree.node(i - 1).score);  // best first
        }
      }
    }
  }
}

TEST(Suffix, PeriodicTextFillsTheWholeBudget) {
  for (int period = 1; period <= 6; ++period) {
    Text text, expected;
    for (int i = 0; i < 60; ++i) text.push_back(i % period);
    for (int i = 60; i < 72; ++i) expected.push_back(i % period);
    EXPECT_EQ(DraftSuffix(Options(), text, 12), expected) << period;
  }
}

TEST(Suffix, LearnsWhatIsAccepted) {
  const auto drafter = MakeSuffix(Options());
  Text text = Letters("The");
  ASSERT_TRUE(drafter->Follow(text).ok());
  const size_t empty = drafter->bytes();
  for (const char c : std::string_view("fox. The")) {
    text.push_back(c);
    ASSERT_TRUE(drafter->Read({.sequence = text, .n_new = 1}).ok());
  }
  EXPECT_EQ(ProposeSuffix(*drafter, text, {8, 8}).size(), 4);  // "fox"
  EXPECT_GT(drafter->bytes(), empty);
  // Another text, by Prefill or unannounced: nothing of the old one is proposed.
  text = Letters("quick brown Thx");
  ASSERT_TRUE(drafter->Follow(text).ok());
  EXPECT_EQ(ProposeSuffix(*drafter, text, {8, 8}).size(), 1);
  text = Letters("ababab");
  ASSERT_TRUE(drafter->Read({.sequence = text, .n_new = 2}).ok());
  EXPECT_GE(ProposeSuffix(*drafter, text, {3, 3}).size(), 3);
  text = Letters("xyxyxyx");
  EXPECT_EQ(ProposeSuffix(*drafter, text, {1, 3}).node(1).token, 'y');
}

class SuffixWithCorpus : public ::testing::Test {
 protected:
  SpeculationOptions With(const Text& corpus) {
    EXPECT_TRUE(SuffixCorpus::Write(path_, 200, corpus).ok());
    SpeculationOptions options = Options();
    options.suffix.corpus = path_;
    return options;
  }

  const testing::Folder folder_;
  const std::string path_ = folder_.File("x.corpus");
  SuffixTarget target_{200};
  DraftContext context_{.target = &target_};
};

TEST_F(SuffixWithCorpus, ARepeatedRequestDraftsItsFormerOutput) {
  const SpeculationOptions options = With(Letters("Q: why? A: because it rains."));
  EXPECT_EQ(DraftSuffix(options, Letters("Q: why? A:"), 10, context_), Letters(" because i"));
  EXPECT_NE(DraftSuffix(Options(), Letters("Q: why? A:"), 10), Letters(" because i"));
}

TEST_F(SuffixWithCorpus, TheSequencesOwnTextWinsTies) {
  // In the corpus "ab" is followed by x; in the sequence, as surely, by y.
  const SpeculationOptions options = With(Letters("abx1abx2"));
  const auto drafter = MakeSuffix(options, context_);
  EXPECT_EQ(DraftSuffix(With(Letters("abx1ab")), Letters("aby2ab"), 1, context_), Letters("y"));
  EXPECT_EQ(DraftSuffix(With(Letters("abxabxab")), Letters("aby2ab"), 1, context_), Letters("x"));
  EXPECT_GT(drafter->bytes(), MakeSuffix(Options())->bytes());
}

TEST_F(SuffixWithCorpus, RefusesACorpusOfAnotherModel) {
  SpeculationOptions options = With(Letters("abc"));
  SuffixTarget other(300);
  const auto refused = MakeDrafter(options, {.target = &other});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(),
              HasSubstr("made for a vocabulary of 200 tokens; this model has 300"));
  EXPECT_THAT(MakeDrafter(options).status().message(), HasSubstr("--spec-corpus"));
  options.suffix.corpus = path_ + ".none";
  EXPECT_THAT(MakeDrafter(options, context_).status().message(), HasSubstr(".none"));
}

TEST(SuffixGrowth, ScoresAreProductsAndDraftsSums) {
  // A context is a level; each has two continuations.
  class Coin final : public SuffixIndex {
   public:
    void Continuations(const SuffixContext& context, int most,
                       std::vector<Continuation>& out) const override {
      out.clear();
      const SuffixContext next = {.length = context.length + 1};
      out.push_back({.token = 1, .share = 0.75, .context = next});
      out.push_back({.token = 2, .share = 0.25, .context = next});
      out.resize(static_cast<size_t>(std::min(most, 2)));
    }
  };
  SuffixGrower grower;
  const SuffixDraft draft = grower.Grow(Coin(), {}, {.max_nodes = 5, .max_depth = 3, .width = 2});
  ASSERT_EQ(draft.nodes.size(), 5U);
  std::vector<double> scores;
  for (const auto& node : draft.nodes) scores.push_back(node.score);
  EXPECT_THAT(scores, ElementsAre(0.75, 0.5625, 0.421875, 0.25, 0.1875));
  EXPECT_DOUBLE_EQ(draft.score, 0.75 + 0.5625 + 0.421875 + 0.25 + 0.1875);
  EXPECT_EQ(draft.nodes[4].parent, 0);  // found before the one below the second child
  EXPECT_TRUE(grower.Grow(Coin(), {}, {.max_nodes = 5, .max_depth = 0, .width = 2}).nodes.empty());
  EXPECT_EQ(grower.Grow(Coin(), {}, {.max_nodes = 50, .max_depth = 3, .width = 1}).nodes.size(), 3U);
  EXPECT_EQ(
      grower.Grow(Coin(), {}, {.max_nodes = 50, .max_depth = 9, .width = 2, .min_prob = 0.3}).nodes.size(),
      4U);
}

// "ab" was followed by x, y and z equally often, each of them by 1, 2 and 3.
TEST(Suffix, WithDiceTheNumbersDecideBetweenEquals) {
  SpeculationOptions options = Options("4");
  options.suffix.min_prob = 0;
  int changed = 0, inversions_elsewhere = 0;
  for (int32_t begin = 0; begin < 40; ++begin) {
    Text text;
    int32_t unique = 1000;
    for (int32_t i = 0; i < begin; ++i) text.push_back(unique++);
    for (const char first : {'x', 'y', 'z'}) {
      for (const char second : {'1', '2', '3'}) {
        text.insert(text.end(), {'a', 'b', first, second, unique++});
      }
    }
    text.insert(text.end(), {'a', 'b'});
    const Sampler sampler = testing::UnfilteredSampler(2000);
    DraftBudget budget = {.max_nodes = 12, .max_depth = 2, .foresight = Foresight(&sampler, false)};
    const auto propose = [&] {
      const auto drafter = MakeSuffix(options);
      EXPECT_TRUE(drafter->Follow(text).ok());
      return ProposeSuffix(*drafter, text, budget);
    };
    const TokenTree plain = propose();
    budget.foresight = Foresight(&sampler, true);
    const TokenTree tree = propose();
    ASSERT_NO_FATAL_FAILURE(testing::ExpectWellFormed(tree, budget));
    ASSERT_EQ(tree.size(), 13);
    const auto equal = [](int) { return 1; };
    EXPECT_EQ(testing::DiceInversions(tree, text.size(), sampler, equal), 0);
    inversions_elsewhere += testing::DiceInversions(tree, text.size() + 1, sampler, equal);
    changed += tree.node(1).token != plain.node(1).token ? 1 : 0;
  }
  EXPECT_GT(changed, 10);
  EXPECT_GT(inversions_elsewhere, 100);  // the numbers of another position would be noticed
}

TEST(Suffix, WithDiceTreesKeepWithinTheBudget) {
  std::mt19937 rng(8);
  Text text;
  for (int i = 0; i < 400; ++i) text.push_back(static_cast<int32_t>(rng() % 3));
  const Sampler sampler = testing::UnfilteredSampler(3);
  for (const char* width : {"chain", "2", "3", "64"}) {
    for (int round = 0; round < 20; ++round) {
      text.push_back(static_cast<int32_t>(rng() % 3));
      const auto drafter = MakeSuffix(Options(width));
      ASSERT_TRUE(drafter->Follow(text).ok());
      for (const auto& [nodes, depth] : {std::pair{1, 1}, {4, 2}, {9, 9}, {40, 3}, {3, 0}, {0, 3}}) {
        const DraftBudget budget = {
            .max_nodes = nodes, .max_depth = depth, .foresight = Foresight(&sampler, true)};
        const TokenTree tree = ProposeSuffix(*drafter, text, budget);
        ASSERT_NO_FATAL_FAILURE(testing::ExpectWellFormed(tree, budget));
        std::map<int, int> children;
        for (int i = 1; i < tree.size(); ++i) {
          EXPECT_LE(++children[tree.node(i).parent], std::max(1, std::atoi(width)));
        }
      }
    }
  }
}

// Each option out of its range is refused by its name.
TEST(SuffixOptions, AreChecked) {
  const auto refusal = [](auto change) {
    SpeculationOptions options = Options();
    change(options);
    const Status status = CheckDrafter(options);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_THAT(refusal([](auto& o) { o.suffix.max_depth = 0; }), HasSubstr("--spec-suffix-max-depth 0"));
  EXPECT_THAT(refusal([](auto& o) { o.suffix.max_depth = 65; }), HasSubstr("must be from 1 to 64"));
  EXPECT_THAT(refusal([](auto& o) { o.suffix.factor = 0; }), HasSubstr("--spec-suffix-factor"));
  EXPECT_THAT(refusal([](auto& o) { o.suffix.factor = std::nanf(""); }), HasSubstr("--spec-suffix-factor"));
  EXPECT_THAT(refusal([](auto& o) { o.suffix.min_prob = 1.5F; }), HasSubstr("--spec-suffix-min-prob"));
  EXPECT_THAT(refusal([](auto& o) { o.tree = "wide"; }), HasSubstr("--spec-tree wide"));
}

}  // namespace
}  // namespace longspec
