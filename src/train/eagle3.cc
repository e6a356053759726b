// SPDX-License-Identifier: Apache-2.0
//
// EAGLE-3 (Li et al. 2025): one block that reads the residual stream of three layers of the target and a
// token's embedding, with a head of its own, trained on chains of its own states (training-time test). Tensor
// names are those of the published checkpoints.
#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "train/bf16_product.h"
#include "train/feature_chain.h"
#include "train/feature_regression.h"
#include "train/files.h"
#include "train/fused_loss.h"
#include "train/target_weights.h"
#include "train/trainee_kinds.h"

namespace longspec::train {
namespace {

constexpr char kEagle3Prefix[] = "midlayer.";
constexpr int kSteps = 4;  // the YaRN fine-tune's; the first trainer had 7
constexpr int64_t kLogitsAtOnce = int64_t{1} << 23;

class Eagle3Trainee : public Trainee {
 public:
  explicit Eagle3Trainee(TraineeSetup setup) : Trainee(std::move(setup)) {
    const FeatureTarget& t = setup_.target;
    const std::string prefix = kEagle3Prefix;
    parameters_.Matrix("fc", t.n_embd, 3 * int64_t{t.n_embd});
    AddAttention(&parameters_, t, prefix + "self_attn", {.n_in = 2 * int64_t{t.n_embd}});
    AddMlp(&parameters_, t, prefix + "mlp", n_ff());
    for (const char* norm : {"input_layernorm", "hidden_norm", "post_attention_layernorm"}) {
      parameters_.Vector(prefix + norm + ".weight", t.n_embd, 1.0);
    }
    parameters_.Vector("norm.weight", t.n_embd, 1.0);
    // The head begins as the target's.
    parameters_.Matrix("lm_head", setup_.frozen.head.size(0), t.n_embd, true, 0.0);
    const at::NoGradGuard no_grad;
    at::Tensor head = parameters_.Find("lm_head.weight");
    head.copy_(setup_.frozen.head);
    known_ = at::zeros({setup_.target.n_vocab}, head.options().dtype(at::kBool));
    if (setup_.vocab.empty()) return;
    known_.index_fill_(0, at::tensor(setup_.vocab).to(known_.device()), true);
    if (setup_.options.precision == Precision::kF32) return;
    whole_head_ = setup_.frozen.whole_head.to(at::kBFloat16);
    const double never = -std::numeric_limits<double>::infinity();
    known_only_ =
        at::zeros({setup_.target.n_vocab}, whole_head_.options()).masked_fill_(known_.logical_not(), never);
    others_only_ = at::zeros_like(known_only_).masked_fill_(known_, never);
  }

  PassLoss Loss(const PlacedBatch& batch, const PassDraw&) const override {
    const at::Device device = batch.embedded.device();
    const std::vector<at::Tensor> outputs = Run(batch, setup_.options.simulate);
    const at::Tensor known = KnownLabels(batch);
    at::Tensor head = batch.loss_head.RowsOf(parameters_.Find("lm_head.weight"));
    if (setup_.options.precision == Precision::kBf16) head = head.to(at::kBFloat16);
    const Targets targets = batch.targets.WithLogits(batch.loss_head.weight);
    // The gradient of a trained head is added up once for so many rows.
    const int64_t at_once = std::max(RowsAtOnce(head), kLogitsAtOnce / head.size(0));
    // The mean is over all rows, whether they have a label or not.
    PassLoss loss = {.rows = batch.n()};
    double weight = 1.0;
    for (size_t step = 0; step < outputs.size(); ++step, weight *= kStepWeight) {
      const SlotsAhead ahead = Ahead(batch.ends, static_cast<int64_t>(step));
      LabelledStates labelled =
          SelectLabelled(batch, outputs[step].index_select(0, ahead.slots.to(device)), ahead.rows.to(device));
      const at::Tensor kept = known.index_select(0, labelled.labels).nonzero().squeeze(1);
      if (kept.numel() == 0) continue;
      const Targets of_step = targets.Select(labelled.labels.index_select(0, kept));
      const at::Tensor states = Normed(labelled.states.index_select(0, kept));
      const at::Tensor sum = FusedCrossEntropy(states, head, of_step, at_once, batch.loss_head.weight) *
                             (weight * static_cast<double>(kept.numel()));
      loss.sum = loss.sum.defined() ? loss.sum + sum : sum;
      loss.head_rows += static_cast<double>(kept.numel());
    }
    loss.forward_macs = ChainMacs(parameters_, setup_.target, batch.ends, setup_.options.simulate) -
                        setup_.options.simulate * static_cast<double>(batch.n() * head.numel());
    return loss;
  }

  std::vector<at::Tensor> Chain(const PlacedBatch& batch, int n_lags) const override {
    std::vector<at::Tensor> states = Run(batch, n_lags);
    for (size_t i = 0; i < states.size(); ++i) {
      states[i] = ByRow(batch, Normed(states[i]), static_cast<int64_t>(i));
    }
    return states;
  }
  at::Tensor Head(int) const override { return parameters_.Find("lm_head.weight"); }

  std::string Describe() const override {
    std::string text = "--simulate " + std::to_string(setup_.options.simulate) + " --layers ";
    for (const int layer : setup_.options.layers) text += std::to_string(layer) + ",";
    text.pop_back();
    return text;
  }

  void AddConfig(nlohmann::json* config) const override {
    (*config)["architectures"] = {"LlamaForCausalLMEagle3"};
    (*config)["draft_vocab_size"] = setup_.frozen.head.size(0);
    (*config)["eagle_config"] = {{"eagle_aux_hidden_state_layer_ids", setup_.options.layers}};
  }

  // d2t holds what is added to a draft's token to make it the target's.
  void AddTensors(SafetensorsWriter* writer) const override {
    const auto n = static_cast<int64_t>(setup_.vocab.size());
    if (n > 0) {
      std::vector<int64_t> d2t;
      std::vector<int8_t> t2d(static_cast<size_t>(setup_.target.n_vocab));
      for (const int64_t token : setup_.vocab) {
        d2t.push_back(token - static_cast<int64_t>(d2t.size()));
        t2d[static_cast<size_t>(token)] = 1;
      }
      writer->AddTensor("d2t", DType::kI64, {n}, std::as_bytes(std::span(d2t)));
      for (const auto& [name, tensor] : parameters_.tensors()) AddTensor(name, tensor, writer);
      writer->AddTensor("t2d", DType::kI8, {setup_.target.n_vocab}, std::as_bytes(std::span(t2d)));
      return;
    }
    Trainee::AddTensors(writer);
  }

 private:
  at::Tensor Normed(const at::Tensor& x) const {
    return RmsNorm(x, parameters_.Find("norm.weight"), setup_.target.rms_eps);
  }

  // Which labels (n_labels) count: where the target's likeliest token is of the draft's vocabulary.
  at::Tensor KnownLabels(const PlacedBatch& batch) const {
    const at::NoGradGuard no_grad;
    at::Tensor known = at::ones({batch.rows.numel()}, batch.rows.options().dtype(at::kBool));
    if (setup_.vocab.empty() || !batch.targets.states.defined()) return known;
    const int64_t at_once = RowsAtOnce(setup_.frozen.whole_head);
    for (int64_t begin = 0; begin < known.numel(); begin += at_once) {
      const at::Tensor states = batch.targets.states.slice(0, begin, begin + at_once);
      known.slice(0, begin, begin + at_once).copy_(LikeliestIsKnown(states));
    }
    return known;
  }

  at::Tensor LikeliestIsKnown(const at::Tensor& states) const {
    const at::Tensor& head = setup_.frozen.whole_head;
    if (setup_.options.precision == Precision::kF32) {
      return known_.index_select(0, at::matmul(states, head.t()).argmax(1));
    }
    // Products in bf16 decide where the best token of the vocabulary and the best of the others are far
    // apart.
    constexpr double kClose = 0.02;
    const at::Tensor logits = at::matmul(FilledUp(states), whole_head_.t()).slice(0, 0, states.size(0));
    const at::Tensor best = (logits + known_only_).amax(1).to(at::kFloat);
    const at::Tensor other = (logits + others_only_).amax(1).to(at::kFloat);
    at::Tensor known = best.gt(other);
    const at::Tensor close = (best - other).abs().le(best.abs() * kClose).nonzero().squeeze(1);
    if (close.numel() == 0) return known;
    const at::Tensor exact = at::matmul(states.index_select(0, close), head.t()).argmax(1);
    return known.index_copy(0, close, known_.index_select(0, exact));
  }

  std::vector<at::Tensor> Run(const PlacedBatch& batch, int steps) const {
    const double epsilon = setup_.target.rms_eps;
    const std::string prefix = kEagle3Prefix;
    const FeatureBlock block = {
        .prefix = prefix,
        .enter = [&](const at::Tensor& embedded, const at::Tensor& feature, int step) -> BlockInput {
          const at::Tensor g = step == 0 ? parameters_.Product("fc", feature) : feature;
          const at::Tensor e =
              RmsNorm(embedded, parameters_.Find(prefix + "input_layernorm.weight"), epsilon);
          return {g, at::cat({e, RmsNorm(g, parameters_.Find(prefix + "hidden_norm.weight"), epsilon)}, 1)};
        }};
    std::vector<at::Tensor> three;
    for (const int layer : setup_.options.layers) three.push_back(batch.hidden.at(layer));
    const at::Tensor states = at::cat(three, 1);
    const at::Tensor before = MakeSlots(batch.ends).rows.to(states.device()) - 1;
    return RunChains(block, parameters_, setup_.target, batch, batch.embedded, states.index_select(0, before),
                     steps);
  }

  at::Tensor known_;       // (n_vocab) whether a token is of the draft's vocabulary
  at::Tensor whole_head_;  // the target's, in bf16
  // (n_vocab) what is added to logits so that only these tokens are left.
  at::Tensor known_only_, others_only_;
};

Status ResolveEagle3(TraineeOptions* o, const FeatureTarget&, int n_layer) {
  if (o->simulate < 0) o->simulate = kSteps;
  if (o->simulate < 1) return InvalidArgument("--simulate: must be at least 1 for this kind");
  if (o->layers.empty() && n_layer >= 8) o->layers = {1, n_layer / 2 - 1, n_layer - 4};
  bool right = o->layers.size() == 3;
  for (const int layer : o->layers) right &= layer >= 0 && layer < n_layer;
  if (right) return {};
  return InvalidArgument("--layers: must be three layers of the target for this kind, 0 to " +
                         std::to_string(n_layer - 1));
}

}  // namespace

const TraineeKind& Eagle3Kind() {
  static const TraineeKind kind = {
      .name = "eagle3",
      .what = "EAGLE-3: reads three layers of the target, with a head of its own (use --distill 1)",
      .reads = {"--ff", "--simulate", "--layers"},
      .resolve = ResolveEagle3,
      .needs = [](const TraineeOptions& o) { return ShardNeeds{.layers = o.layers}; },
      .make = [](TraineeSetup setup) -> std::unique_ptr<Trainee> {
        return std::make_unique<Eagle3Trainee>(std::move(setup));
      }};
  return kind;
}

}  // namespace longspec::train
