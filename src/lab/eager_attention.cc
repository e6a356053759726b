// SPDX-License-Identifier: Apache-2.0
#include "lab/eager_attention.h"

#include <algorithm>
#include <cstring>

#include "base/size.h"

namespace longspec {
namespace {

KvLayout Repeated(KvLayout layout, int n_head) {
  layout.n_kv_head = n_head;
  return layout;
}

AttentionShape Repeated(AttentionShape shape) {
  shape.n_kv_head = shape.n_head;
  return shape;
}

int ChunksFor(int slots) { return (slots + kKvChunk - 1) / kKvChunk; }

}  // namespace

EagerAttention::EagerAttention(const kernels::KernelTable* kernels, const AttentionShape& shape,
                               int n_threads)
    : shape_(shape), of_copy_(kernels, Repeated(shape), n_threads) {}

size_t EagerAttention::CopyBytes(const AttentionShape& shape, const KvLayout& layout, int n_positions) {
  return Z(ChunksFor(n_positions)) * Repeated(layout, shape.n_head).layer_bytes();
}

// The chunks of slots [first, end), of which whole chunks before them stay empty; of a ring in the order of
// their positions. Returns where they begin among the bases.
size_t EagerAttention::Add(const KvSpan& span, int first, int end, const AttentionSegment* ring) {
  const size_t begin = n_bases_;
  n_bases_ += Z(ChunksFor(end));
  for (int chunk = first / kKvChunk; chunk < ChunksFor(end); ++chunk) {
    const int place = ring != nullptr ? ring->PlaceOf(chunk) : chunk;
    chunks_.push_back({.from = span.chunks[place] + span.layer_offset,
                       .layout = span.layout,
                       .base = begin + Z(chunk),
                       .at = copy_bytes_});
    copy_bytes_ += Repeated(span.layout, shape_.n_head).layer_bytes();
  }
  return begin;
}

KvSpan EagerAttention::SpanOf(const KvSpan& span, size_t base) const {
  return {.layout = Repeated(span.layout, shape_.n_head),
          .chunks = bases_.data() + base,
          .n_committed = span.n_committed,
          .n_speculated = span.n_speculated};
}

void EagerAttention::Plan(std::span<const AttentionSegment> segments) {
  chunks_.clear();
  n_bases_ = 0;
  copy_bytes_ = 0;
  std::vector<std::pair<size_t, size_t>> begins;  // of stored chunks and of tails, among the bases
  for (const AttentionSegment& segment : segments) {
    int end = 0;
    bool has_tails = false;
    for (const RowView& row : segment.rows) {
      end = std::max(end, row.end);
      has_tails = has_tails || !row.tail.empty();
    }
    // Tails of a tree lie behind what is stored: one copy of both.
    const bool same = segment.tail.chunks == segment.stored.chunks && segment.n_ring_chunks == 0 &&
                      segment.tail.layer_offset == segment.stored.layer_offset;
    if (has_tails && same) end = std::max(end, segment.tail_end);
    const size_t stored = Add(segment.stored, 0, end, &segment);
    begins.emplace_back(stored, has_tails && !same
                                    ? Add(segment.tail, segment.tail_begin, segment.tail_end, nullptr)
                                    : stored);
  }
  if (copy_.size() < copy_bytes_) {
    copy_ = AlignedBuffer();  // before there is another one
    copy_ = AlignedBuffer(copy_bytes_);
  }
  bases_.assign(n_bases_, nullptr);
  for (const Chunk& chunk : chunks_) bases_[chunk.base] = copy_.data() + chunk.at;
  segments_.assign(segments.begin(), segments.end());
  for (size_t i = 0; i < segments_.size(); ++i) {
    AttentionSegment& segment = segments_[i];
    segment.stored = SpanOf(segment.stored, begins[i].first);
    segment.n_ring_chunks = 0;
    if (segment.tail.chunks != nullptr) segment.tail = SpanOf(segment.tail, begins[i].second);
  }
  of_copy_.Plan(segments_);
  const size_t floats = Z(of_copy_.n_rows()) * Z(shape_.n_head) * Z(shape_.head_dim);
  if (q_.size() < floats * sizeof(float)) q_ = AlignedBuffer(floats * sizeof(float));
}

void EagerAttention::CopyHead(const Chunk& chunk, int layer, int head) {
  const std::byte* const from_chunk = chunk.from + Z(layer) * chunk.layout.layer_bytes();
  const KvSpan from = {.layout = chunk.layout, .chunks = &from_chunk};
  std::byte* const to_chunk = copy_.data() + chunk.at;
  const KvWriter to = {.layout = Repeated(chunk.layout, shape_.n_head), .chunks = &to_chunk};
  const int kv_head = head / shape_.group();
  std::memcpy(to.keys(0, head), from.keys(0, kv_head), chunk.layout.k_head_bytes());
  std::memcpy(to.values(0, head), from.values(0, kv_head), chunk.layout.v_head_bytes());
}

void EagerAttention::Run(ThreadTeam::Worker& worker, int layer, const float* q, float* out) {
  const auto share = worker.ShareOf(static_cast<int>(chunks_.size()) * shape_.n_head);
  for (int i = share.begin; i < share.end; ++i) {
    CopyHead(chunks_[Z(i / shape_.n_head)], layer, i % shape_.n_head);
  }
  // Of each KV head (n_rows, group, head_dim), of each query head (n_rows, head_dim).
  const int n_rows = of_copy_.n_rows();
  const size_t dim = Z(shape_.head_dim), group = Z(shape_.group());
  const auto heads = worker.ShareOf(shape_.n_head);
  for (int head = heads.begin; head < heads.end; ++head) {
    const size_t kv_head = Z(head) / group;
    for (size_t r = 0; r < Z(n_rows); ++r) {
      const size_t from = ((kv_head * Z(n_rows) + r) * group + Z(head) % group) * dim;
      std::memcpy(q_.as<float>() + (Z(head) * Z(n_rows) + r) * dim, q + from, dim * sizeof(float));
    }
  }
  worker.Barrier();
  of_copy_.Run(worker, 0, q_.as<float>(), out);
}

}  // namespace longspec
