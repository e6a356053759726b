// SPDX-License-Identifier: Apache-2.0
//
// Rounds of the LongSpec drafter in the real loop, with accepted lengths from a script: the worked example of
// its specification (3.7) row by row, and trees whose rows lie otherwise.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "decode/testing/one_sequence.h"
#include "draft_model/draft_models.h"
#include "draft_model/option_use.h"
#include "draft_model/registry.h"
#include "draft_model/testing/longspec_files.h"
#include "policy/policy.h"
#include "sampling/sampler.h"
#include "sampling/testing/values_of.h"

namespace longspec::testing {
namespace {

// The norms the draft has run, by their weights. It runs three a row of a pass, and for a row that is only
// stored the first. Kernels are plain functions: there is one record.
std::vector<const float*>& Norms() {
  static std::vector<const float*> norms;
  return norms;
}

void RecordingNorm(const float* x, const float* w, int n, float eps, float* y) {
  Norms().push_back(w);
  kernels::Available().front()->rms_norm(x, w, n, eps, y);
}

struct Pass {
  int base = 0;
  std::vector<int> depths;  // of the rows
};

// A target that records its forward passes, and lends kernels that record the draft's.
class RecordingTarget final : public Target {
 public:
  explicit RecordingTarget(Target* real)
      : real_(real), parts_(*real->shared_parts()), table_(*parts_.lane.kernels) {
    table_.rms_norm = RecordingNorm;
    parts_.lane.kernels = &table_;
    Norms().clear();
  }

  int vocab_size() const override { return real_->vocab_size(); }
  int context_length() const override { return real_->context_length(); }
  const SharedParts* shared_parts() const override { return &parts_; }
  Result<TargetOutput> Forward(std::span<const ForwardSegment> segments) override {
    const ForwardSegment& segment = segments[0];
    Pass pass{.base = segment.kv->base(), .depths = {}};
    for (size_t i = 0; i < segment.tokens.size(); ++i) {
      const int parent = segment.parents.empty() ? static_cast<int>(i) - 1 : segment.parents[i];
      pass.depths.push_back(parent < 0 ? 0 : pass.depths[static_cast<size_t>(parent)] + 1);
    }
    passes.push_back(pass);
    return real_->Forward(segments);
  }

  std::vector<Pass> passes;

 private:
  Target* const real_;
  SharedParts parts_;
  kernels::KernelTable table_;
};

// Changes the trees of another drafter.
class ChangedTrees final : public Drafter {
 public:
  using Change = std::function<TokenTree(const TokenTree& tree, std::span<const int32_t> committed)>;
  // `n_more`: nodes a change may add.
  ChangedTrees(std::unique_ptr<Drafter> real, Change change, int n_more)
      : real_(std::move(real)), change_(std::move(change)), n_more_(n_more) {}

  std::string_view name() const override { return "changed"; }
  Status Follow(std::span<const int32_t> committed) override { return real_->Follow(committed); }
  Status Propose(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree) override {
    TokenTree proposed(committed.back());
    const Status status = real_->Propose(
        {.max_nodes = budget.max_nodes - n_more_, .max_depth = budget.max_depth}, committed, proposed);
    tree = change_(proposed, committed);
    return status;
  }
  Status Read(const CommittedRows& rows) override { return real_->Read(rows); }

 private:
  const std::unique_ptr<Drafter> real_;
  const Change change_;
  const int n_more_;
};

TokenTree Unchanged(const TokenTree& tree, std::span<const int32_t>) { return tree; }

struct RoundsText {
  std::vector<int32_t> tokens;
  std::vector<float> logits;
  std::vector<size_t> rounds;  // tokens of each
  bool operator==(const RoundsText& o) const {
    return tokens == o.tokens && rounds == o.rounds && logits.size() == o.logits.size() &&
           std::memcmp(logits.data(), o.logits.data(), logits.size() * sizeof(float)) == 0;
  }
};

class LongspecRoundsTest : public ::testing::Test {
 protected:
  static constexpr int kLikely = 8;  // tokens with a bias, so that a draft of these alone is often right

  LongspecRoundsTest() : draft_(WriteDraftFolder(folder_, tiny_.spec, RandomDraft(tiny_.spec, 64, 3))) {}

  void LikelyTokensOnly() {
    std::vector<int64_t> vocab;
    for (int64_t t = 0; t < kLikely; ++t) vocab.push_back(200 + t);
    WriteDraft(RandomDraft(tiny_.spec, 64, 3), draft_ + "/model.safetensors", "", DType::kF32, vocab);
  }

  SpeculationOptions Options(const std::string& type, int n_max = 68) const {
    SpeculationOptions options;
    options.type = type;
    options.draft_model = draft_;
    options.draft_n_max = n_max;
    return OnlyRead(options, type);
  }

  // Rounds until the text has n_predict tokens. `at_round(cache)` is called before each.
  RoundsText Generate(Target& target, const SpeculationOptions& options, const ChangedTrees::Change& change,
                      int n_prompt, int n_predict, int n_more = 0,
                      const std::function<void(const KvCache&)>& at_round = {}) {
    SamplingOptions sampling;
    sampling.temperature = 0.7F;
    sampling.seed = 11;
    for (int32_t t = 0; t < kLikely; ++t) sampling.logit_bias.emplace_back(200 + t, 9.0F);
    const auto sampler = Sampler::Create(sampling, tiny_.spec.n_vocab);
    EXPECT_TRUE(sampler.ok());
    const auto cache = tiny_.NewCache(n_prompt + n_predict + 100, CacheType::kF16);
    auto real = MakeDrafter(options, {.target = &target, .cache = cache.get(), .models = &models_});
    EXPECT_TRUE(real.ok()) << real.status().message();
    ChangedTrees drafter(std::move(*real), change, n_more);
    OneSequence decoder(&target, RandomTokens(n_prompt, 4), cache.get(), &drafter, MakeFixedPolicy(options),
                        *sampler);
    EXPECT_TRUE(decoder.Prefill().ok());
    RoundsText text;
    while (static_cast<int>(text.tokens.size()) < n_predict) {
      if (at_round) at_round(*cache);
      const auto step = decoder.Step(n_predict - static_cast<int>(text.tokens.size()));
      EXPECT_TRUE(step.ok()) << step.status().message();
      if (!step.ok()) break;
      text.rounds.push_back(step->tokens.size());
      for (size_t i = 0; i < step->tokens.size(); ++i) {
        text.tokens.push_back(step->tokens[i]);
        const auto row = testing::ValuesOf(step->logits[step->path[i]]);
        text.logits.insert(text.logits.end(), row.begin(), row.end());
      }
    }
    return text;
  }

  Folder folder_;
  TinyTarget tiny_;
  std::string draft_;
  DraftModels models_;
};

// The tree with other tokens: along the path to its last node the first n are those that come, all others are
// wrong.
TokenTree AcceptedFor(const TokenTree& tree, std::span<const int32_t> coming, size_t n) {
  TokenTree renamed(tree.node(0).token);
  const std::vector<int32_t> path = tree.PathTo(tree.size() - 1);
  for (int i = 1; i < tree.size(); ++i) {
    const TreeNode& node = tree.node(i);
    const auto level = static_cast<size_t>(node.depth);
    const bool is_right = level <= n && path[level] == i;
    const int32_t right = coming[level - 1];
    const int32_t wrong = 10 + i == right ? 9 : 10 + i;
    EXPECT_EQ(renamed.AddChild(node.parent, is_right ? right : wrong), i);
  }
  return renamed;
}

// Rows of each pass of the draft since the record was cleared, and in front of them the rows that were only
// stored.
std::vector<int> DraftRows(const LongspecModel& model) {
  std::vector<int> rows = {0};
  bool in_cross = false;
  for (const float* norm : Norms()) {
    if (norm == model.self_norm.data()) ++rows[0];
    if (norm == model.cross_norm.data()) {
      if (!in_cross) rows.push_back(0);
      ++rows.back();
      --rows[0];
    }
    in_cross = norm == model.cross_norm.data();
  }
  return rows;
}

// Behaviours 13 and 16. The released code keeps what was accepted pending until the next round: there, C rows
// are in all of the target's layers and D in the draft's, T = R in the target's last layer, and m tokens are
// pending, the root the last of them. Here a commit moves the accepted rows of all layers, so that T rows are
// in each, and the m pending tokens are those the draft has not stored when a round begins; of the prompt's
// 2001 tokens it has stored the window and the root.
TEST_F(LongspecRoundsTest, TheWorkedExampleOfTheSpecification) {
  const RoundsText plain = Generate(tiny_.target(), Options("none"), Unchanged, 2001, 30);
  RecordingTarget target(&tiny_.target());
  const auto model = models_.Learned<LongspecModel>(draft_, "", *target.shared_parts());
  ASSERT_TRUE(model.ok()) << model.status().message();

  const std::vector<size_t> accepted = {3, 3, 0, 5};
  size_t n_rounds = 0;
  const auto scripted = [&](const TokenTree& tree, std::span<const int32_t> committed) {
    EXPECT_EQ(tree.size(), 69);
    return AcceptedFor(tree, std::span(plain.tokens).subspan(committed.size() - 2001),
                       accepted[n_rounds - 1]);
  };
  const std::vector<int> roots = {2000, 2004, 2008, 2009, 2015};
  const std::vector<int> stored = {512 + 1, 4, 4, 1};  // m, and the window of the first
  const auto check_last_round = [&] {
    const size_t i = n_rounds - 1;
    std::vector<int> draft = {stored[i], 1, 4, 16, 16, 16};  // level 5 is never run
    EXPECT_EQ(DraftRows(**model), draft) << i;
    ASSERT_EQ(target.passes.size(), 1U);
    EXPECT_EQ(target.passes[0].base, roots[i]);
    std::vector<int> depths = {0};
    for (const int width : {4, 16, 16, 16, 16})
      depths.insert(depths.end(), static_cast<size_t>(width), depths.back() + 1);
    EXPECT_EQ(target.passes[0].depths, depths);
  };
  const RoundsText text =
      Generate(target, Options("longspec"), scripted, 2001, 15, 0, [&](const KvCache& cache) {
        ASSERT_LT(n_rounds, accepted.size());
        EXPECT_EQ(cache.length(), roots[n_rounds]);  // T = R
        if (n_rounds > 0) {
          check_last_round();
          Norms().clear();
        }
        target.passes.clear();
        ++n_rounds;
      });
  check_last_round();
  EXPECT_EQ(text.rounds, (std::vector<size_t>{4, 4, 1, 6}));  // a + 1 each
  EXPECT_EQ(text.tokens, std::vector<int32_t>(plain.tokens.begin(), plain.tokens.begin() + 15));
  EXPECT_EQ(std::memcmp(text.logits.data(), plain.logits.data(), text.logits.size() * sizeof(float)), 0);
}

// Level by level, but each level backwards.
TokenTree Reversed(const TokenTree& tree, std::span<const int32_t>) {
  TokenTree reversed(tree.node(0).token);
  std::vector<int> placed(static_cast<size_t>(tree.size()), 0);
  for (int depth = 1; depth <= tree.max_depth(); ++depth) {
    for (int i = tree.size() - 1; i > 0; --i) {
      const TreeNode& node = tree.node(i);
      if (node.depth == depth) {
        placed[static_cast<size_t>(i)] =
            reversed.AddChild(placed[static_cast<size_t>(node.parent)], node.token);
      }
    }
  }
  return reversed;
}

// Before each node a sibling that cannot be right.
TokenTree Padded(const TokenTree& tree, std::span<const int32_t>) {
  TokenTree padded(tree.node(0).token);
  std::vector<int> placed = {0};
  for (int i = 1; i < tree.size(); ++i) {
    const int parent = placed[static_cast<size_t>(tree.node(i).parent)];
    padded.AddChild(parent, 10 + i);
    placed.push_back(padded.AddChild(parent, tree.node(i).token));
  }
  return padded;
}

// Behaviour 20: rows that nothing is accepted from may lie anywhere, and there may be any number of them.
TEST_F(LongspecRoundsTest, UnusedRowsChangeNothingThatIsAccepted) {
  LikelyTokensOnly();
  const auto generate = [&](const ChangedTrees::Change& change) {
    return Generate(tiny_.target(), Options("longspec", 60), change, 300, 60, 30);
  };
  const RoundsText text = generate(Unchanged);
  EXPECT_LT(text.rounds.size(), 45U);  // else little was accepted
  EXPECT_EQ(generate(Reversed), text);
  EXPECT_EQ(generate(Padded), text);
}

}  // namespace
}  // namespace longspec::testing
