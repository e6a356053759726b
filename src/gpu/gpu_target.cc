// SPDX-License-Identifier: Apache-2.0
#include "gpu/gpu_target.h"

#include <algorithm>
#include <initializer_list>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "base/thread_team.h"
#include "gpu/gpu_attention.h"
#include "gpu/gpu_logits.h"
#include "gpu/gpu_weights.h"
#include "gpu/repeated_launches.h"
#include "kernels/gpu/bodies.h"
#include "kernels/packing.h"
#include "kv/kv_mover.h"
#include "model/block.h"
#include "model/pass_plan.h"
#include "model/shared_parts.h"
#include "network/rope.h"

namespace longspec {
namespace {

namespace gpu = kernels::gpu;
using kernels::PackedMatrix;

// In which forms rows are multiplied.
struct Forms {
  bool f32 = false, q8 = false, q8k = false;

  explicit Forms(std::initializer_list<const PackedMatrix*> matrices) {
    for (const PackedMatrix* matrix : matrices) {
      const bool super_blocks = kernels::HasSuperBlocks(matrix->format);
      f32 |= !kernels::IsQuantized(matrix->format);
      q8 |= kernels::IsQuantized(matrix->format) && !super_blocks;
      q8k |= super_blocks;
    }
  }
};

// Activations of up to so many rows, in a card's memory. Throws std::bad_alloc.
struct GpuRows {
  GpuRows(Runtime& card, const BlockShape& shape, int most_rows, const InputForms& forms) {
    const auto floats = [&](int width) { return GpuBuffer(card, Z(most_rows) * Z(width) * sizeof(float)); };
    x = floats(shape.n_embd);
    normed = floats(shape.n_embd);
    head_x = floats(shape.n_embd);
    q = floats(shape.q_width());
    q_by_head = floats(shape.q_width());
    attended = floats(shape.q_width());
    k = floats(shape.kv_width());
    v = floats(shape.kv_width());
    gate = floats(shape.n_ff);
    up = floats(shape.n_ff);
    activated = floats(shape.n_ff);
    const size_t widest = Z(shape.widest_input()), rows = Z(most_rows);
    if (forms.q8) q8 = GpuBuffer(card, rows * (widest / kernels::kQuantBlock) * sizeof(kernels::Q8Block));
    if (forms.q8k) q8k = GpuBuffer(card, rows * (widest / kernels::kSuperBlock) * sizeof(kernels::Q8KBlock));
  }

  GpuBuffer x;                    // (n_rows, n_embd): the residual stream
  GpuBuffer normed;               // (n_rows, n_embd)
  GpuBuffer head_x;               // (n logit rows, n_embd)
  GpuBuffer q;                    // (n_rows, n_head * head_dim)
  GpuBuffer q_by_head;            // (n_head_kv, n_rows, group, head_dim), rows by Attention::Place
  GpuBuffer attended;             // (n_rows, n_head * head_dim)
  GpuBuffer k, v;                 // (n_rows, n_head_kv * head_dim)
  GpuBuffer gate, up, activated;  // (n_rows, n_ff)
  GpuBuffer q8, q8k;              // the input of the product that comes
};

BlockShape ShapeOf(const ModelSpec& spec) {
  BlockShape shape = BlockOf(spec);
  shape.n_rotations = static_cast<int>(spec.attentions.size());
  return shape;
}

class GpuTarget final : public Target {
 public:
  GpuTarget(std::shared_ptr<Runtime> card, const KvMover& mover, std::shared_ptr<const GgufFile> file,
            const ModelSpec& spec, const CpuLane& lane, int max_rows, GpuWeights weights,
            const ModelWeights& on_host)
      : card_(std::move(card)),
        mover_(mover),
        file_(std::move(file)),
        spec_(spec),
        weights_(std::move(weights)),
        head_(on_host.output.matrix()),
        shared_{.sizes = &spec_,
                .lane = lane,
                .embedding = on_host.embedding,
                .output = &head_.matrix,
                .head = on_host.head,
                .bf16_format = spec_.bf16_format},
        states_(*card_),
        logit_memory_(*card_),
        rows_(*card_, ShapeOf(spec_), max_rows, on_host.input_forms),
        lists_(*card_),
        repeated_(*card_),
        fetches_(*card_, *on_host_, &launches_),
        plan_(
            spec_,
            [this](const AttentionShape& shape) {
              return std::make_unique<GpuAttention>(*card_, shape, &attention_states_, &launches_, &fetches_);
            },
            max_rows) {
    for (const AttentionSpec& kind : spec_.attentions) rotations_.emplace_back(spec_.rope_of(kind));
  }

  int vocab_size() const override { return spec_.n_logits; }
  int context_length() const override { return spec_.context_length(); }
  const SharedParts* shared_parts() const override { return &shared_; }

  std::shared_ptr<ChunkPool> NewPool(const KvLayout& layout, int n_layer,
                                     const KvOffload& offload) const override {
    LS_CHECK(offload.folder.empty());  // refused where options are read
    const size_t bytes = KvChunkBytes(layout, n_layer);
    std::vector<ChunkTier> tiers = {{.memory = std::make_shared<GpuChunks>(card_, bytes)}};
    if (offload.to_host) {
      tiers.front().most_chunks = offload.memory_chunks;
      tiers.push_back({.memory = std::make_shared<GpuChunks>(card_, bytes, on_host_)});
      on_host_->ExpectFetched(offload.fetched_chunks);
    }
    return std::make_shared<ChunkPool>(layout, n_layer, std::move(tiers), mover_);
  }
  std::unique_ptr<LayerPrefix> NewPrefix(const KvLayout& layout, int n_layers) const override {
    return std::make_unique<LayerPrefix>(NewPool(layout, n_layers, {}), spec_.n_embd, states_);
  }

  Result<TargetOutput> Forward(std::span<const ForwardSegment> segments) override;
  Status RunPrefix(std::span<const PrefixSegment> segments) override;

 private:
  // Of a stage and a kind of attention: lists of its rows.
  struct KindLists {
    size_t places;   // where keys and values go
    size_t queries;  // whose query is at each place of attention's
  };

  // Starts what the layers of a pass are, as `list` lists it: all it reads was brought. Attention is run in
  // the layers of the stages before `layer_end`.
  template <typename List>
  void LaunchPass(int layer_end, const List& list);
  // Rows of x as their tokens' embeddings (token_of(row) < 0: it has none), and lists that launches read.
  template <typename TokenOf>
  void Bring(const TokenOf& token_of, std::span<const int> logit_places);
  void BeginPrefixRows(std::span<const ForwardSegment> segments);
  void RunLayer(ThreadTeam::Worker& worker, size_t stage, int layer, bool tap_queries);
  void StoreKeys(size_t stage, int layer);
  void FinishKeys(size_t stage, int layer, int n_rows);
  void FinishHeads(float* x, int n_heads, int n_rows, const float* bias, const float* norm);
  void Rotate(float* x, int n_heads, int n_rows, int kind);
  void AddMlp(const LayerSpec& spec, const GpuWeights::Layer& w, int n_rows);
  void AddProduct(const PackedMatrix& w, const float* input, const float* norm, int n_rows);
  void RunHead();

  void Norm(const float* x, const float* w, int n_rows, const Forms& forms);
  void Convert(const float* x, int width, int n_rows, const Forms& forms);
  void Multiply(const PackedMatrix& w, const float* input, float* y, int n_rows, bool add);
  void Add(float* x, const float* y, int64_t n);
  // Rows of a list that was brought.
  void Gather(const float* from, int width, size_t rows, int first, int n, float* to);
  void Tap(int layer);

  PassStage& stage(size_t i) { return plan_.stages()[i]; }
  size_t KindAt(size_t stage, int kind) const { return stage * spec_.attentions.size() + Z(kind); }
  int q_width() const { return spec_.n_head * spec_.head_dim; }
  int kv_width() const { return spec_.n_head_kv * spec_.head_dim; }
  float* x() const { return rows_.x.as<float>(); }
  float* normed() const { return rows_.normed.as<float>(); }

  const std::shared_ptr<Runtime> card_;
  const KvMover& mover_;
  const std::shared_ptr<const GgufFile> file_;  // keeps the mapped embedding alive
  const ModelSpec spec_;
  const GpuWeights weights_;
  const HostMatrix head_;  // for drafts
  const SharedParts shared_;
  const GpuStates states_;
  const std::shared_ptr<ChunksOnHost> on_host_ = std::make_shared<ChunksOnHost>();
  GpuLogits logit_memory_;
  std::vector<RopeTable> rotations_;  // of each kind of attention
  ThreadTeam stream_{1};              // as whose worker attention is run

  // Of one pass.
  GpuRows rows_;
  GpuBuffer attention_states_, logits_, tapped_;
  GpuLists lists_;
  std::vector<KindLists> kinds_;  // (stages, kinds)
  std::vector<size_t> angles_;    // of each kind: (n_rows, n_rot / 2, 2), by place
  size_t places_ = 0;             // of each row its place
  size_t logit_places_ = 0;       // of the rows that pass the head
  std::vector<float> embedded_;
  gpu::LaunchList launches_;
  RepeatedLaunches repeated_;
  ChunkFetches fetches_;
  PassPlan plan_;
};

// ---- What is brought before a pass

template <typename TokenOf>
void GpuTarget::Bring(const TokenOf& token_of, std::span<const int> logit_places) {
  const int n_rows = plan_.n_rows();
  embedded_.assign(Z(n_rows) * Z(spec_.n_embd), 0.0F);
  for (int place = 0; place < n_rows; ++place) {
    const int32_t token = token_of(plan_.row_at(place));
    if (token < 0) continue;
    float* const to = embedded_.data() + Z(place) * Z(spec_.n_embd);
    LS_CHECK(shared_.Embed(token, to).ok());  // tokens were looked at as the pass was planned
    if (spec_.embedding_scale == 1.0F) continue;
    for (int i = 0; i < spec_.n_embd; ++i) to[i] *= spec_.embedding_scale;
  }
  card_->Copy(embedded_.data(), x(), embedded_.size() * sizeof(float));

  lists_.Clear();
  angles_.clear();
  std::vector<float> angles(Z(n_rows) * Z(spec_.rope.n_rot));
  for (const RopeTable& rotation : rotations_) {
    for (int place = 0; place < n_rows; ++place)
      rotation.Row(plan_.row_at(place).position, angles.data() + Z(place) * Z(spec_.rope.n_rot));
    angles_.push_back(lists_.Add(angles));
  }
  kinds_.clear();
  for (const PassStage& of : plan_.stages()) {
    for (const PassStage::Kind& kind : of.kinds) {
      std::vector<gpu::StoreKv::Place> to;
      std::vector<int32_t> queries(kind.places.size());
      for (size_t place = 0; place < kind.places.size(); ++place) {
        const RowPlace& row = kind.places[place];
        queries[Z(row.query)] = static_cast<int32_t>(place);
        to.push_back({.keys = row.to->keys(row.slot / kKvChunk, 0),
                      .values = row.to->values(row.slot / kKvChunk, 0),
                      .offset = row.slot % kKvChunk});
      }
      kinds_.push_back({.places = lists_.Add(to), .queries = lists_.Add(queries)});
    }
  }
  std::vector<int32_t> places;
  for (int row = 0; row < n_rows; ++row) places.push_back(plan_.place_of(row));
  places_ = lists_.Add(places);
  logit_places_ = lists_.Add(logit_places);
  lists_.Bring();
}

// Their keys and values, and the residual stream after the layers that were run elsewhere.
void GpuTarget::BeginPrefixRows(std::span<const ForwardSegment> segments) {
  for (int place = 0; place < plan_.n_rows(); ++place) {
    const PassRow& row = plan_.row_at(place);
    if (row.prefix_row < 0) continue;
    const ForwardSegment& segment = segments[Z(row.segment)];
    segment.prefix->hidden().From(row.prefix_row, 1).Copy(x() + Z(place) * Z(spec_.n_embd));
    const SlotMove move = {.from = row.prefix_row, .to = segment.kv->slot() + row.index};
    mover_.MoveSlots(segment.prefix->span(), plan_.writer(Z(row.segment)), segment.prefix->n_layers(),
                     {&move, 1});
  }
}

// ---- Passes

template <typename List>
void GpuTarget::LaunchPass(int layer_end, const List& list) {
  launches_.Clear();
  for (const PassStage& of : plan_.stages()) {
    for (int layer = of.layer_begin; layer < std::min(of.layer_end, layer_end); ++layer) {
      const PassStage::Kind& kind = of.kinds[Z(spec_.layers[Z(layer)].attention)];
      static_cast<const GpuAttention&>(*kind.attention).AddFetches(layer);
    }
  }
  fetches_.Start();
  stream_.Run(list);
  LS_CHECK(fetches_.AreAllRead());
  if (plan_.n_rows() <= GpuAttention::kFewRows) {
    repeated_.Launch(launches_);
  } else {
    card_->LaunchAll(launches_);
  }
}

Result<TargetOutput> GpuTarget::Forward(std::span<const ForwardSegment> segments) {
  fetches_.Begin();
  LS_TRY(plan_.Plan(segments));
  const auto n_logit_rows = static_cast<int>(plan_.logit_rows().size());
  LogitRows logits;
  try {
    tapped_.Reserve(*card_, plan_.tapped_floats() * sizeof(float));
    logits_.Reserve(*card_, Z(n_logit_rows) * Z(spec_.n_logits) * sizeof(float));
    logits = logit_memory_.Begin(logits_.as<float>(), n_logit_rows, spec_.n_logits);
    std::vector<int> logit_places;
    for (const int row : plan_.logit_rows()) logit_places.push_back(plan_.place_of(row));
    Bring(
        [&](const PassRow& row) {
          return row.prefix_row >= 0 ? -1 : segments[Z(row.segment)].tokens[Z(row.index)];
        },
        logit_places);
    BeginPrefixRows(segments);
    LaunchPass(plan_.ends_with_keys() ? spec_.n_layer - 1 : spec_.n_layer, [&](ThreadTeam::Worker& worker) {
      const int first_layer = stage(0).layer_begin;
      if (first_layer > 0) Tap(first_layer - 1);
      for (size_t s = 0; s < plan_.stages().size(); ++s) {
        for (int layer = stage(s).layer_begin; layer < stage(s).layer_end; ++layer) {
          if (layer == spec_.n_layer - 1 && plan_.ends_with_keys()) {
            StoreKeys(s, layer);
            return;
          }
          RunLayer(worker, s, layer, true);
          Tap(layer);
        }
      }
      Tap(HiddenTap::kFinal);
      RunHead();
    });
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(card_->facts().name + ": no memory for a forward pass of " +
                             std::to_string(plan_.n_rows()) + " rows");
  }
  LS_TRY(card_->Wait());
  return plan_.Output(segments, logits, tapped_.as<float>(), states_);
}

Status GpuTarget::RunPrefix(std::span<const PrefixSegment> segments) {
  fetches_.Begin();
  LS_TRY(plan_.PlanPrefix(segments));
  const int n_rows = plan_.n_rows();
  if (n_rows == 0) return {};
  try {
    Bring([&](const PassRow& row) { return segments[Z(row.segment)].tokens[Z(row.index)]; }, {});
    LaunchPass(spec_.n_layer, [&](ThreadTeam::Worker& worker) {
      for (int layer = 0; layer < stage(0).layer_end; ++layer) RunLayer(worker, 0, layer, false);
    });
  } catch (const std::bad_alloc&) {
    PassPlan::ForgetPrefixRows(segments);
    return ResourceExhausted(card_->facts().name + ": no memory for the first layers of " +
                             std::to_string(n_rows) + " rows");
  }
  for (int row = 0; row < n_rows; ++row) {
    const PassRow& of = plan_.rows()[Z(row)];
    card_->Copy(x() + Z(row) * Z(spec_.n_embd), segments[Z(of.segment)].prefix->hidden(of.prefix_row),
                Z(spec_.n_embd) * sizeof(float));
  }
  Status status = card_->Wait();
  if (!status.ok()) PassPlan::ForgetPrefixRows(segments);
  return status;
}

// ---- Layers

void GpuTarget::RunLayer(ThreadTeam::Worker& worker, size_t s, int layer, bool tap_queries) {
  using enum TensorRole;
  const LayerSpec& spec = spec_.layers[Z(layer)];
  const GpuWeights::Layer& w = weights_.layers[Z(layer)];
  PassStage::Kind& kind = stage(s).kinds[Z(spec.attention)];
  const KindLists& lists = kinds_[KindAt(s, spec.attention)];
  const auto n_rows = static_cast<int>(kind.places.size());
  auto* const q = rows_.q.as<float>();

  Norm(x(), w.vector(kAttentionNorm), n_rows, Forms({&w.matrix(kQuery), &w.matrix(kKey), &w.matrix(kValue)}));
  Multiply(w.matrix(kQuery), normed(), q, n_rows, false);
  Multiply(w.matrix(kKey), normed(), rows_.k.as<float>(), n_rows, false);
  Multiply(w.matrix(kValue), normed(), rows_.v.as<float>(), n_rows, false);
  FinishKeys(s, layer, n_rows);
  FinishHeads(q, spec_.n_head, n_rows, w.vector(kQueryBias), w.vector(kQueryNorm));
  Rotate(q, spec_.n_head, n_rows, spec.attention);
  launches_.Add<gpu::Each<gpu::QueriesByHead>>({.of = {.q = q,
                                                       .rows = lists_.At<int32_t>(lists.queries),
                                                       .n_rows = n_rows,
                                                       .n_kv_head = spec_.n_head_kv,
                                                       .group = q_width() / spec_.n_head_kv},
                                                .out = rows_.q_by_head.as<float>(),
                                                .n = n_rows * q_width()});
  if (tap_queries) {
    for (const QueryTap& tap : plan_.query_taps()) {
      const int n = tap.row_end - tap.row_begin;
      Gather(q, q_width(), places_, tap.row_begin, n,
             tapped_.as<float>() + tap.at + Z(layer) * Z(n) * Z(q_width()));
    }
  }
  auto* const attended = rows_.attended.as<float>();
  kind.attention->Run(worker, layer, rows_.q_by_head.as<float>(), attended);
  Convert(attended, q_width(), n_rows, Forms({&w.matrix(kAttentionOutput)}));
  AddProduct(w.matrix(kAttentionOutput), attended, w.vector(kAttentionBranchNorm), n_rows);
  AddMlp(spec, w, n_rows);
}

// All that is needed of a layer whose rows are only to be seen by others.
void GpuTarget::StoreKeys(size_t s, int layer) {
  using enum TensorRole;
  const GpuWeights::Layer& w = weights_.layers[Z(layer)];
  const int n_rows = stage(s).n_rows();
  Norm(x(), w.vector(kAttentionNorm), n_rows, Forms({&w.matrix(kKey), &w.matrix(kValue)}));
  Multiply(w.matrix(kKey), normed(), rows_.k.as<float>(), n_rows, false);
  Multiply(w.matrix(kValue), normed(), rows_.v.as<float>(), n_rows, false);
  FinishKeys(s, layer, n_rows);
}

// Keys rotated, and stored with the values.
void GpuTarget::FinishKeys(size_t s, int layer, int n_rows) {
  using enum TensorRole;
  const LayerSpec& spec = spec_.layers[Z(layer)];
  const GpuWeights::Layer& w = weights_.layers[Z(layer)];
  auto* const k = rows_.k.as<float>();
  auto* const v = rows_.v.as<float>();
  FinishHeads(k, spec_.n_head_kv, n_rows, w.vector(kKeyBias), w.vector(kKeyNorm));
  FinishHeads(v, spec_.n_head_kv, n_rows, w.vector(kValueBias), nullptr);
  Rotate(k, spec_.n_head_kv, n_rows, spec.attention);
  const KvLayout& layout = stage(s).kinds[Z(spec.attention)].places.front().to->layout;
  launches_.Add<gpu::StoreKv>(
      {.k = k,
       .v = v,
       .row_stride = kv_width(),
       .places = lists_.At<gpu::StoreKv::Place>(kinds_[KindAt(s, spec.attention)].places),
       .place = {},
       .k_head_bytes = static_cast<int64_t>(layout.k_head_bytes()),
       .v_head_bytes = static_cast<int64_t>(layout.v_head_bytes()),
       .layer_offset = int64_t{layer} * static_cast<int64_t>(layout.layer_bytes()),
       .n_rows = n_rows,
       .n_heads = spec_.n_head_kv,
       .head_dim = spec_.head_dim,
       .k_type = KernelType(layout.k_type),
       .v_type = KernelType(layout.v_type)});
}

// Heads of a projection with their biases and norms, where there are any.
void GpuTarget::FinishHeads(float* of, int n_heads, int n_rows, const float* bias, const float* norm) {
  const int width = n_heads * spec_.head_dim;
  if (bias != nullptr) {
    launches_.Add<gpu::Each<gpu::WithBias>>(
        {.of = {.x = of, .bias = bias, .width = width}, .out = of, .n = n_rows * width});
  }
  if (norm != nullptr) {
    launches_.Add<gpu::RmsNorm>({.rows = {.x = of,
                                          .stride = spec_.head_dim,
                                          .w = norm,
                                          .n = spec_.head_dim,
                                          .n_rows = n_rows * n_heads,
                                          .eps = spec_.rms_eps},
                                 .y = of,
                                 .y_stride = spec_.head_dim});
  }
}

void GpuTarget::Rotate(float* of, int n_heads, int n_rows, int kind) {
  launches_.Add<gpu::Rope>({.x = of,
                            .row_stride = int64_t{n_heads} * spec_.head_dim,
                            .head_stride = spec_.head_dim,
                            .cos_sin = lists_.At<float>(angles_[Z(kind)]),
                            .n_rows = n_rows,
                            .n_heads = n_heads,
                            .n_rot = spec_.rope.n_rot,
                            .pairing = spec_.rope.pairing});
}

void GpuTarget::AddMlp(const LayerSpec& spec, const GpuWeights::Layer& w, int n_rows) {
  using enum TensorRole;
  const PackedMatrix& down = w.matrix(kDown);
  auto* const gate = rows_.gate.as<float>();
  auto* const up = rows_.up.as<float>();
  Norm(x(), w.vector(kMlpNorm), n_rows, Forms({&w.matrix(kGate), &w.matrix(kUp)}));
  Multiply(w.matrix(kGate), normed(), gate, n_rows, false);
  Multiply(w.matrix(kUp), normed(), up, n_rows, false);
  const Forms forms({&down});
  const auto activate = [&]<typename Gate>() {
    const gpu::GatedRows<Gate> source = {.g = gate, .u = up, .stride = spec_.n_ff};
    if (forms.q8k) {
      launches_.Add<gpu::Quantize<gpu::ToQ8K, gpu::GatedRows<Gate>>>(
          {.source = source, .out = rows_.q8k.as<kernels::Q8KBlock>(), .n = spec_.n_ff, .n_rows = n_rows});
    } else if (forms.q8) {
      launches_.Add<gpu::Quantize<gpu::ToQ8, gpu::GatedRows<Gate>>>(
          {.source = source, .out = rows_.q8.as<kernels::Q8Block>(), .n = spec_.n_ff, .n_rows = n_rows});
    } else {
      launches_.Add<gpu::Each<gpu::Gated<Gate>>>(
          {.of = {.g = gate, .u = up}, .out = rows_.activated.as<float>(), .n = n_rows * spec_.n_ff});
    }
  };
  if (spec.gate == GateFunction::kGelu) {
    activate.operator()<gpu::Gelu>();
  } else {
    activate.operator()<gpu::Silu>();
  }
  AddProduct(down, rows_.activated.as<float>(), w.vector(kMlpBranchNorm), n_rows);
}

// x += norm(w * input), or x += w * input where there is no norm. The input is converted.
void GpuTarget::AddProduct(const PackedMatrix& w, const float* input, const float* norm, int n_rows) {
  if (norm == nullptr) {
    Multiply(w, input, x(), n_rows, true);
    return;
  }
  Multiply(w, input, normed(), n_rows, false);
  launches_.Add<gpu::RmsNorm>({.rows = {.x = normed(),
                                        .stride = spec_.n_embd,
                                        .w = norm,
                                        .n = spec_.n_embd,
                                        .n_rows = n_rows,
                                        .eps = spec_.rms_eps},
                               .y = normed(),
                               .y_stride = spec_.n_embd});
  Add(x(), normed(), int64_t{n_rows} * spec_.n_embd);
}

void GpuTarget::RunHead() {
  const auto n = static_cast<int>(plan_.logit_rows().size());
  if (n == 0) return;
  auto* const head_x = rows_.head_x.as<float>();
  Gather(x(), spec_.n_embd, logit_places_, 0, n, head_x);
  Norm(head_x, weights_.output_norm, n, Forms({&weights_.output}));
  Multiply(weights_.output, normed(), logits_.as<float>(), n, false);
}

// What is tapped of all rows after a layer, or of what the head sees.
void GpuTarget::Tap(int layer) {
  for (const HiddenTap& tap : plan_.hidden_taps()) {
    if (tap.layer != layer) continue;
    const int n = tap.row_end - tap.row_begin;
    float* const to = tapped_.as<float>() + tap.at;
    Gather(x(), spec_.n_embd, places_, tap.row_begin, n, to);
    if (layer != HiddenTap::kFinal) continue;
    launches_.Add<gpu::RmsNorm>({.rows = {.x = to,
                                          .stride = spec_.n_embd,
                                          .w = weights_.output_norm,
                                          .n = spec_.n_embd,
                                          .n_rows = n,
                                          .eps = spec_.rms_eps},
                                 .y = to,
                                 .y_stride = spec_.n_embd});
  }
}

// ---- Operations

// normed = rms_norm(x) * w in the forms that the products to come read.
void GpuTarget::Norm(const float* of, const float* w, int n_rows, const Forms& forms) {
  const gpu::NormRows rows = {
      .x = of, .stride = spec_.n_embd, .w = w, .n = spec_.n_embd, .n_rows = n_rows, .eps = spec_.rms_eps};
  if (!forms.f32 && !forms.q8) {
    launches_.Add<gpu::QuantizeNorm<gpu::ToQ8K>>({.rows = rows, .out = rows_.q8k.as<kernels::Q8KBlock>()});
  } else if (!forms.f32 && !forms.q8k) {
    launches_.Add<gpu::QuantizeNorm<gpu::ToQ8>>({.rows = rows, .out = rows_.q8.as<kernels::Q8Block>()});
  } else {
    launches_.Add<gpu::RmsNorm>({.rows = rows, .y = normed(), .y_stride = spec_.n_embd});
    Convert(normed(), spec_.n_embd, n_rows, forms);
  }
}

void GpuTarget::Convert(const float* of, int width, int n_rows, const Forms& forms) {
  const gpu::PlainRows source = {.x = of, .stride = width};
  if (forms.q8k) {
    launches_.Add<gpu::Quantize<gpu::ToQ8K>>(
        {.source = source, .out = rows_.q8k.as<kernels::Q8KBlock>(), .n = width, .n_rows = n_rows});
  }
  if (forms.q8) {
    launches_.Add<gpu::Quantize<gpu::ToQ8>>(
        {.source = source, .out = rows_.q8.as<kernels::Q8Block>(), .n = width, .n_rows = n_rows});
  }
}

// y (n_rows, n_out) = or += w * input, which was converted.
void GpuTarget::Multiply(const PackedMatrix& w, const float* input, float* y, int n_rows, bool add) {
  if (!kernels::IsQuantized(w.format)) {
    kernels::WithFloatFormat(w.format, [&](auto f) {
      launches_.Add<gpu::FloatRows<decltype(f)::kValue>>({.w = w.data,
                                                          .group_bytes = w.group_bytes,
                                                          .n_in = w.n_in,
                                                          .n_out = w.n_out,
                                                          .x = input,
                                                          .x_stride = w.n_in,
                                                          .y = y,
                                                          .y_stride = w.n_out,
                                                          .n_rows = n_rows,
                                                          .add = add});
    });
    return;
  }
  const auto product = [&]<typename Units>(const typename Units::Activations* of) {
    gpu::LaunchProduct<Units>({.w = w.data,
                               .group_bytes = w.group_bytes,
                               .n_out = w.n_out,
                               .n_groups = gpu::CeilDiv(w.n_out, kernels::kRowGroup),
                               .n_units = static_cast<int>(w.n_in / Units::kValues),
                               .x = of,
                               .y = y,
                               .y_stride = w.n_out,
                               .n_rows = n_rows,
                               .add = add},
                              [&](auto body, const auto& args) { launches_.Add<decltype(body)>(args); });
  };
  if (kernels::HasSuperBlocks(w.format)) {
    kernels::WithSuperFormat(w.format, [&](auto f) {
      product.template operator()<gpu::UnitsQ8K<decltype(f)::kValue>>(rows_.q8k.as<kernels::Q8KBlock>());
    });
  } else {
    kernels::WithQ8Format(w.format, [&](auto f) {
      product.template operator()<gpu::UnitsQ8<decltype(f)::kValue>>(rows_.q8.as<kernels::Q8Block>());
    });
  }
}

void GpuTarget::Add(float* to, const float* y, int64_t n) {
  launches_.Add<gpu::Each<gpu::Sum>>({.of = {.x = to, .y = y}, .out = to, .n = static_cast<int>(n)});
}

void GpuTarget::Gather(const float* from, int width, size_t rows, int first, int n, float* to) {
  launches_.Add<gpu::Each<gpu::GatheredRows>>(
      {.of = {.from = from, .rows = lists_.At<int32_t>(rows) + first, .width = width},
       .out = to,
       .n = n * width});
}

}  // namespace

ModelMemory PlanGpuMemory(const ModelSpec& spec, const GgufFile& file, int max_rows) {
  ModelMemory memory = PlanModelMemory(spec, file, max_rows);
  memory.scratch += GpuAttention::kStateBytes;
  return memory;
}

Status CheckGpuModel(const ModelSpec& spec, const KvLayout& layout) {
  if (spec.attention_kind != AttentionKind::kFlash)
    return Unsupported("--attn-implementation: a card has flash alone");
  if (spec.bf16_format != kernels::WeightFormat::kBF16)
    return Unsupported("--bf16-weights: a card multiplies them in f32 alone");
  return CheckGpuAttention(spec.attention(), layout);
}

Result<std::unique_ptr<Target>> LoadGpuModel(std::shared_ptr<Runtime> card, const KvMover& mover,
                                             std::shared_ptr<const GgufFile> file, const ModelSpec& spec,
                                             const CpuLane& lane, const ModelLoadOptions& options) {
  LS_ASSIGN(const auto on_host, LoadModelWeights(*file, spec, *lane.team, options));
  LS_ASSIGN(GpuWeights weights, CopyToCard(*card, *on_host));
  const std::string name = card->facts().name;
  try {
    return std::unique_ptr<Target>(std::make_unique<GpuTarget>(
        std::move(card), mover, std::move(file), spec, lane, options.max_rows, std::move(weights), *on_host));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(name + ": no memory for the activations of " + std::to_string(options.max_rows) +
                             " rows");
  }
}

}  // namespace longspec
