// SPDX-License-Identifier: Apache-2.0
#include "model/block.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/size.h"
#include "kernels/packing.h"

namespace longspec {
namespace {

using kernels::kQuantBlock;
using kernels::kSuperBlock;
using kernels::Q8Block;
using kernels::Q8KBlock;

// Inputs of no whole super-blocks are multiplied with no weight that has them.
bool InSuperBlocks(const Workspace& ws, int width) { return ws.forms.q8k && width % kSuperBlock == 0; }

// The least of an input that a worker may convert alone.
int ConvertUnit(const Workspace& ws, int width) {
  return InSuperBlocks(ws, width) ? kSuperBlock : kQuantBlock;
}

// What weights multiply instead of float activations, of numbers [at, at + n) of a product's whole input,
// rows of `width`; `at` and n are multiples of its unit.
void ConvertPart(Workspace& ws, const float* x, int width, size_t at, int n) {
  if (InSuperBlocks(ws, width)) ws.kernels->quantize_q8k(x, n, ws.q8k.as<Q8KBlock>() + at / kSuperBlock);
  if (ws.forms.q8) ws.kernels->quantize_q8(x, n, ws.q8.as<Q8Block>() + at / kQuantBlock);
  if (ws.forms.bf16) ws.kernels->round_bf16(x, n, ws.bf16.as<uint16_t>() + at);
}

// One head of a projection, whose value `first` is its own first one: its bias and its norm, where there are
// any.
void FinishHead(const Workspace& ws, float* head, int first, std::span<const float> bias,
                std::span<const float> norm) {
  const int n = ws.shape.head_dim;
  if (!bias.empty()) {
    for (int d = 0; d < n; ++d) head[d] += bias[Z(first + d)];
  }
  if (!norm.empty()) ws.kernels->rms_norm(head, norm.data(), n, ws.shape.rms_eps, head);
}

// Of one row and KV head: the key rotated, and both stored.
void StoreHead(Workspace& ws, const AttentionWeights& w, int row, int head, const RowPlace& place,
               int layer) {
  const int head_dim = ws.shape.head_dim;
  const size_t at = Z(row) * Z(ws.shape.kv_width()) + Z(head) * Z(head_dim);
  float* k = ws.k.as<float>() + at;
  float* v = ws.v.as<float>() + at;
  FinishHead(ws, k, head * head_dim, w.k_bias, w.k_norm);
  FinishHead(ws, v, head * head_dim, w.v_bias, {});
  ws.kernels->rope(k, ws.shape.n_rot, ws.Angles(w.rotation, row), ws.shape.pairing);
  KvWriter to = *place.to;
  to.layer_offset += Z(layer) * to.layout.layer_bytes();
  ws.kernels->store_kv({.k = k,
                        .v = v,
                        .keys = to.keys(place.slot / kKvChunk, head),
                        .values = to.values(place.slot / kKvChunk, head),
                        .offset = place.slot % kKvChunk,
                        .head_dim = head_dim,
                        .k_type = KernelType(to.layout.k_type),
                        .v_type = KernelType(to.layout.v_type)});
}

// Of one row and KV head: the queries that read it, rotated, where attention wants them.
void PlaceQueries(Workspace& ws, const AttentionWeights& w, int row, int head, const RowPlace& place,
                  int n_rows) {
  const int head_dim = ws.shape.head_dim, group = ws.shape.n_head / ws.shape.n_head_kv;
  const size_t group_floats = Z(group) * Z(head_dim);
  float* q = ws.q_by_head.as<float>() + (Z(head) * Z(n_rows) + Z(place.query)) * group_floats;
  std::memcpy(q, ws.q.as<float>() + Z(row) * Z(ws.shape.q_width()) + Z(head) * group_floats,
              group_floats * sizeof(float));
  for (int g = 0; g < group; ++g) {
    float* one = q + g * head_dim;
    FinishHead(ws, one, (head * group + g) * head_dim, w.q_bias, w.q_norm);
    ws.kernels->rope(one, ws.shape.n_rot, ws.Angles(w.rotation, row), ws.shape.pairing);
  }
}

// x += norm(w * activations), or x += w * activations where there is no norm. `input`: (n_rows, width), whole
// and converted. Ends with a barrier.
void AddProduct(ThreadTeam::Worker& worker, Workspace& ws, const kernels::PackedMatrix* w, const float* input,
                int width, std::span<const float> norm, int n_rows) {
  float* const x = ws.x.as<float>();
  float* const branch = ws.normed.as<float>();  // nobody reads the input of the branch any more
  const std::array job = {LinearJob{w, norm.empty() ? x : branch, norm.empty()}};
  Project(worker, ws, job, input, width, n_rows);
  worker.Barrier();
  if (norm.empty()) return;
  const int n = ws.shape.n_embd;
  const auto share = worker.ShareOf(n_rows);
  for (int r = share.begin; r < share.end; ++r) {
    float* row = branch + Z(r) * Z(n);
    ws.kernels->rms_norm(row, norm.data(), n, ws.shape.rms_eps, row);
    for (int i = 0; i < n; ++i) x[Z(r) * Z(n) + Z(i)] += row[i];
  }
  worker.Barrier();
}

}  // namespace

BlockShape BlockOf(const ModelSizes& sizes) {
  return {.n_embd = sizes.n_embd,
          .n_head = sizes.n_head,
          .n_head_kv = sizes.n_head_kv,
          .head_dim = sizes.head_dim,
          .n_ff = sizes.n_ff,
          .n_rot = sizes.rope.n_rot,
          .rms_eps = sizes.rms_eps,
          .pairing = sizes.rope.pairing};
}

int BlockShape::widest_input() const { return std::max({n_embd, q_width(), n_ff, n_other}); }

void InputForms::Add(const kernels::PackedMatrix& w) {
  const bool super_blocks = kernels::HasSuperBlocks(w.format);
  q8 |= kernels::IsQuantized(w.format) && !super_blocks;
  q8k |= super_blocks;
  bf16 |= kernels::IsInBf16(w.format);
}

size_t InputForms::RowBytes(int width) const {
  return (q8 ? Z(width / kQuantBlock) * sizeof(Q8Block) : 0) +
         (q8k ? Z(width / kSuperBlock) * sizeof(Q8KBlock) : 0) + (bf16 ? Z(width) * sizeof(uint16_t) : 0);
}

Workspace::Workspace(const BlockShape& of_shape, const kernels::KernelTable* table, int most_rows,
                     InputForms input_forms)
    : shape(of_shape), max_rows(most_rows), kernels(table), forms(input_forms) {
  const auto floats = [&](int width) { return AlignedBuffer(Z(max_rows) * Z(width) * sizeof(float)); };
  x = floats(shape.n_embd);
  normed = floats(shape.n_embd);
  q = floats(shape.q_width());
  q_by_head = floats(shape.q_width());
  attended = floats(shape.q_width());
  k = floats(shape.kv_width());
  v = floats(shape.kv_width());
  gate = floats(shape.n_ff);
  up = floats(shape.n_ff);
  activated = floats(shape.n_ff);
  cos_sin = floats(shape.n_rotations * shape.n_rot);
  if (forms.q8) q8 = AlignedBuffer(Z(max_rows) * Z(shape.widest_input() / kQuantBlock) * sizeof(Q8Block));
  if (forms.q8k) q8k = AlignedBuffer(Z(max_rows) * Z(shape.widest_input() / kSuperBlock) * sizeof(Q8KBlock));
  if (forms.bf16) bf16 = AlignedBuffer(Z(max_rows) * Z(shape.widest_input()) * sizeof(uint16_t));
}

size_t Workspace::RowBytes(const BlockShape& of_shape, InputForms input_forms) {
  const size_t floats = Z(2 * of_shape.n_embd) + Z(3 * of_shape.q_width()) + Z(2 * of_shape.kv_width()) +
                        Z(3 * of_shape.n_ff) + Z(of_shape.n_rotations * of_shape.n_rot);
  return floats * sizeof(float) + input_forms.RowBytes(of_shape.widest_input());
}

size_t Workspace::bytes() const {
  size_t n = 0;
  for (const AlignedBuffer* buffer :
       {&x, &normed, &q, &q_by_head, &attended, &k, &v, &gate, &up, &activated, &cos_sin, &q8, &q8k, &bf16}) {
    n += buffer->size();
  }
  return n;
}

Activations Workspace::Input(const float* of, int width) const {
  return {.f32 = of,
          .q8 = q8.as<Q8Block>(),
          .q8k = q8k.as<Q8KBlock>(),
          .bf16 = bf16.as<uint16_t>(),
          .width = width};
}

float* Workspace::Angles(int rotation, int row) {
  return cos_sin.as<float>() + (Z(rotation) * Z(max_rows) + Z(row)) * Z(shape.n_rot);
}

void Normalise(const ThreadTeam::Worker& worker, Workspace& ws, const float* x, std::span<const float> w,
               int n_rows) {
  const int n = ws.shape.n_embd;
  const auto share = worker.ShareOf(n_rows);
  for (int r = share.begin; r < share.end; ++r) {
    const size_t at = Z(r) * Z(n);
    float* y = ws.normed.as<float>() + at;
    ws.kernels->rms_norm(x + at, w.data(), n, ws.shape.rms_eps, y);
    ConvertPart(ws, y, n, at, n);
  }
}

void Convert(const ThreadTeam::Worker& worker, Workspace& ws, const float* x, int width, int n_rows) {
  const int unit = ConvertUnit(ws, width);
  const auto share = worker.ShareOf(n_rows * (width / unit));
  const size_t at = Z(share.begin) * Z(unit);
  ConvertPart(ws, x + at, width, at, (share.end - share.begin) * unit);
}

void ConvertRow(Workspace& ws, const float* x, int width, int row) {
  const size_t at = Z(row) * Z(width);
  ConvertPart(ws, x + at, width, at, width);
}

void Project(ThreadTeam::Worker& worker, const Workspace& ws, std::span<const LinearJob> jobs, const float* x,
             int width, int n_rows) {
  RunLinear(*ws.kernels, worker, jobs, ws.Input(x, width), n_rows);
}

void StoreKeys(ThreadTeam::Worker& worker, Workspace& ws, const AttentionWeights& w,
               std::span<const RowPlace> rows, int layer) {
  Normalise(worker, ws, ws.x.as<float>(), w.norm, static_cast<int>(rows.size()));
  worker.Barrier();
  StoreKeysOf(worker, ws, {ws.normed.as<float>(), ws.shape.n_embd}, w, rows, layer);
}

void StoreKeysOf(ThreadTeam::Worker& worker, Workspace& ws, const AttentionInput& input,
                 const AttentionWeights& w, std::span<const RowPlace> rows, int layer) {
  const auto n_rows = static_cast<int>(rows.size());
  const std::array jobs = {LinearJob{w.k, ws.k.as<float>()}, LinearJob{w.v, ws.v.as<float>()}};
  Project(worker, ws, jobs, input.x, input.width, n_rows);
  worker.Barrier();
  const auto share = worker.ShareOf(n_rows * ws.shape.n_head_kv);
  for (int item = share.begin; item < share.end; ++item) {
    const int r = item / ws.shape.n_head_kv;
    StoreHead(ws, w, r, item % ws.shape.n_head_kv, rows[Z(r)], layer);
  }
}

void AddAttention(ThreadTeam::Worker& worker, Workspace& ws, const AttentionWeights& w,
                  std::span<const RowPlace> rows, int layer, Attention& attention) {
  Normalise(worker, ws, ws.x.as<float>(), w.norm, static_cast<int>(rows.size()));
  worker.Barrier();
  AddAttentionOf(worker, ws, {ws.normed.as<float>(), ws.shape.n_embd}, w, rows, layer, attention);
}

void AddAttentionOf(ThreadTeam::Worker& worker, Workspace& ws, const AttentionInput& input,
                    const AttentionWeights& w, std::span<const RowPlace> rows, int layer,
                    Attention& attention) {
  const auto n_rows = static_cast<int>(rows.size());
  const bool has_keys = w.k != nullptr;
  const std::array jobs = {LinearJob{w.q, ws.q.as<float>()}, LinearJob{w.k, ws.k.as<float>()},
                           LinearJob{w.v, ws.v.as<float>()}};
  Project(worker, ws, std::span(jobs).first(has_keys ? 3 : 1), input.x, input.width, n_rows);
  worker.Barrier();
  const auto share = worker.ShareOf(n_rows * ws.shape.n_head_kv);
  for (int item = share.begin; item < share.end; ++item) {
    const int r = item / ws.shape.n_head_kv, head = item % ws.shape.n_head_kv;
    if (has_keys) StoreHead(ws, w, r, head, rows[Z(r)], layer);
    PlaceQueries(ws, w, r, head, rows[Z(r)], n_rows);
  }
  worker.Barrier();
  float* attended = ws.attended.as<float>();
  attention.Run(worker, layer, ws.q_by_head.as<float>(), attended);
  worker.Barrier();
  Convert(worker, ws, attended, ws.shape.q_width(), n_rows);
  worker.Barrier();
  AddProduct(worker, ws, w.output, attended, ws.shape.q_width(), w.branch_norm, n_rows);
}

void AddMlp(ThreadTeam::Worker& worker, Workspace& ws, const MlpWeights& w, int n_rows) {
  Normalise(worker, ws, ws.x.as<float>(), w.norm, n_rows);
  worker.Barrier();
  const std::array gate_up = {LinearJob{w.gate, ws.gate.as<float>()}, LinearJob{w.up, ws.up.as<float>()}};
  Project(worker, ws, gate_up, ws.normed.as<float>(), ws.shape.n_embd, n_rows);
  worker.Barrier();
  // activated = function(gate) * up, converted, block by block.
  const int unit = ConvertUnit(ws, ws.shape.n_ff);
  const auto share = worker.ShareOf(n_rows * (ws.shape.n_ff / unit));
  const size_t at = Z(share.begin) * Z(unit);
  const int n = (share.end - share.begin) * unit;
  float* activated = ws.activated.as<float>() + at;
  const auto function = w.function == GateFunction::kGelu ? ws.kernels->geglu : ws.kernels->swiglu;
  function(ws.gate.as<float>() + at, ws.up.as<float>() + at, n, activated);
  ConvertPart(ws, activated, ws.shape.n_ff, at, n);
  worker.Barrier();
  AddProduct(worker, ws, w.down, ws.activated.as<float>(), ws.shape.n_ff, w.branch_norm, n_rows);
}

}  // namespace longspec
