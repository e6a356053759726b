// SPDX-License-Identifier: Apache-2.0
#include "train/beagle.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "network/model_tensors.h"
#include "train/feature_regression.h"
#include "train/target_weights.h"
#include "train/trainee_kinds.h"

namespace longspec::train {
namespace {

constexpr double kBeagleOutputScale = 0.02;  // of matrices taken over: the head follows at once

int Window(const TraineeOptions& options) {
  return options.simulate > 0 ? options.simulate : options.block_window;
}

// Windows of the late stage: (row of the first token, states it sees, end of its sequence).
struct Windows {
  std::vector<int64_t> rows, seen, limits;
  Ends ends;  // of windows, by sequence
};

// Windows that see a state at least.
Windows MakeWindows(const Ends& ends, int window, int offset) {
  Windows windows;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    for (int64_t first = offset; begin + first < end; first += window) {
      if (first == 0) continue;
      windows.rows.push_back(begin + first);
      windows.seen.push_back(first);
      windows.limits.push_back(end);
    }
    windows.ends.push_back(static_cast<int64_t>(windows.rows.size()));
    begin = end;
  }
  return windows;
}

}  // namespace

std::vector<int64_t> BlockVisibility(int64_t length, int window, int offset) {
  std::vector<int64_t> seen;
  for (int64_t row = 0; row < length; ++row) {
    seen.push_back(row < offset ? row : offset + (row - offset) / window * window);
  }
  return seen;
}

BeagleTrainee::BeagleTrainee(TraineeSetup setup) : Trainee(std::move(setup)) {
  const FeatureTarget& t = setup_.target;
  parameters_.Vector("layer.input_layernorm.weight", t.n_embd, 1.0);
  AddAttention(&parameters_, t, "layer.cross_attn", {.n_in = t.n_embd});
  parameters_.Vector("layer.post_attention_layernorm.weight", t.n_embd, 1.0);
  AddMlp(&parameters_, t, "layer.mlp", n_ff());
}

BeagleTrainee::Memory BeagleTrainee::Project(const at::Tensor& states, const at::Tensor& positions) const {
  const FeatureTarget& t = setup_.target;
  const at::Tensor keys = ProjectHeads(parameters_, "layer.cross_attn.k_proj", states, t);
  return {Rotate(keys, MakeRotation(t, positions, t.rope_magnitude)),
          ProjectHeads(parameters_, "layer.cross_attn.v_proj", states, t)};
}

at::Tensor BeagleTrainee::Block(const PlacedBatch& batch, const at::Tensor& rows, const Memory& memory,
                                const Ends& ends, std::span<const int64_t> seen,
                                std::span<const OwnStep> own) const {
  const FeatureTarget& t = setup_.target;
  const at::Tensor embedded = batch.embedded.index_select(0, rows);
  const at::Tensor normed = RmsNorm(embedded, parameters_.Find("layer.input_layernorm.weight"), t.rms_eps);
  const Rotation rotation = MakeRotation(t, batch.positions.index_select(0, rows), t.rope_magnitude);
  const at::Tensor q = Rotate(ProjectHeads(parameters_, "layer.cross_attn.q_proj", normed, t), rotation);
  const Visibility sees = {.query_ends = ends, .key_ends = batch.ends, .seen = {seen.begin(), seen.end()}};
  const at::Tensor mixed = SeenAttention({q, memory.keys, memory.values}, sees, own, parameters_.precision());
  const at::Tensor y = embedded + parameters_.Product("layer.cross_attn.o_proj", mixed);
  const at::Tensor post = RmsNorm(y, parameters_.Find("layer.post_attention_layernorm.weight"), t.rms_eps);
  return y + Mlp(parameters_, "layer.mlp", post);
}

at::Tensor BeagleTrainee::Early(const PlacedBatch& batch, const at::Tensor& states, int offset) const {
  std::vector<int64_t> seen;
  int64_t begin = 0;
  for (const int64_t end : batch.ends) {
    const std::vector<int64_t> part = BlockVisibility(end - begin, Window(setup_.options), offset);
    seen.insert(seen.end(), part.begin(), part.end());
    begin = end;
  }
  const at::Tensor all = at::arange(batch.n(), batch.tokens.options());
  return Block(batch, all, Project(states, batch.positions), batch.ends, seen, {});
}

std::vector<BeagleTrainee::LateStep> BeagleTrainee::Late(const PlacedBatch& batch, const at::Tensor& states,
                                                         int offset, const at::Tensor& own_states) const {
  const at::Device device = batch.embedded.device();
  const int n_steps = Window(setup_.options);
  const Windows windows = MakeWindows(batch.ends, n_steps, offset);
  std::vector<LateStep> steps;
  if (windows.rows.empty()) return steps;
  const Memory memory = Project(states, batch.positions);
  std::vector<OwnStep> own;
  for (int step = 0; step < n_steps; ++step) {
    std::vector<int64_t> rows, valid, valid_rows;
    for (size_t w = 0; w < windows.rows.size(); ++w) {
      const int64_t row = windows.rows[w] + step;
      rows.push_back(std::min(row, windows.limits[w] - 1));
      if (row >= windows.limits[w]) continue;
      valid.push_back(static_cast<int64_t>(w));
      valid_rows.push_back(row);
    }
    const at::Tensor at_rows = at::tensor(rows, at::kLong).to(device);
    const at::Tensor drafts = Block(batch, at_rows, memory, windows.ends, windows.seen, own);
    steps.push_back({drafts.index_select(0, at::tensor(valid, at::kLong).to(device)),
                     at::tensor(valid_rows, at::kLong).to(device)});
    // The losses of all steps go backwards at once, none through a state that was written back.
    const at::Tensor written = own_states.defined() ? own_states.index_select(0, at_rows) : drafts.detach();
    const Memory next = Project(written, batch.positions.index_select(0, at_rows));
    own.push_back({next.keys, next.values});
  }
  return steps;
}

PassLoss BeagleTrainee::EarlyLoss(const PlacedBatch& batch, const PassDraw& draw) const {
  const int offset = static_cast<int>(draw.seed % static_cast<uint64_t>(Window(setup_.options)));
  const at::Tensor states = AddNoise(batch.final_hidden, batch.ends, setup_.options, draw.seed);
  // Before the first window, and where nothing is to be seen, nothing is learned.
  std::vector<int64_t> rows;
  int64_t begin = 0;
  for (const int64_t end : batch.ends) {
    const int64_t first = offset > 0 ? offset : Window(setup_.options);
    for (int64_t row = begin + first; row < end; ++row) rows.push_back(row);
    begin = end;
  }
  const at::Tensor kept = at::tensor(rows, at::kLong).to(batch.embedded.device());
  const LabelledStates labelled =
      SelectLabelled(batch, Early(batch, states, offset).index_select(0, kept), kept);
  PassLoss loss = {.rows = labelled.n(), .forward_macs = CausalMacs(batch.ends, setup_.target)};
  if (labelled.n() == 0) return loss;
  loss.sum = EntropyLoss(labelled, batch.targets, batch.loss_head.weight) +
             setup_.options.regression * RegressionLoss(labelled, batch);
  loss.head_rows = static_cast<double>(labelled.n());
  return loss;
}

PassLoss BeagleTrainee::LateLoss(const PlacedBatch& batch, const PassDraw& draw) const {
  const int n_steps = Window(setup_.options);
  const int offset = static_cast<int>(draw.seed % static_cast<uint64_t>(n_steps));
  PassLoss loss = {.forward_macs = CausalMacs(batch.ends, setup_.target)};
  const at::Tensor states = AddNoise(batch.final_hidden, batch.ends, setup_.options, draw.seed);
  const std::vector<LateStep> steps = Late(batch, states, offset);
  for (size_t i = 0; i < steps.size(); ++i) {
    const LabelledStates labelled = SelectLabelled(batch, steps[i].states, steps[i].rows);
    if (labelled.n() == 0) continue;
    // A step counts once for each token whose acceptance it decides: of 3 steps 3, 2, 1 (eq. 6).
    const double weight = static_cast<double>(n_steps) - static_cast<double>(i);
    const at::Tensor sum = weight * EntropyLoss(labelled, batch.targets, batch.loss_head.weight) +
                           setup_.options.regression * RegressionLoss(labelled, batch);
    loss.sum = loss.sum.defined() ? loss.sum + sum : sum;
    loss.rows += labelled.n();
  }
  loss.head_rows = static_cast<double>(loss.rows);
  return loss;
}

PassLoss BeagleTrainee::Loss(const PlacedBatch& batch, const PassDraw& draw) const {
  return setup_.options.simulate > 0 ? LateLoss(batch, draw) : EarlyLoss(batch, draw);
}

std::vector<at::Tensor> BeagleTrainee::Chain(const PlacedBatch& batch, int n_lags) const {
  const at::Device device = batch.embedded.device();
  const Slots slots = MakeSlots(batch.ends);
  const Memory memory = Project(batch.final_hidden, batch.positions);
  std::vector<OwnStep> own;
  std::vector<at::Tensor> states;
  for (int step = 0; step < n_lags; ++step) {
    const at::Tensor rows = RowsAhead(batch.ends, step, device);
    const at::Tensor drafts = Block(batch, rows, memory, slots.ends, slots.seen, own);
    const Memory next = Project(drafts, batch.positions.index_select(0, rows));
    own.push_back({next.keys, next.values});
    states.push_back(ByRow(batch, drafts, step));
  }
  return states;
}

std::string BeagleTrainee::Describe() const {
  return DescribeRegression(setup_.options) +
         (setup_.options.simulate > 0 ? " --simulate " : " --simulate 0 --block-window ") +
         std::to_string(Window(setup_.options));
}

Status BeagleTrainee::InitFromTarget() {
  const int first = 0, last = setup_.n_layer - 1;
  std::vector<TakenOver> parts;
  for (const TakenOver& part : AttentionOf(parameters_, "layer.cross_attn", last, kBeagleOutputScale)) {
    // Keys and values of final hidden states are the draft's own: what makes the target's last layer's of
    // another, smaller state makes scores of these that let one key alone be seen.
    if (!part.to.starts_with("layer.cross_attn.k_proj") && !part.to.starts_with("layer.cross_attn.v_proj"))
      parts.push_back(part);
  }
  for (const TakenOver& part : MlpOf("layer.mlp", first, kBeagleOutputScale)) parts.push_back(part);
  parts.push_back({"layer.input_layernorm.weight", TensorName(TensorRole::kAttentionNorm, last)});
  parts.push_back({"layer.post_attention_layernorm.weight", TensorName(TensorRole::kMlpNorm, first)});
  return TakeOver(*setup_.model, setup_.target, parts, parameters_);
}

void BeagleTrainee::AddConfig(nlohmann::json* config) const {
  (*config)["kv_norm"] = false;
  (*config)["concat"] = true;
}

const TraineeKind& BeagleKind() {
  static const TraineeKind kind = {
      .name = "beagle",
      .what = "Beagle: attends to the target's final hidden states; --simulate 0: early stage, 4: late stage",
      .reads = {"--ff", "--simulate", "--block-window", "--regression", "--noise", "--noise-scale"},
      .resolve = [](TraineeOptions* o, const FeatureTarget&, int) -> Status {
        if (o->simulate < 0) o->simulate = 0;
        if (o->block_window < 1) return InvalidArgument("--block-window: must be at least 1");
        return {};
      },
      .needs = [](const TraineeOptions&) { return ShardNeeds{.final_hidden = true}; },
      .make = [](TraineeSetup setup) -> std::unique_ptr<Trainee> {
        return std::make_unique<BeagleTrainee>(std::move(setup));
      }};
  return kind;
}

}  // namespace longspec::train
