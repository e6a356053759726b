// SPDX-License-Identifier: Apache-2.0
#include "draft_model/draft_lane.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/size.h"
#include "kernels/ops.h"

namespace longspec {
namespace {

InputForms FormsOf(const std::vector<const DraftMatrix*>& matrices) {
  InputForms forms;
  for (const DraftMatrix* w : matrices) forms.Add(w->packed);
  return forms;
}

AttentionWeights WeightsOf(const DraftAttention& w) {
  return {.q = &w.q.packed,
          .k = &w.k.packed,
          .v = &w.v.packed,
          .output = &w.o.packed,
          .q_bias = w.q_bias,
          .k_bias = w.k_bias,
          .v_bias = w.v_bias};
}

}  // namespace

DraftLane::DraftLane(const SharedParts& target, const LaneSize& size,
                     const std::vector<const DraftMatrix*>& matrices)
    : target_(target),
      work_(size.shape, target.lane.kernels, size.max_rows, FormsOf(matrices)),
      logits_(Z(size.max_rows) * Z(size.n_logits) * sizeof(float)) {
  for (const int width : size.extra) extra_.emplace_back(Z(size.max_rows) * Z(width) * sizeof(float));
  for (const auto& [shape, state_bytes] : size.attentions) {
    attentions_.push_back(
        std::make_unique<AttentionPlan>(target.lane.kernels, shape, target.lane.team->size(), state_bytes));
  }
}

size_t DraftLane::Bytes(const LaneSize& size) {
  size_t floats = Z(size.n_logits);
  for (const int width : size.extra) floats += Z(width);
  size_t n = Z(size.max_rows) * (Workspace::RowBytes(size.shape, kAllInputForms) + floats * sizeof(float));
  for (const auto& [shape, state_bytes] : size.attentions) {
    n += state_bytes > 0 ? state_bytes : AttentionPlan::MostBytes(shape, 1, size.max_rows);
  }
  return n;
}

size_t DraftLane::bytes() const {
  size_t n = work_.bytes() + logits_.size();
  for (const AlignedBuffer& rows : extra_) n += rows.size();
  for (const auto& plan : attentions_) n += plan->bytes();
  return n;
}

// Each operation begins with whole inputs and ends with a barrier, but for those that end a pass.

DraftPass::Input DraftPass::Of(const float* x, int width) {
  Convert(worker_, lane_.work_, x, width, n_rows_);
  worker_.Barrier();
  return {x, width};
}

DraftPass::Input DraftPass::Norm(const float* x, std::span<const float> norm) {
  Workspace& work = lane_.work_;
  if (norm.empty()) return Of(x, work.shape.n_embd);
  Normalise(worker_, work, x, norm, n_rows_);
  worker_.Barrier();
  return {work.normed.as<float>(), work.shape.n_embd};
}

DraftPass::Input DraftPass::NormBoth(const float* a, std::span<const float> norm_a, float* x,
                                     std::span<const float> norm_x, bool x_too, float* joined) {
  Workspace& work = lane_.work_;
  const int n = work.shape.n_embd;
  const auto share = worker_.ShareOf(n_rows_);
  for (int r = share.begin; r < share.end; ++r) {
    const size_t at = Z(r) * Z(n);
    float *first = joined + 2 * at, *second = first + n;
    work.kernels->rms_norm(a + at, norm_a.data(), n, work.shape.rms_eps, first);
    work.kernels->rms_norm(x + at, norm_x.data(), n, work.shape.rms_eps, second);
    if (x_too) std::memcpy(x + at, second, Z(n) * sizeof(float));
    ConvertRow(work, joined, 2 * n, r);
  }
  worker_.Barrier();
  return {joined, 2 * n};
}

void DraftPass::NormInPlace(float* x, std::span<const float> norm) {
  if (norm.empty()) return;
  const Workspace& work = lane_.work_;
  const auto share = worker_.ShareOf(n_rows_);
  for (int r = share.begin; r < share.end; ++r) {
    float* const row = x + Z(r) * norm.size();
    work.kernels->rms_norm(row, norm.data(), static_cast<int>(norm.size()), work.shape.rms_eps, row);
  }
  worker_.Barrier();
}

void DraftPass::Multiply(const DraftMatrix& w, const Input& input, float* y, bool add) {
  const std::array job = {LinearJob{&w.packed, y, add}};
  Project(worker_, lane_.work_, job, input.x, input.width, n_rows_);
  worker_.Barrier();
}

void DraftPass::AddSilu(const float* y, float* x) {
  Workspace& work = lane_.work_;
  const int n = work.shape.n_embd;
  LS_CHECK(work.shape.n_ff == n);
  const auto share = worker_.ShareOf(n_rows_);
  for (int r = share.begin; r < share.end; ++r) {
    const size_t at = Z(r) * Z(n);
    float *ones = work.up.as<float>() + at, *silu = work.activated.as<float>() + at;
    std::fill_n(ones, n, 1.0F);
    work.kernels->swiglu(y + at, ones, n, silu);
    for (size_t d = 0; d < Z(n); ++d) x[at + d] += silu[d];
  }
  worker_.Barrier();
}

void DraftPass::AddAttention(const Input& input, const DraftAttention& w, std::span<const RowPlace> places,
                             Attention& attention) {
  AddAttentionOf(worker_, lane_.work_, input, WeightsOf(w), places, 0, attention);
}

void DraftPass::AddCrossAttention(const Input& input, const DraftAttention& w,
                                  std::span<const RowPlace> places, Attention& attention) {
  AttentionWeights queries = WeightsOf(w);
  queries.k = queries.v = nullptr;
  AddAttentionOf(worker_, lane_.work_, input, queries, places, 0, attention);
}

void DraftPass::AddMlp(const DraftMlp& w, std::span<const float> norm) {
  const MlpWeights weights = {
      .norm = norm, .gate = &w.gate.packed, .up = &w.up.packed, .down = &w.down.packed};
  longspec::AddMlp(worker_, lane_.work_, weights, n_rows_);
}

void DraftPass::StoreKeys(const Input& input, const DraftAttention& w, std::span<const RowPlace> places) {
  StoreKeysOf(worker_, lane_.work_, input, WeightsOf(w), places, 0);
}

void DraftPass::Top(const Input& input, const DraftHead& head, int k,
                    std::span<std::vector<TokenScore>> next) {
  float* const logits = lane_.logits_.as<float>();
  const auto n_logits = static_cast<int>(head.matrix.n_out());
  Multiply(head.matrix, input, logits);
  const auto share = worker_.ShareOf(n_rows_);
  for (int r = share.begin; r < share.end; ++r) {
    TopTokens(*lane_.work_.kernels, logits + Z(r) * Z(n_logits), n_logits, k, head.vocab, next[Z(r)]);
  }
}

void TopOfRow(const SharedParts& target, const LogitRow& row, int n, int k, std::span<const int32_t> names,
              std::vector<TokenScore>& out) {
  row.MostProbable(*target.lane.kernels, n, k, names, out);
}

Result<std::unique_ptr<Target>> LoadInLane(const SharedParts& target, std::shared_ptr<const GgufFile> file,
                                           const ModelSpec& spec, const ModelLoadOptions& options) {
  return LoadModel(std::move(file), spec, target.lane, options);
}

Rotary RotaryOf(const RopeConfig& config, const SharedParts& target) {
  const auto rope = std::make_shared<const RopeTable>(config);
  return {.kernels = target.lane.kernels,
          .pairing = config.pairing,
          .n_rot = rope->n_rot(),
          .magnitude = rope->magnitude(),
          .row = [rope](int position, float* cos_sin) { rope->Row(position, cos_sin); }};
}

}  // namespace longspec
