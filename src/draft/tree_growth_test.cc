// SPDX-License-Identifier: Apache-2.0
//
// Trees of each shape have the nodes that a search by force finds, within their budget.
#include "draft/tree_growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/counter_rng.h"
#include "draft/testing/table_model.h"

namespace longspec::testing {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr DraftBudget kPlenty = {.max_nodes = 255, .max_depth = 255};

TreeShape Beam(std::vector<int> widths) { return {.widths = std::move(widths)}; }
TreeShape Best(int depth) { return {.kind = TreeShape::Kind::kBestFirst, .max_depth = depth}; }
TreeShape Opt(double threshold, int depth = 10, bool last = false) {
  return {
      .kind = TreeShape::Kind::kOptTree, .max_depth = depth, .threshold = threshold, .use_last_level = last};
}

TokenTree Grow(const TreeShape& shape, const DraftBudget& budget, TableModel& model,
               GrowthReport* report = nullptr) {
  TokenTree tree(77);
  const Status status = GrowTreeNow(shape, budget, model, tree, report);
  EXPECT_TRUE(status.ok()) << status.message();
  return tree;
}

// A distribution per path, from a few random numbers; `peak` > 1 makes it uneven.
Distribution Random(int vocab, uint64_t seed, double peak = 3.0) {
  return [vocab, peak, rng = RngStream{.seed = seed, .purpose = RngPurpose::kTest}](const Path& path) {
    uint64_t key = 1;
    for (const int32_t t : path) key = key * 1000003 + static_cast<uint64_t>(t) + 1;
    std::vector<double> p;
    double sum = 0;
    for (int t = 0; t < vocab; ++t) {
      p.push_back(std::exp(peak * rng.Uniform(key, static_cast<uint32_t>(t))));
      sum += p.back();
    }
    for (double& x : p) x /= sum;
    return p;
  };
}

Distribution Same(std::vector<double> p) {
  return [p](const Path&) { return p; };
}

// Every path to `depth` with its log-probability.
void Enumerate(const Distribution& d, int depth, Path& path, double log_prob, std::map<Path, double>& all) {
  if (static_cast<int>(path.size()) == depth) return;
  const std::vector<double> p = d(path);
  for (size_t t = 0; t < p.size(); ++t) {
    path.push_back(static_cast<int32_t>(t));
    const double child = log_prob + std::log(p[t]);
    all[path] = child;
    Enumerate(d, depth, path, child, all);
    path.pop_back();
  }
}

std::map<Path, double> BestOf(const std::map<Path, double>& all, size_t n) {
  std::vector<std::pair<Path, double>> sorted(all.begin(), all.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  sorted.resize(std::min(n, sorted.size()));
  return {sorted.begin(), sorted.end()};
}

void ExpectSamePaths(const TokenTree& tree, const std::map<Path, double>& expected) {
  const std::map<Path, double> actual = PathsOf(tree);
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [path, log_prob] : expected) {
    ASSERT_TRUE(actual.contains(path));
    EXPECT_NEAR(actual.at(path), std::exp(log_prob), 1e-6);
  }
}

void ExpectWellFormed(const TokenTree& tree) {
  int depth = 0;
  for (int i = 1; i < tree.size(); ++i) {
    const TreeNode& node = tree.node(i);
    EXPECT_GE(node.depth, depth) << "levels in order";
    depth = node.depth;
    EXPECT_LE(node.score, tree.node(node.parent).score);
    for (int j = 1; j < i; ++j) {
      EXPECT_FALSE(tree.node(j).parent == node.parent && tree.node(j).token == node.token)
          << "equal siblings";
    }
  }
}

// The trees of a beam, by sorting everything.
std::map<Path, double> BeamByForce(const Distribution& d, const std::vector<int>& widths) {
  std::map<Path, double> all;
  std::vector<std::pair<Path, double>> level = {{{}, 0.0}};
  for (const int width : widths) {
    std::vector<std::pair<Path, double>> children;
    for (const auto& [path, log_prob] : level) {
      const std::vector<double> p = d(path);
      for (size_t t = 0; t < p.size(); ++t) {
        children.emplace_back(path, log_prob + std::log(p[t]));
        children.back().first.push_back(static_cast<int32_t>(t));
      }
    }
    std::stable_sort(children.begin(), children.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    children.resize(std::min(children.size(), static_cast<size_t>(width)));
    level = children;
    all.insert(level.begin(), level.end());
  }
  return all;
}

TEST(Beam, LongSpecsShapeHas68NodesAndFiveForwardPasses) {
  TableModel model(Random(100, 1));
  GrowthReport report;
  const TokenTree tree = Grow(TreeShape(), {.max_nodes = 68, .max_depth = 5}, model, &report);
  EXPECT_EQ(tree.size(), 69);
  EXPECT_THAT(report.rows, ElementsAre(1, 4, 16, 16, 16));
  std::vector<int> begins = {0};
  for (int i = 1; i < tree.size(); ++i) {
    if (tree.node(i).depth > tree.node(i - 1).depth) begins.push_back(i);
  }
  EXPECT_THAT(begins, ElementsAre(0, 1, 5, 21, 37, 53));
  ExpectWellFormed(tree);
  for (const auto& [path, n] : model.n_expanded) {
    EXPECT_EQ(n, 1);
    EXPECT_LT(path.size(), 5U) << "nodes of the last level are not run";
  }
}

TEST(Beam, LevelsAreTheExactBestOfAllChildren) {
  for (uint64_t seed = 1; seed < 20; ++seed) {
    const Distribution d = Random(9, seed);
    TableModel model(d);
    const std::vector<int> widths = {3, 5, 4, 7};
    const TokenTree tree = Grow(Beam(widths), kPlenty, model);
    ExpectSamePaths(tree, BeamByForce(d, widths));
    ExpectWellFormed(tree);
  }
}

// Cutting to a budget never needs more than the budget of any level, nor rows that cannot matter.
TEST(Beam, TheBudgetTakesTheBestOfWhatTheWholeBeamFinds) {
  for (uint64_t seed = 1; seed < 12; ++seed) {
    const Distribution d = Random(12, seed);
    const std::vector<int> widths = {4, 6, 6, 6};
    for (int n = 1; n <= 24; ++n) {
      TableModel model(d);
      const TokenTree tree = Grow(Beam(widths), {.max_nodes = n, .max_depth = 4}, model);
      ExpectSamePaths(tree, BestOf(BeamByForce(d, widths), static_cast<size_t>(n)));
      ExpectWellFormed(tree);
    }
  }
}

TEST(Beam, DepthAndVocabularyLimit) {
  TableModel model(Random(3, 5));
  const TokenTree tree = Grow(Beam({16, 16, 16}), {.max_nodes = 100, .max_depth = 2}, model);
  EXPECT_EQ(tree.max_depth(), 2);
  EXPECT_EQ(tree.size(), 1 + 3 + 9);
  TableModel empty(Same({}));
  EXPECT_EQ(Grow(Beam({4, 4}), kPlenty, empty).size(), 1);
  TableModel unused(Random(3, 5));
  EXPECT_EQ(Grow(Beam({4}), {.max_nodes = 0, .max_depth = 9}, unused).size(), 1);
  EXPECT_EQ(Grow(Beam({4}), {.max_nodes = 9, .max_depth = 0}, unused).size(), 1);
  EXPECT_TRUE(unused.n_expanded.empty());
}

TEST(Beam, WidthOneIsTheGreedyChain) {
  const Distribution d = Random(20, 3);
  TableModel model(d);
  GrowthReport report;
  const TokenTree tree = Grow(*ParseTreeShape("chain"), {.max_nodes = 7, .max_depth = 9}, model, &report);
  EXPECT_TRUE(tree.is_chain());
  EXPECT_EQ(tree.size(), 8);
  EXPECT_EQ(report.rows.size(), 7U);
  Path path;
  for (int i = 1; i < tree.size(); ++i) {
    const std::vector<double> p = d(path);
    EXPECT_EQ(tree.node(i).token, std::max_element(p.begin(), p.end()) - p.begin());
    path.push_back(tree.node(i).token);
  }
}

TEST(Growth, ExactTiesGoToTheSmallerLevelAndColumn) {
  for (const TreeShape& shape : {Beam({4, 4, 4}), Best(3), Opt(-1.0, 4)}) {
    // Half of everything, everywhere: level l has 2^l nodes of 2^-l.
    TableModel halves(Same({0.5, 0.5}));
    TokenTree tree = Grow(shape, {.max_nodes = 4, .max_depth = 3}, halves);
    EXPECT_THAT(PathsOf(tree), UnorderedElementsAre(Pair(Path{0}, 0.5), Pair(Path{1}, 0.5),
                                                    Pair(Path{0, 0}, 0.25), Pair(Path{0, 1}, 0.25)));
    // Certainty: a child is as probable as its parent and still comes after it.
    TableModel certain(Same({1.0, 0.0}));
    tree = Grow(shape, {.max_nodes = 2, .max_depth = 3}, certain);
    EXPECT_THAT(PathsOf(tree), UnorderedElementsAre(Pair(Path{0}, 1.0), Pair(Path{0, 0}, 1.0)));
  }
}

TEST(BestFirst, FindsTheBestOfTheWholeTree) {
  for (uint64_t seed = 1; seed < 15; ++seed) {
    const Distribution d = Random(5, seed, 6.0);
    std::map<Path, double> all;
    Path path;
    Enumerate(d, 4, path, 0.0, all);
    for (const int n : {1, 2, 3, 5, 8, 13, 30}) {
      TableModel model(d);
      GrowthReport report;
      const TokenTree tree = Grow(Best(4), {.max_nodes = n, .max_depth = 255}, model, &report);
      ExpectSamePaths(tree, BestOf(all, static_cast<size_t>(n)));
      ExpectWellFormed(tree);
      int rows = 0;
      for (const int r : report.rows) rows += r;
      EXPECT_LE(report.rows.size(), 4U);
      EXPECT_LE(rows, 1 + 3 * n);
    }
  }
}

// The released code also creates the level that it leaves out: one more than here.
// Ranks among siblings, whatever their probabilities; a pass for each level, over its parents only.
TEST(StaticTree, HasTheNodesOfItsPaths) {
  const Distribution d = Random(4, 11);
  const auto shape = ParseTreeShape("[[0], [2], (0,0), (0, 1), [2,3], (0,1,0,)]");
  ASSERT_TRUE(shape.ok()) << shape.status().message();
  TokenTree tree(0);
  TableModel model(d);
  GrowthReport report;
  ASSERT_TRUE(GrowTreeNow(*shape, {.max_nodes = 100, .max_depth = 10}, model, tree, &report).ok());
  EXPECT_THAT(report.rows, ElementsAre(1, 2, 1));
  std::map<Path, double> expected;
  for (const std::vector<int>& ranks : shape->paths) {
    Path path;
    double log_prob = 0;
    for (const int rank : ranks) {
      const std::vector<double> p = d(path);
      std::vector<int32_t> order(p.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return p[static_cast<size_t>(a)] > p[static_cast<size_t>(b)];
      });
      path.push_back(order[static_cast<size_t>(rank)]);
      log_prob += std::log(p[static_cast<size_t>(path.back())]);
    }
    expected[path] = log_prob;
  }
  ASSERT_EQ(expected.size(), 6U);
  ExpectSamePaths(tree, expected);
  ExpectWellFormed(tree);
  // The budget takes the most probable of them, a depth its levels, and ranks beyond the vocabulary are left
  // out.
  TokenTree few(0), flat(0), missing(0);
  ASSERT_TRUE(GrowTreeNow(*shape, {.max_nodes = 3, .max_depth = 10}, model, few).ok());
  ExpectSamePaths(few, BestOf(expected, 3));
  ASSERT_TRUE(GrowTreeNow(*shape, {.max_nodes = 100, .max_depth = 1}, model, flat).ok());
  EXPECT_EQ(flat.size(), 3);
  const auto wide = ParseTreeShape("[[0],[9],[9,0],[9,0,0],[0,0]]");
  ASSERT_TRUE(GrowTreeNow(*wide, {.max_nodes = 100, .max_depth = 10}, model, missing).ok());
  EXPECT_EQ(missing.size(), 3);
}

// Small cases worked out by hand from the paper: what is expected of each level, where growth ends, and the
// tree.
TEST(OptTree, GoldenExamples) {
  struct Golden {
    std::vector<double> p;
    double threshold;
    std::vector<double> expected;
    std::map<Path, double> tree;
    size_t n_passes;  // of the draft: the root's, and one for each level that is grown from
  };
  const std::map<Path, double> wide = {{{0}, .6}, {{1}, .3}, {{0, 0}, .36}};
  const std::map<Path, double> deep = {{{0}, .9}, {{0, 0}, .81}, {{0, 0, 0}, .729}};
  const std::vector<Golden> cases = {{{.6, .3, .1}, 0.7, {1.0, 1.26}, wide, 2},
                                     {{.6, .3, .1}, 0.2, {1.0, 1.26, 1.26}, wide, 3},
                                     {{.9, .06, .04}, 0.7, {1.0, 1.77, 2.439}, deep, 3},
                                     {{.9, .06, .04}, 0.5, {1.0, 1.77, 2.439, 2.439}, deep, 3}};
  for (const Golden& golden : cases) {
    TableModel model(Same(golden.p));
    GrowthReport report;
    const TokenTree tree = Grow(Opt(golden.threshold), {.max_nodes = 3, .max_depth = 255}, model, &report);
    ASSERT_EQ(report.expected.size(), golden.expected.size());
    for (size_t i = 0; i < golden.expected.size(); ++i) {
      EXPECT_NEAR(report.expected[i], golden.expected[i], 1e-9);
    }
    EXPECT_EQ(report.rows.size(), golden.n_passes);
    const std::map<Path, double> paths = PathsOf(tree);
    ASSERT_EQ(paths.size(), golden.tree.size());
    for (const auto& [path, score] : golden.tree) EXPECT_THAT(paths.at(path), DoubleNear(score, 1e-6));
  }
}

TEST(OptTree, IsTheBestOfAllExploredNodes) {
  for (uint64_t seed = 1; seed < 15; ++seed) {
    const Distribution d = Random(6, seed, 5.0);
    for (int n = 1; n <= 8; ++n) {
      for (int depth = 2; depth <= 5; ++depth) {
        TableModel model(d);
        GrowthReport report;
        const TokenTree tree = Grow(Opt(-1.0, depth), {.max_nodes = n, .max_depth = 255}, model, &report);
        EXPECT_LE(tree.max_depth(), depth - 1);
        std::map<Path, double> all;  // the n best of the whole tree lie among the n best of each level
        Path path;
        Enumerate(d, depth - 1, path, 0.0, all);
        ExpectSamePaths(tree, BestOf(all, static_cast<size_t>(n)));
        for (size_t i = 1; i < report.expected.size(); ++i)
          EXPECT_GE(report.expected[i], report.expected[i - 1]);
      }
    }
  }
}

TEST(OptTree, ThresholdAndDepthStop) {
  const DraftBudget budget = {.max_nodes = 4, .max_depth = 255};
  GrowthReport report;
  TableModel once(Same({.7, .2, .1}));
  EXPECT_EQ(Grow(Opt(4.0), budget, once, &report).max_depth(), 1);  // a threshold of n is never passed
  EXPECT_EQ(report.rows.size(), 1U);
  report = {};
  TableModel deep(Same({1.0}));
  EXPECT_EQ(Grow(Opt(-1.0, 4), budget, deep, &report).max_depth(), 3);
  EXPECT_EQ(report.rows.size(), 3U);
  // The gain must be larger than the threshold, not equal to it.
  report = {};
  TableModel equal(Same({1.0}));
  EXPECT_EQ(Grow(Opt(1.0), budget, equal, &report).max_depth(), 1);
  // The budget's depth counts as well.
  TableModel shallow(Same({1.0}));
  EXPECT_EQ(Grow(Opt(-1.0, 10), {.max_nodes = 4, .max_depth = 2}, shallow).max_depth(), 2);
}

TEST(OptTree, TheLastLevelTakesPartIfAsked) {
  const DraftBudget budget = {.max_nodes = 3, .max_depth = 255};
  TableModel model(Same({.9, .06, .04}));
  GrowthReport report;
  const TokenTree tree = Grow(Opt(4.0, 10, true), budget, model, &report);
  EXPECT_EQ(report.rows.size(), 2U);
  EXPECT_THAT(PathsOf(tree), UnorderedElementsAre(Pair(Path{0}, DoubleNear(.9, 1e-6)),
                                                  Pair(Path{0, 0}, DoubleNear(.81, 1e-6)),
                                                  Pair(Path{1}, DoubleNear(.06, 1e-6))));
  TableModel deep(Same({1.0}));
  EXPECT_EQ(Grow(Opt(-1.0, 4, true), {.max_nodes = 9, .max_depth = 255}, deep).max_depth(), 4);
  TableModel one(Same({1.0}));
  EXPECT_EQ(Grow(Opt(-1.0, 1, true), budget, one).max_depth(), 1);
}

TEST(Growth, ErrorsOfTheModelLeaveTheTree) {
  for (const TreeShape& shape : {Beam({2, 2, 2}), Best(3), Opt(-1.0, 4)}) {
    for (int calls = 0; calls < 3; ++calls) {
      TableModel model(Random(5, 1));
      model.calls_before_failure = calls;
      TokenTree tree(1);
      EXPECT_EQ(GrowTreeNow(shape, kPlenty, model, tree).code(), StatusCode::kIo);
      EXPECT_EQ(tree.size(), 1);
    }
  }
}

// --- EAGLE-2. ---

TreeShape Eagle2(int top_k, int n_loops, int total) {
  return {.kind = TreeShape::Kind::kEagle2, .top_k = top_k, .n_loops = n_loops, .total = total};
}

struct Found {
  Path path;
  double log_prob = 0;
};

// The list F as the reference makes it, nothing left out.
std::vector<Found> Eagle2ByForce(const Distribution& d, int top_k, int n_loops) {
  std::vector<Found> all, beam = {{}};
  const auto k = static_cast<size_t>(top_k);
  for (int level = 0; level <= n_loops; ++level) {
    std::vector<Found> found;
    for (const Found& node : beam) {
      const std::vector<double> p = d(node.path);
      std::vector<Found> children;
      for (size_t t = 0; t < p.size(); ++t) {
        children.push_back({node.path, node.log_prob + std::log(p[t])});
        children.back().path.push_back(static_cast<int32_t>(t));
      }
      const auto better = [](const Found& a, const Found& b) { return a.log_prob > b.log_prob; };
      std::stable_sort(children.begin(), children.end(), better);
      children.resize(std::min(children.size(), k));
      found.insert(found.end(), children.begin(), children.end());
    }
    all.insert(all.end(), found.begin(), found.end());
    beam = found;
    std::stable_sort(beam.begin(), beam.end(),
                     [](const Found& a, const Found& b) { return a.log_prob > b.log_prob; });
    beam.resize(std::min(beam.size(), k));
  }
  return all;
}

// The best of F, ties to the smaller index, in the order of F.
std::vector<Path> Chosen(const std::vector<Found>& all, size_t n) {
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return all[a].log_prob > all[b].log_prob; });
  order.resize(std::min(n, order.size()));
  std::sort(order.begin(), order.end());
  std::vector<Path> chosen;
  for (const size_t i : order) chosen.push_back(all[i].path);
  return chosen;
}

std::vector<Path> InOrder(const TokenTree& tree) {
  std::vector<Path> paths;
  for (int i = 1; i < tree.size(); ++i) paths.push_back(tree.TokensTo(i));
  return paths;
}

// Behaviour 7: K + D K^2 candidates, D + 1 levels.
TEST(Eagle2, TheGoldenCount) {
  for (const auto& [k, loops] : {std::pair{10, 7}, {10, 5}, {4, 3}, {1, 9}, {8, 1}}) {
    TableModel model(Random(30, 2));
    GrowthReport report;
    const TokenTree tree =
        Grow(Eagle2(k, loops, 10000), {.max_nodes = 10000, .max_depth = 255}, model, &report);
    EXPECT_EQ(report.n_candidates, k + loops * k * k);
    EXPECT_EQ(tree.size(), 1 + report.n_candidates);
    EXPECT_EQ(tree.max_depth(), loops + 1);
    std::vector<int> rows(static_cast<size_t>(loops) + 1, k);
    rows[0] = 1;
    EXPECT_EQ(report.rows, rows);
    EXPECT_EQ(InOrder(tree), Chosen(Eagle2ByForce(Random(30, 2), k, loops), 10000));
  }
}

TEST(Eagle2, NodesAndTheirOrderAreTheReferences) {
  for (uint64_t seed = 1; seed < 12; ++seed) {
    for (const double peak : {1.0, 4.0, 9.0}) {
      const Distribution d = Random(14, seed, peak);
      for (const size_t total : {1, 5, 20, 59}) {
        TableModel model(d);
        const TokenTree tree = Grow(Eagle2(5, 6, static_cast<int>(total)), kPlenty, model);
        EXPECT_EQ(InOrder(tree), Chosen(Eagle2ByForce(d, 5, 6), total));
        ExpectWellFormed(tree);
        for (const auto& [path, n] : model.n_expanded) EXPECT_EQ(n, 1);
      }
    }
  }
}

// Exact ties: a parent always comes before its child, also where the child is as probable.
TEST(Eagle2, TiesGoToWhatWasFoundFirst) {
  for (const auto& p : {std::vector<double>{0.5, 0.5}, {1.0, 0.0, 0.0}, {0.25, 0.25, 0.25, 0.25}}) {
    for (const size_t total : {1, 2, 3, 5, 8, 30}) {
      TableModel model(Same(p));
      const TokenTree tree = Grow(Eagle2(3, 4, static_cast<int>(total)), kPlenty, model);
      EXPECT_EQ(InOrder(tree), Chosen(Eagle2ByForce(Same(p), 3, 4), total));
    }
  }
}

// Behaviour 8.
TEST(Eagle2, ACertainDraftIsAChainToTheLastLevel) {
  TableModel model(Same({0, 0, 1, 0}));
  const TokenTree tree = Grow(*ParseTreeShape("eagle2:2:6:12"), kPlenty, model);
  EXPECT_EQ(tree.max_depth(), 7);
  EXPECT_TRUE(PathsOf(tree).contains(Path(7, 2)));
  TableModel shallow(Same({0, 0, 1, 0}));
  EXPECT_EQ(Grow(*ParseTreeShape("eagle2"), {.max_nodes = 59, .max_depth = 3}, shallow).max_depth(), 3);
  TableModel few(Random(30, 2));
  EXPECT_EQ(Grow(*ParseTreeShape("eagle2"), {.max_nodes = 8, .max_depth = 9}, few).size(), 9);
  EXPECT_EQ(Grow(*ParseTreeShape("eagle2"), kPlenty, few).size(), 60);
}

// Each form of --spec-tree, and what is taken for numbers that are left out.
TEST(TreeShape, Parses) {
  for (const char* text : {"", "beam"}) {
    const auto shape = ParseTreeShape(text);
    ASSERT_TRUE(shape.ok());
    EXPECT_EQ(shape->kind, TreeShape::Kind::kBeam);
    EXPECT_THAT(shape->widths, ElementsAre(4, 16, 16, 16, 16));
  }
  EXPECT_THAT(ParseTreeShape("3")->widths, ElementsAre(3, 3, 3, 3, 3));
  EXPECT_THAT(ParseTreeShape("4,16,255")->widths, ElementsAre(4, 16, 255));
  EXPECT_EQ(ParseTreeShape("chain")->widths, std::vector<int>(255, 1));
  const auto best = ParseTreeShape("best:7");
  EXPECT_EQ(best->kind, TreeShape::Kind::kBestFirst);
  EXPECT_EQ(best->max_depth, 7);
  EXPECT_EQ(ParseTreeShape("best")->max_depth, 10);
  const auto opt = ParseTreeShape("opt:0.5:6");
  EXPECT_EQ(opt->kind, TreeShape::Kind::kOptTree);
  EXPECT_EQ(opt->threshold, 0.5);
  EXPECT_EQ(opt->max_depth, 6);
  EXPECT_FALSE(opt->use_last_level);
  EXPECT_EQ(ParseTreeShape("opt")->threshold, 0.7);
  EXPECT_TRUE(ParseTreeShape("opt-last")->use_last_level);
  const auto eagle2 = ParseTreeShape("eagle2:8:5:48");
  EXPECT_EQ(eagle2->kind, TreeShape::Kind::kEagle2);
  EXPECT_THAT((std::vector{eagle2->top_k, eagle2->n_loops, eagle2->total}), ElementsAre(8, 5, 48));
  const auto released = ParseTreeShape("eagle2");
  EXPECT_THAT((std::vector{released->top_k, released->n_loops, released->total}), ElementsAre(10, 7, 59));
  const auto fixed = ParseTreeShape("[(0,1),[1],[0],(0, 0)]");
  ASSERT_TRUE(fixed.ok());
  EXPECT_EQ(fixed->kind, TreeShape::Kind::kStatic);
  EXPECT_THAT(fixed->paths,
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(0, 0), ElementsAre(0, 1)));
}

TEST(TreeShape, RefusesTheRest) {
  for (const char* text : {"wide",
                           "0",
                           "256",
                           "-1",
                           "3x",
                           "4,",
                           ",4",
                           "4,,4",
                           "4, 16",
                           "best:0",
                           "best:x",
                           "best:1:2",
                           "best:",
                           "opt:x",
                           "opt:nan",
                           "opt:inf",
                           "opt:0.5:0",
                           "opt:0.5:4:1",
                           "Beam",
                           "chain:3",
                           "[]",
                           "[[]]",
                           "[[0],[0]]",
                           "[[0,0]]",
                           "[[0],[-1]]",
                           "[[0]",
                           "[[0],[256]]",
                           "[[0],0]",
                           "[[x]]",
                           "eagle2:",
                           "eagle2:0",
                           "eagle2:65",
                           "eagle2:8:0",
                           "eagle2:8:255",
                           "eagle2:8:5:256",
                           "eagle2:8:5:48:1",
                           "eagle"}) {
    const auto shape = ParseTreeShape(text);
    ASSERT_FALSE(shape.ok()) << text;
    EXPECT_THAT(shape.status().message(),
                ::testing::StartsWith("--spec-tree " + std::string(text) + ": must be"));
  }
}

}  // namespace
}  // namespace longspec::testing
