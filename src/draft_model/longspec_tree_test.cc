// SPDX-License-Identifier: Apache-2.0
//
// The trees the LongSpec drafter proposes against those of its specification: the naive forward pass, and
// search that knows nothing of levels run in passes, rings or slots.
#include <gtest/gtest.h>

#include <algorithm>

#include "draft_model/draft_models.h"
#include "draft_model/registry.h"
#include "draft_model/testing/longspec_files.h"
#include "draft_model/testing/longspec_reference.h"
#include "draft_model/testing/tree_search.h"

namespace longspec::testing {
namespace {

// A sequence, the target's cache of all of it but the last token, and a drafter that follows it.
class TreeScene {
 public:
  // `vocab`: tokens the draft chooses among; empty: all.
  explicit TreeScene(const std::string& tree, int window = 512, const std::vector<int64_t>& vocab = {})
      : tiny_({.n_embd = 32, .n_heads = 2, .n_kv_heads = 1, .n_ff = 32}),
        draft_(RandomDraft(tiny_.spec, 32, 9)),
        window_(window),
        vocab_(vocab),
        cache_(tiny_.NewCache(1000, CacheType::kF32)) {
    SpeculationOptions options;
    options.type = "longspec";
    options.draft_model =
        WriteDraftFolder(folder_, tiny_.spec, draft_, ", \"longspec_window\": " + std::to_string(window));
    WriteDraft(draft_, options.draft_model + "/model.safetensors", "", DType::kF32, vocab);
    options.draft_weights = "f32";
    options.tree = tree;
    auto drafter = MakeDrafter(options, {.target = &tiny_.target(), .cache = cache_.get()});
    EXPECT_TRUE(drafter.ok()) << drafter.status().message();
    drafter_ = std::move(*drafter);
  }

  // The first n tokens of the text are committed, by a prompt or by rounds that accepted them.
  void Commit(int n) {
    committed_ = RandomTokens(n, 4);
    const auto first = static_cast<size_t>(cache_->length());
    tiny_.Evaluate(std::span(committed_).subspan(first, committed_.size() - 1 - first), *cache_);
    if (first == 0) {
      EXPECT_TRUE(drafter_->Follow(committed_).ok());
    }
  }

  TokenTree Propose(int max_nodes, int max_depth) {
    TokenTree tree(committed_.back());
    const Status status =
        drafter_->Propose({.max_nodes = max_nodes, .max_depth = max_depth}, committed_, tree);
    EXPECT_TRUE(status.ok()) << status.message();
    return tree;
  }

  // What the specification says comes after a path below the last committed token.
  Next Specified() const {
    const LongspecReference reference(draft_, tiny_.parts());
    return [this, reference,
            seen = reference.ReadTarget(cache_->Span(last_layer()), cache_->length())](const Path& path) {
      std::vector<int32_t> tokens = committed_;
      tokens.insert(tokens.end(), path.begin(), path.end());
      Vec log_probs = reference.Head(reference.HiddenOfLast(tokens, window_, seen));
      if (!vocab_.empty()) {
        for (size_t t = 0; t < log_probs.size(); ++t) {
          if (std::ranges::find(vocab_, static_cast<int64_t>(t)) == vocab_.end()) log_probs[t] = -1e300;
        }
      }
      double sum = 0;
      for (const double x : log_probs) sum += std::exp(x);
      for (double& x : log_probs) x -= std::log(sum);
      return log_probs;
    };
  }

  KvCache& cache() { return *cache_; }
  int last_layer() const { return tiny_.spec.n_layer - 1; }

 private:
  Folder folder_;
  TinyTarget tiny_;
  DraftTensors draft_;
  const int window_;
  const std::vector<int64_t> vocab_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<Drafter> drafter_;
  std::vector<int32_t> committed_;
};

// Behaviours 14 and 15: after a prompt and after a round, at the far end of a window and across a chunk's
// border.
TEST(LongspecTree, BeamsAreTheSpecifications) {
  const std::vector<int> widths = {4, 16, 16, 16, 16};
  TreeScene scene("");
  scene.Commit(258);
  ExpectTree(scene.Propose(68, 5), BeamSearch(scene.Specified(), widths));
  TreeScene narrow("", 7);
  for (const int n : {254, 258}) {
    narrow.Commit(n);
    ExpectTree(narrow.Propose(68, 5), BeamSearch(narrow.Specified(), widths));
  }
}

TEST(LongspecTree, TheFirstTokenOfAllHasNothingToAttendTo) {
  TreeScene scene("3,5,2");
  scene.Commit(1);
  ExpectTree(scene.Propose(10, 3), BeamSearch(scene.Specified(), {3, 5, 2}));
}

TEST(LongspecTree, ABeamBeyondTheBudgetKeepsItsBest) {
  TreeScene scene("");
  scene.Commit(40);
  const Scores whole = BeamSearch(scene.Specified(), {4, 16, 16, 16, 16});
  for (const int n : {1, 8, 30, 67}) ExpectTree(scene.Propose(n, 5), Best(whole, static_cast<size_t>(n)));
  ExpectTree(scene.Propose(68, 2), BeamSearch(scene.Specified(), {4, 16}));
}

TEST(LongspecTree, ChainsAreTheMostProbableTokens) {
  for (const int window : {512, 3}) {
    TreeScene scene("chain", window);
    for (const int n : {39, 40, 46}) {
      scene.Commit(n);
      ExpectTree(scene.Propose(6, 6), BeamSearch(scene.Specified(), std::vector<int>(6, 1)));
    }
  }
}

// Of few tokens, so that the best paths are long.
TEST(LongspecTree, BestFirstIsTheMostProbablePaths) {
  for (const size_t depth : {10, 2}) {
    TreeScene scene("best:" + std::to_string(depth), 512, {7, 200, 42});
    for (const int n : {30, 34}) {
      scene.Commit(n);
      const size_t n_nodes = depth == 2 ? 9 : 24;
      const TokenTree tree = scene.Propose(static_cast<int>(n_nodes), 10);
      ExpectTree(tree, BestFirstSearch(scene.Specified(), n_nodes, depth));
      EXPECT_GE(tree.max_depth(), std::min<int>(4, static_cast<int>(depth)));
    }
  }
}

// The same of the trees of other methods.
TEST(LongspecTree, TreesOfOtherMethodsAreTheirSpecifications) {
  const std::vector<int64_t> vocab = {7, 200, 42, 43, 44, 300};
  const auto propose_and_compare = [&](const char* tree, int max_nodes, const auto& specified) {
    SCOPED_TRACE(tree);
    TreeScene scene(tree, 512, vocab);
    scene.Commit(30);
    return ExpectTreeOf(specified, scene, max_nodes, 10);
  };
  const auto opt = [](double threshold, int max_depth) {
    return [=](const Next& next) { return OptTreeSearch(next, 6, threshold, max_depth); };
  };
  EXPECT_EQ(propose_and_compare("opt:6", 6, opt(6, 10)), 1);
  EXPECT_GE(propose_and_compare("opt:-1:5", 6, opt(-1, 5)), 2);
  EXPECT_GE(propose_and_compare("opt:0.1:5", 6, opt(0.1, 5)), 2);
  for (const size_t n : {5, 24}) {
    const auto eagle2 = [n](const Next& next) { return Eagle2Search(next, 4, 3, n); };
    EXPECT_GE(propose_and_compare("eagle2:4:3:24", n < 24 ? static_cast<int>(n) : 40, eagle2), 2);
  }
}

// Behaviour 17: whatever lies in the target's rows from the root on, while they are speculated and after they
// were rolled back.
TEST(LongspecTree, RowsFromTheRootOnAreNotRead) {
  TreeScene scene("");
  scene.Commit(250);
  const std::map<Path, double> before = PathsOf(scene.Propose(68, 5));
  {
    auto speculated = scene.cache().Begin(80);
    ASSERT_TRUE(speculated.ok());
    EXPECT_EQ(PathsOf(scene.Propose(68, 5)), before);
    for (int slot = 249; slot < 249 + 80; ++slot) {
      for (int layer = 0; layer <= scene.last_layer(); ++layer) Poke(scene.cache().Span(layer), slot);
    }
    EXPECT_EQ(PathsOf(scene.Propose(68, 5)), before);
  }
  EXPECT_EQ(PathsOf(scene.Propose(68, 5)), before);
  for (int slot = 0; slot < 249; ++slot) Poke(scene.cache().Span(0), slot);  // nor any other layer's
  EXPECT_EQ(PathsOf(scene.Propose(68, 5)), before);
  Poke(scene.cache().Span(scene.last_layer()), 248);
  EXPECT_NE(PathsOf(scene.Propose(68, 5)), before);
}

}  // namespace
}  // namespace longspec::testing
