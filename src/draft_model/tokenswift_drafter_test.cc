// SPDX-License-Identifier: Apache-2.0
//
// TokenSwift: proposals against its specification, when it retrieves, what is
// read of texts that go on, and that a proposal costs the same however long they are. That the text is that
// of plain decoding is tested in decode/training_free_equality_test.cc and block_drafters_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "base/size.h"
#include "draft/drafter_entry.h"
#include "draft/testing/trees.h"
#include "draft_model/registry.h"
#include "draft_model/testing/block_drafts.h"
#include "draft_model/testing/nested_rig.h"
#include "draft_model/testing/tree_search.h"
#include "kv/retrieval_cache.h"
#include "tensor/testing/values_of.h"

namespace longspec::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kHeads = 3;

class Tokenswift : public ::testing::Test {
 protected:
  Tokenswift() {
    tensors_ = RandomTokenswift(tiny_.spec, kHeads, 9);
    Write();
    options_.type = "tokenswift";
    options_.draft_weights = "f32";
  }

  void Write(const std::string& config = "") {
    options_.draft_model = WriteBlockDraft(folder_, "tokenswift", tiny_.spec, tensors_, {}, vocab_, config);
  }

  void Make() { rig_.emplace(&tiny_, options_); }
  // A drafter that has read this text.
  void Begin(const std::vector<int32_t>& text) {
    Make();
    rig_->Follow(text);
    rig_->GoOnTo(text);
  }
  TokenTree Propose(int max_nodes, int max_depth = 4, const Foresight& foresight = {}) {
    return rig_->Propose({.max_nodes = max_nodes, .max_depth = max_depth, .foresight = foresight});
  }

  // Of all positions of the text, computed anew: the output of the last layer, or what the target's head
  // sees.
  Vec StateAtTheEnd(bool final_hidden) {
    const auto cache = tiny_.NewCache(2000);
    const Taps taps =
        final_hidden ? Taps{.final_hidden = true} : Taps{.hidden_layers = {tiny_.spec.n_layer - 1}};
    tiny_.Evaluate(std::span(rig_->text).first(rig_->text.size() - 1), *cache);
    auto rows = cache->Begin(1);
    const ForwardSegment segment = {
        .tokens = std::span(rig_->text).last(1), .kv = &*rows, .logits = LogitsFor::kNone, .taps = &taps};
    const auto output = tiny_.target().Forward({&segment, 1});
    EXPECT_TRUE(output.ok());
    const TargetOutput::Segment& out = output->segments[0];
    const std::vector<float> state = testing::ValuesOf(final_hidden ? out.final_hidden : out.hidden[0]);
    return {state.begin(), state.end()};
  }

  // If the part holds everything: the target's own choice, and then what each head says.
  Next Specified() {
    const Vec final_state = StateAtTheEnd(true), last_state = StateAtTheEnd(false);
    return [=, this](const Path& path) {
      const BlockReference reference(tensors_, {}, tiny_.parts());
      if (path.empty()) return LogSoftmax(reference.Head(final_state));
      Vec logits = reference.Tokenswift(last_state, path.size() - 1);
      for (size_t t = 0; t < logits.size() && !vocab_.empty(); ++t) {
        if (std::ranges::find(vocab_, static_cast<int64_t>(t)) == vocab_.end()) logits[t] = -1e300;
      }
      return LogSoftmax(logits);
    };
  }

  Folder folder_;
  TinyTarget tiny_{{.n_layers = 4, .context_length = 2048}};
  DraftTensors tensors_;
  std::vector<int64_t> vocab_;  // of the heads; empty: all
  SpeculationOptions options_;
  std::optional<NestedRig> rig_;
};

// A text of three tokens has no 4-gram.
TEST_F(Tokenswift, HeadsGoOnFromThePassAsSpecified) {
  for (const auto& [tree, widths] :
       std::map<std::string, std::vector<int>>{{"4,3,2", {1, 4, 3, 2}}, {"chain", {1, 1, 1, 1}}}) {
    options_.tree = tree;
    Begin(RandomTokens(3, 4));
    ExpectTree(Propose(10), BeamSearch(Specified(), widths));
  }
  EXPECT_THAT(rig_->drafter->sources(), ElementsAre("tokenswift", "heads", "n-grams"));
}

// Below the token that the pass chose, trees are of any shape.
TEST_F(Tokenswift, TreesOfOtherMethodsAreTheirSpecifications) {
  vocab_ = {7, 42, 43, 44, 200, 300};  // so that trees are deep
  Write();
  const std::pair<const char*, std::function<Scores(const Next&)>> shapes[] = {
      {"opt:-1:4", [](const Next& next) { return OptTreeSearch(next, 6, -1, 4); }},
      {"opt:-1:2", [](const Next& next) { return OptTreeSearch(next, 6, -1, 2); }},
      {"opt:0.1:4", [](const Next& next) { return OptTreeSearch(next, 6, 0.1, 4); }},
      {"opt:6", [](const Next& next) { return OptTreeSearch(next, 6, 6, 4); }},
      {"eagle2:4:2:30", [](const Next& next) { return Eagle2Search(next, 4, 2, 6); }},
      {"eagle2:2:1:30", [](const Next& next) { return Eagle2Search(next, 2, 1, 6); }},  // all that it finds
  };
  for (const auto& [tree, search] : shapes) {
    SCOPED_TRACE(tree);
    options_.tree = tree;
    Begin(RandomTokens(3, 4));
    const TokenTree proposed = Propose(7);
    const Next next = Specified();
    const Scores chosen = BeamSearch(next, {1});
    const int32_t first = chosen.begin()->first[0];
    const double log_prob = chosen.begin()->second;
    const Next below = [&](Path path) {
      path.insert(path.begin(), first);
      return next(path);
    };
    Scores expected = chosen;
    for (const auto& [path, score] : search(below)) {
      Path whole = {first};
      whole.insert(whole.end(), path.begin(), path.end());
      expected[whole] = log_prob + score;
    }
    ExpectTree(proposed, expected);
  }
}

TEST_F(Tokenswift, ItsOwnTreeHas40Nodes) {
  options_.tree = "tokenswift";
  Begin(RandomTokens(3, 4));
  const TokenTree tree = Propose(100);
  std::vector<int> levels(5, 0);
  for (const TreeNode& node : tree.nodes()) ++levels[Z(node.depth)];
  EXPECT_THAT(levels, ElementsAre(1, 1, 3, 9, 27));
  EXPECT_EQ(Propose(100, 1).size(), 2);
  EXPECT_EQ(Propose(1, 4).size(), 2);
  EXPECT_EQ(Propose(0, 4).size(), 1);
}

// Heads of zeros say what the target itself says at that place, each of them.
TEST_F(Tokenswift, HeadsOfZerosAreTheModelsOwn) {
  for (auto& [name, tensor] : tensors_.tensors) {
    if (name.ends_with("linear.weight")) std::ranges::fill(tensor.values, 0.0F);
  }
  Write();
  options_.tree = "chain";
  Begin(RandomTokens(3, 4));
  const Next next = Specified();
  const TokenTree tree = Propose(4);
  ASSERT_EQ(tree.size(), 5);
  // Only norms differ from the target's.
  for (int i = 2; i < 5; ++i) {
    const Vec expected = next(Path(Z(i - 1), 0));
    EXPECT_EQ(tree.node(i).token, std::ranges::max_element(expected) - expected.begin());
  }
}

// What followed the chosen token earlier in the text, as its 4-grams have it, beside what heads say; the best
// of both is the tree.
TEST_F(Tokenswift, NgramsAreBranchesBesideTheHeads) {
  options_.tree = "4,4,4";
  const std::vector<int32_t> tokens = RandomTokens(3, 4);
  Begin(tokens);
  const int32_t chosen = Propose(1).node(1).token;
  // The same ending again, after a text in which that token was followed by two things.
  std::vector<int32_t> text;
  for (const int32_t after : {50, 60, 50}) {
    for (const int32_t token : {chosen, after, after + 1, after + 2}) text.push_back(token);
  }
  text.insert(text.end(), tokens.begin(), tokens.end());
  Begin(text);
  const TokenTree tree = Propose(60);
  const int root = 1;
  ASSERT_EQ(tree.node(root).source, 0);
  const auto first = tree.node(root).token;
  // The text is another one, so the choice may be; the table is asked for what was chosen.
  const auto n = std::ranges::count(text, first);
  std::map<int, int> by_source;
  for (int i = 2; i < tree.size(); ++i) ++by_source[tree.node(i).source];
  EXPECT_GT(by_source[1], 8);
  if (first == chosen) {
    EXPECT_EQ(by_source[2], 6);
    const int fifty = tree.FindChild(root, 50);
    ASSERT_GE(fifty, 0);
    EXPECT_FLOAT_EQ(tree.node(fifty).score, tree.node(root).score * 2 / (3 + 4));
  } else {
    EXPECT_EQ(by_source[2] > 0, n > 0);
  }
}

// Behaviour 3 of its list: what is retrieved is chosen anew each time so many positions have come, and is
// what the last query scores highest (kv/retrieval_cache_test.cc compares that with keys one by one).
TEST_F(Tokenswift, RetrievesWhenSoManyPositionsHaveCome) {
  options_.partial.sink = 16;
  options_.partial.budget = 48;
  options_.partial.window = 1;
  options_.partial.refresh = 48;
  options_.partial.score = "mean";
  const std::vector<int32_t> text = RandomTokens(1000, 4);
  const auto text_of = [&](int n) { return std::vector(text.begin(), text.begin() + n); };
  Begin(text_of(199));
  std::vector<int> chosen_at;
  int64_t n_choices = 0;
  int most_slots = 0;
  for (int n = 200; n <= 500; ++n) {
    rig_->GoOnTo(text_of(n));
    Propose(8);
    if (rig_->work().choices > n_choices) chosen_at.push_back(n);
    n_choices = rig_->work().choices;
    const auto& part = dynamic_cast<const RetrievalCache&>(rig_->part());
    EXPECT_EQ(part.blocks(0, 0).size(), 3U);
    EXPECT_EQ(part.length(), n);  // the root is in it
    most_slots = std::max(most_slots, part.n_slots());
  }
  ASSERT_GE(chosen_at.size(), 6U);
  EXPECT_EQ(chosen_at[0], 200);
  // Recent positions begin at a whole block.
  for (size_t i = 2; i < chosen_at.size(); ++i) EXPECT_EQ(chosen_at[i] - chosen_at[i - 1], 48) << i;
  EXPECT_LE(most_slots, 16 + 48 + 1 + 48 + kKeyBlock + 1);
}

TEST_F(Tokenswift, DraftsTheSameHoweverTheTextCame) {
  const std::vector<int32_t> text = RandomTokens(1200, 4);  // most tokens occur
  const auto proposal = [&](const std::vector<std::vector<int32_t>>& texts) {
    Make();
    for (const std::vector<int32_t>& one : texts) {
      rig_->Follow(one);
      rig_->GoOnTo(one);
    }
    return Propose(30);
  };
  std::vector<int32_t> other = text;
  other.resize(900);
  other[500] = (other[500] + 1) % 384;
  const std::vector<int32_t> beginning(text.begin(), text.begin() + 700);
  const TokenTree expected = proposal({text});
  std::map<int, int> by_source;
  for (const TreeNode& node : expected.nodes()) ++by_source[node.source];
  EXPECT_GT(by_source[2], 3);
  for (const auto& texts : {std::vector{beginning, text}, {other, text}, {text, beginning, text}}) {
    const TokenTree tree = proposal(texts);
    ASSERT_EQ(tree.size(), expected.size());
    for (int i = 0; i < tree.size(); ++i) {
      EXPECT_EQ(tree.node(i).token, expected.node(i).token) << i;
      EXPECT_EQ(tree.node(i).score, expected.node(i).score) << i;
    }
  }
}

TEST_F(Tokenswift, TreesAreWellFormedWithDiceToo) {
  Begin(RandomTokens(150, 4, 30));
  int differing = 0;
  const TokenTree plain = Propose(30);
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const Sampler sampler = UnfilteredSampler(tiny_.spec.n_vocab, seed);
    const DraftBudget budget = {.max_nodes = 30, .max_depth = 4, .foresight = Foresight(&sampler, true)};
    const TokenTree tree = rig_->Propose(budget);
    ASSERT_LE(tree.size(), 31);
    for (int i = 1; i < tree.size(); ++i) {
      ASSERT_LE(tree.node(i).score, tree.node(tree.node(i).parent).score);
      ASSERT_GT(tree.node(i).score, 0.0F);
    }
    differing += tree.node(1).token != plain.node(1).token ? 1 : 0;
  }
  EXPECT_GT(differing, 4);
}

TEST_F(Tokenswift, WhatDoesNotFitIsRefused) {
  const auto cache = tiny_.NewCache(100);
  const auto refusal = [&] {
    auto made = MakeDrafter(options_, {.target = &tiny_.target(), .cache = cache.get()});
    EXPECT_FALSE(made.ok());
    return made.ok() ? "" : made.status().message();
  };
  Write(", \"medusa_heads\": 5");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("\"medusa_heads\" is 5"), HasSubstr("of 3")));
  Write(", \"medusa_heads\": 3");
  Make();
  Write(", \"hidden_size\": 32");
  EXPECT_THAT(refusal(), HasSubstr("hidden size 32, the target has 64"));
  tensors_ = RandomTokenswift({.n_embd = 32, .n_vocab = 384}, 2, 1);
  Write();
  EXPECT_THAT(refusal(), HasSubstr("medusa_layers.0.linear.weight"));
  tensors_ = RandomTokenswift(tiny_.spec, 2, 1);
  tensors_.tensors.erase("medusa_layers.1.post_layernorm.weight");
  Write();
  EXPECT_THAT(refusal(), HasSubstr("medusa_layers.1.post_layernorm.weight"));
  options_.partial.sink = 5;
  EXPECT_THAT(CheckDrafter(options_).message(), HasSubstr("--spec-partial-sink 5: must be a multiple of 16"));
  options_.partial.sink = 0;
  options_.partial.score = "best";
  EXPECT_THAT(CheckDrafter(options_).message(), HasSubstr("--spec-partial-score best"));
  options_.partial.score = "mean";
  options_.draft_weights = "q9";
  EXPECT_THAT(CheckDrafter(options_).message(), HasSubstr("--spec-draft-weights q9"));
}

TEST_F(Tokenswift, TakesNoMoreMemoryThanWasPlanned) {
  ASSERT_TRUE(WriteTinyModel({.n_layers = 4}, folder_.File("target.gguf")).ok());
  const auto file = *GgufFile::Open(folder_.File("target.gguf"));
  const TargetFacts target = {
      .file = *file, .sizes = tiny_.spec, .cache = tiny_.spec.kv_layout(CacheType::kF32, CacheType::kF32)};
  options_.partial.budget = 64;
  DraftFiles files;
  const auto plan = PlanDraftMemory(options_, target, files);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  uint64_t weights = 0;
  for (const auto& [name, tensor] : tensors_.tensors) weights += tensor.values.size() * sizeof(float);
  Begin(RandomTokens(1500, 4));
  Propose(40);
  EXPECT_GT(plan->kv_chunk, 0U);
  EXPECT_GT(plan->with_target_chunk, 0U);
  EXPECT_GE(plan->fixed + plan->with_target + 6 * (plan->kv_chunk + plan->with_target_chunk) + (16 << 10),
            weights * 9 / 10 + rig_->drafter->bytes());
}

}  // namespace
}  // namespace longspec::testing
