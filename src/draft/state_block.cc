// SPDX-License-Identifier: Apache-2.0
#include "draft/state_block.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/status_macros.h"
#include "draft/top_tokens.h"
#include "tensor/dequantize.h"

namespace longspec {
namespace {

size_t Z(int64_t n) { return static_cast<size_t>(n); }

AttentionShape AttentionOf(const BlockShape& shape) {
  return {.n_head = shape.n_head,
          .n_kv_head = shape.n_head_kv,
          .head_dim = shape.head_dim,
          .scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim))};
}

}  // namespace

StateBlock::StateBlock(const SharedParts& target, const BlockShape& shape, const RopeConfig& rope,
                       InputForms forms, const KvLayout& layout, int capacity, int64_t head)
    : target_(target),
      rope_(rope),
      cache_(MakeFullCache(layout, 1, capacity)),
      slots_(layout, 1),
      attention_(target.kernels, AttentionOf(shape), target.team->size()),
      work_(shape, target.kernels, kMaxRows, forms),
      logits_(Z(kMaxRows) * Z(head) * sizeof(float)) {}

size_t StateBlock::bytes() const {
  return cache_->bytes() + slots_.bytes() + tokens_.capacity() * sizeof(int32_t) + attention_.bytes() +
         work_.bytes() + logits_.size();
}

float* StateBlock::x(int row) { return work_.x.as<float>() + Z(row) * Z(work_.shape.n_embd); }

void StateBlock::SetAngles(int row, int position) {
  rope_.Row(position, work_.cos_sin.as<float>() + Z(row) * Z(work_.shape.n_rot));
}

void StateBlock::Follow(std::span<const int32_t> committed) {
  // The last token's state is asked of the target again, as the root of a tree.
  const auto before = committed.first(committed.empty() ? 0 : committed.size() - 1);
  const auto same = std::ranges::mismatch(tokens_, before).in1 - tokens_.begin();
  const int kept = same > begin_ ? static_cast<int>(same) : 0;
  if (kept == 0) begin_ = 0;
  tokens_.resize(Z(kept));
  cache_->Truncate(kept);
}

Status StateBlock::Read(const CommittedRows& rows, const float* states, const AttentionWeights& w) {
  if (rows.rows.empty()) return {};
  LS_CHECK(states != nullptr);
  const auto n_rows = static_cast<int>(rows.rows.size());
  if (rows.first > end()) {
    cache_->Truncate(0);
    LS_TRY(CommitMadeUp(*cache_, 1, rows.first));
    begin_ = rows.first;
  }
  cache_->Truncate(rows.first);
  begin_ = std::min(begin_, rows.first);
  LS_ASSIGN(KvTransaction kept, cache_->Begin(n_rows));
  const KvWriter writer = kept.Writer(0);
  for (int begin = 0; begin < n_rows; begin += kMaxRows) {
    places_.clear();
    for (int i = begin; i < std::min(n_rows, begin + kMaxRows); ++i) {
      const float* state = states + Z(rows.rows[Z(i)]) * Z(work_.shape.n_embd);
      std::memcpy(x(i - begin), state, Z(work_.shape.n_embd) * sizeof(float));
      SetAngles(i - begin, rows.first + i);
      places_.push_back({.to = &writer, .slot = kept.slot() + i});
    }
    target_.team->Run([&](ThreadTeam::Worker& worker) { StoreKeysOf(worker, w); });
  }
  kept.CommitAll();
  tokens_.resize(std::min(tokens_.size(), Z(rows.first)));
  const auto more = rows.sequence.first(Z(rows.first + n_rows)).subspan(tokens_.size());
  tokens_.insert(tokens_.end(), more.begin(), more.end());
  return {};
}

// Kept positions and tail together are one sequence of keys, whatever positions may be missing between them.
void StateBlock::Place(std::span<const Row> rows) {
  LS_CHECK(!rows.empty() && rows.size() <= Z(kMaxRows));
  slots_.Reserve(n_slots_);
  slot_writer_ = slots_.writer();
  views_.clear();
  places_.clear();
  for (const Row& row : rows) {
    SetAngles(static_cast<int>(views_.size()), row.position);
    views_.push_back({.begin = begin_, .end = end(), .tail = row.tail});
  }
  const AttentionSegment segment = {
      .stored = kept(), .tail = slots(), .tail_begin = 0, .tail_end = n_slots_, .rows = views_};
  attention_.Plan({&segment, 1});
  for (size_t i = 0; i < rows.size(); ++i) {
    places_.push_back({.query = attention_.Place(static_cast<int>(i)),
                       .to = rows[i].slot < 0 ? nullptr : &slot_writer_,
                       .slot = std::max(rows[i].slot, 0)});
  }
}

void StateBlock::Top(ThreadTeam::Worker& worker, std::span<const float> norm,
                     const kernels::PackedMatrix& head, std::span<const int32_t> vocab, int k,
                     std::span<std::vector<TokenScore>> next) {
  const int width = work_.shape.n_embd;
  const float* input = norm.empty() ? work_.x.as<float>() : work_.normed.as<float>();
  if (norm.empty()) {
    Convert(worker, work_, input, width, n_rows());
  } else {
    Normalise(worker, work_, work_.x.as<float>(), norm, n_rows());
  }
  worker.Barrier();
  float* logits = logits_.as<float>();
  const std::array jobs = {LinearJob{&head, logits}};
  Project(worker, work_, jobs, input, width, n_rows());
  worker.Barrier();
  const auto share = worker.ShareOf(n_rows());
  for (int r = share.begin; r < share.end; ++r) {
    TopTokens(*target_.kernels, logits + Z(r) * Z(head.n_out), static_cast<int>(head.n_out), k, vocab,
              next[Z(r)]);
  }
}

Status EmbedToken(const SharedParts& target, int32_t token, float* x) {
  if (token < 0 || token >= target.config->n_vocab) {
    return InvalidArgument("token " + std::to_string(token) + " is outside the vocabulary of " +
                           std::to_string(target.config->n_vocab));
  }
  DequantizeRow(target.embedding.dtype, target.embedding.row(token), target.config->n_embd, x);
  return {};
}

}  // namespace longspec
