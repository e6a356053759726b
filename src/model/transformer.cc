// SPDX-License-Identifier: Apache-2.0
//
// The forward pass. Every worker of the team runs all of it; between two operations that need each other's
// whole result stands a barrier. Row results do not depend on the rows beside them, because no kernel's do.
#include "model/transformer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "attention/attention_kind.h"
#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "kv/kv_mover.h"
#include "model/block.h"
#include "model/model_weights.h"
#include "model/pass_plan.h"
#include "model/shared_parts.h"
#include "network/rope.h"

namespace longspec {
namespace {

AttentionWeights AttentionOf(const LayerWeights& layer, const LayerSpec& spec) {
  using enum TensorRole;
  return {.norm = layer.vector(kAttentionNorm),
          .q = &layer.matrix(kQuery).matrix(),
          .k = &layer.matrix(kKey).matrix(),
          .v = &layer.matrix(kValue).matrix(),
          .output = &layer.matrix(kAttentionOutput).matrix(),
          .q_bias = layer.vector(kQueryBias),
          .k_bias = layer.vector(kKeyBias),
          .v_bias = layer.vector(kValueBias),
          .q_norm = layer.vector(kQueryNorm),
          .k_norm = layer.vector(kKeyNorm),
          .branch_norm = layer.vector(kAttentionBranchNorm),
          .rotation = spec.attention};
}

MlpWeights MlpOf(const LayerWeights& layer, const LayerSpec& spec) {
  using enum TensorRole;
  return {.norm = layer.vector(kMlpNorm),
          .gate = &layer.matrix(kGate).matrix(),
          .up = &layer.matrix(kUp).matrix(),
          .down = &layer.matrix(kDown).matrix(),
          .branch_norm = layer.vector(kMlpBranchNorm),
          .function = spec.gate};
}

// Angles of each kind of attention.
BlockShape ShapeOf(const ModelSpec& spec) {
  BlockShape shape = BlockOf(spec);
  shape.n_rotations = static_cast<int>(spec.attentions.size());
  return shape;
}

class Transformer final : public Target {
 public:
  Transformer(std::shared_ptr<const GgufFile> file, const ModelSpec& spec, const CpuLane& lane, int max_rows,
              std::unique_ptr<const ModelWeights> weights)
      : file_(std::move(file)),
        spec_(spec),
        kernels_(*lane.kernels),
        team_(*lane.team),
        weights_(std::move(weights)),
        shared_{.sizes = &spec_,
                .lane = lane,
                .embedding = weights_->embedding,
                .output = &weights_->output.matrix(),
                .head = weights_->head,
                .bf16_format = spec_.bf16_format},
        plan_(
            spec_,
            [this](const AttentionShape& shape) {
              return FindAttention(spec_.attention_kind)->make(&kernels_, shape, team_.size());
            },
            max_rows),
        work_(ShapeOf(spec_), &kernels_, max_rows, weights_->input_forms),
        out_rows_(Z(max_rows) * Z(spec_.n_embd) * sizeof(float)) {
    for (const AttentionSpec& kind : spec_.attentions) rotations_.emplace_back(spec_.rope_of(kind));
  }

  int vocab_size() const override { return spec_.n_logits; }
  int context_length() const override { return spec_.context_length(); }

  const SharedParts* shared_parts() const override { return &shared_; }

  Result<TargetOutput> Forward(std::span<const ForwardSegment> segments) override {
    LS_TRY(Prepare(segments));
    team_.Run([&](ThreadTeam::Worker& worker) { ForwardOn(worker, segments); });
    const LogitRows logits(logits_.data(), static_cast<int>(plan_.logit_rows().size()), spec_.n_logits);
    return plan_.Output(segments, logits, tapped_.data(), HostStates());
  }

  Status RunPrefix(std::span<const PrefixSegment> segments) override;
  Result<double> AttentionMs(std::span<const ForwardSegment> segments) override;

 private:
  Status Prepare(std::span<const ForwardSegment> segments);
  void SetAngles(int place, int position);
  void ForwardOn(ThreadTeam::Worker& worker, std::span<const ForwardSegment> segments);
  void RunHead(ThreadTeam::Worker& worker);
  void BeginRow(std::span<const ForwardSegment> segments, const PassRow& row, float* x);
  void Embed(int32_t token, float* x) const;
  void RunLayer(ThreadTeam::Worker& worker, PassStage& stage, int layer,
                std::span<const QueryTap> query_taps);
  void StoreKeysOf(ThreadTeam::Worker& worker, PassStage& stage, int layer);
  template <typename F>
  void ForEachTappedRow(const ThreadTeam::Worker& worker, int layer, const F& f);
  void TapQueries(const ThreadTeam::Worker& worker, const std::vector<RowPlace>& places, int layer,
                  std::span<const QueryTap> query_taps);
  size_t q_width() const { return Z(int64_t{spec_.n_head} * spec_.head_dim); }
  float* row_of(int place) { return work_.x.as<float>() + Z(place) * Z(spec_.n_embd); }

  const std::shared_ptr<const GgufFile> file_;  // keeps the mapped embedding alive
  const ModelSpec spec_;
  const kernels::KernelTable& kernels_;
  ThreadTeam& team_;
  const std::unique_ptr<const ModelWeights> weights_;
  std::vector<RopeTable> rotations_;  // of each kind of attention
  const SharedParts shared_;

  // Of one pass.
  PassPlan plan_;
  Workspace work_;
  AlignedBuffer out_rows_;     // (n logit rows, n_embd): the residual stream of those that pass the head
  std::vector<float> logits_;  // (logit rows, n_logits)
  std::vector<float> tapped_;
};

void Transformer::SetAngles(int place, int position) {
  for (size_t k = 0; k < rotations_.size(); ++k) {
    rotations_[k].Row(position, work_.Angles(static_cast<int>(k), place));
  }
}

Status Transformer::Prepare(std::span<const ForwardSegment> segments) {
  LS_TRY(plan_.Plan(segments));
  try {
    if (tapped_.size() < plan_.tapped_floats()) tapped_.resize(plan_.tapped_floats());
    logits_.resize(std::max(logits_.size(), plan_.logit_rows().size() * Z(spec_.n_logits)));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for a forward pass of " + std::to_string(plan_.n_rows()) + " rows");
  }
  for (int place = 0; place < plan_.n_rows(); ++place) SetAngles(place, plan_.row_at(place).position);
  return {};
}

Status Transformer::RunPrefix(std::span<const PrefixSegment> segments) {
  LS_TRY(plan_.PlanPrefix(segments));
  const int n_rows = plan_.n_rows();
  if (n_rows == 0) return {};
  const std::span<const PassRow> rows = plan_.rows();
  for (int r = 0; r < n_rows; ++r) SetAngles(r, rows[Z(r)].position);
  team_.Run([&](ThreadTeam::Worker& worker) {
    const auto share = worker.ShareOf(n_rows);
    for (int r = share.begin; r < share.end; ++r) {
      Embed(segments[Z(rows[Z(r)].segment)].tokens[Z(rows[Z(r)].index)], row_of(r));
    }
    worker.Barrier();
    PassStage& stage = plan_.stages()[0];
    for (int layer = 0; layer < stage.layer_end; ++layer) RunLayer(worker, stage, layer, {});
    for (int r = share.begin; r < share.end; ++r) {
      std::memcpy(segments[Z(rows[Z(r)].segment)].prefix->hidden(rows[Z(r)].prefix_row), row_of(r),
                  Z(spec_.n_embd) * sizeof(float));
    }
  });
  return {};
}

Result<double> Transformer::AttentionMs(std::span<const ForwardSegment> segments) {
  LS_TRY(plan_.Plan(segments));
  float* const q = work_.q_by_head.as<float>();
  for (size_t i = 0; i < Z(plan_.n_rows()) * q_width(); ++i) {
    q[i] = 0.01F * static_cast<float>(static_cast<int>(i * 37 % 101) - 50);
  }
  const double start = NowMs();
  team_.Run([&](ThreadTeam::Worker& worker) {
    for (PassStage& stage : plan_.stages()) {
      for (int layer = stage.layer_begin; layer < stage.layer_end; ++layer) {
        stage.kinds[Z(spec_.layers[Z(layer)].attention)].attention->Run(worker, layer, q,
                                                                        work_.attended.as<float>());
        worker.Barrier();
      }
    }
  });
  return NowMs() - start;
}

// f(place of the row, where its copy goes), for this worker's part of all rows tapped at `layer`.
template <typename F>
void Transformer::ForEachTappedRow(const ThreadTeam::Worker& worker, int layer, const F& f) {
  const auto share = worker.ShareOf(plan_.n_rows());
  for (const HiddenTap& tap : plan_.hidden_taps()) {
    if (tap.layer != layer) continue;
    for (int r = std::max(share.begin, tap.row_begin); r < std::min(share.end, tap.row_end); ++r) {
      f(plan_.place_of(r), tapped_.data() + tap.at + Z(r - tap.row_begin) * Z(spec_.n_embd));
    }
  }
}

// As attention had them: of each KV head its group's. Rows that were begun elsewhere are never tapped.
void Transformer::TapQueries(const ThreadTeam::Worker& worker, const std::vector<RowPlace>& places, int layer,
                             std::span<const QueryTap> query_taps) {
  const auto share = worker.ShareOf(static_cast<int>(places.size()));
  const size_t n = places.size(), group = q_width() / Z(spec_.n_head_kv);
  for (const QueryTap& tap : query_taps) {
    float* const to = tapped_.data() + tap.at + Z(layer) * Z(tap.row_end - tap.row_begin) * q_width();
    for (int place = share.begin; place < share.end; ++place) {
      const int row = plan_.row_number_at(place);
      if (row < tap.row_begin || row >= tap.row_end) continue;
      for (int head = 0; head < spec_.n_head_kv; ++head) {
        const size_t from = (Z(head) * n + Z(places[Z(place)].query)) * group;
        std::copy_n(work_.q_by_head.as<float>() + from, group,
                    to + Z(row - tap.row_begin) * q_width() + Z(head) * group);
      }
    }
  }
}

void Transformer::Embed(int32_t token, float* x) const {
  LS_CHECK(shared_.Embed(token, x).ok());  // tokens were looked at as the pass was planned
  if (spec_.embedding_scale == 1.0F) return;
  for (int i = 0; i < spec_.n_embd; ++i) x[i] *= spec_.embedding_scale;
}

// The residual stream before a row's first layer; of layers that were run elsewhere, its keys and values.
void Transformer::BeginRow(std::span<const ForwardSegment> segments, const PassRow& row, float* x) {
  const ForwardSegment& segment = segments[Z(row.segment)];
  if (row.prefix_row < 0) {
    Embed(segment.tokens[Z(row.index)], x);
    return;
  }
  const LayerPrefix& prefix = *segment.prefix;
  prefix.hidden().From(row.prefix_row, 1).Copy(x);
  const SlotMove move = {.from = row.prefix_row, .to = segment.kv->slot() + row.index};
  HostMover().MoveSlots(prefix.span(), plan_.writer(Z(row.segment)), prefix.n_layers(), {&move, 1});
}

void Transformer::RunLayer(ThreadTeam::Worker& worker, PassStage& stage, int layer,
                           std::span<const QueryTap> query_taps) {
  const LayerSpec& spec = spec_.layers[Z(layer)];
  const LayerWeights& weights = weights_->layers[Z(layer)];
  PassStage::Kind& kind = stage.kinds[Z(spec.attention)];
  AddAttention(worker, work_, AttentionOf(weights, spec), kind.places, layer, *kind.attention);
  if (!query_taps.empty()) TapQueries(worker, kind.places, layer, query_taps);
  AddMlp(worker, work_, MlpOf(weights, spec), stage.n_rows());
}

void Transformer::StoreKeysOf(ThreadTeam::Worker& worker, PassStage& stage, int layer) {
  const LayerSpec& spec = spec_.layers[Z(layer)];
  const AttentionWeights weights = AttentionOf(weights_->layers[Z(layer)], spec);
  StoreKeys(worker, work_, weights, stage.kinds[Z(spec.attention)].places, layer);
}

void Transformer::ForwardOn(ThreadTeam::Worker& worker, std::span<const ForwardSegment> segments) {
  const size_t row_bytes = Z(spec_.n_embd) * sizeof(float);
  const auto share = worker.ShareOf(plan_.n_rows());
  for (int place = share.begin; place < share.end; ++place) {
    BeginRow(segments, plan_.row_at(place), row_of(place));
  }
  worker.Barrier();
  // Rows that are begun after a layer are, until they join, as that layer left them.
  const auto tap = [&](int layer) {
    ForEachTappedRow(worker, layer, [&](int place, float* to) { std::memcpy(to, row_of(place), row_bytes); });
  };
  const int first_layer = plan_.stages()[0].layer_begin;
  if (first_layer > 0) tap(first_layer - 1);
  for (PassStage& stage : plan_.stages()) {
    for (int layer = stage.layer_begin; layer < stage.layer_end; ++layer) {
      if (worker.index() == 0) {  // while this layer is computed
        for (const ForwardSegment& segment : segments) {
          segment.kv->cache().Prefetch((layer + 1) % spec_.n_layer);
        }
      }
      if (layer == spec_.n_layer - 1 && plan_.ends_with_keys()) {
        StoreKeysOf(worker, stage, layer);
        return;
      }
      RunLayer(worker, stage, layer, plan_.query_taps());
      tap(layer);
    }
  }
  ForEachTappedRow(worker, HiddenTap::kFinal, [&](int place, float* to) {
    kernels_.rms_norm(row_of(place), weights_->output_norm.data(), spec_.n_embd, spec_.rms_eps, to);
  });
  RunHead(worker);
}

// Only the rows whose logits are asked for pass the head.
void Transformer::RunHead(ThreadTeam::Worker& worker) {
  const std::span<const int> rows = plan_.logit_rows();
  const auto n = static_cast<int>(rows.size());
  if (n == 0) return;
  float* out_rows = out_rows_.as<float>();
  const auto share = worker.ShareOf(n);
  for (int i = share.begin; i < share.end; ++i) {
    std::memcpy(out_rows + Z(i) * Z(spec_.n_embd), row_of(plan_.place_of(rows[Z(i)])),
                Z(spec_.n_embd) * sizeof(float));
  }
  Normalise(worker, work_, out_rows, weights_->output_norm, n);
  worker.Barrier();
  const std::array head = {LinearJob{&weights_->output.matrix(), logits_.data()}};
  Project(worker, work_, head, work_.normed.as<float>(), spec_.n_embd, n);
}

}  // namespace

ModelMemory PlanModelMemory(const ModelSpec& spec, const GgufFile& file, int max_rows, int n_threads) {
  constexpr int kMostLogitRows = 256;  // the largest tree decoding proposes, its root included
  ModelMemory memory;
  InputForms forms;
  for (const TensorSpec& tensor : ProductsOf(spec)) {
    const TensorView& t = TensorIn(file, tensor);
    memory.weights += kernels::PackedBytes(t.dtype, t.shape[0], t.n_rows());
    forms.Add({.format = kernels::PackedFormat(t.dtype, spec.bf16_format)});
  }
  memory.scratch =
      Z(max_rows) * (Workspace::RowBytes(ShapeOf(spec), forms) + Z(spec.n_embd) * sizeof(float)) +
      Z(std::min(max_rows, kMostLogitRows)) * Z(spec.n_logits) * sizeof(float) +
      spec.attentions.size() * AttentionPlan::MostBytes(spec.attention(), n_threads, max_rows);
  return memory;
}

Result<std::unique_ptr<Target>> LoadModel(std::shared_ptr<const GgufFile> file, const ModelSpec& spec,
                                          const CpuLane& lane, const ModelLoadOptions& options) {
  LS_CHECK(lane.kernels != nullptr && lane.team != nullptr && options.max_rows > 0);
  LS_ASSIGN(auto weights, LoadModelWeights(*file, spec, *lane.team, options));
  try {
    return std::unique_ptr<Target>(
        std::make_unique<Transformer>(std::move(file), spec, lane, options.max_rows, std::move(weights)));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for the activations of " + std::to_string(options.max_rows) +
                             " rows");
  }
}

}  // namespace longspec
