// SPDX-License-Identifier: Apache-2.0
//
// What drafting on a part of the cache costs, by counting: the same however long the text is, but for
// choosing anew. That texts stay those of plain decoding is tested in decode/training_free_equality_test.cc.
#include "draft_model/nested_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "draft_model/testing/block_drafts.h"
#include "draft_model/testing/nested_rig.h"
#include "formats/gguf.h"
#include "formats/tiny_model.h"

namespace longspec::testing {
namespace {

constexpr int kRefresh = 32, kRounds = 100;

class Nested : public ::testing::TestWithParam<const char*> {
 protected:
  SpeculationOptions Options() {
    SpeculationOptions options;
    options.type = GetParam();
    options.partial.sink = 16;
    options.partial.budget = 64;
    options.partial.window = 16;
    options.partial.refresh = kRefresh;
    options.partial.inner = "none";
    options.magicdec.window = 100;
    if (options.type == "tokenswift") {
      options.draft_model =
          WriteBlockDraft(folder_, "tokenswift", tiny_.spec, RandomTokenswift(tiny_.spec, 3, 9));
    }
    return options;
  }
  bool retrieves() const { return std::string(GetParam()) != "magicdec"; }

  Folder folder_;
  TinyTarget tiny_{{.context_length = 5000}};
};

INSTANTIATE_TEST_SUITE_P(Kinds, Nested, ::testing::Values("magicdec", "partial", "tokenswift"),
                         [](const auto& kind) { return std::string(kind.param); });

// Of rounds that gain as many tokens each, whatever the drafts say, so that rounds of two texts are alike.
struct Cost {
  int64_t rows = 0, keys = 0;  // of passes over the part
  RetrievalWork work;
  int64_t most_summarised = 0;  // in a round
  int most_slots = 0;
};

TEST_P(Nested, RoundsCostTheSameHoweverLongTheTextIs) {
  const std::vector<int32_t> all = RandomTokens(5000, 4);
  const auto cost_after = [&](int n_prompt) {
    NestedRig rig(&tiny_, Options(), 5000);
    const auto text_of = [&](int n) { return std::vector(all.begin(), all.begin() + n); };
    rig.Follow(text_of(n_prompt));
    rig.GoOnTo(text_of(n_prompt), 512);
    RetrievalWork before;
    if (retrieves()) {
      before = rig.work();
      EXPECT_EQ(before.blocks_summarised, (n_prompt - 1) / kKeyBlock);  // while the prompt was read
    }
    Cost cost;
    for (int round = 0; round < kRounds; ++round) {
      // One token is proposed, so that no pass depends on what it chooses.
      const int64_t summarised = retrieves() ? rig.work().blocks_summarised : 0;
      rig.Propose({.max_nodes = 4, .max_depth = 1});
      cost.most_slots = std::max(cost.most_slots, rig.part().n_slots());
      rig.GoOnTo(text_of(n_prompt + 2 * round + 2));
      if (retrieves()) {
        cost.most_summarised = std::max(cost.most_summarised, rig.work().blocks_summarised - summarised);
      }
    }
    cost.rows = rig.passes.n_rows;
    cost.keys = rig.passes.n_keys;
    if (retrieves()) {
      cost.work = rig.work();
      cost.work.choices -= before.choices;
      cost.work.positions_copied -= before.positions_copied;
      cost.work.blocks_summarised -= before.blocks_summarised;
    }
    return cost;
  };
  const Cost at_512 = cost_after(512);
  EXPECT_GE(at_512.rows, kRounds);
  EXPECT_LE(at_512.most_slots, 16 + 64 + 16 + kRefresh + kKeyBlock + 8);
  EXPECT_LE(at_512.most_summarised, 1);
  EXPECT_EQ(at_512.work.blocks_summarised,
            retrieves() ? (511 + 2 * kRounds) / kKeyBlock - 511 / kKeyBlock : 0);
  for (const int n : {1024, 2048, 4096}) {  // multiples of a block: choices fall on the same rounds
    const Cost cost = cost_after(n);
    EXPECT_EQ(cost.rows, at_512.rows) << n;
    EXPECT_EQ(cost.keys, at_512.keys) << n;
    EXPECT_EQ(cost.most_slots, at_512.most_slots) << n;
    EXPECT_EQ(cost.most_summarised, at_512.most_summarised) << n;
    EXPECT_EQ(cost.work.choices, at_512.work.choices) << n;
    EXPECT_EQ(cost.work.positions_copied, at_512.work.positions_copied) << n;
    EXPECT_EQ(cost.work.blocks_summarised, at_512.work.blocks_summarised) << n;
  }
}

// A conversation that was cleared: its session is saved, or goes on with another text.
TEST_P(Nested, FollowsNothing) {
  NestedRig rig(&tiny_, Options(), 1000), fresh(&tiny_, Options(), 1000);
  const std::vector<int32_t> text = RandomTokens(400, 4), other = RandomTokens(300, 5);
  rig.Follow(text);
  rig.GoOnTo(text);
  ASSERT_TRUE(rig.drafter->Follow({}).ok());
  for (NestedRig* of : {&rig, &fresh}) {
    of->cache->Truncate(0);
    of->text.clear();
    of->Follow(other);
    of->GoOnTo(other);
  }
  const TokenTree tree = rig.Propose({.max_nodes = 4, .max_depth = 4});
  const TokenTree expected = fresh.Propose({.max_nodes = 4, .max_depth = 4});
  ASSERT_EQ(tree.size(), expected.size());
  ASSERT_GT(tree.size(), 1);
  for (int i = 0; i < tree.size(); ++i) EXPECT_EQ(tree.node(i).token, expected.node(i).token) << i;
}

// Of a cache that was there before, a restored session's, keys are summarised when the drafter is told, and
// not in its first round; of a text that begins like the one before, only what is new.
TEST_P(Nested, ARestoredCacheIsSummarisedBeforeTheFirstRound) {
  if (!retrieves()) GTEST_SKIP() << "sees the last positions";
  NestedRig rig(&tiny_, Options(), 5000);
  std::vector<int32_t> text = RandomTokens(2001, 4);
  tiny_.Evaluate(std::span(text).first(2000), *rig.cache);
  rig.text = text;
  rig.Follow(text);
  EXPECT_EQ(rig.work().blocks_summarised, 125);
  rig.Propose({.max_nodes = 4, .max_depth = 4});
  EXPECT_EQ(rig.work().blocks_summarised, 125);
  EXPECT_EQ(rig.work().choices, 1);
  text.resize(1601);
  text.back() = (text.back() + 1) % 384;
  text.push_back(7);
  rig.Follow(text);
  rig.GoOnTo(text);
  EXPECT_EQ(rig.work().blocks_summarised, 125);
  text.insert(text.end(), 40, 9);
  rig.GoOnTo(text);
  EXPECT_EQ(rig.work().blocks_summarised, 125 + (1641 / kKeyBlock - 1600 / kKeyBlock));
  const TokenTree tree = rig.Propose({.max_nodes = 4, .max_depth = 4});
  // One that has read this text alone drafts the same.
  NestedRig fresh(&tiny_, Options(), 5000);
  fresh.Follow(text);
  fresh.GoOnTo(text);
  const TokenTree expected = fresh.Propose({.max_nodes = 4, .max_depth = 4});
  ASSERT_EQ(tree.size(), expected.size());
  for (int i = 0; i < tree.size(); ++i) EXPECT_EQ(tree.node(i).token, expected.node(i).token) << i;
}

// TriForce: a pass over the part is asked about each token that a small model guesses, also those after what
// the passes before chose.
TEST(TriForce, EachPassTakesAGuessOfASmallModel) {
  const Folder folder;
  const TinyModelOptions shape = {.context_length = 5000};
  TinyTarget tiny(shape);
  ASSERT_TRUE(WriteTinyModel(shape, folder.File("draft.gguf")).ok());
  const auto file = *GgufFile::Open(folder.File("draft.gguf"));
  const std::vector<std::string> tokens = *file->GetStrings("tokenizer.ggml.tokens");
  DraftModels models;
  models.SetVocabulary(&tokens);
  const auto passes_of = [&](int n_text) {
    NestedRig rig(&tiny, {.type = "triforce", .draft_model = folder.File("draft.gguf")}, 3000, &models);
    const std::vector<int32_t> text = RandomTokens(n_text, 4);
    rig.Follow({text.begin(), text.begin() + 1});
    rig.GoOnTo(text);
    const TokenTree tree = rig.Propose({.max_nodes = 6, .max_depth = 6});
    EXPECT_EQ(tree.max_depth(), 6);
    EXPECT_EQ(tree.size(), 7);
    EXPECT_EQ(rig.drafter->sources().size(), 1U);
    const auto& nested = dynamic_cast<const NestedDrafter&>(*rig.drafter);
    EXPECT_EQ(nested.n_chosen(), 6);
    return nested.n_passes();
  };
  // The model itself, which sees all of a short text, is right each time.
  EXPECT_EQ(passes_of(200), 3);
  EXPECT_LE(passes_of(2000), 6);
}

}  // namespace
}  // namespace longspec::testing
