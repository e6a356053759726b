// SPDX-License-Identifier: Apache-2.0
//
// Guesses by equal n-grams are those of a scan of the text, by the rules of this and of other programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/counter_rng.h"
#include "draft/drafter.h"
#include "draft_model/option_use.h"
#include "draft_text/testing/letters.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using testing::Letters;

struct Lookup {
  std::string rule = "recent";
  int max_n = 3, min_n = 1;
  std::string tree = {};
};

std::unique_ptr<Drafter> MakeLookup(const Lookup& lookup) {
  SpeculationOptions options;
  options.type = "ngram";
  options.ngram.max = lookup.max_n;
  options.ngram.min = lookup.min_n;
  options.ngram.rule = lookup.rule;
  options.tree = lookup.tree;
  auto drafter = MakeDrafter(OnlyRead(options, options.type));
  EXPECT_TRUE(drafter.ok()) << drafter.status().message();
  return std::move(*drafter);
}

TokenTree Propose(Drafter& drafter, const std::vector<int32_t>& text, int nodes, int depth) {
  TokenTree tree(text.back());
  EXPECT_TRUE(drafter.Propose({nodes, depth}, text, tree).ok());
  EXPECT_LE(tree.size() - 1, nodes);
  EXPECT_LE(tree.max_depth(), depth);
  return tree;
}

std::vector<int32_t> Tokens(const TokenTree& chain) {
  EXPECT_TRUE(chain.is_chain());
  std::vector<int32_t> tokens;
  for (int i = 1; i < chain.size(); ++i) tokens.push_back(chain.node(i).token);
  return tokens;
}

std::vector<int32_t> Draft(const Lookup& lookup, const std::vector<int32_t>& text, int n) {
  const auto drafter = MakeLookup(lookup);
  EXPECT_TRUE(drafter->Follow(text).ok());
  return Tokens(Propose(*drafter, text, n, n));
}

TEST(Ngram, CopiesWhatFollowed) {
  EXPECT_EQ(Draft({}, Letters("abcdefab"), 4), Letters("cdef"));
  EXPECT_EQ(Draft({}, Letters("abcdefab"), 2), Letters("cd"));
  EXPECT_THAT(Draft({}, Letters("abcdefab"), 0), IsEmpty());
  EXPECT_THAT(Draft({}, Letters("abcdef"), 4), IsEmpty());  // the suffix does not match itself
  EXPECT_THAT(Draft({}, Letters("a"), 4), IsEmpty());
}

TEST(Ngram, LongerSuffixBeforeMoreRecent) {
  // "xab" occurred first, "ab" again later with another continuation.
  EXPECT_EQ(Draft({}, Letters("xabPQabRSxab"), 2), Letters("PQ"));
  EXPECT_EQ(Draft({.max_n = 2}, Letters("xabPQabRSxab"), 2), Letters("RS"));
}

// A repetition that is shorter than asked for proposes nothing.
TEST(Ngram, MinimumLength) {
  EXPECT_EQ(Draft({.min_n = 1}, Letters("abcdb"), 2), Letters("cd"));
  EXPECT_THAT(Draft({.min_n = 2}, Letters("abcdb"), 2), IsEmpty());
}

TEST(Ngram, PeriodicTextFillsTheWholeBudget) {
  for (int period = 1; period <= 7; ++period) {
    std::vector<int32_t> text;
    for (int i = 0; i < 40; ++i) text.push_back(i % period);
    std::vector<int32_t> expected;
    for (int i = 40; i < 60; ++i) expected.push_back(i % period);
    EXPECT_EQ(Draft({.max_n = 4}, text, 20), expected) << period;
  }
}

// One text in which every rule, with its own program's usual lengths, copies from another place.
TEST(Ngram, TheRulesOfOtherPrograms) {
  const auto text = Letters(
      "zAaa"
      "yzBbb"
      "xyzCcc"
      "vwxyzDdd"
      "vwxyzFff"
      "uwxyzEee"
      "vwxyz");
  EXPECT_EQ(Draft({"tgi"}, text, 3), Letters("Aaa"));         // the first occurrence of the last token
  EXPECT_EQ(Draft({"hf", 2}, text, 3), Letters("Bbb"));       // the first of the last two
  EXPECT_EQ(Draft({"pld", 3}, text, 3), Letters("Ccc"));      // the first of the last three
  EXPECT_EQ(Draft({"vllm", 5, 5}, text, 3), Letters("Ddd"));  // the first of the last five
  EXPECT_EQ(Draft({"recent", 5}, text, 3), Letters("Fff"));   // the latest of the last five
  EXPECT_EQ(Draft({"llama", 4}, text, 3), Letters("Eee"));    // the latest of the last four
}

TEST(Ngram, TheRulesDifferWithEqualLengths) {
  // Only the last token occurred before.
  const auto one = Letters("bcdb");
  EXPECT_EQ(Draft({"hf", 3, 2}, one, 2), Letters("cd"));
  EXPECT_EQ(Draft({"pld", 3, 2}, one, 2), Letters("cd"));
  EXPECT_EQ(Draft({"tgi", 3, 2}, one, 2), Letters("cd"));
  EXPECT_THAT(Draft({"vllm", 3, 2}, one, 2), IsEmpty());
  EXPECT_THAT(Draft({"llama", 2, 1}, one, 2), IsEmpty());
  // A copy that reaches the end: cut, refused for a shorter suffix that has a whole one, or read on.
  const auto cut = Letters("cQRSTUVWabcdabc");
  EXPECT_EQ(Draft({"hf"}, cut, 6), Letters("dabc"));
  EXPECT_EQ(Draft({"vllm"}, cut, 6), Letters("dabc"));
  EXPECT_EQ(Draft({"llama"}, cut, 6), Letters("dabc"));
  EXPECT_EQ(Draft({"pld"}, cut, 6), Letters("QRSTUV"));
  EXPECT_EQ(Draft({"recent"}, cut, 6), Letters("dabcda"));
}

// --- Against a scan, on random texts. ---

std::vector<int32_t> ScanDraft(const Lookup& lookup, const std::vector<int32_t>& text, int depth) {
  const std::string& rule = lookup.rule;
  const bool leftmost = rule == "pld" || rule == "hf" || rule == "vllm" || rule == "tgi";
  const int max_n = rule == "tgi" ? 1 : lookup.max_n;
  const int min_n = rule == "llama" ? max_n : rule == "recent" || rule == "vllm" ? lookup.min_n : 1;
  const auto size = static_cast<int>(text.size());
  for (int n = max_n; n >= min_n; --n) {
    std::vector<int> starts;
    for (int s = 0; s + n < size; ++s) {
      const bool match = std::equal(text.begin() + s, text.begin() + s + n, text.end() - n);
      if (match && (rule != "pld" || s + n + depth <= size)) starts.push_back(s + n);
    }
    if (starts.empty()) continue;
    const int from = leftmost ? starts.front() : starts.back();
    std::vector<int32_t> all = text;
    for (int i = 0; i < depth; ++i) {
      if (rule != "recent" && from + i >= size) break;
      all.push_back(all[static_cast<size_t>(from + i)]);
    }
    return {all.begin() + size, all.end()};
  }
  return {};
}

TEST(Ngram, EqualsAScanOnRandomTexts) {
  const RngStream rng{.seed = 4, .purpose = RngPurpose::kTest};
  for (const char* rule : {"recent", "pld", "hf", "vllm", "tgi", "llama"}) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      const Lookup lookup = {rule, 2 + static_cast<int>(seed % 4), 1 + static_cast<int>(seed % 2)};
      const auto drafter = MakeLookup(lookup);
      std::vector<int32_t> text = {0, 1, 2, 0};
      ASSERT_TRUE(drafter->Follow(text).ok());
      for (uint32_t round = 0; round < 60; ++round) {
        const int depth = 1 + static_cast<int>(rng.Uniform(seed, 4 * round) * 9);
        ASSERT_EQ(Tokens(Propose(*drafter, text, depth, depth)), ScanDraft(lookup, text, depth))
            << rule << " seed " << seed << " size " << text.size();
        const int n_new = 1 + static_cast<int>(rng.Uniform(seed, 4 * round + 1) * 4);
        for (int i = 0; i < n_new; ++i) {
          text.push_back(
              static_cast<int32_t>(rng.Uniform(seed + 100, 8 * round + static_cast<uint32_t>(i)) * 3));
        }
        ASSERT_TRUE(drafter->Read({.sequence = text, .n_new = n_new}).ok());
      }
    }
  }
}

TEST(Ngram, FollowsASequenceThatChangedBehindItsBack) {
  const auto drafter = MakeLookup({});
  ASSERT_TRUE(drafter->Follow(Letters("abcab")).ok());
  EXPECT_EQ(Tokens(Propose(*drafter, Letters("xyzwxy"), 2, 2)), Letters("zw"));
  ASSERT_TRUE(drafter->Read({.sequence = Letters("ghijklmgh"), .n_new = 1}).ok());
  EXPECT_EQ(Tokens(Propose(*drafter, Letters("ghijklmgh"), 2, 2)), Letters("ij"));
  EXPECT_GT(drafter->bytes(), 0U);
  ASSERT_TRUE(drafter->Follow(Letters("mnom")).ok());
  EXPECT_EQ(Tokens(Propose(*drafter, Letters("mnom"), 2, 2)), Letters("no"));
}

// --- Trees. ---

// Every path from the root to a leaf, as text.
std::vector<std::string> Paths(const TokenTree& tree) {
  std::vector<std::string> paths;
  for (int i = 1; i < tree.size(); ++i) {
    if (tree.node(i).first_child >= 0) continue;
    const std::vector<int32_t> path = tree.TokensTo(i);
    paths.emplace_back(path.begin(), path.end());
  }
  return paths;
}

TokenTree DraftTree(const Lookup& lookup, const std::vector<int32_t>& text, int nodes, int depth) {
  const auto drafter = MakeLookup(lookup);
  EXPECT_TRUE(drafter->Follow(text).ok());
  return Propose(*drafter, text, nodes, depth);
}

TEST(NgramTree, MergesDistinctContinuationsLongestThenMostRecentFirst) {
  const auto text = Letters("xabPQRabPSTbUVWxab");
  // "xab" -> PQR; "ab" -> PST (more recent); "b" -> UVW.
  EXPECT_THAT(Paths(DraftTree({.tree = "1"}, text, 9, 3)), ElementsAre("PQR"));
  EXPECT_THAT(Paths(DraftTree({.tree = "2"}, text, 9, 3)), ElementsAre("PQR", "PST"));
  EXPECT_THAT(Paths(DraftTree({.tree = "3"}, text, 9, 3)), ElementsAre("PQR", "PST", "UVW"));
  EXPECT_THAT(Paths(DraftTree({.tree = "9"}, text, 9, 3)), ElementsAre("PQR", "PST", "UVW"));
}

TEST(NgramTree, SharesTheBudgetAndGivesWhatIsLeftToTheBest) {
  const auto text = Letters("xabPQRabPSTbUVWxab");
  EXPECT_THAT(Paths(DraftTree({.tree = "3"}, text, 6, 3)), ElementsAre("PQ", "PST", "UV"));
  EXPECT_THAT(Paths(DraftTree({.tree = "3"}, text, 3, 3)), ElementsAre("PS", "U"));
  EXPECT_THAT(Paths(DraftTree({.tree = "3"}, text, 1, 1)), ElementsAre("P"));
  // The third copy needs one node of its three, which leaves two.
  const auto shared = Letters("xyabPQRSyabUVWXabPQRTxyab");
  EXPECT_THAT(Paths(DraftTree({.max_n = 4, .tree = "3"}, shared, 9, 4)), ElementsAre("PQRT", "PQRS", "UVWX"));
}

TEST(NgramTree, IsSortedOutEvenInLoops) {
  const std::vector<int32_t> loop(5000, 7);
  const TokenTree tree = DraftTree({.tree = "8"}, loop, 12, 12);
  EXPECT_TRUE(tree.is_chain());
  EXPECT_EQ(tree.size(), 13);
}

TEST(NgramTree, PropertiesOnRandomTexts) {
  const RngStream rng{.seed = 8, .purpose = RngPurpose::kTest};
  int branched = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::vector<int32_t> text(80);
    for (uint32_t i = 0; i < text.size(); ++i) text[i] = static_cast<int32_t>(rng.Uniform(seed, i) * 3);
    const int nodes = static_cast<int>(rng.Uniform(seed, 1000) * 20);
    const int depth = static_cast<int>(rng.Uniform(seed, 1001) * 10);
    const TokenTree tree = DraftTree({.max_n = 4, .min_n = 2, .tree = "4"}, text, nodes, depth);
    branched += tree.is_chain() ? 0 : 1;
    if (nodes == 0 || depth == 0) {
      EXPECT_EQ(tree.size(), 1);
      continue;
    }
    int leaves = 0;
    for (int i = 1; i < tree.size(); ++i) leaves += tree.node(i).first_child < 0 ? 1 : 0;
    EXPECT_LE(leaves, 4);
    // The best copy is the chain's.
    const auto chain = Draft({.max_n = 4, .min_n = 2}, text, std::min(nodes, depth));
    ASSERT_EQ(tree.size() == 1, chain.empty());
    if (!chain.empty()) {
      EXPECT_EQ(tree.node(1).token, chain[0]);
    }
  }
  EXPECT_GT(branched, 100);
}

}  // namespace
}  // namespace longspec
