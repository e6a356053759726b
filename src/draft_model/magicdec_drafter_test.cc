// SPDX-License-Identifier: Apache-2.0
//
// The target as its own draft, over a window of its cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "base/testing/files.h"
#include "base/thread_team.h"
#include "draft/drafter.h"
#include "draft/testing/trees.h"
#include "draft_model/registry.h"
#include "formats/gguf.h"
#include "formats/tiny_model.h"
#include "kernels/dispatch.h"
#include "kv/full_cache.h"
#include "model/transformer.h"
#include "sampling/testing/values_of.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;

class MagicDecTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const testing::Folder folder;
    const std::string path = folder.File("tiny.gguf");
    TinyModelOptions tiny;
    tiny.dtype = DType::kQ4_1;
    ASSERT_TRUE(WriteTinyModel(tiny, path).ok());
    file_ = *GgufFile::Open(path);
    config_ = *ReadModelSpec(*file_, {});
    ModelLoadOptions load;
    load.max_rows = 64;
    target_ = *LoadModel(file_, config_, {kernels::Available().front(), &team_}, load);
    cache_ = MakeFullCache(config_.kv_layout(CacheType::kF16, CacheType::kF16), config_.n_layer, 512);
    options_.type = "magicdec";
    for (int32_t i = 0; i < 120; ++i) text_.push_back(3 + i * i % 97);
  }

  // What the target says after a text.
  std::vector<float> LogitsAfter(const std::vector<int32_t>& text) {
    const auto cache =
        MakeFullCache(config_.kv_layout(CacheType::kF16, CacheType::kF16), config_.n_layer, 512);
    Next(*cache, text);
    return logits_;
  }

  // Puts the text into a cache, and returns the likeliest token after it.
  int32_t Next(KvCache& cache, const std::vector<int32_t>& text) {
    int32_t best = -1;
    while (cache.length() < std::ssize(text)) {
      const auto at = static_cast<size_t>(cache.length());
      const size_t n = std::min<size_t>(50, text.size() - at);
      auto rows = cache.Begin(static_cast<int>(n));
      EXPECT_TRUE(rows.ok());
      const ForwardSegment segment = {.tokens = std::span(text).subspan(at, n),
                                      .parents = {},
                                      .kv = &*rows,
                                      .logits = LogitsFor::kLastRow};
      const auto output = target_->Forward({&segment, 1});
      EXPECT_TRUE(output.ok());
      const float* logits = testing::ValuesOf(output->segments[0].logits[0]).data();
      logits_.assign(logits, logits + output->vocab);
      best = static_cast<int32_t>(std::max_element(logits, logits + output->vocab) - logits);
      rows->CommitAll();
    }
    return best;
  }

  std::vector<int32_t> GreedyContinuation(int n) {
    const auto cache =
        MakeFullCache(config_.kv_layout(CacheType::kF16, CacheType::kF16), config_.n_layer, 512);
    std::vector<int32_t> text = text_, added;
    for (int i = 0; i < n; ++i) {
      added.push_back(Next(*cache, text));
      text.push_back(added.back());
    }
    return added;
  }

  std::unique_ptr<Drafter> Make() {
    Next(*cache_, {text_.begin(), text_.end() - 1});
    auto drafter = MakeDrafter(options_, {.target = target_.get(), .cache = cache_.get()});
    EXPECT_TRUE(drafter.ok()) << drafter.status().message();
    EXPECT_TRUE((*drafter)->Follow(text_).ok());
    return std::move(*drafter);
  }

  TokenTree Propose(Drafter& drafter, DraftBudget budget) {
    TokenTree tree(text_.back());
    const Status status = drafter.Propose(budget, text_, tree);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_LE(tree.size() - 1, budget.max_nodes);
    EXPECT_LE(tree.max_depth(), budget.max_depth);
    return tree;
  }

  std::vector<std::byte> BytesOfCache() const {
    std::vector<std::byte> bytes;
    for (int layer = 0; layer < config_.n_layer; ++layer) {
      const KvSpan span = cache_->Span(layer);
      const std::byte* begin = span.keys(0, 0);
      bytes.insert(bytes.end(), begin, begin + span.layout.layer_bytes());
    }
    return bytes;
  }

  std::shared_ptr<const GgufFile> file_;
  ModelSpec config_;
  ThreadTeam team_{2};
  std::unique_ptr<Target> target_;
  std::unique_ptr<KvCache> cache_;
  SpeculationOptions options_;
  std::vector<int32_t> text_;
  std::vector<float> logits_;  // of the last Next
};

TEST_F(MagicDecTest, AWindowOverTheWholeTextDraftsWhatTheTargetWouldSay) {
  const auto drafter = Make();
  const std::vector<int32_t> expected = GreedyContinuation(6);
  const TokenTree tree = Propose(*drafter, {6, 6});
  ASSERT_EQ(tree.size(), 7);
  EXPECT_TRUE(tree.is_chain());
  for (int i = 1; i < 7; ++i) {
    EXPECT_EQ(tree.node(i).token, expected[static_cast<size_t>(i - 1)]) << i;
    EXPECT_LE(tree.node(i).score, tree.node(i - 1).score);
    EXPECT_GT(tree.node(i).score, 0.0F);
  }
  // And again after a round that accepted three of them.
  text_.insert(text_.end(), expected.begin(), expected.begin() + 3);
  Next(*cache_, {text_.begin(), text_.end() - 1});
  ASSERT_TRUE(drafter->Read({.sequence = text_, .n_new = 3}).ok());
  const TokenTree next = Propose(*drafter, {3, 3});
  ASSERT_EQ(next.size(), 4);
  for (int i = 1; i < 4; ++i) EXPECT_EQ(next.node(i).token, expected[static_cast<size_t>(i + 2)]) << i;
}

TEST_F(MagicDecTest, ASmallWindowDraftsWithoutTouchingTheSequencesCache) {
  options_.magicdec.sink = 4;
  options_.magicdec.window = 16;
  const auto drafter = Make();
  const auto before = BytesOfCache();
  const TokenTree first = Propose(*drafter, {30, 30});  // more levels than the window holds
  EXPECT_EQ(first.max_depth(), 30);
  EXPECT_EQ(cache_->length(), 119);
  EXPECT_EQ(cache_->Span(0).n_speculated, 0);
  EXPECT_EQ(BytesOfCache(), before);
  // What the draft saw last time has left no trace.
  const TokenTree second = Propose(*drafter, {30, 30});
  for (int i = 0; i < 31; ++i) EXPECT_EQ(first.node(i).token, second.node(i).token) << i;
}

TEST_F(MagicDecTest, MemoryDependsOnTheWindowOnly) {
  options_.magicdec.window = 16;
  const auto drafter = Make();
  Propose(*drafter, {4, 4});
  const size_t bytes = drafter->bytes();
  EXPECT_GT(bytes, 0U);
  EXPECT_LE(bytes, 2 * KvChunkBytes(cache_->Span(0).layout, config_.n_layer));
  for (int i = 0; i < 5; ++i) {
    text_.push_back(7 + i);
    Next(*cache_, {text_.begin(), text_.end() - 1});
    Propose(*drafter, {4, 4});
  }
  EXPECT_EQ(drafter->bytes(), bytes);
}

TEST_F(MagicDecTest, AWidthAddsTheRunnersUpOfEachLevel) {
  options_.tree = "4";
  const auto drafter = Make();
  const std::vector<int32_t> expected = GreedyContinuation(3);
  const TokenTree tree = Propose(*drafter, {10, 10});
  ASSERT_EQ(tree.size(), 11);  // 4, 4 and 2 nodes
  EXPECT_EQ(tree.max_depth(), 3);
  int tip = 0;
  for (const int32_t token : expected) {
    const int next = tree.FindChild(tip, token);
    ASSERT_GE(next, 0);
    EXPECT_EQ(next, tree.node(tip).first_child);
    double sum = 0;
    for (int child = next; child >= 0; child = tree.node(child).next_sibling) {
      EXPECT_LE(tree.node(child).score, tree.node(next).score);
      sum += static_cast<double>(tree.node(child).score);
    }
    EXPECT_LE(sum, static_cast<double>(tree.node(tip).score) * 1.0001);
    tip = next;
  }
  EXPECT_EQ(Propose(*drafter, {10, 1}).size(), 5);
  EXPECT_EQ(Propose(*drafter, {0, 3}).size(), 1);
}

TEST_F(MagicDecTest, WithDiceTheNumbersCount) {
  options_.tree = "4";
  const auto drafter = Make();
  int right = 0, right_without = 0, inversions_elsewhere = 0;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const Sampler sampler = testing::UnfilteredSampler(target_->vocab_size(), seed);
    DraftBudget budget = {.max_nodes = 10, .max_depth = 3, .foresight = Foresight(&sampler, false)};
    const TokenTree plain = Propose(*drafter, budget);
    budget.foresight = Foresight(&sampler, true);
    const TokenTree tree = Propose(*drafter, budget);
    ASSERT_NO_FATAL_FAILURE(testing::ExpectWellFormed(tree, budget));
    ASSERT_EQ(tree.size(), 11);
    // What the target says after each node that was drafted on: the window holds the whole text.
    std::map<int, std::vector<float>> logits;
    std::vector<int32_t> text = text_;
    for (int tip = 0; tree.node(tip).first_child >= 0; tip = tree.node(tip).first_child) {
      if (tip > 0) text.push_back(tree.node(tip).token);
      logits[tip] = LogitsAfter(text);
    }
    const auto chance_of = [&](int node) {
      return logits.at(tree.node(node).parent)[static_cast<size_t>(tree.node(node).token)];
    };
    EXPECT_EQ(testing::DiceInversions(tree, text_.size(), sampler, chance_of), 0);
    inversions_elsewhere += testing::DiceInversions(tree, text_.size() + 1, sampler, chance_of);
    Sampler::Scratch scratch;
    const TokenHistory history = {.committed = text_, .drafted = {}};
    const int32_t choice = sampler.Sample(logits.at(0), history, text_.size(), scratch);
    right += tree.node(1).token == choice ? 1 : 0;
    right_without += plain.node(1).token == choice ? 1 : 0;
  }
  EXPECT_GT(right, 2 * right_without);
  EXPECT_GT(inversions_elsewhere, 20);  // the numbers of another position would be noticed
}

TEST_F(MagicDecTest, NeedsATargetAndItsWholeCache) {
  EXPECT_THAT(MakeDrafter(options_).status().message(), HasSubstr("--spec-type magicdec"));
  EXPECT_FALSE(MakeDrafter(options_, {.target = target_.get()}).ok());
  class Shapeless final : public Target {
   public:
    int vocab_size() const override { return 10; }
    int context_length() const override { return 10; }
    Result<TargetOutput> Forward(std::span<const ForwardSegment>) override { return Unsupported(""); }
  } shapeless;
  EXPECT_EQ(MakeDrafter(options_, {.target = &shapeless, .cache = cache_.get()}).status().code(),
            StatusCode::kUnsupported);
}

TEST_F(MagicDecTest, OptionsAreChecked) {
  options_.magicdec.sink = -1;
  EXPECT_THAT(CheckDrafter(options_).message(), HasSubstr("--spec-magicdec-sink -1"));
  options_.magicdec.sink = 0;
  EXPECT_TRUE(CheckDrafter(options_).ok());
  options_.magicdec.window = 0;
  EXPECT_THAT(CheckDrafter(options_).message(), HasSubstr("--spec-magicdec-window 0"));
  options_.magicdec.window = 8;
  options_.tree = "bush";
  EXPECT_THAT(CheckDrafter(options_).message(), HasSubstr("--spec-tree bush"));
}

}  // namespace
}  // namespace longspec
