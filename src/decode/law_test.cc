// SPDX-License-Identifier: Apache-2.0
//
// Level B of a test of losslessness: the joint law of the first three tokens, through the real loop, against
// the law computed from the toy language directly.
#include <gtest/gtest.h>

#include <cmath>

#include "decode/testing/generate.h"
#include "decode/testing/tree_drafter.h"
#include "draft_model/registry.h"
#include "verify/testing/chi_square.h"

namespace longspec::testing {
namespace {

constexpr int kVocab = 5;
constexpr int kCells = kVocab * kVocab * kVocab;
constexpr int kRuns = 6000;
const std::vector<int32_t> kPrompt = {0, 1, 2, 3, 0, 1, 4, 0, 1};

const ToyLanguage& Language() {
  static const ToyLanguage language(kVocab, 21);
  return language;
}

// softmax(logits / temperature) over the top_k largest; written without the sampler.
std::vector<double> LawAfter(const std::vector<int32_t>& sequence, double temperature, int top_k) {
  std::vector<float> logits(kVocab);
  Language().Logits(sequence, logits.data());
  std::vector<double> law(kVocab, 0.0);
  double total = 0;
  for (int v = 0; v < kVocab; ++v) {
    int better = 0;
    for (const float other : logits) better += other > logits[static_cast<size_t>(v)] ? 1 : 0;
    if (better >= top_k) continue;
    law[static_cast<size_t>(v)] = std::exp(static_cast<double>(logits[static_cast<size_t>(v)]) / temperature);
    total += law[static_cast<size_t>(v)];
  }
  for (double& p : law) p /= total;
  return law;
}

std::vector<double> JointLaw(double temperature, int top_k) {
  std::vector<double> joint;
  std::vector<int32_t> sequence = kPrompt;
  for (int a = 0; a < kVocab; ++a) {
    const double p_a = LawAfter(sequence, temperature, top_k)[static_cast<size_t>(a)];
    sequence.push_back(a);
    for (int b = 0; b < kVocab; ++b) {
      const double p_b = LawAfter(sequence, temperature, top_k)[static_cast<size_t>(b)];
      sequence.push_back(b);
      for (const double p_c : LawAfter(sequence, temperature, top_k)) joint.push_back(p_a * p_b * p_c);
      sequence.pop_back();
    }
    sequence.pop_back();
  }
  return joint;
}

// A tree of tokens drawn at random, blind to everything.
class BlindDrafter final : public Drafter {
 public:
  std::string_view name() const override { return "blind"; }
  Status Follow(std::span<const int32_t>) override { return {}; }
  Status Propose(const DraftBudget& budget, std::span<const int32_t>, TokenTree& tree) override {
    ++round_;
    for (uint32_t i = 0; tree.size() <= budget.max_nodes && i < 64; ++i) {
      const int parent = static_cast<int>(rng_.Uniform(round_, 2 * i) * tree.size());
      if (tree.node(parent).depth < budget.max_depth) {
        tree.AddChild(parent, static_cast<int32_t>(rng_.Uniform(round_, 2 * i + 1) * kVocab));
      }
    }
    return {};
  }
  Status Read(const CommittedRows&) override { return {}; }

 private:
  RngStream rng_{.seed = 5, .purpose = RngPurpose::kDraft};
  uint64_t round_ = 0;
};

struct Sampled {
  std::vector<int64_t> counts = std::vector<int64_t>(kCells, 0);
  int64_t accepted = 0;
};

Sampled Sample(Drafter& drafter, const SpeculationOptions& speculation, SamplingOptions sampling) {
  Sampled sampled;
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    sampling.seed = seed;
    Rig rig(Language(), {.prompt = kPrompt, .n_predict = 3, .sampling = sampling}, &drafter, speculation);
    EXPECT_TRUE(rig.decoder.Prefill().ok());
    while (!rig.done()) EXPECT_TRUE(rig.Step().ok());
    const std::vector<int32_t> text = rig.generated();
    ++sampled.counts[static_cast<size_t>((text[0] * kVocab + text[1]) * kVocab + text[2])];
    sampled.accepted += rig.decoder.stats().accepted;
  }
  return sampled;
}

SamplingOptions Plain(float temperature, int top_k) {
  SamplingOptions options = Temperature(temperature);
  options.top_k = top_k;
  options.top_p = 1.0F;
  options.min_p = 0.0F;
  return options;
}

TEST(Law, JointOfThreeTokens) {
  BlindDrafter blind;
  const SpeculationOptions nodes = {.draft_n_max = 8};
  const Sampled trees = Sample(blind, nodes, Plain(1.5F, 0));
  EXPECT_GT(ChiSquarePValue(trees.counts, JointLaw(1.5, kVocab)), 1e-6);
  EXPECT_GT(trees.accepted, kRuns / 4);

  const SpeculationOptions lookup = {.type = "ngram", .ngram = {.max = 2, .min = 1}, .tree = "3"};
  const auto ngram = std::move(*MakeDrafter(lookup));
  const Sampled copies = Sample(*ngram, lookup, Plain(1.5F, 3));
  EXPECT_GT(ChiSquarePValue(copies.counts, JointLaw(static_cast<double>(1.5F), 3)), 1e-6);
  EXPECT_GT(copies.accepted, kRuns / 4);

  // The same samples against laws that are only a little different: the test can tell.
  EXPECT_LT(ChiSquarePValue(trees.counts, JointLaw(1.3, kVocab)), 1e-6);
  EXPECT_LT(ChiSquarePValue(copies.counts, JointLaw(1.3, 3)), 1e-6);
  EXPECT_LT(ChiSquarePValue(copies.counts, JointLaw(1.5, 2)), 1e-6);
}

}  // namespace
}  // namespace longspec::testing
