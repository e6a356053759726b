// SPDX-License-Identifier: Apache-2.0
//
// Drafts of several sequences whose passes meet are those of each alone: scores compared to the bit.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/size.h"
#include "draft/pass_meeting.h"
#include "draft_model/testing/batch_sequence.h"
#include "draft_model/testing/block_drafts.h"
#include "draft_model/testing/eagle_scene.h"

namespace longspec::testing {
namespace {

// Sequences of one target, which have read their texts, and their drafters.
class Group {
 public:
  Group(TinyTarget* tiny, const SpeculationOptions& options, int n) : options_(options) {
    models_.SetVocabulary(&kVocabulary);
    for (int i = 0; i < n; ++i) {
      auto one = std::make_unique<BatchSequence>(&tiny->target(), tiny->NewCache(1000), options, &models_,
                                                 *Sampler::Create({.seed = 1}, tiny->spec.n_vocab),
                                                 RandomTokens(20 + 90 * (i % 5), 5 + Z(i)));
      BatchDecoder decoder(&tiny->target());
      Turn turn{.sequence = &one->sequence, .max_rows = 64, .max_tokens = 1};
      while (one->sequence.n_missing() > 1) {
        turn.max_rows = one->sequence.NextRows(64);
        EXPECT_TRUE(decoder.Run({&turn, 1}).ok() && turn.status.ok());
      }
      all_.push_back(std::move(one));
    }
  }

  using Trees = std::vector<std::vector<TreeNode>>;

  Trees Alone() const {
    Trees trees;
    for (const auto& one : all_) {
      TokenTree tree(one->tokens.back());
      EXPECT_TRUE(one->drafter->Propose(Budget(), one->tokens, tree).ok());
      trees.emplace_back(tree.nodes().begin(), tree.nodes().end());
    }
    return trees;
  }

  Trees Together() {
    std::vector<TokenTree> trees;
    for (const auto& one : all_) trees.emplace_back(one->tokens.back());
    const DraftBudget budget = Budget();
    meeting.Run(
        static_cast<int>(all_.size()),
        [&](int i) { return all_[Z(i)]->drafter->Draft(budget, all_[Z(i)]->tokens, trees[Z(i)], meeting); },
        [](int, DraftTask& task, double) { EXPECT_TRUE(task.Result().ok()); });
    Trees all;
    for (const TokenTree& tree : trees) all.emplace_back(tree.nodes().begin(), tree.nodes().end());
    return all;
  }

  PassMeeting meeting;

 private:
  DraftBudget Budget() const { return {.max_nodes = options_.draft_n_max, .max_depth = 8}; }

  static std::vector<std::string> TokensOfTiny() {
    const auto bytes = TinyModelBytes({});
    return *(*GgufFile::Parse(*bytes, "tiny"))->GetStrings("tokenizer.ggml.tokens");
  }

  static inline const std::vector<std::string> kVocabulary = TokensOfTiny();
  const SpeculationOptions options_;
  DraftModels models_;
  std::vector<std::unique_ptr<BatchSequence>> all_;
};

void ExpectSameTrees(const Group::Trees& some, const Group::Trees& others) {
  ASSERT_EQ(some.size(), others.size());
  for (size_t i = 0; i < some.size(); ++i) {
    ASSERT_EQ(some[i].size(), others[i].size()) << i;
    EXPECT_GT(some[i].size(), 1U) << i;
    for (size_t n = 0; n < some[i].size(); ++n) {
      EXPECT_EQ(some[i][n].token, others[i][n].token);
      EXPECT_EQ(some[i][n].parent, others[i][n].parent);
      EXPECT_EQ(some[i][n].score, others[i][n].score);
    }
  }
}

// So many sequences with such trees, and how many passes their levels and rows need.
struct Case {
  const char* tree;
  int n, n_passes;
};
// The last: levels of 1, 12 and 12 rows for each of 5, and 32 rows in a pass.
constexpr Case kOneDraft[] = {{"chain", 5, 4}, {"4,4", 3, 2}, {"12,12,12", 5, 1 + 2 + 2}};
constexpr Case kOneOfSeveral[] = {{"chain", 5, 8}, {"4", 3, 5}};

void ExpectTheSameTogether(TinyTarget* tiny, SpeculationOptions options, std::span<const Case> cases) {
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(options.type) + " " + c.tree);
    options.tree = c.tree;
    options.draft_n_max = options.tree == "chain" ? 4 : 24;
    Group group(tiny, options, c.n);
    const Group::Trees alone = group.Alone();
    ExpectSameTrees(group.Together(), alone);
    EXPECT_LE(group.meeting.n_passes(), c.n_passes);
    ExpectSameTrees(group.Alone(), alone);
  }
}

TEST(DraftsTogether, LongspecDraftsAreTheSameTogether) {
  for (const char* more : {"", ", \"longspec_own_keys\": true"}) {
    for (const int threads : {1, 2}) {
      TinyTarget tiny({}, {}, threads);
      const Folder folder;
      SpeculationOptions options;
      options.type = "longspec";
      options.draft_model = WriteDraftFolder(folder, tiny.spec, RandomDraft(tiny.spec, 64, 3), more);
      ExpectTheSameTogether(&tiny, options, kOneDraft);
      options.type = "ppm,longspec";
      ExpectTheSameTogether(&tiny, options, kOneOfSeveral);
    }
  }
}

TEST(DraftsTogether, EagleDraftsAreTheSameTogether) {
  std::vector<int64_t> some;
  for (int64_t t = 3; t < 380; t += 2) some.push_back(t);
  for (const bool third : {false, true}) {
    SmallEagle eagle({.eagle3 = third}, some);
    ExpectTheSameTogether(&eagle.tiny, eagle.Options(""), kOneDraft);
  }
}

// Kinds whose drafts read states of the target, with heads of their own.
TEST(DraftsTogether, DraftsOfStatesAreTheSameTogether) {
  constexpr OwnHeads kHeads;
  for (const std::string name : {"beagle", "exit", "exit_of_final", "medusa"}) {
    const std::string kind = name == "exit_of_final" ? "exit" : name;
    for (const int threads : {1, 2}) {
      TinyTarget tiny({.n_layers = 4}, {}, threads);
      const Folder folder;
      const DraftTensors tensors = kind == "beagle" ? RandomBeagle(tiny.spec, kHeads, 9)
                                   : kind == "exit" ? RandomExit(tiny.spec, kHeads, 9, name != kind)
                                                    : RandomMedusa(tiny.spec, 4, 9, {1});
      SpeculationOptions options;
      options.type = kind;
      options.draft_model = WriteBlockDraft(folder, kind, tiny.spec, tensors, kHeads, {},
                                            kind == "exit" ? ", \"longspec_exit_layer\": 1" : "");
      options.draft_weights = "f32";
      ExpectTheSameTogether(&tiny, options, kOneDraft);
      // A head is asked once, whatever it is asked for: 20 sequences and 8 rows in a pass.
      if (kind == "medusa") ExpectTheSameTogether(&tiny, options, {{{"4,4", 20, 2}}});
      options.type = "ppm," + kind;
      ExpectTheSameTogether(&tiny, options, kOneOfSeveral);
    }
  }
}

TEST(DraftsTogether, DraftsOfALanguageModelAreTheSameTogether) {
  for (const int threads : {1, 2}) {
    TinyTarget tiny({.n_layers = 4}, {}, threads);
    const Folder folder;
    SpeculationOptions options;
    options.type = "lm";
    options.draft_model = folder.File("draft.gguf");
    ASSERT_TRUE(WriteTinyModel({.seed = 9}, options.draft_model).ok());
    ExpectTheSameTogether(&tiny, options, kOneDraft);
    // Many sequences' branches are more rows than a pass of it has.
    ExpectTheSameTogether(&tiny, options, {{{"12,12", 45, 3}}});
  }
}

// The target over a part of each sequence's cache. Passes of a drafter inside that is a model meet, too.
TEST(DraftsTogether, DraftsOfPartsOfTheCacheAreTheSameTogether) {
  for (const std::string inner : {"", "none", "ppm", "lm"}) {
    for (const int threads : {1, 2}) {
      SCOPED_TRACE(inner);
      TinyTarget tiny({.n_layers = 2}, {}, threads);
      const Folder folder;
      SpeculationOptions options;
      options.type = inner.empty() ? "magicdec" : "partial";
      options.draft_n_max = 4;
      options.magicdec.sink = options.partial.sink = 16;
      options.magicdec.window = options.partial.window = 32;
      options.partial.budget = 64;
      options.partial.inner = inner;
      if (inner == "lm") {
        options.draft_model = folder.File("draft.gguf");
        ASSERT_TRUE(WriteTinyModel({.seed = 9}, options.draft_model).ok());
      }
      Group group(&tiny, options, 5);
      const Group::Trees alone = group.Alone();
      ExpectSameTrees(group.Together(), alone);
      // A pass for each level of the longest chain; the one inside guesses as far as there is room: 3, 2, 1.
      EXPECT_LE(group.meeting.n_passes(), inner == "lm" ? 4 + 3 + 2 + 1 : 4);
      ExpectSameTrees(group.Alone(), alone);
    }
  }
}

}  // namespace
}  // namespace longspec::testing
