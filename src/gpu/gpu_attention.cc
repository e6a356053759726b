// SPDX-License-Identifier: Apache-2.0
#include "gpu/gpu_attention.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "attention/attention_work.h"
#include "base/check.h"
#include "base/size.h"
#include "kernels/gpu/bodies.h"

namespace longspec {
namespace {

namespace gpu = kernels::gpu;
using kernels::KvType;

constexpr int kDims[] = {64, 128, 256, 512};  // that kernels are compiled for

int DimsFor(int head_dim) {
  return *std::ranges::find_if(kDims, [&](int dims) { return head_dim <= dims; });
}

int MostEntries(int head_dim) { return DimsFor(head_dim) == 512 ? gpu::kFewEntries : gpu::kManyEntries; }

bool HasKernels(KvType type) { return type != KvType::kBF16 && type != KvType::kBF16Amx; }

// f.operator()<Body>() with the body of attention for these numbers.
template <KvType T, int kOfDims, typename F>
auto WithEntries(int entries, const F& f) {
  if constexpr (kOfDims < 512) {
    if (entries > gpu::kFewEntries)
      return f.template operator()<gpu::AttentionOf<T, kOfDims, gpu::kManyEntries>>();
  }
  return f.template operator()<gpu::AttentionOf<T, kOfDims, gpu::kFewEntries>>();
}
template <KvType T, typename F>
auto WithDims(int head_dim, int entries, const F& f) {
  switch (DimsFor(head_dim)) {
    case 64:
      return WithEntries<T, 64>(entries, f);
    case 128:
      return WithEntries<T, 128>(entries, f);
    case 256:
      return WithEntries<T, 256>(entries, f);
    default:
      return WithEntries<T, 512>(entries, f);
  }
}
template <typename F>
auto WithBody(KvType type, int head_dim, int entries, const F& f) {
  switch (type) {
    case KvType::kF32:
      return WithDims<KvType::kF32>(head_dim, entries, f);
    case KvType::kQ8_0:
      return WithDims<KvType::kQ8_0>(head_dim, entries, f);
    case KvType::kQ4_0:
      return WithDims<KvType::kQ4_0>(head_dim, entries, f);
    case KvType::kI8:
      return WithDims<KvType::kI8>(head_dim, entries, f);
    default:
      return WithDims<KvType::kF16>(head_dim, entries, f);
  }
}

size_t SharedBytes(KvType type, int head_dim, int entries) {
  return WithBody(type, head_dim, entries,
                  []<typename Body>() { return Body::GridOf(gpu::AttentionArgs()).shared_bytes; });
}

// The next number of 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, ...: at most a quarter more.
size_t Rounder(size_t n) {
  const size_t step = std::bit_floor(std::max(n, size_t{4})) / 4;
  return (n + step - 1) / step * step;
}

// Chunks that a row sees.
int ChunksOfRow(const RowView& row) {
  const int total = row.end + static_cast<int>(row.tail.size());
  return row.begin < total ? ChunksOf(total) - row.begin / kKvChunk : 0;
}

}  // namespace

Status CheckGpuAttention(const AttentionShape& shape, const KvLayout& layout) {
  if (layout.k_type != layout.v_type || !HasKernels(KernelType(layout.k_type))) {
    return Unsupported("--cache-type-k " + std::string(CacheTypeName(layout.k_type)) +
                       " with --cache-type-v " + std::string(CacheTypeName(layout.v_type)) +
                       ": a card's kernels have f32, f16, q8_0, q4_0 and i8, keys and values alike");
  }
  if (shape.head_dim > kernels::kMaxHeadDim || shape.group() > MostEntries(shape.head_dim)) {
    return Unsupported("a card has no attention for " + std::to_string(shape.group()) + " query heads of " +
                       std::to_string(shape.head_dim) + " dimensions to a KV head");
  }
  return {};
}

GpuAttention::GpuAttention(Runtime& card, const AttentionShape& shape, GpuBuffer* states,
                           gpu::LaunchList* launches, ChunkFetches* fetches, size_t state_bytes)
    : card_(card),
      shape_(shape),
      states_(states),
      launches_(launches),
      fetches_(fetches),
      most_states_(state_bytes / sizeof(float) / (Z(shape.n_kv_head) * row_states())),
      lists_(card),
      tails_(card) {}

size_t GpuAttention::row_states() const {
  return Z(shape_.group()) * (kernels::kStateHeader + Z(shape_.head_dim));
}

void GpuAttention::ChooseEntries(std::span<const AttentionSegment> segments) {
  int n_rows = 0, n_chunks = 0;
  for (const AttentionSegment& segment : segments) {
    n_rows += static_cast<int>(segment.rows.size());
    int most = 0;
    for (const RowView& row : segment.rows) most = std::max(most, ChunksOfRow(row));
    n_chunks += most;
  }
  const int best = gpu::EntriesOf(n_rows, shape_.group(), int64_t{n_chunks} * shape_.n_kv_head,
                                  card_.facts().multiprocessors);
  const KvType type = KernelType(layout_.k_type);
  const bool more_fit = MostEntries(shape_.head_dim) == gpu::kManyEntries &&
                        SharedBytes(type, shape_.head_dim, gpu::kManyEntries) <= card_.facts().shared_bytes;
  entries_ = best > gpu::kFewEntries && more_fit ? gpu::kManyEntries : gpu::kFewEntries;
  LS_CHECK(shape_.group() <= entries_);
}

void GpuAttention::Plan(std::span<const AttentionSegment> segments) {
  LS_CHECK(!segments.empty());
  layout_ = segments.front().stored.layout;
  for (const AttentionSegment& segment : segments) {
    LS_CHECK(segment.stored.layout.layer_bytes() == layout_.layer_bytes() &&
             segment.stored.layout.k_type == layout_.k_type);
  }
  ChooseEntries(segments);
  place_.clear();
  parts_.clear();
  items_.clear();
  item_tails_.clear();
  rows_.clear();
  slots_.clear();
  state_numbers_.clear();
  state_begins_.assign(1, 0);
  out_rows_.clear();
  tails_.Clear();
  fetched_.clear();
  fetched_items_.clear();
  fetched_chunks_.clear();
  written_.clear();
  for (const AttentionSegment& segment : segments) {
    for (int chunk = segment.tail_begin / kKvChunk; chunk < ChunksOf(segment.tail_end); ++chunk)
      written_.insert(segment.tail.chunks[chunk]);
  }

  // As many rows together as their states have room.
  std::vector<AttentionSegment> part;
  size_t n_states = 0;
  int row_begin = 0, n_rows = 0;
  const auto finish = [&] {
    PlanPart(part, row_begin);
    part.clear();
    n_states = 0;
    row_begin = n_rows;
  };
  for (const AttentionSegment& segment : segments) {
    size_t first = 0;
    for (size_t i = 0; i < segment.rows.size(); ++i, ++n_rows) {
      // Rows of a work leave a state each, whether they see the chunk or not.
      const size_t of_row = Z(ChunksOfRow(segment.rows[i]) + 1);
      if (n_states > 0 && n_states + of_row > most_states_) {
        if (i > first) {
          part.push_back(segment);
          part.back().rows = segment.rows.subspan(first, i - first);
          first = i;
        }
        finish();
      }
      n_states += of_row;
    }
    if (first == segment.rows.size()) continue;
    part.push_back(segment);
    part.back().rows = segment.rows.subspan(first);
  }
  finish();
  if (n_rows <= kFewRows && n_parts() == 1) RoundLists();

  size_t most_states = 0;
  for (const Part& of : parts_) most_states = std::max(most_states, Z(of.n_states));
  states_->Reserve(card_, Z(shape_.n_kv_head) * most_states * row_states() * sizeof(float));
  tails_.Bring();
  for (size_t i = 0; i < items_.size(); ++i) {
    if (item_tails_[i] != kNoTail) items_[i].tails = tails_.At<const std::byte*>(item_tails_[i]);
  }
  lists_.Clear();
  // Those whose length the number of rows says, those that are rounded, and the one that is neither.
  at_ = {.rows = lists_.Add(rows_),
         .part_begins = lists_.Add(state_begins_),
         .out_rows = lists_.Add(out_rows_),
         .items = lists_.Add(items_),
         .fetched_items = lists_.Add(fetched_items_),
         .fetched_chunks = lists_.Add(fetched_chunks_),
         .parts = lists_.Add(state_numbers_),
         .slots = lists_.Add(slots_)};
  lists_.Bring();
}

// Of the only part.
void GpuAttention::RoundLists() {
  Part& part = parts_.front();
  // An item without rows writes no state.
  items_.resize(Rounder(items_.size()), {});
  item_tails_.resize(items_.size(), kNoTail);
  part.item_end = static_cast<int>(items_.size());
  if (!fetched_.empty()) {
    // What is not fetched has no address, and nobody reads it.
    Fetch& last = fetched_.back();
    const size_t n_chunks = Rounder(Z(last.chunk_end - last.chunk_begin));
    fetched_chunks_.resize(Z(last.chunk_begin) + std::min(n_chunks, fetches_->most_chunks()), nullptr);
    last.chunk_end = static_cast<int>(fetched_chunks_.size());
    fetched_items_.resize(Z(last.item_begin) + Rounder(Z(last.item_end - last.item_begin)), {});
    last.item_end = static_cast<int>(fetched_items_.size());
  }
  state_numbers_.resize(Rounder(state_numbers_.size()));
  const size_t n_states = Z(part.n_states);
  part.n_states = static_cast<int>(std::max(n_states, std::min(Rounder(n_states), most_states_)));
}

void GpuAttention::PlanPart(std::span<const AttentionSegment> segments, int row_begin) {
  AttentionWork work({.rows_by_chunk = std::numeric_limits<int>::max(),
                      .tile_rows = 1,
                      .work_rows = entries_ / shape_.group()});
  work.Plan(segments);
  const auto n_rows = static_cast<int>(work.rows().size());
  Part part = {.row_begin = row_begin,
               .row_end = row_begin + n_rows,
               .item_begin = static_cast<int>(items_.size()),
               .item_end = 0,
               .fetch_begin = static_cast<int>(fetched_.size()),
               .fetch_end = 0,
               .n_states = static_cast<int>(work.n_states())};
  for (int row = 0; row < n_rows; ++row) place_.push_back(row_begin + work.PlaceOf(row));
  for (const AttentionWork::Row& row : work.rows()) {
    rows_.push_back(
        {.begin = row.begin, .end = row.end, .total = row.total, .tail = static_cast<int>(slots_.size())});
    slots_.insert(slots_.end(), row.tail, row.tail + (row.total - row.end));
    for (int at = row.first_part; at >= 0; at = work.parts()[Z(at)].next)
      state_numbers_.push_back(work.parts()[Z(at)].state);
    state_begins_.push_back(static_cast<int32_t>(state_numbers_.size()));
    out_rows_.push_back(row_begin + row.out);
  }

  // Where the chunks lie that slots of tails are counted in.
  std::map<const AttentionSegment*, size_t> tails;
  for (const AttentionWork::Work& of : work.works()) {
    const AttentionWork::Group& group = work.groups()[Z(of.group)];
    if (work.IsStored(group, of.chunk) || tails.contains(group.segment)) continue;
    const KvSpan& tail = group.segment->tail;
    std::vector<const std::byte*> chunks;
    for (int chunk = 0; chunk < ChunksOf(group.segment->tail_end); ++chunk)
      chunks.push_back(tail.chunks[chunk] + tail.layer_offset);
    tails[group.segment] = tails_.Add(chunks);
  }
  std::map<const std::byte*, int> numbers;
  std::vector<const std::byte*> chunks;
  std::vector<std::pair<int, gpu::AttentionItem>> fetched;
  for (const AttentionWork::Work& of : work.works()) {
    const AttentionWork::Group& group = work.groups()[Z(of.group)];
    const bool is_stored = work.IsStored(group, of.chunk);
    const int first = of.chunk * kKvChunk;
    int n_stored = 0;
    for (int place = of.row_begin; place < of.row_end; ++place)
      n_stored = std::max(n_stored, std::min(work.rows()[Z(place)].end - first, kKvChunk));
    const gpu::AttentionItem item = {.chunk = n_stored > 0 ? work.ChunkOf(group, of.chunk) : nullptr,
                                     .tails = nullptr,
                                     .first = first,
                                     .n_stored = n_stored,
                                     .row_begin = row_begin + of.row_begin,
                                     .n_rows = of.row_end - of.row_begin,
                                     .state = of.state};
    if (is_stored && IsFetched(*group.segment, item.chunk)) {
      const auto [at, is_new] = numbers.try_emplace(item.chunk, static_cast<int>(chunks.size()));
      if (is_new) chunks.push_back(item.chunk);
      fetched.emplace_back(at->second, item);
    } else {
      item_tails_.push_back(is_stored ? kNoTail : tails[group.segment]);
      items_.push_back(item);
    }
  }
  part.item_end = static_cast<int>(items_.size());
  if (!fetched.empty()) PlanFetches(chunks, std::move(fetched));
  part.fetch_end = static_cast<int>(fetched_.size());
  parts_.push_back(part);
}

bool GpuAttention::IsFetched(const AttentionSegment& segment, const std::byte* chunk) const {
  return fetches_->most_chunks() > 0 && segment.stored.layer_offset == 0 && fetches_->IsOnHost(chunk) &&
         !written_.contains(chunk);
}

void GpuAttention::PlanFetches(std::span<const std::byte* const> chunks,
                               std::vector<std::pair<int, gpu::AttentionItem>> items) {
  std::ranges::stable_sort(items, {}, [](const auto& item) { return item.first; });
  const std::byte* const place = fetches_->PlaceFor(layout_.layer_bytes());
  const auto most = static_cast<int>(fetches_->most_chunks());
  const auto first_chunk = static_cast<int>(fetched_chunks_.size());
  fetched_chunks_.insert(fetched_chunks_.end(), chunks.begin(), chunks.end());
  int number_of_last = -1;
  for (auto& [number, item] : items) {
    if (number / most != number_of_last) {
      number_of_last = number / most;
      const int begin = first_chunk + number_of_last * most;
      fetched_.push_back({.chunk_begin = begin,
                          .chunk_end = std::min(begin + most, static_cast<int>(fetched_chunks_.size())),
                          .item_begin = static_cast<int>(fetched_items_.size()),
                          .item_end = 0});
    }
    item.chunk = place + Z(number % most) * layout_.layer_bytes();
    fetched_items_.push_back(item);
    fetched_.back().item_end = static_cast<int>(fetched_items_.size());
  }
}

void GpuAttention::AddFetches(int layer) const {
  const auto bytes = static_cast<int64_t>(layout_.layer_bytes());
  for (const Fetch& fetch : fetched_) {
    fetches_->Add({.chunks = lists_.At<const std::byte*>(at_.fetched_chunks) + fetch.chunk_begin,
                   .n = fetch.chunk_end - fetch.chunk_begin,
                   .offset = layer * bytes,
                   .bytes = bytes,
                   .to = nullptr});
  }
}

void GpuAttention::Attend(const gpu::AttentionArgs& args) {
  if (args.n_items == 0) return;
  WithBody(KernelType(layout_.k_type), shape_.head_dim, entries_,
           [&]<typename Body>() { launches_->Add<Body>(args); });
}

void GpuAttention::Run(ThreadTeam::Worker& /*worker*/, int layer, const float* q, float* out) {
  const auto n_rows = static_cast<int>(place_.size());
  for (const Part& part : parts_) {
    gpu::AttentionArgs args = {.items = lists_.At<gpu::AttentionItem>(at_.items) + part.item_begin,
                               .rows = lists_.At<gpu::AttentionRow>(at_.rows),
                               .slots = lists_.At<int32_t>(at_.slots),
                               .q = q,
                               .states = states_->as<float>(),
                               .layer_offset = int64_t{layer} * static_cast<int64_t>(layout_.layer_bytes()),
                               .n_items = part.item_end - part.item_begin,
                               .n_rows = n_rows,
                               .n_states = part.n_states,
                               .n_kv_head = shape_.n_kv_head,
                               .group = shape_.group(),
                               .head_dim = shape_.head_dim,
                               .scale = shape_.scale};
    Attend(args);
    for (int i = part.fetch_begin; i < part.fetch_end; ++i) {
      const Fetch& fetch = fetched_[Z(i)];
      args.items = lists_.At<gpu::AttentionItem>(at_.fetched_items) + fetch.item_begin;
      args.n_items = fetch.item_end - fetch.item_begin;
      args.layer_offset = fetches_->Next();
      Attend(args);
      fetches_->Release();
    }
    const auto merge = [&]<int kOfDims>() {
      launches_->Add<gpu::MergeStates<kOfDims>>(
          {.rows = args.rows + part.row_begin,
           .states = args.states,
           .parts = lists_.At<int32_t>(at_.parts),
           .part_begins = lists_.At<int32_t>(at_.part_begins) + part.row_begin,
           .out_rows = lists_.At<int32_t>(at_.out_rows) + part.row_begin,
           .out = out,
           .n_rows = part.row_end - part.row_begin,
           .n_states = part.n_states,
           .n_kv_head = shape_.n_kv_head,
           .group = shape_.group(),
           .head_dim = shape_.head_dim});
    };
    switch (DimsFor(shape_.head_dim)) {
      case 64:
        merge.template operator()<64>();
        break;
      case 128:
        merge.template operator()<128>();
        break;
      case 256:
        merge.template operator()<256>();
        break;
      default:
        merge.template operator()<512>();
    }
  }
}

}  // namespace longspec
