// SPDX-License-Identifier: Apache-2.0
//
// EAGLE-3 (behaviours of its specification by number).
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "formats/safetensors.h"
#include "train/layers.h"
#include "train/slots.h"
#include "train/testing/rig.h"
#include "train/testing/trainees.h"

namespace longspec::train {
namespace {

using testing::BatchOf;
using testing::DifferentRows;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::KindRig;
using testing::TraineeOf;

struct Eagle3Rig : KindRig {
  explicit Eagle3Rig(int simulate = 4)
      : KindRig({.kind = "eagle3", .simulate = simulate, .layers = {0, 1, 0}}) {}
};

// 6: outputs of these layers.
TEST(Eagle3, CapturesTheLayersOfThePaper) {
  TraineeOptions options;
  ASSERT_TRUE(Eagle3Kind().resolve(&options, {}, 8).ok());
  EXPECT_THAT(options.layers, ElementsAre(1, 3, 4));
  EXPECT_EQ(options.simulate, 4);
  options.layers.clear();
  ASSERT_TRUE(Eagle3Kind().resolve(&options, {}, 32).ok());
  EXPECT_THAT(options.layers, ElementsAre(1, 15, 28));
  options.layers = {1, 2};
  EXPECT_THAT(Eagle3Kind().resolve(&options, {}, 32).message(), HasSubstr("--layers: must be three layers"));
}

// 2: the residual begins as what fc makes of the three states; without outputs nothing is added to it.
TEST(Eagle3, TheResidualIsTheProjection) {
  const Eagle3Rig rig;
  const auto trainee = TraineeOf(rig);
  const at::NoGradGuard no_grad;
  const Parameters& parameters = trainee->parameters();
  for (const char* name : {"midlayer.self_attn.o_proj.weight", "midlayer.mlp.down_proj.weight"}) {
    at::Tensor tensor = parameters.Find(name);
    tensor.zero_();
  }
  const PlacedBatch batch = BatchOf(rig, {1});
  const at::Tensor three = at::cat({batch.hidden.at(0), batch.hidden.at(1), batch.hidden.at(0)}, 1);
  const at::Tensor g = parameters.Product("fc", three.slice(0, 0, -1));
  const at::Tensor expected = RmsNorm(g, parameters.Find("norm.weight"), trainee->setup().target.rms_eps);
  const std::vector<at::Tensor> chain = trainee->Chain(batch, 2);
  EXPECT_LT((chain[0].slice(0, 1) - expected).abs().max().item<double>(), 1e-5);
  // 4: a state of its own is read without fc.
  EXPECT_LT((chain[1].slice(0, 2) - expected.slice(0, 0, -1)).abs().max().item<double>(), 1e-5);
}

// 3: the embedding comes first.
TEST(Eagle3, TheEmbeddingComesBeforeTheFeature) {
  const Eagle3Rig rig;
  const auto trainee = TraineeOf(rig);
  const at::NoGradGuard no_grad;
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    at::Tensor weight = trainee->parameters().Find(std::string("midlayer.self_attn.") + name + ".weight");
    weight.slice(1, 0, 64).zero_();
  }
  PlacedBatch batch = BatchOf(rig, {1});
  const at::Tensor plain = trainee->Chain(batch, 1)[0];
  batch.embedded = batch.embedded + 1.0;
  EXPECT_TRUE(DifferentRows(trainee->Chain(batch, 1)[0], plain).empty());
}

// 15: at step i a slot sees the first step's keys of slots up to its own and its own later ones, at positions
// one further each step. Written out for one slot.
TEST(Eagle3, ChainsSeeTheFirstStepsKeysAndTheirOwn) {
  const Eagle3Rig rig;
  const auto trainee = TraineeOf(rig);
  const at::NoGradGuard no_grad;
  const Parameters& p = trainee->parameters();
  const FeatureTarget& t = trainee->setup().target;
  const PlacedBatch batch = BatchOf(rig, {2}, {}, {.anchors = 0, .offset = 11});
  const std::vector<at::Tensor> chain = trainee->Chain(batch, 4);
  const auto norm = [&](const at::Tensor& x, const std::string& name) {
    return RmsNorm(x, p.Find(name + ".weight"), t.rms_eps);
  };
  const auto attended = [&](const at::Tensor& embedded, const at::Tensor& g) {
    return at::cat({norm(embedded, "midlayer.input_layernorm"), norm(g, "midlayer.hidden_norm")}, 1);
  };
  const auto heads = [&](const std::string& name, const at::Tensor& a, const at::Tensor& positions) {
    const at::Tensor x = ProjectHeads(p, "midlayer.self_attn." + name + "_proj", a, t);
    return name == "v" ? x : Rotate(x, MakeRotation(t, positions, t.rope_magnitude));
  };
  const int64_t slot = 17;  // reads features up to 17
  const at::Tensor three = at::cat({batch.hidden.at(0), batch.hidden.at(1), batch.hidden.at(0)}, 1);
  at::Tensor g = p.Product("fc", three.slice(0, 0, slot + 1));
  at::Tensor a = attended(batch.embedded.slice(0, 1, slot + 2), g);
  at::Tensor positions = at::arange(slot + 1, at::kLong) + 11;
  at::Tensor keys = heads("k", a, positions), values = heads("v", a, positions);
  for (int64_t step = 0; step < 4; ++step) {
    const at::Tensor last = a.slice(0, -1), residual = g.slice(0, -1);
    const at::Tensor place = at::full({1}, slot + step + 11, at::kLong);
    if (step > 0) {
      keys = at::cat({keys, heads("k", last, place)}, 0);
      values = at::cat({values, heads("v", last, place)}, 0);
    }
    const at::Tensor q = heads("q", last, place);
    const std::vector<int64_t> seen = {keys.size(0)};
    const at::Tensor mixed =
        SeenAttention({q, keys, values}, {.query_ends = {1}, .key_ends = {keys.size(0)}, .seen = seen}, {},
                      Precision::kF32);
    const at::Tensor x = residual + p.Product("midlayer.self_attn.o_proj", mixed);
    g = x + Mlp(p, "midlayer.mlp", norm(x, "midlayer.post_attention_layernorm"));
    const at::Tensor got = chain[static_cast<size_t>(step)][slot + 1 + step];
    EXPECT_LT((norm(g, "norm")[0] - got).abs().max().item<double>(), 1e-5) << step;
    a = attended(batch.embedded.slice(0, slot + 2 + step, slot + 3 + step), g);
  }
}

// 16 and 17: rows count whose likeliest token the draft's vocabulary has, the mean is over all rows, and
// steps weigh 1, 0.8, 0.64, 0.512.
TEST(Eagle3, LossIsTheWeightedSumOfKnownRows) {
  const Eagle3Rig rig;
  const auto set = FeatureSet::Open(rig.options.features);
  // Some tokens that the target likes, not all.
  const LabelOptions whole = {.distill = 1.0, .vocab = {}};
  const PlacedBatch all = BatchOf(rig, {1, 2}, whole);
  const auto first = TraineeOf(rig);
  const at::Tensor best = at::matmul(all.targets.states, first->setup().frozen.whole_head.t()).argmax(1);
  std::vector<int64_t> vocab = {1, 2, 3, best[0].item<int64_t>(), best[30].item<int64_t>()};
  std::ranges::sort(vocab);
  vocab.erase(std::ranges::unique(vocab).begin(), vocab.end());
  const PlacedBatch batch = BatchOf(rig, {1, 2}, {.distill = 1.0, .vocab = vocab});
  const auto trainee = TraineeOf(rig, 7, vocab);
  const PassLoss loss = trainee->Loss(batch, {});
  EXPECT_EQ(loss.rows, batch.n());
  const at::NoGradGuard no_grad;
  const at::Tensor head = trainee->Head(1), target_head = trainee->setup().frozen.head;
  EXPECT_TRUE(head.equal(target_head));
  const std::vector<at::Tensor> chain = trainee->Chain(batch, 4);
  double expected = 0.0;
  int counted = 0;
  testing::ForEachDraftedRow(batch, 4, [&](int step, int64_t row) {
    const int64_t label = batch.labels[row].item<int64_t>();
    if (!std::ranges::binary_search(vocab, best[label].item<int64_t>())) return;
    const at::Tensor drafted = chain[static_cast<size_t>(step)][row];
    expected +=
        std::pow(0.8, step) * testing::CrossEntropy(head, drafted, target_head, batch.final_hidden[row]);
    ++counted;
  });
  EXPECT_GT(counted, 8);
  EXPECT_LT(counted, 4 * 90);
  EXPECT_NEAR(loss.sum.item<double>(), expected, 1e-4 * expected);
}

// 5: what is added to a draft's token, and the mask of known ones.
TEST(Eagle3, MapsOfTokensAgree) {
  Eagle3Rig rig;
  rig.options.vocab = 9;
  rig.options.distill = 1.0;
  rig.options.steps = 1;
  ASSERT_TRUE(rig.Run().ok());
  const auto file = SafetensorsFile::Open(rig.options.output + "/model.safetensors");
  ASSERT_TRUE(file.ok());
  const TensorView *d2t = (*file)->FindTensor("d2t"), *t2d = (*file)->FindTensor("t2d");
  ASSERT_TRUE(d2t != nullptr && t2d != nullptr);
  ASSERT_EQ(d2t->n_elements(), 9);
  EXPECT_EQ((*file)->FindTensor("draft.vocab"), nullptr);
  const auto* offsets = reinterpret_cast<const int64_t*>(d2t->data);
  const auto* known = reinterpret_cast<const int8_t*>(t2d->data);
  int64_t last = -1;
  for (int64_t i = 0; i < 9; ++i) {
    const int64_t token = i + offsets[i];
    EXPECT_GT(token, last);
    EXPECT_EQ(known[token], 1);
    last = token;
  }
  EXPECT_EQ(std::count(known, known + t2d->n_elements(), 1), 9);
  const auto set = FeatureSet::Open(rig.options.features);
  EXPECT_EQ(*LoadDraftVocab(rig.options.output, set->target().n_vocab), set->FrequentTokens(9));
}

}  // namespace
}  // namespace longspec::train
