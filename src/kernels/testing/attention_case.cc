// SPDX-License-Identifier: Apache-2.0
#include "kernels/testing/attention_case.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/kv_format.h"
#include "kernels/tables.h"
#include "kernels/testing/data.h"

namespace longspec::kernels::testing {

AttentionCase::AttentionCase(const Shape& shape, const std::vector<SeenByRow>& rows, int item_rows,
                             uint32_t seed)
    : shape_(shape),
      k_head_bytes_(kChunk * FormatOf(shape.k_type, shape.head_dim).bytes()),
      v_head_bytes_(kChunk * FormatOf(shape.v_type, shape.head_dim).bytes()),
      layer_bytes_(Size(shape.n_kv_head) * (k_head_bytes_ + v_head_bytes_)) {
  Random random(seed);
  int total = 0, tail_begin = std::numeric_limits<int>::max();
  for (const SeenByRow& row : rows) {
    rows_.push_back({row.begin, row.end, row.end + row.n_tail, static_cast<int>(slots_.size())});
    for (int i = 0; i < row.n_tail; ++i) slots_.push_back(random.Below(kTailSlots));
    total = std::max(total, row.end + row.n_tail);
    if (row.n_tail > 0) tail_begin = row.end;
  }
  n_chunks_ = Size((total + kChunk - 1) / kChunk);
  const size_t n_all = n_chunks_ + (kTailSlots + kChunk - 1) / kChunk;
  for (size_t i = 0; i < n_all * kLayers; ++i) {
    for (int values = 0; values < 2; ++values) {
      for (int head = 0; head < shape.n_kv_head; ++head) {
        const std::vector<std::byte> part = values == 1
                                                ? StoredValues(shape.v_type, shape.head_dim, random.Bits())
                                                : StoredKeys(shape.k_type, shape.head_dim, random.Bits());
        chunks_.insert(chunks_.end(), part.begin(), part.end());
      }
    }
  }
  q_ = random.Floats(rows.size() * Size(shape.n_kv_head * shape.group * shape.head_dim), 4.0F);
  const auto n_rows = static_cast<int>(rows.size());
  for (int chunk = 0; chunk < static_cast<int>(n_chunks_); ++chunk) {
    const bool with_tails = chunk >= tail_begin / kChunk;
    for (int row = 0; row < n_rows; row += item_rows) {
      Item item{chunk, with_tails, 0, row, std::min(item_rows, n_rows - row), n_states_};
      for (int i = row; i < row + item.n_rows; ++i) {
        item.n_stored = std::max(item.n_stored, std::min(rows_[Size(i)].end - chunk * kChunk, kChunk));
      }
      n_states_ += item.n_rows;
      items_.push_back(item);
    }
  }
  for (int row = 0; row < n_rows; ++row) {
    part_begins_.push_back(static_cast<int>(parts_.size()));
    for (const Item& item : items_) {
      if (row < item.row_begin || row >= item.row_begin + item.n_rows) continue;
      if (SeenBy(rows_[Size(row)], item).count > 0) parts_.push_back(item.state + row - item.row_begin);
    }
  }
  part_begins_.push_back(static_cast<int>(parts_.size()));
}

AttentionCase::Seen AttentionCase::SeenBy(const gpu::AttentionRow& row, const Item& item) const {
  const int first = item.chunk * kChunk;
  const int count = std::clamp((item.with_tails ? row.total : row.end) - first, 0, kChunk);
  const int low = std::clamp(row.begin - first, 0, kChunk);
  return low < count ? Seen{low, count} : Seen{0, 0};
}

const std::byte* AttentionCase::HeadOf(size_t chunk, int head, bool values) const {
  const size_t keys = Size(shape_.n_kv_head) * k_head_bytes_;
  return chunks_.data() + (chunk * kLayers + kLayer) * layer_bytes_ +
         (values ? keys + Size(head) * v_head_bytes_ : Size(head) * k_head_bytes_);
}

// One row and query head by the reference's operations, as attention/attention.cc calls them.
void AttentionCase::AddState(const Item& item, int row, int head, int of_group, float* state) const {
  const gpu::AttentionRow& seen = rows_[Size(row)];
  const auto [low, count] = SeenBy(seen, item);
  std::fill_n(state, StateFloats(), 0.0F);
  if (count == 0) return;
  const float* q =
      q_.data() +
      Size(((int64_t{head} * static_cast<int64_t>(rows_.size()) + row) * shape_.group + of_group) *
           shape_.head_dim);
  const auto scores_of = [&](const std::byte* keys) {
    std::vector<float> scores(kChunk);
    kReferenceTable.scores({.keys = keys,
                            .q = q,
                            .out = scores.data(),
                            .out_stride = kChunk,
                            .scale = scale_,
                            .n_rows = 1,
                            .head_dim = shape_.head_dim,
                            .block_begin = 0,
                            .block_end = kChunk / kKeyGroup,
                            .type = shape_.k_type});
    return scores;
  };
  std::vector<float> p = scores_of(HeadOf(Size(item.chunk), head, false));
  std::vector<const std::byte*> values;
  const size_t row_bytes = v_head_bytes_ / kChunk;
  const int stored = std::min(item.n_stored, count);
  // Those whose values are summed together with no tail's.
  const int whole = count > stored ? stored - stored % KeysSummedTogether(shape_.v_type) : stored;
  for (int key = whole; key < count; ++key) {
    if (key < stored) {
      values.push_back(HeadOf(Size(item.chunk), head, true) + Size(key) * row_bytes);
      continue;
    }
    const int slot = slots_[Size(seen.tail + item.chunk * kChunk + key - seen.end)];
    const size_t chunk = n_chunks_ + Size(slot / kChunk);
    p[Size(key)] = scores_of(HeadOf(chunk, head, false))[Size(slot % kChunk)];
    values.push_back(HeadOf(chunk, head, true) + Size(slot % kChunk) * row_bytes);
  }
  std::fill_n(p.begin(), low, -std::numeric_limits<float>::infinity());
  kReferenceTable.softmax_chunk(p.data(), count, state);
  kReferenceTable.values({.values = HeadOf(Size(item.chunk), head, true),
                          .p = p.data(),
                          .p_stride = kChunk,
                          .o = state + kStateHeader,
                          .o_stride = 0,
                          .n_keys = &whole,
                          .n_rows = 1,
                          .head_dim = shape_.head_dim,
                          .type = shape_.v_type});
  kReferenceTable.gathered_values({.values = values.data(),
                                   .p = p.data() + whole,
                                   .p_stride = kChunk,
                                   .o = state + kStateHeader,
                                   .o_stride = 0,
                                   .n_keys = static_cast<int>(values.size()),
                                   .n_rows = 1,
                                   .head_dim = shape_.head_dim,
                                   .type = shape_.v_type});
}

AttentionCase::Result AttentionCase::Reference() const {
  Result result{std::vector<float>(AllStates()), std::vector<float>(OutFloats())};
  const auto state_of = [&](int head, int state, int of_group) {
    return result.states.data() +
           (Size(head * n_states_ + state) * Size(shape_.group) + Size(of_group)) * StateFloats();
  };
  for (int head = 0; head < shape_.n_kv_head; ++head) {
    for (int of_group = 0; of_group < shape_.group; ++of_group) {
      for (const Item& item : items_) {
        for (int i = 0; i < item.n_rows; ++i) {
          AddState(item, item.row_begin + i, head, of_group, state_of(head, item.state + i, of_group));
        }
      }
      for (size_t row = 0; row < rows_.size(); ++row) {
        if (part_begins_[row] == part_begins_[row + 1]) continue;
        std::vector<float> merged, stretch;  // of the stretches before, and of the one at hand
        const auto add_to = [&](std::vector<float>& to, const float* from) {
          if (to.empty()) {
            to.assign(from, from + StateFloats());
          } else {
            kReferenceTable.merge_state(to.data(), from, shape_.head_dim);
          }
        };
        int chunk = rows_[row].begin / kChunk;
        for (int part = part_begins_[row]; part < part_begins_[row + 1]; ++part, ++chunk) {
          if (chunk % kStretchChunks == 0 && !stretch.empty()) {
            add_to(merged, stretch.data());
            stretch.clear();
          }
          add_to(stretch, state_of(head, parts_[Size(part)], of_group));
        }
        add_to(merged, stretch.data());
        kReferenceTable.finish_state(merged.data(), shape_.head_dim,
                                     result.out.data() + (row * Size(shape_.n_kv_head * shape_.group) +
                                                          Size(head * shape_.group + of_group)) *
                                                             Size(shape_.head_dim));
      }
    }
  }
  return result;
}

}  // namespace longspec::kernels::testing
