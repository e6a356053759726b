// SPDX-License-Identifier: Apache-2.0
//
// The forward pass. Every worker of the team runs all of it; between two operations that need each other's
// whole result stands a barrier. Row results do not depend on the rows beside them, because no kernel's do.
#include "model/llama.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "model/linear.h"
#include "model/llama_weights.h"
#include "model/shared_parts.h"
#include "tensor/dequantize.h"

namespace longspec {
namespace {

using kernels::kQuantBlock;
using kernels::Q8Block;

size_t Z(int64_t n) { return static_cast<size_t>(n); }

// Activations of up to max_rows rows; sizes in floats per row.
struct Widths {
  explicit Widths(const LlamaConfig& c)
      : embd(c.n_embd),
        q(c.n_head * c.head_dim),
        kv(c.n_head_kv * c.head_dim),
        ff(c.n_ff),
        rot(c.rope.n_rot) {}
  int embd, q, kv, ff, rot;
  int widest_input() const { return std::max({embd, q, ff}); }
  size_t row_bytes(bool in_bf16) const {
    const size_t floats = Z(3 * embd) + Z(3 * q) + Z(2 * kv) + Z(3 * ff) + Z(rot);
    return floats * sizeof(float) + Z(widest_input() / kQuantBlock) * sizeof(Q8Block) +
           (in_bf16 ? Z(widest_input()) * sizeof(uint16_t) : 0);
  }
};

struct Buffers {
  Buffers(const Widths& w, int max_rows, bool in_bf16) {
    const auto floats = [&](int width) { return AlignedBuffer(Z(max_rows) * Z(width) * sizeof(float)); };
    x = floats(w.embd);
    normed = floats(w.embd);
    out_rows = floats(w.embd);
    q = floats(w.q);
    q_by_head = floats(w.q);
    attended = floats(w.q);
    k = floats(w.kv);
    v = floats(w.kv);
    gate = floats(w.ff);
    up = floats(w.ff);
    activated = floats(w.ff);
    cos_sin = floats(w.rot);
    q8 = AlignedBuffer(Z(max_rows) * Z(w.widest_input() / kQuantBlock) * sizeof(Q8Block));
    if (in_bf16) bf16 = AlignedBuffer(Z(max_rows) * Z(w.widest_input()) * sizeof(uint16_t));
  }
  AlignedBuffer x, normed, out_rows, q, q_by_head, attended, k, v, gate, up, activated, cos_sin, q8;
  AlignedBuffer bf16;  // empty if no weights multiply in bf16
};

// One row of the call: whose it is, and where it stands.
struct Row {
  int segment;
  int index;     // in its segment
  int position;  // absolute
};

class Llama final : public Target {
 public:
  Llama(std::shared_ptr<const GgufFile> file, const LlamaConfig& config, const LlamaLoadOptions& options,
        std::unique_ptr<const LlamaWeights> weights)
      : file_(std::move(file)),
        config_(config),
        widths_(config),
        kernels_(*options.kernels),
        team_(*options.team),
        max_rows_(options.max_rows),
        weights_(std::move(weights)),
        rope_(config.rope),
        shared_{&config_, &kernels_, &team_, weights_->embedding, &weights_->output.matrix()},
        buffers_(widths_, max_rows_, weights_->any_in_bf16) {}

  int vocab_size() const override { return config_.n_vocab; }
  int context_length() const override {
    return static_cast<int>(std::min(config_.n_ctx_train * std::max(1.0, config_.rope.scale), 2147483647.0));
  }

  const SharedParts* shared_parts() const override { return &shared_; }

  Result<TargetOutput> Forward(std::span<const ForwardSegment> segments, const Taps& taps) override {
    LS_TRY(Prepare(segments, taps));
    team_.Run([&](ThreadTeam::Worker& worker) { ForwardOn(worker, segments, taps); });
    return Output(segments, taps);
  }

 private:
  Status Prepare(std::span<const ForwardSegment> segments, const Taps& taps);
  TargetOutput Output(std::span<const ForwardSegment> segments, const Taps& taps) const;
  void ForwardOn(ThreadTeam::Worker& worker, std::span<const ForwardSegment> segments, const Taps& taps);
  void Attend(ThreadTeam::Worker& worker, int layer, std::span<const ForwardSegment> segments);
  void FeedForward(ThreadTeam::Worker& worker, const LlamaLayer& layer);
  void Normalise(const ThreadTeam::Worker& worker, const float* x, const std::vector<float>& w, int n_rows);
  void Convert(const float* x, size_t at, int n);
  void Quantise(const ThreadTeam::Worker& worker, const float* x, int width, int n_rows);
  void RotateAndStore(const ThreadTeam::Worker& worker, int layer, std::span<const ForwardSegment> segments);
  void FinishProjection(float* head, int first, const std::vector<float>& bias,
                        const std::vector<float>& norm) const;
  void Activate(const ThreadTeam::Worker& worker);

  int n_rows() const { return static_cast<int>(rows_.size()); }
  Activations Input(const float* x, int width) const {
    return {.f32 = x, .q8 = buffers_.q8.as<Q8Block>(), .bf16 = buffers_.bf16.as<uint16_t>(), .width = width};
  }

  const std::shared_ptr<const GgufFile> file_;  // keeps the mapped embedding alive
  const LlamaConfig config_;
  const Widths widths_;
  const kernels::KernelTable& kernels_;
  ThreadTeam& team_;
  const int max_rows_;
  const std::unique_ptr<const LlamaWeights> weights_;
  const RopeTable rope_;
  const SharedParts shared_;

  Buffers buffers_;
  std::vector<Row> rows_;
  std::vector<int> first_row_;            // of each segment
  std::vector<int> logit_rows_;           // rows whose logits are asked for
  std::vector<AttentionPlan> attention_;  // one per segment
  std::vector<float> logits_;             // (logit_rows_, n_vocab)
  std::vector<std::vector<float>> taps_;  // per tapped layer: (n_rows, n_embd)
  std::vector<float> final_hidden_;       // (n_rows, n_embd), if tapped
};

Status Llama::Prepare(std::span<const ForwardSegment> segments, const Taps& taps) {
  rows_.clear();
  first_row_.clear();
  logit_rows_.clear();
  for (size_t s = 0; s < segments.size(); ++s) {
    const ForwardSegment& segment = segments[s];
    const auto n = static_cast<int>(segment.tokens.size());
    LS_CHECK(n > 0 && segment.kv != nullptr && segment.kv->n_rows() == n);
    LS_CHECK(segment.parents.empty() || segment.parents.size() == segment.tokens.size());
    const int first = n_rows();
    first_row_.push_back(first);
    for (int i = 0; i < n; ++i) {
      const int32_t token = segment.tokens[Z(i)];
      if (token < 0 || token >= config_.n_vocab) {
        return InvalidArgument("token " + std::to_string(token) + " is outside the vocabulary of " +
                               std::to_string(config_.n_vocab));
      }
      int position = segment.kv->base() + i;
      if (!segment.parents.empty()) {
        const int32_t parent = segment.parents[Z(i)];
        LS_CHECK(parent < i);
        position = parent < 0 ? segment.kv->base() : rows_[Z(first + parent)].position + 1;
      }
      rows_.push_back({static_cast<int>(s), i, position});
      if (segment.logits == LogitsFor::kAllRows || (segment.logits == LogitsFor::kLastRow && i == n - 1)) {
        logit_rows_.push_back(first + i);
      }
    }
  }
  if (n_rows() > max_rows_) {
    return InvalidArgument("a forward pass of " + std::to_string(n_rows()) +
                           " rows; this model was loaded for " + std::to_string(max_rows_) + " (batch_size)");
  }
  for (const int layer : taps.hidden_layers) LS_CHECK(layer >= 0 && layer < config_.n_layer);
  try {
    while (attention_.size() < segments.size())
      attention_.emplace_back(&kernels_, config_.attention(), team_.size());
    for (size_t s = 0; s < segments.size(); ++s) {
      attention_[s].Plan(segments[s].kv->slot(), segments[s].kv->n_rows(), segments[s].parents);
    }
    logits_.resize(std::max(logits_.size(), logit_rows_.size() * Z(config_.n_vocab)));
    taps_.resize(taps.hidden_layers.size());
    for (auto& tap : taps_) tap.resize(rows_.size() * Z(config_.n_embd));
    if (taps.final_hidden) final_hidden_.resize(rows_.size() * Z(config_.n_embd));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for a forward pass of " + std::to_string(n_rows()) + " rows");
  }
  for (int r = 0; r < n_rows(); ++r) {
    rope_.Row(rows_[Z(r)].position, buffers_.cos_sin.as<float>() + Z(r) * Z(widths_.rot));
  }
  return {};
}

TargetOutput Llama::Output(std::span<const ForwardSegment> segments, const Taps& taps) const {
  TargetOutput output;
  output.vocab = config_.n_vocab;
  output.width = config_.n_embd;
  size_t next_logits = 0;
  for (size_t s = 0; s < segments.size(); ++s) {
    TargetOutput::Segment out;
    out.logits = logits_.data() + next_logits * Z(config_.n_vocab);
    while (next_logits < logit_rows_.size() &&
           rows_[Z(logit_rows_[next_logits])].segment == static_cast<int>(s)) {
      ++next_logits;
      ++out.n_logits;
    }
    const size_t first = Z(first_row_[s]) * Z(config_.n_embd);
    for (const auto& tap : taps_) out.hidden.push_back(tap.data() + first);
    if (taps.final_hidden) out.final_hidden = final_hidden_.data() + first;
    output.segments.push_back(std::move(out));
  }
  return output;
}

void Llama::ForwardOn(ThreadTeam::Worker& worker, std::span<const ForwardSegment> segments,
                      const Taps& taps) {
  float* x = buffers_.x.as<float>();
  const size_t row_bytes = Z(config_.n_embd) * sizeof(float);
  const auto share = worker.ShareOf(n_rows());
  for (int r = share.begin; r < share.end; ++r) {
    const int32_t token = segments[Z(rows_[Z(r)].segment)].tokens[Z(rows_[Z(r)].index)];
    const TensorView& embedding = weights_->embedding;
    DequantizeRow(embedding.dtype, embedding.row(token), config_.n_embd, x + Z(r) * Z(config_.n_embd));
  }
  worker.Barrier();
  for (int i = 0; i < config_.n_layer; ++i) {
    const LlamaLayer& layer = weights_->layers[Z(i)];
    Attend(worker, i, segments);
    FeedForward(worker, layer);
    for (size_t t = 0; t < taps.hidden_layers.size(); ++t) {
      if (taps.hidden_layers[t] != i) continue;
      for (int r = share.begin; r < share.end; ++r) {
        std::memcpy(taps_[t].data() + Z(r) * Z(config_.n_embd), x + Z(r) * Z(config_.n_embd), row_bytes);
      }
    }
  }

  if (taps.final_hidden) {
    for (int r = share.begin; r < share.end; ++r) {
      const size_t at = Z(r) * Z(config_.n_embd);
      kernels_.rms_norm(x + at, weights_->output_norm.data(), config_.n_embd, config_.rms_eps,
                        final_hidden_.data() + at);
    }
  }
  // Only the rows whose logits are asked for pass the head.
  const auto n_logits = static_cast<int>(logit_rows_.size());
  if (n_logits == 0) return;
  float* out_rows = buffers_.out_rows.as<float>();
  const auto logit_share = worker.ShareOf(n_logits);
  for (int i = logit_share.begin; i < logit_share.end; ++i) {
    std::memcpy(out_rows + Z(i) * Z(config_.n_embd), x + Z(logit_rows_[Z(i)]) * Z(config_.n_embd), row_bytes);
  }
  Normalise(worker, out_rows, weights_->output_norm, n_logits);
  worker.Barrier();
  const std::array head = {LinearJob{&weights_->output.matrix(), logits_.data()}};
  RunLinear(kernels_, worker, head, Input(buffers_.normed.as<float>(), config_.n_embd), n_logits);
}

// x += attention(norm(x))
void Llama::Attend(ThreadTeam::Worker& worker, int i, std::span<const ForwardSegment> segments) {
  const LlamaLayer& layer = weights_->layers[Z(i)];
  Normalise(worker, buffers_.x.as<float>(), layer.attn_norm, n_rows());
  worker.Barrier();
  const std::array qkv = {LinearJob{&layer.q.matrix(), buffers_.q.as<float>()},
                          LinearJob{&layer.k.matrix(), buffers_.k.as<float>()},
                          LinearJob{&layer.v.matrix(), buffers_.v.as<float>()}};
  RunLinear(kernels_, worker, qkv, Input(buffers_.normed.as<float>(), config_.n_embd), n_rows());
  worker.Barrier();
  RotateAndStore(worker, i, segments);
  worker.Barrier();
  float* attended = buffers_.attended.as<float>();
  for (size_t s = 0; s < segments.size(); ++s) {
    const size_t at = Z(first_row_[s]) * Z(widths_.q);
    attention_[s].Run(worker, segments[s].kv->cache().Span(i), buffers_.q_by_head.as<float>() + at,
                      attended + at);
    worker.Barrier();
  }
  Quantise(worker, attended, widths_.q, n_rows());
  worker.Barrier();
  const std::array out = {LinearJob{&layer.attn_output.matrix(), buffers_.x.as<float>(), true}};
  RunLinear(kernels_, worker, out, Input(attended, widths_.q), n_rows());
  worker.Barrier();
}

// x += down(silu(gate(norm(x))) * up(norm(x)))
void Llama::FeedForward(ThreadTeam::Worker& worker, const LlamaLayer& layer) {
  Normalise(worker, buffers_.x.as<float>(), layer.ffn_norm, n_rows());
  worker.Barrier();
  const std::array gate_up = {LinearJob{&layer.gate.matrix(), buffers_.gate.as<float>()},
                              LinearJob{&layer.up.matrix(), buffers_.up.as<float>()}};
  RunLinear(kernels_, worker, gate_up, Input(buffers_.normed.as<float>(), config_.n_embd), n_rows());
  worker.Barrier();
  Activate(worker);
  worker.Barrier();
  const std::array down = {LinearJob{&layer.down.matrix(), buffers_.x.as<float>(), true}};
  RunLinear(kernels_, worker, down, Input(buffers_.activated.as<float>(), config_.n_ff), n_rows());
  worker.Barrier();
}

// What weights multiply instead of float activations, of numbers [at, at + n) of a product's whole input;
// both multiples of 32.
void Llama::Convert(const float* x, size_t at, int n) {
  if (weights_->any_quantized) kernels_.quantize_q8(x, n, buffers_.q8.as<Q8Block>() + at / kQuantBlock);
  if (weights_->any_in_bf16) kernels_.round_bf16(x, n, buffers_.bf16.as<uint16_t>() + at);
}

// normed = rms_norm(x), converted, by rows.
void Llama::Normalise(const ThreadTeam::Worker& worker, const float* x, const std::vector<float>& w,
                      int n_rows) {
  const auto share = worker.ShareOf(n_rows);
  for (int r = share.begin; r < share.end; ++r) {
    float* y = buffers_.normed.as<float>() + Z(r) * Z(config_.n_embd);
    kernels_.rms_norm(x + Z(r) * Z(config_.n_embd), w.data(), config_.n_embd, config_.rms_eps, y);
    Convert(y, Z(r) * Z(config_.n_embd), config_.n_embd);
  }
}

// x converted, by blocks of 32.
void Llama::Quantise(const ThreadTeam::Worker& worker, const float* x, int width, int n_rows) {
  const auto share = worker.ShareOf(n_rows * (width / kQuantBlock));
  const size_t at = Z(share.begin) * kQuantBlock;
  Convert(x + at, at, (share.end - share.begin) * kQuantBlock);
}

// One head of a projection, whose value `first` is its own first one: its bias and its norm, where there are
// any.
void Llama::FinishProjection(float* head, int first, const std::vector<float>& bias,
                             const std::vector<float>& norm) const {
  if (!bias.empty()) {
    for (int d = 0; d < config_.head_dim; ++d) head[d] += bias[Z(first + d)];
  }
  if (!norm.empty()) kernels_.rms_norm(head, norm.data(), config_.head_dim, config_.rms_eps, head);
}

// Rotates q and k to their positions, stores k and v in the cache, and lays q out by KV head for attention.
void Llama::RotateAndStore(const ThreadTeam::Worker& worker, int layer,
                           std::span<const ForwardSegment> segments) {
  const LlamaLayer& weights = weights_->layers[Z(layer)];
  const int group = config_.n_head / config_.n_head_kv, head_dim = config_.head_dim;
  const size_t group_floats = Z(group) * Z(head_dim);
  const auto share = worker.ShareOf(n_rows() * config_.n_head_kv);
  for (int item = share.begin; item < share.end; ++item) {
    const int r = item / config_.n_head_kv, head = item % config_.n_head_kv;
    const Row& row = rows_[Z(r)];
    const KvTransaction& kv = *segments[Z(row.segment)].kv;
    const float* cos_sin = buffers_.cos_sin.as<float>() + Z(r) * Z(widths_.rot);
    float* k = buffers_.k.as<float>() + Z(r) * Z(widths_.kv) + Z(head) * Z(head_dim);
    float* v = buffers_.v.as<float>() + Z(r) * Z(widths_.kv) + Z(head) * Z(head_dim);
    FinishProjection(k, head * head_dim, weights.k_bias, weights.k_norm);
    FinishProjection(v, head * head_dim, weights.v_bias, {});
    kernels_.rope(k, widths_.rot, cos_sin, config_.rope.pairing);
    const KvSpan span = kv.cache().Span(layer);
    const int slot = kv.slot() + row.index;
    kernels_.store_kv({.k = k,
                       .v = v,
                       .keys = const_cast<std::byte*>(span.keys(slot / kKvChunk, head)),
                       .values = const_cast<std::byte*>(span.values(slot / kKvChunk, head)),
                       .offset = slot % kKvChunk,
                       .head_dim = head_dim,
                       .k_type = static_cast<kernels::KvType>(span.layout.k_type),
                       .v_type = static_cast<kernels::KvType>(span.layout.v_type)});
    float* q = buffers_.q_by_head.as<float>() + Z(first_row_[Z(row.segment)]) * Z(widths_.q) +
               (Z(head) * Z(kv.n_rows()) + Z(row.index)) * group_floats;
    std::memcpy(q, buffers_.q.as<float>() + Z(r) * Z(widths_.q) + Z(head) * group_floats,
                group_floats * sizeof(float));
    for (int g = 0; g < group; ++g) {
      float* one = q + g * head_dim;
      FinishProjection(one, (head * group + g) * head_dim, weights.q_bias, weights.q_norm);
      kernels_.rope(one, widths_.rot, cos_sin, config_.rope.pairing);
    }
  }
}

// activated = swiglu(gate, up), converted, by blocks of 32.
void Llama::Activate(const ThreadTeam::Worker& worker) {
  const auto share = worker.ShareOf(n_rows() * (config_.n_ff / kQuantBlock));
  const size_t at = Z(share.begin) * kQuantBlock;
  const int n = (share.end - share.begin) * kQuantBlock;
  float* activated = buffers_.activated.as<float>() + at;
  kernels_.swiglu(buffers_.gate.as<float>() + at, buffers_.up.as<float>() + at, n, activated);
  Convert(activated, at, n);
}

}  // namespace

LlamaMemory PlanLlamaMemory(const LlamaConfig& config, const GgufFile& file, int max_rows) {
  constexpr int kMostLogitRows = 256;  // the largest tree decoding proposes, its root included
  LlamaMemory memory;
  bool in_bf16 = false;
  for (const TensorView& t : file.tensors()) {
    if (t.n_rows() == 1) continue;
    if (t.name == "token_embd.weight" && !config.tied_embeddings) continue;  // read in place
    if (!CanDequantize(t.dtype)) continue;
    memory.weights += kernels::PackedBytes(t.dtype, t.shape[0], t.n_rows());
    in_bf16 |= kernels::IsInBf16(kernels::PackedFormat(t.dtype, config.bf16_format));
  }
  memory.scratch = Z(max_rows) * Widths(config).row_bytes(in_bf16) +
                   Z(std::min(max_rows, kMostLogitRows)) * Z(config.n_vocab) * sizeof(float);
  return memory;
}

Result<std::unique_ptr<Target>> LoadLlama(std::shared_ptr<const GgufFile> file, const LlamaConfig& config,
                                          const LlamaLoadOptions& options) {
  LS_CHECK(options.kernels != nullptr && options.team != nullptr && options.max_rows > 0);
  LS_ASSIGN(auto weights, LoadLlamaWeights(*file, config, options));
  try {
    return std::unique_ptr<Target>(
        std::make_unique<Llama>(std::move(file), config, options, std::move(weights)));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for the activations of " + std::to_string(options.max_rows) +
                             " rows");
  }
}

}  // namespace longspec
