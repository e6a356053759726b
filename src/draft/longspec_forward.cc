// SPDX-License-Identifier: Apache-2.0
#include "draft/longspec_forward.h"

#include <algorithm>
#include <array>
#include <new>
#include <string>

#include "base/check.h"
#include "base/status_macros.h"
#include "draft/top_tokens.h"
#include "model/linear.h"
#include "tensor/dequantize.h"

namespace longspec {
namespace {

using kernels::kQuantBlock;
using kernels::Q8Block;

size_t Z(int64_t n) { return static_cast<size_t>(n); }

AlignedBuffer Floats(int width) {
  return AlignedBuffer(Z(LongspecForward::kMaxRows) * Z(width) * sizeof(float));
}

void AddChunk(const KvLayout& layout, std::vector<AlignedBuffer>* chunks, std::vector<std::byte*>* bases) {
  chunks->emplace_back(layout.layer_bytes());
  bases->push_back(chunks->back().data());
}

}  // namespace

LongspecForward::LongspecForward(std::shared_ptr<const LongspecModel> model, const SharedParts& target,
                                 const KvLayout& layout)
    : model_(std::move(model)),
      target_(target),
      rope_(target.config->rope),
      layout_(layout),
      self_(target.kernels, target.config->attention(), target.team->size()),
      cross_(target.kernels, target.config->attention(), target.team->size()) {
  const LlamaConfig& c = *target_.config;
  // As many chunks as a window's worth of positions can touch.
  const int n_ring = (model_->window + kKvChunk - 1) / kKvChunk + 1;
  for (int i = 0; i < n_ring; ++i) AddChunk(layout_, &ring_chunks_, &ring_bases_);
  ring_span_.layout = tree_span_.layout = layout_;
  ring_span_.chunks = ring_bases_.data();
  x_ = Floats(c.n_embd);
  normed_ = Floats(c.n_embd);
  q_ = Floats(q_width());
  q_by_head_ = Floats(q_width());
  attended_ = Floats(q_width());
  k_ = Floats(kv_width());
  v_ = Floats(kv_width());
  gate_ = Floats(model_->n_ff);
  up_ = Floats(model_->n_ff);
  activated_ = Floats(model_->n_ff);
  cos_sin_ = Floats(c.rope.n_rot);
  const int widest = std::max({c.n_embd, q_width(), model_->n_ff});
  q8_ = AlignedBuffer(Z(kMaxRows) * Z(widest / kQuantBlock) * sizeof(Q8Block));
  logits_ = Floats(n_logits());
}

size_t LongspecForward::bytes() const {
  size_t n = (ring_chunks_.size() + tree_chunks_.size()) * layout_.layer_bytes();
  for (const AlignedBuffer* buffer : {&x_, &normed_, &q_, &q_by_head_, &attended_, &k_, &v_, &gate_, &up_,
                                      &activated_, &cos_sin_, &q8_, &logits_}) {
    n += buffer->size();
  }
  return n + self_.bytes() + cross_.bytes();
}

// The rows of a pass: their embeddings and rotary angles.
Status LongspecForward::Embed(std::span<const LongspecRow> rows) {
  LS_CHECK(!rows.empty() && rows.size() <= Z(kMaxRows));
  rows_.assign(rows.begin(), rows.end());
  const LlamaConfig& c = *target_.config;
  for (size_t r = 0; r < rows_.size(); ++r) {
    const int32_t token = rows_[r].token;
    if (token < 0 || token >= c.n_vocab) {
      return InvalidArgument("token " + std::to_string(token) + " is outside the vocabulary of " +
                             std::to_string(c.n_vocab));
    }
    DequantizeRow(target_.embedding.dtype, target_.embedding.row(token), c.n_embd,
                  x_.as<float>() + r * Z(c.n_embd));
    rope_.Row(rows_[r].position, cos_sin_.as<float>() + r * Z(c.rope.n_rot));
  }
  return {};
}

// Only keys and values are computed: no attention runs over the prompt.
Result<int> LongspecForward::Extend(std::span<const int32_t> committed) {
  const auto end = static_cast<int>(committed.size());
  if (ring_end_ > end) Reset();
  const int first = std::max({ring_end_, end - model_->window - 1, 0});
  std::vector<LongspecRow> rows;
  for (int begin = first; begin < end; begin += kMaxRows) {
    rows.clear();
    for (int p = begin; p < std::min(end, begin + kMaxRows); ++p) {
      rows.push_back({.token = committed[Z(p)], .position = p});
    }
    LS_TRY(Embed(rows));
    target_.team->Run([&](ThreadTeam::Worker& worker) {
      Normalise(worker, model_->self_norm);
      worker.Barrier();
      const std::array kv = {LinearJob{&model_->self_k.matrix(), k_.as<float>()},
                             LinearJob{&model_->self_v.matrix(), v_.as<float>()}};
      RunLinear(*target_.kernels, worker, kv,
                {.f32 = normed_.as<float>(), .q8 = q8_.as<Q8Block>(), .width = target_.config->n_embd},
                n_rows());
      worker.Barrier();
      StoreKeys(worker);
    });
  }
  ring_end_ = end;
  return end - first;
}

void LongspecForward::ReserveSlots(int n_slots) {
  while (static_cast<int>(tree_chunks_.size()) * kKvChunk < n_slots)
    AddChunk(layout_, &tree_chunks_, &tree_bases_);
  tree_span_.chunks = tree_bases_.data();
}

Status LongspecForward::Run(std::span<const LongspecRow> rows, const KvSpan& target, int k,
                            std::vector<std::vector<TokenScore>>& next) try {
  next.resize(rows.size());
  for (size_t begin = 0; begin < rows.size(); begin += Z(kMaxRows)) {
    const size_t n = std::min(Z(kMaxRows), rows.size() - begin);
    LS_TRY(RunPass(rows.subspan(begin, n), target, k, std::span(next).subspan(begin, n)));
  }
  return {};
} catch (const std::bad_alloc&) {
  return ResourceExhausted("no memory for a draft of " + std::to_string(rows.size()) + " rows");
}

Status LongspecForward::RunPass(std::span<const LongspecRow> rows, const KvSpan& target, int k,
                                std::span<std::vector<TokenScore>> next) {
  LS_TRY(Embed(rows));
  self_views_.clear();
  cross_views_.clear();
  n_slots_ = 0;
  for (const LongspecRow& row : rows_) {
    // A node comes after the last committed token, which is the root and in the ring as well. Ring and path
    // together reach back as far as the window: position - window.
    const int end = std::min(row.position + 1, ring_end_);
    const size_t n_path = std::min(row.path.size(), Z(model_->window) + 1);
    self_views_.push_back({.begin = std::clamp(row.position - model_->window, 0, end),
                           .end = end,
                           .tail = row.path.last(n_path)});
    cross_views_.push_back({.begin = 0, .end = target.n_committed, .tail = {}});
    for (const int32_t slot : row.path) n_slots_ = std::max(n_slots_, slot + 1);
  }
  ReserveSlots(n_slots_);
  self_.Plan({ring_span_, n_ring_chunks()}, &tree_span_, n_slots_, self_views_);
  cross_.Plan({target, 0}, nullptr, 0, cross_views_);
  target_.team->Run([&](ThreadTeam::Worker& worker) { ForwardOn(worker, k, next); });
  return {};
}

void LongspecForward::ForwardOn(ThreadTeam::Worker& worker, int k, std::span<std::vector<TokenScore>> next) {
  SelfAttention(worker);
  CrossAttention(worker);
  FeedForward(worker);
  Head(worker, k, next);
}

// x += o(attention(norm(x)))
void LongspecForward::SelfAttention(ThreadTeam::Worker& worker) {
  Normalise(worker, model_->self_norm);
  worker.Barrier();
  const std::array qkv = {LinearJob{&model_->self_q.matrix(), q_.as<float>()},
                          LinearJob{&model_->self_k.matrix(), k_.as<float>()},
                          LinearJob{&model_->self_v.matrix(), v_.as<float>()}};
  RunLinear(*target_.kernels, worker, qkv,
            {.f32 = normed_.as<float>(), .q8 = q8_.as<Q8Block>(), .width = target_.config->n_embd}, n_rows());
  worker.Barrier();
  StoreKeys(worker);
  RotateQueries(worker, model_->self_q_bias);
  worker.Barrier();
  self_.Run(worker, q_by_head_.as<float>(), attended_.as<float>());
  worker.Barrier();
  Output(worker, model_->self_o);
}

// The same over the target's own keys and values: only the query is the draft's.
void LongspecForward::CrossAttention(ThreadTeam::Worker& worker) {
  Normalise(worker, model_->cross_norm);
  worker.Barrier();
  const std::array query = {LinearJob{&model_->cross_q.matrix(), q_.as<float>()}};
  RunLinear(*target_.kernels, worker, query,
            {.f32 = normed_.as<float>(), .q8 = q8_.as<Q8Block>(), .width = target_.config->n_embd}, n_rows());
  worker.Barrier();
  RotateQueries(worker, model_->cross_q_bias);
  worker.Barrier();
  cross_.Run(worker, q_by_head_.as<float>(), attended_.as<float>());
  worker.Barrier();
  Output(worker, model_->cross_o);
}

// x += w * attended
void LongspecForward::Output(ThreadTeam::Worker& worker, const kernels::PackedWeights& w) {
  Quantise(worker, attended_.as<float>(), q_width());
  worker.Barrier();
  const std::array out = {LinearJob{&w.matrix(), x_.as<float>(), true}};
  RunLinear(*target_.kernels, worker, out,
            {.f32 = attended_.as<float>(), .q8 = q8_.as<Q8Block>(), .width = q_width()}, n_rows());
  worker.Barrier();
}

// x += down(silu(gate(norm(x))) * up(norm(x)))
void LongspecForward::FeedForward(ThreadTeam::Worker& worker) {
  Normalise(worker, model_->mlp_norm);
  worker.Barrier();
  const std::array gate_up = {LinearJob{&model_->gate.matrix(), gate_.as<float>()},
                              LinearJob{&model_->up.matrix(), up_.as<float>()}};
  RunLinear(*target_.kernels, worker, gate_up,
            {.f32 = normed_.as<float>(), .q8 = q8_.as<Q8Block>(), .width = target_.config->n_embd}, n_rows());
  worker.Barrier();
  const auto share = worker.ShareOf(n_rows() * (model_->n_ff / kQuantBlock));
  const size_t at = Z(share.begin) * kQuantBlock;
  const int n = (share.end - share.begin) * kQuantBlock;
  target_.kernels->swiglu(gate_.as<float>() + at, up_.as<float>() + at, n, activated_.as<float>() + at);
  target_.kernels->quantize_q8(activated_.as<float>() + at, n, q8_.as<Q8Block>() + share.begin);
  worker.Barrier();
  const std::array down = {LinearJob{&model_->down.matrix(), x_.as<float>(), true}};
  RunLinear(*target_.kernels, worker, down,
            {.f32 = activated_.as<float>(), .q8 = q8_.as<Q8Block>(), .width = model_->n_ff}, n_rows());
  worker.Barrier();
}

// The residual stream meets the head as it is: no final norm, neither the draft's nor the target's.
void LongspecForward::Head(ThreadTeam::Worker& worker, int k, std::span<std::vector<TokenScore>> next) {
  Quantise(worker, x_.as<float>(), target_.config->n_embd);
  worker.Barrier();
  const std::array head = {LinearJob{&model_->head, logits_.as<float>()}};
  RunLinear(*target_.kernels, worker, head,
            {.f32 = x_.as<float>(), .q8 = q8_.as<Q8Block>(), .width = target_.config->n_embd}, n_rows());
  worker.Barrier();
  const auto share = worker.ShareOf(n_rows());
  for (int r = share.begin; r < share.end; ++r) {
    TopTokens(*target_.kernels, logits_.as<float>() + Z(r) * Z(n_logits()), n_logits(), k, model_->vocab,
              next[Z(r)]);
  }
}

// normed = rms_norm(x) and its q8 form, by rows.
void LongspecForward::Normalise(const ThreadTeam::Worker& worker, const std::vector<float>& w) {
  const int n = target_.config->n_embd;
  const auto share = worker.ShareOf(n_rows());
  for (int r = share.begin; r < share.end; ++r) {
    float* y = normed_.as<float>() + Z(r) * Z(n);
    target_.kernels->rms_norm(x_.as<float>() + Z(r) * Z(n), w.data(), n, target_.config->rms_eps, y);
    target_.kernels->quantize_q8(y, n, q8_.as<Q8Block>() + Z(r) * Z(n / kQuantBlock));
  }
}

void LongspecForward::Quantise(const ThreadTeam::Worker& worker, const float* x, int width) {
  const auto share = worker.ShareOf(n_rows() * (width / kQuantBlock));
  target_.kernels->quantize_q8(x + Z(share.begin) * kQuantBlock, (share.end - share.begin) * kQuantBlock,
                               q8_.as<Q8Block>() + share.begin);
}

// Keys and values with their biases, keys rotated, into the ring or the tree.
void LongspecForward::StoreKeys(const ThreadTeam::Worker& worker) {
  const LlamaConfig& c = *target_.config;
  const auto share = worker.ShareOf(n_rows() * c.n_head_kv);
  for (int item = share.begin; item < share.end; ++item) {
    const int r = item / c.n_head_kv, head = item % c.n_head_kv;
    const LongspecRow& row = rows_[Z(r)];
    const size_t at = Z(head) * Z(c.head_dim);
    float* k = k_.as<float>() + Z(r) * Z(kv_width()) + at;
    float* v = v_.as<float>() + Z(r) * Z(kv_width()) + at;
    for (size_t d = 0; d < Z(c.head_dim); ++d) {
      k[d] += model_->self_k_bias[at + d];
      v[d] += model_->self_v_bias[at + d];
    }
    target_.kernels->rope(k, c.rope.n_rot, cos_sin_.as<float>() + Z(r) * Z(c.rope.n_rot), c.rope.pairing);
    const bool in_ring = row.slot < 0;
    const KvSpan& span = in_ring ? ring_span_ : tree_span_;
    const int place = in_ring ? row.position : row.slot;
    const int chunk = in_ring ? place / kKvChunk % n_ring_chunks() : place / kKvChunk;
    target_.kernels->store_kv({.k = k,
                               .v = v,
                               .keys = const_cast<std::byte*>(span.keys(chunk, head)),
                               .values = const_cast<std::byte*>(span.values(chunk, head)),
                               .offset = place % kKvChunk,
                               .head_dim = c.head_dim,
                               .k_type = static_cast<kernels::KvType>(layout_.k_type),
                               .v_type = static_cast<kernels::KvType>(layout_.v_type)});
  }
}

// Queries with their bias, rotated, laid out by KV head for attention.
void LongspecForward::RotateQueries(const ThreadTeam::Worker& worker, const std::vector<float>& bias) {
  const LlamaConfig& c = *target_.config;
  const int group = c.n_head / c.n_head_kv;
  const size_t group_floats = Z(group) * Z(c.head_dim);
  const auto share = worker.ShareOf(n_rows() * c.n_head_kv);
  for (int item = share.begin; item < share.end; ++item) {
    const int r = item / c.n_head_kv, head = item % c.n_head_kv;
    const size_t at = Z(head) * group_floats;
    const float* from = q_.as<float>() + Z(r) * Z(q_width()) + at;
    float* q = q_by_head_.as<float>() + (Z(head) * Z(n_rows()) + Z(r)) * group_floats;
    for (size_t d = 0; d < group_floats; ++d) q[d] = from[d] + bias[at + d];
    for (int g = 0; g < group; ++g) {
      target_.kernels->rope(q + Z(g) * Z(c.head_dim), c.rope.n_rot,
                            cos_sin_.as<float>() + Z(r) * Z(c.rope.n_rot), c.rope.pairing);
    }
  }
}

}  // namespace longspec
