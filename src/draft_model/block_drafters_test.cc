// SPDX-License-Identifier: Apache-2.0
//
// The drafters exit, beagle and medusa: trees against their specifications' naive passes, what is remembered
// of prompts, rounds and rewinds, and the real loop, whose text is that of plain decoding to the bit. Of
// tokenswift the last; the rest is in tokenswift_drafter_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "base/size.h"
#include "decode/batch_decoder.h"
#include "decode/testing/one_sequence.h"
#include "draft/drafter_entry.h"
#include "draft/testing/trees.h"
#include "draft_model/draft_models.h"
#include "draft_model/option_use.h"
#include "draft_model/registry.h"
#include "draft_model/testing/batch_sequence.h"
#include "draft_model/testing/block_drafts.h"
#include "draft_model/testing/tree_search.h"
#include "policy/policy.h"
#include "sampling/sampler.h"
#include "sampling/testing/values_of.h"
#include "sampling/top_tokens.h"
#include "tensor/testing/values_of.h"

namespace longspec::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kExitLayer = 1, kMedusaHeads = 3;
constexpr char kExitConfig[] = ", \"longspec_exit_layer\": 1";

// The variant of exit that reads final states too.
constexpr char kExitOfFinal[] = "exit_of_final";

// A draft in a folder of its own, for a target of four layers.
struct Draft {
  explicit Draft(const std::string& of_kind, const std::vector<int64_t>& of_head = {},
                 const std::string& more = "", bool with_extras = false, int threads = 1)
      : kind(of_kind == kExitOfFinal ? "exit" : of_kind),
        reads_feature(of_kind == kExitOfFinal),
        vocab(of_head),
        tiny({.n_layers = 4}, {}, threads) {
    heads.bias = with_extras;
    if (kind == "exit") tensors = RandomExit(tiny.spec, heads, 9, reads_feature);
    if (kind == "beagle") tensors = RandomBeagle(tiny.spec, heads, 9, with_extras);
    if (kind == "medusa") {
      tensors =
          RandomMedusa(tiny.spec, kMedusaHeads, 9, with_extras ? std::vector<int>{0, 2} : std::vector<int>());
    }
    if (kind == "tokenswift") tensors = RandomTokenswift(tiny.spec, kMedusaHeads, 9);
    path = WriteBlockDraft(folder, kind, tiny.spec, tensors, heads, vocab,
                           (kind == "exit" ? kExitConfig : "") + more);
  }

  SpeculationOptions Options(const std::string& tree, int n_max = 24) const {
    SpeculationOptions options;
    options.type = kind;
    options.draft_model = path;
    options.draft_weights = "f32";
    options.tree = tree;
    options.draft_n_max = n_max;
    // tokenswift: so small a part that it is chosen again and again.
    options.partial.sink = 0;
    options.partial.budget = 16;
    options.partial.window = 8;
    options.partial.refresh = 6;
    return OnlyRead(options, kind);
  }

  std::string kind;
  bool reads_feature;
  std::vector<int64_t> vocab;  // of the head; empty: all
  Folder folder;
  TinyTarget tiny;
  OwnHeads heads;
  DraftTensors tensors;
  std::string path;
};

// A sequence whose target's cache holds all but its last token, and a drafter that reads along.
class Scene {
 public:
  explicit Scene(Draft* draft, const std::string& tree = "", DraftModels* models = nullptr)
      : d_(*draft), cache_(d_.tiny.NewCache(1000)), options_(d_.Options(tree)) {
    auto made = MakeDrafter(options_, {.target = &d_.tiny.target(), .cache = cache_.get(), .models = models});
    EXPECT_TRUE(made.ok()) << made.status().message();
    drafter_ = std::move(*made);
    auto sampler = Sampler::Create({.seed = 1}, d_.tiny.spec.n_vocab);
    EXPECT_TRUE(sampler.ok()) << sampler.status().message();
    sampler_.emplace(std::move(*sampler));
  }

  // Computes what is missing, so many rows at a time. The drafter reads it, and follows what is there.
  void Compute(const std::vector<int32_t>& tokens, int chunk = 512) {
    committed_ = tokens;
    OneSequence decoder(&d_.tiny.target(), tokens, cache_.get(), drafter_.get(), MakeFixedPolicy(options_),
                        *sampler_, chunk);
    const Status status = decoder.Prefill();
    EXPECT_TRUE(status.ok()) << status.message();
  }
  // Computed by others.
  void ComputeUnread(const std::vector<int32_t>& tokens) {
    d_.tiny.Evaluate(std::span(tokens).subspan(Z(cache_->length())), *cache_);
  }

  TokenTree Propose(int max_nodes = 12, int max_depth = 6) {
    TokenTree tree(committed_.back());
    const Status status =
        drafter_->Propose({.max_nodes = max_nodes, .max_depth = max_depth}, committed_, tree);
    EXPECT_TRUE(status.ok()) << status.message();
    return tree;
  }

  // What the specification says comes after a path below the last token, if it began to read at `begin`.
  Next Specified(int begin = 0, bool concat = true) {
    if (d_.kind == "exit") {
      // What reads final states does not see the first that it reads, which has none before it.
      std::set<int> unseen;
      for (int i = 0; i < begin + (d_.reads_feature ? 1 : 0); ++i) unseen.insert(i);
      return SpecifiedExit(unseen);
    }
    return [this, begin, concat](const Path& path) {
      const BlockReference reference(d_.tensors, d_.heads, d_.tiny.parts());
      std::vector<int32_t> tokens = committed_;
      const int root = static_cast<int>(tokens.size()) - 1;
      tokens.pop_back();
      std::vector<Vec> states = StatesOf(d_.tiny, tokens, -1);
      if (d_.kind == "medusa") return LogProbs(reference.Medusa(states.back(), path.size()));
      states.erase(states.begin(), states.begin() + begin);
      Vec state = reference.BeagleState(committed_.back(), root, states, begin);
      for (size_t i = 0; i < path.size(); ++i) {
        if (concat) states.push_back(state);
        state = reference.BeagleState(path[i], root + 1 + static_cast<int>(i), states, begin);
      }
      return LogProbs(reference.Head(state));
    };
  }

  // The same of exit, with states of these positions missing.
  Next SpecifiedExit(const std::set<int>& unseen) {
    return [this, unseen](const Path& path) {
      std::vector<int32_t> tokens = committed_;
      tokens.pop_back();
      const std::vector<Vec> finals = StatesOf(d_.tiny, tokens, -1);
      tokens.push_back(committed_.back());
      tokens.insert(tokens.end(), path.begin(), path.end());
      const BlockReference reference(d_.tensors, d_.heads, d_.tiny.parts());
      return LogProbs(reference.Exit(StatesOf(d_.tiny, tokens, kExitLayer), finals, unseen));
    };
  }

  Drafter& drafter() { return *drafter_; }
  KvCache& cache() { return *cache_; }
  const std::vector<int32_t>& committed() const { return committed_; }

 private:
  Vec LogProbs(Vec logits) const {
    for (size_t t = 0; t < logits.size() && !d_.vocab.empty(); ++t) {
      if (std::ranges::find(d_.vocab, static_cast<int64_t>(t)) == d_.vocab.end()) logits[t] = -1e300;
    }
    return LogSoftmax(logits);
  }

  Draft& d_;
  std::unique_ptr<KvCache> cache_;
  SpeculationOptions options_;
  std::unique_ptr<Drafter> drafter_;
  std::optional<Sampler> sampler_;
  std::vector<int32_t> committed_;
};

constexpr int kLikely = 8;  // tokens with a bias, so that a draft of these alone is often right

std::vector<int64_t> LikelyTokens() {
  std::vector<int64_t> tokens;
  for (int64_t t = 0; t < kLikely; ++t) tokens.push_back(200 + t);
  return tokens;
}

void ExpectSameTree(const TokenTree& a, const TokenTree& b) {
  ASSERT_EQ(a.size(), b.size());
  for (int i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a.node(i).token, b.node(i).token) << i;
    EXPECT_EQ(a.node(i).parent, b.node(i).parent) << i;
    EXPECT_EQ(a.node(i).score, b.node(i).score) << i;  // the same bits
  }
}

class BlockDrafter : public ::testing::TestWithParam<const char*> {
 protected:
  bool is(const std::string& kind) const { return GetParam() == kind || (kind == "exit" && reads_final()); }
  bool reads_final() const { return std::strcmp(GetParam(), kExitOfFinal) == 0; }
};

INSTANTIATE_TEST_SUITE_P(Kinds, BlockDrafter, ::testing::Values("exit", kExitOfFinal, "beagle", "medusa"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST_P(BlockDrafter, ItsTreesAreThoseOfItsSpecification) {
  std::vector<int64_t> some;
  for (int64_t t = 3; t < 384; t += 5) some.push_back(t);
  for (const bool reduced : {false, true}) {
    Draft draft(GetParam(), reduced ? some : std::vector<int64_t>(), "", /*with_extras=*/reduced);
    if (reduced && is("medusa")) draft.vocab = {};  // two of its heads have a matrix of their own
    for (const int n : {20, 270}) {
      if (reduced && (n > 100 || is("medusa"))) continue;
      SCOPED_TRACE(std::to_string(n) + (reduced ? " tokens, reduced head" : " tokens"));
      Scene beam(&draft, "4,3,2"), best(&draft, "best");
      beam.Compute(RandomTokens(n, 4));
      best.Compute(RandomTokens(n, 4));
      ExpectTree(beam.Propose(9), BeamSearch(beam.Specified(), {4, 3, 2}));
      ExpectTree(best.Propose(10, 3), BestFirstSearch(best.Specified(), 10, 3));
    }
  }
}

// OPT-Tree stops by a level's worth, or by its depth; EAGLE-2 has k children of each of k nodes.
TEST_P(BlockDrafter, TreesOfOtherMethodsAreTheirSpecifications) {
  Draft draft(GetParam(), LikelyTokens());
  const auto propose_and_compare = [&](const char* tree, int max_nodes, const auto& specified) {
    SCOPED_TRACE(tree);
    Scene scene(&draft, tree);
    scene.Compute(RandomTokens(20, 4));
    return ExpectTreeOf(specified, scene, max_nodes, kMedusaHeads);
  };
  const auto opt = [](double threshold, int max_depth) {
    return [=](const Next& next) { return OptTreeSearch(next, 8, threshold, max_depth); };
  };
  EXPECT_EQ(propose_and_compare("opt:8", 8, opt(8, 4)), 1);
  EXPECT_GE(propose_and_compare("opt:-1:4", 8, opt(-1, 4)), 2);
  EXPECT_EQ(propose_and_compare("opt:-1:3", 8, opt(-1, 3)), 2);
  EXPECT_GE(propose_and_compare("opt:0.1:4", 8, opt(0.1, 4)), 2);
  for (const size_t n : {5, 18}) {  // the budget, or of its own
    const auto eagle2 = [n](const Next& next) { return Eagle2Search(next, 4, 2, n); };
    EXPECT_GE(propose_and_compare("eagle2:4:2:18", n < 18 ? static_cast<int>(n) : 30, eagle2), 2);
  }
}

TEST(Medusa, HeadsMayHaveAMatrixOfTheirOwn) {
  Draft draft("medusa", {}, ", \"medusa_num_heads\": 3, \"medusa_num_layers\": 1", /*with_extras=*/true);
  Scene scene(&draft, "best");
  scene.Compute(RandomTokens(20, 4));
  ExpectTree(scene.Propose(10, 3), BestFirstSearch(scene.Specified(), 10, 3));
}

// Prompts in chunks of any size, and rounds, leave the same bits.
TEST_P(BlockDrafter, WhatItReadsDoesNotDependOnHowItCame) {
  Draft draft(GetParam());
  const std::vector<int32_t> tokens = RandomTokens(300, 4);
  Scene whole(&draft);
  whole.Compute(tokens);
  const TokenTree expected = whole.Propose();
  ASSERT_EQ(expected.size(), 13);
  for (const int chunk : {1, 7, 40}) {
    Scene scene(&draft);
    scene.Compute(tokens, chunk);
    ExpectSameTree(scene.Propose(), expected);
  }
}

TEST_P(BlockDrafter, FollowsRewindsAndOtherTexts) {
  if (reads_final()) GTEST_SKIP() << "it lacks the state before what is computed anew";
  Draft draft(GetParam());
  std::vector<int32_t> tokens = RandomTokens(100, 4), other = RandomTokens(80, 5);
  std::copy_n(tokens.begin(), 50, other.begin());
  Scene scene(&draft);
  scene.Compute(tokens);
  scene.Propose();
  for (const auto& text : {std::vector(tokens.begin(), tokens.begin() + 60), other, tokens}) {
    size_t same = 0;  // what the target's cache keeps
    while (same < text.size() && same < scene.committed().size() && text[same] == scene.committed()[same])
      ++same;
    scene.cache().Truncate(
        std::min(scene.cache().length(), static_cast<int>(std::min(same, text.size() - 1))));
    scene.Compute(text);
    Scene fresh(&draft);
    fresh.Compute(text);
    const TokenTree proposed = scene.Propose(), expected = fresh.Propose();
    if (is("medusa") && proposed.size() == 1) continue;  // it was rewound to a state that it had forgotten
    ExpectSameTree(proposed, expected);
  }
}

// Final states are not kept: the first position after a rewind is left out, and a text that is only cut gets
// its next draft after another token.
TEST(ExitOfFinal, LeavesOutWhatComesAfterAStateThatItLacks) {
  Draft draft(kExitOfFinal);
  std::vector<int32_t> tokens = RandomTokens(100, 4), other = RandomTokens(80, 5);
  std::copy_n(tokens.begin(), 50, other.begin());
  Scene scene(&draft, "4,3,2");
  scene.Compute(tokens);
  EXPECT_EQ(scene.Propose(9).size(), 10);
  scene.cache().Truncate(59);
  scene.Compute({tokens.begin(), tokens.begin() + 60});
  EXPECT_EQ(scene.Propose(9).size(), 1);
  scene.cache().Truncate(50);
  scene.Compute(other);
  ExpectTree(scene.Propose(9), BeamSearch(scene.SpecifiedExit({0, 50}), {4, 3, 2}));
  // From the beginning nothing is missing.
  scene.cache().Truncate(0);
  scene.Compute(tokens);
  ExpectTree(scene.Propose(9), BeamSearch(scene.Specified(), {4, 3, 2}));
}

// A conversation that was cleared: its session is saved, or goes on with another text.
TEST_P(BlockDrafter, FollowsNothing) {
  Draft draft(GetParam());
  Scene scene(&draft), fresh(&draft);
  scene.Compute(RandomTokens(60, 4));
  ASSERT_TRUE(scene.drafter().Follow({}).ok());
  scene.cache().Truncate(0);
  const std::vector<int32_t> other = RandomTokens(50, 5);
  scene.Compute(other);
  fresh.Compute(other);
  ExpectSameTree(scene.Propose(), fresh.Propose());
}

// Where the model's levels end, its adviser goes on: copied text is as deep a guess as without the model.
TEST(BlockDrafters, BesidePpmTreesAreDeeperThanTheModel) {
  const std::vector<int32_t> line = RandomTokens(30, 4);
  std::vector<int32_t> text;
  for (int i = 0; i < 5; ++i) text.insert(text.end(), line.begin(), line.end());
  text.resize(text.size() - 10);
  for (const char* kind : {"medusa", "exit"}) {
    Draft draft(kind);
    draft.kind = std::string("ppm,") + kind;
    Scene scene(&draft);
    scene.Compute(text);
    EXPECT_GT(scene.Propose(16, 16).max_depth(), 10) << kind;
  }
}

// Heads that kernels have no room for, or whose width is none of a row of weights.
TEST(BlockDrafters, HeadsThatCannotBeComputedAreRefused) {
  for (const char* heads :
       {", \"num_attention_heads\": 8, \"num_key_value_heads\": 1, \"head_dim\": 1024",
        ", \"num_attention_heads\": 3, \"num_key_value_heads\": 3, \"head_dim\": 16",
        ", \"num_attention_heads\": 268435712, \"num_key_value_heads\": 1, \"head_dim\": 16",
        ", \"num_attention_heads\": 3, \"num_key_value_heads\": 2, \"head_dim\": 32"}) {
    Draft draft("exit", {}, heads);
    const auto cache = draft.tiny.NewCache(100);
    const auto made = MakeDrafter(draft.Options(""), {.target = &draft.tiny.target(), .cache = cache.get()});
    EXPECT_EQ(made.status().code(), StatusCode::kUnsupported) << heads;
    EXPECT_THAT(made.status().message(), AllOf(HasSubstr(draft.path), HasSubstr("heads"))) << heads;
  }
}

// A beginning that another sequence has computed is not read.
TEST_P(BlockDrafter, DraftsWithWhatItHasRead) {
  Draft draft(GetParam());
  const std::vector<int32_t> tokens = RandomTokens(60, 4);
  Scene scene(&draft, "best");
  scene.ComputeUnread({tokens.begin(), tokens.begin() + 40});
  scene.Compute(tokens);
  ExpectTree(scene.Propose(10, 3), BestFirstSearch(scene.Specified(40), 10, 3));
  const bool is_late = !is("medusa");
  const char* missing = reads_final() ? "41 of 59 positions" : "40 of 59 positions";
  EXPECT_EQ(scene.drafter().notice().find(missing) != std::string::npos, is_late);
  Scene nothing(&draft, "best");
  nothing.ComputeUnread({tokens.begin(), tokens.begin() + 59});
  nothing.Compute(tokens);
  EXPECT_EQ(nothing.Propose().size() > 1, !is("medusa") && !reads_final());
}

// What one has read another one finds, also when the first is gone.
TEST_P(BlockDrafter, ABeginningThatAnotherReadIsKnown) {
  if (is("medusa")) GTEST_SKIP() << "keeps one state";
  Draft draft(GetParam());
  DraftModels models;
  models.KeepKeys({.context = 10});
  const std::vector<int32_t> tokens = RandomTokens(300, 4);
  {
    Scene first(&draft, "", &models);
    first.Compute(tokens, 90);
  }
  for (const size_t common : {299, 256, 100}) {
    std::vector<int32_t> text(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(common));
    Scene second(&draft, reads_final() ? "best" : "", &models), fresh(&draft);
    second.ComputeUnread(text);
    text.insert(text.end(), {5, 6, 7, 8});
    second.Compute(text);
    EXPECT_EQ(second.drafter().notice(), "");
    if (reads_final()) {  // what comes next has no state before it
      const auto hole = static_cast<int>(common);
      ExpectTree(second.Propose(10, 3), BestFirstSearch(second.SpecifiedExit({0, hole}), 10, 3));
      continue;
    }
    fresh.Compute(text);
    ExpectSameTree(second.Propose(), fresh.Propose());
  }
}

TEST_P(BlockDrafter, StopsWhereItsTrainingDid) {
  Draft draft(GetParam(), {}, ", \"longspec_trained_positions\": 32");
  Scene scene(&draft, "chain");
  scene.Compute(RandomTokens(31, 4));
  const bool has_positions = !is("medusa");
  EXPECT_EQ(scene.Propose().max_depth(), has_positions ? 2 : kMedusaHeads);
  EXPECT_EQ(scene.drafter().notice(), "");
  scene.Compute(RandomTokens(33, 4));
  EXPECT_EQ(scene.Propose().size() == 1, has_positions);
  EXPECT_EQ(scene.drafter().notice().find("trained for 32 positions") != std::string::npos, has_positions);
}

// --- The real loop. ---

// Asks the target twice, the second time without what drafts ran of it, and compares.
class DoubtingTarget final : public Target {
 public:
  explicit DoubtingTarget(Target* real) : real_(real) {}

  int vocab_size() const override { return real_->vocab_size(); }
  int context_length() const override { return real_->context_length(); }
  const SharedParts* shared_parts() const override { return real_->shared_parts(); }
  Status RunPrefix(std::span<const PrefixSegment> segments) override {
    for (const PrefixSegment& segment : segments) n_ahead += static_cast<int>(segment.tokens.size());
    return real_->RunPrefix(segments);
  }
  Result<TargetOutput> Forward(std::span<const ForwardSegment> segments) override {
    std::vector<ForwardSegment> bare(segments.begin(), segments.end());
    for (ForwardSegment& segment : bare) {
      n_with_prefix += segment.prefix != nullptr ? 1 : 0;
      segment.prefix = nullptr;
    }
    const auto expected = real_->Forward(bare);
    if (!expected.ok()) return expected;
    std::vector<std::vector<float>> logits, states;
    for (size_t s = 0; s < segments.size(); ++s) {
      const TargetOutput::Segment& out = expected->segments[s];
      logits.emplace_back();
      for (int i = 0; i < out.logits.size(); ++i) {
        const auto row = testing::ValuesOf(out.logits[i]);
        logits.back().insert(logits.back().end(), row.begin(), row.end());
      }
      states.emplace_back();
      for (const StateRows& hidden : out.hidden) states.back() = testing::ValuesOf(hidden);
    }
    auto output = real_->Forward(segments);
    for (size_t s = 0; s < segments.size() && output.ok(); ++s) {
      const TargetOutput::Segment& out = output->segments[s];
      const auto same = [](const float* a, const std::vector<float>& b) {
        return b.empty() || std::memcmp(a, b.data(), b.size() * sizeof(float)) == 0;
      };
      if (out.logits.size() > 0) {
        EXPECT_TRUE(same(testing::ValuesOf(out.logits[0]).data(), logits[s]));
      }
      if (!out.hidden.empty()) {
        EXPECT_TRUE(same(testing::ValuesOf(out.hidden[0]).data(), states[s]));
      }
    }
    return output;
  }

  int n_ahead = 0, n_with_prefix = 0;

 private:
  Target* const real_;
};

Sampler SamplerAt(float temperature, int vocab) {
  SamplingOptions sampling;
  sampling.temperature = temperature;
  sampling.seed = 11;
  for (int32_t t = 0; t < kLikely; ++t) sampling.logit_bias.emplace_back(200 + t, 9.0F);
  return *Sampler::Create(sampling, vocab);
}

// Sequences of their own lengths, in one batch, to so many tokens each.
struct Batch {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<int64_t> accepted;
  std::vector<DecodeStats> stats;
};

Batch Generate(Draft& draft, Target& target, const SpeculationOptions& options, float temperature,
               int n_sequences, int n_predict) {
  struct One : BatchSequence {
    using BatchSequence::BatchSequence;
    size_t end = 0;
  };
  std::vector<std::unique_ptr<One>> all;
  for (int i = 0; i < n_sequences; ++i) {
    all.push_back(std::make_unique<One>(&target, draft.tiny.NewCache(500, CacheType::kF16), options, nullptr,
                                        SamplerAt(temperature, draft.tiny.spec.n_vocab),
                                        RandomTokens(20 + 100 * i, 4 + Z(i))));
    all.back()->end = all.back()->tokens.size() + Z(n_predict);
  }
  BatchDecoder decoder(&target);
  for (bool done = false; !done;) {
    std::vector<Turn> turns;
    for (const auto& one : all) {
      if (one->tokens.size() >= one->end) continue;
      const int missing = one->sequence.n_missing();
      turns.push_back({.sequence = &one->sequence,
                       .max_rows = missing > 1 ? std::min(missing - 1, 64) : 1,
                       .max_tokens = static_cast<int>(one->end - one->tokens.size())});
    }
    done = turns.empty();
    if (done) break;
    const Status status = decoder.Run(turns);
    EXPECT_TRUE(status.ok()) << status.message();
    for (const Turn& turn : turns) EXPECT_TRUE(turn.status.ok()) << turn.status.message();
    if (!status.ok()) break;
  }
  Batch batch;
  for (const auto& one : all) {
    EXPECT_EQ(one->sequence.draft_failure, "");
    batch.tokens.push_back(one->tokens);
    batch.accepted.push_back(one->sequence.stats.accepted);
    batch.stats.push_back(one->sequence.stats);
  }
  return batch;
}

class EveryHead : public BlockDrafter {};
INSTANTIATE_TEST_SUITE_P(Kinds, EveryHead,
                         ::testing::Values("exit", kExitOfFinal, "beagle", "medusa", "tokenswift"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST_P(EveryHead, TheTextIsThatOfPlainDecodingInBatchesToo) {
  Draft one(GetParam(), LikelyTokens()), two(GetParam(), LikelyTokens(), "", false, /*threads=*/2);
  SpeculationOptions none;
  none.type = "none";
  int64_t accepted = 0;
  for (const float temperature : {0.0F, 0.7F, 1.0F}) {
    const Batch plain = Generate(one, one.tiny.target(), none, temperature, 3, 40);
    const auto expect_the_same = [&](Draft& draft, const char* tree) {
      SCOPED_TRACE(std::string(tree) + " at " + std::to_string(temperature));
      DoubtingTarget target(&draft.tiny.target());
      const Batch drafted = Generate(draft, target, draft.Options(tree), temperature, 3, 40);
      EXPECT_EQ(drafted.tokens, plain.tokens);
      for (const int64_t n : drafted.accepted) accepted += n;
      EXPECT_EQ(target.n_with_prefix > 20, is("exit"));
      EXPECT_EQ(target.n_ahead > 40, is("exit"));
    };
    for (const char* tree : {"chain", "4,6,6,4", "best", "opt:0.1", "eagle2:4:3:20"})
      expect_the_same(one, tree);
    if (temperature == 0.7F) expect_the_same(two, "4,6,6,4");
  }
  EXPECT_GT(accepted, 100);  // else nothing was tested
}

// One that is never right: a token a round exactly, and still the same text.
TEST_P(BlockDrafter, AlwaysWrongItIsOneTokenARound) {
  Draft draft(GetParam(), {5, 6, 7});
  SpeculationOptions none;
  none.type = "none";
  for (const float temperature : {0.0F, 0.7F}) {
    const Batch plain = Generate(draft, draft.tiny.target(), none, temperature, 1, 30);
    for (const char* tree : {"chain", "3,9"}) {
      const Batch drafted = Generate(draft, draft.tiny.target(), draft.Options(tree, 12), temperature, 1, 30);
      EXPECT_EQ(drafted.tokens, plain.tokens);
      EXPECT_GT(drafted.stats[0].drafted, 30);
      EXPECT_EQ(drafted.stats[0].accepted, 0);
      EXPECT_EQ(drafted.stats[0].steps, 30);
    }
  }
}

// After rounds with guesses that were taken and guesses that were not, it knows what one knows that has read
// the text.
TEST_P(BlockDrafter, RoundsLeaveStatesOfTheTargetAlone) {
  Draft draft(GetParam(), LikelyTokens());
  const Batch text = Generate(draft, draft.tiny.target(), draft.Options("4,4,4"), 0.7F, 1, 60);
  Scene fresh(&draft, "4,4,4");
  fresh.Compute(text.tokens[0]);
  // The same sequence by rounds, and then a proposal of the drafter that took part in them.
  const Sampler sampler = SamplerAt(0.7F, draft.tiny.spec.n_vocab);
  const auto cache = draft.tiny.NewCache(500);
  const SpeculationOptions options = draft.Options("4,4,4");
  const auto drafter = *MakeDrafter(options, {.target = &draft.tiny.target(), .cache = cache.get()});
  OneSequence decoder(&draft.tiny.target(), RandomTokens(20, 4), cache.get(), drafter.get(),
                      MakeFixedPolicy(options), sampler);
  const std::vector<int32_t>& committed = decoder.tokens();
  ASSERT_TRUE(decoder.Prefill().ok());
  while (committed.size() < 80) ASSERT_TRUE(decoder.Step(80 - static_cast<int>(committed.size())).ok());
  EXPECT_GT(decoder.stats().accepted, 5);
  EXPECT_GT(decoder.stats().drafted, decoder.stats().accepted);
  fresh.Compute(committed);
  TokenTree tree(committed.back());
  ASSERT_TRUE(drafter->Propose({.max_nodes = 12, .max_depth = 6}, committed, tree).ok());
  ExpectSameTree(tree, fresh.Propose());
}

// --- Medusa. ---

// Behaviour 3 of its list: zero heads give what the model itself says at that position, bit for bit.
TEST(Medusa, HeadsOfZerosAreTheModelsOwn) {
  Draft draft("medusa");
  for (auto& [name, tensor] : draft.tensors.tensors) std::ranges::fill(tensor.values, 0.0F);
  WriteDraft(draft.tensors, draft.path + "/model.safetensors");
  Scene scene(&draft, "4,2,2");
  const std::vector<int32_t> tokens = RandomTokens(20, 4);
  scene.Compute(tokens);
  const TokenTree tree = scene.Propose(8);
  const auto cache = draft.tiny.NewCache(100);
  auto rows = cache->Begin(19);
  const ForwardSegment segment = {
      .tokens = std::span(tokens).first(19), .kv = &*rows, .logits = LogitsFor::kLastRow};
  const auto output = draft.tiny.target().Forward({&segment, 1});
  ASSERT_TRUE(output.ok());
  std::vector<TokenScore> expected;
  TopTokens(*draft.tiny.parts().lane.kernels, testing::ValuesOf(output->segments[0].logits[0]).data(),
            output->vocab, 4, {}, expected);
  int child = tree.node(0).first_child;
  for (const TokenScore& one : expected) {
    ASSERT_GE(child, 0);
    EXPECT_EQ(tree.node(child).token, one.token);
    EXPECT_EQ(tree.node(child).score, static_cast<float>(std::exp(one.log_prob)));
    child = tree.node(child).next_sibling;
  }
  // And so on every level: children do not depend on their parent.
  EXPECT_EQ(tree.node(5).token, expected[0].token);
}

TEST(Medusa, ItsOwnTreeHas63Nodes) {
  Draft draft("medusa");
  draft.tensors = RandomMedusa(draft.tiny.spec, 5, 9);
  WriteDraft(draft.tensors, draft.path + "/model.safetensors");
  Scene scene(&draft, "medusa");
  scene.Compute(RandomTokens(20, 4));
  const TokenTree tree = scene.Propose(100, 10);
  EXPECT_EQ(tree.size(), 64);
  EXPECT_EQ(tree.max_depth(), 4);
  std::vector<int> levels(5, 0);
  for (const TreeNode& node : tree.nodes()) ++levels[Z(node.depth)];
  EXPECT_THAT(levels, ::testing::ElementsAre(1, 10, 28, 23, 2));
}

// --- What does not fit. ---

std::string Refusal(const std::string& kind, const std::string& more, const DraftTensors* tensors = nullptr) {
  Draft draft(kind, {}, more);
  if (tensors != nullptr) WriteDraft(*tensors, draft.path + "/model.safetensors");
  const auto cache = draft.tiny.NewCache(100);
  const auto made = MakeDrafter(draft.Options(""), {.target = &draft.tiny.target(), .cache = cache.get()});
  EXPECT_FALSE(made.ok());
  return made.ok() ? "" : made.status().message();
}

TEST(BlockDrafts, WhatDoesNotFitIsRefused) {
  EXPECT_THAT(Refusal("exit", ", \"longspec_exit_layer\": 4"),
              AllOf(HasSubstr("does not fit the target"), HasSubstr("after layer 4"), HasSubstr("4 layers")));
  EXPECT_THAT(Refusal("exit", ", \"longspec_exit_layer\": null"), HasSubstr("longspec_exit_layer"));
  DraftTensors wide = RandomExit({.n_embd = 64}, {}, 1);
  TensorMaker(&wide, 1).AddMatrix("feature.weight", 128, 64);
  EXPECT_THAT(Refusal("exit", "", &wide), HasSubstr("feature.weight"));
  EXPECT_THAT(Refusal("beagle", ", \"kv_norm\": true"),
              AllOf(HasSubstr("kv_norm"), HasSubstr("kv_layernorm")));
  EXPECT_THAT(Refusal("medusa", ", \"medusa_num_layers\": 2"), HasSubstr("medusa_num_layers"));
  EXPECT_THAT(Refusal("medusa", ", \"medusa_num_heads\": 5"), AllOf(HasSubstr("is 5"), HasSubstr("of 3")));
  for (const char* kind : {"exit", "beagle", "medusa"}) {
    EXPECT_THAT(Refusal(kind, ", \"hidden_size\": 32"), HasSubstr("hidden size 32, the target has 64"))
        << kind;
  }
  const DraftTensors narrow = RandomMedusa({.n_embd = 32, .n_vocab = 384}, 2, 1);
  EXPECT_THAT(Refusal("medusa", "", &narrow), HasSubstr("medusa_head.0.0.linear.weight"));
}

TEST_P(BlockDrafter, TakesNoMoreMemoryThanWasPlanned) {
  Draft draft(GetParam());
  const Folder folder;
  ASSERT_TRUE(WriteTinyModel({.n_layers = 4}, folder.File("target.gguf")).ok());
  const auto file = *GgufFile::Open(folder.File("target.gguf"));
  const TargetFacts target = {.file = *file,
                              .sizes = draft.tiny.spec,
                              .cache = draft.tiny.spec.kv_layout(CacheType::kF32, CacheType::kF32)};
  DraftFiles files;
  const auto plan = PlanDraftMemory(draft.Options(""), target, files);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->kv_chunk > 0, !is("medusa"));
  Scene scene(&draft, "8");
  scene.Compute(RandomTokens(300, 4));
  scene.Propose(60, 6);
  uint64_t weights = 0;
  for (const auto& [name, tensor] : draft.tensors.tensors) weights += tensor.values.size() * sizeof(float);
  EXPECT_EQ(plan->with_target > 0, is("exit"));
  EXPECT_GE(plan->fixed + plan->with_target + 2 * plan->kv_chunk + (is("medusa") ? 16 << 10 : 4 << 10),
            weights * 9 / 10 + scene.drafter().bytes());
}

}  // namespace
}  // namespace longspec::testing
