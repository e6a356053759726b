// SPDX-License-Identifier: Apache-2.0
#include "model/pass_plan.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"

namespace longspec {
namespace {

// What of a view lies inside the window.
RowView Inside(RowView view, int window) {
  if (window > 0) view.begin = std::max(view.begin, view.end + static_cast<int>(view.tail.size()) - window);
  return view;
}

}  // namespace

PassPlan::PassPlan(const ModelSpec& spec, MakeAttention make_attention, int max_rows)
    : spec_(spec),
      make_attention_(std::move(make_attention)),
      max_rows_(max_rows),
      views_(spec.attentions.size()),
      parts_(spec.attentions.size()) {}

Status PassPlan::CheckToken(int32_t token) const {
  if (token >= 0 && token < spec_.n_vocab) return {};
  return InvalidArgument("token " + std::to_string(token) + " is outside the vocabulary of " +
                         std::to_string(spec_.n_vocab));
}

Status PassPlan::CheckRowCount() const {
  if (n_rows() <= max_rows_) return {};
  return InvalidArgument("a forward pass of " + std::to_string(n_rows()) +
                         " rows; this model was loaded for " + std::to_string(max_rows_) + " (batch_size)");
}

Status PassPlan::Plan(std::span<const ForwardSegment> segments) {
  LS_TRY(PlaceRows(segments));
  FindPrefixRows(segments);
  try {
    PlanStages(segments);
    PlanTaps(segments);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for a forward pass of " + std::to_string(n_rows()) + " rows");
  }
  return {};
}

Status PassPlan::PlaceRows(std::span<const ForwardSegment> segments) {
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
      LS_TRY(CheckToken(segment.tokens[Z(i)]));
      int position = segment.kv->base() + i;
      if (!segment.parents.empty()) {
        const int32_t parent = segment.parents[Z(i)];
        LS_CHECK(parent < i);
        position = parent < 0 ? segment.kv->base() : rows_[Z(first + parent)].position + 1;
      }
      rows_.push_back({.segment = static_cast<int>(s), .index = i, .position = position});
      if ((segment.logits == LogitsFor::kAllRows && i >= segment.first_logits) ||
          (segment.logits == LogitsFor::kLastRow && i == n - 1)) {
        logit_rows_.push_back(first + i);
      }
    }
  }
  return CheckRowCount();
}

// Of each row that its segment's prefix has, where.
void PassPlan::FindPrefixRows(std::span<const ForwardSegment> segments) {
  for (size_t s = 0; s < segments.size(); ++s) {
    const ForwardSegment& segment = segments[s];
    const LayerPrefix* prefix = segment.prefix;
    if (prefix == nullptr || prefix->n_rows() == 0 || prefix->base() != segment.kv->base()) continue;
    LS_CHECK(prefix->n_layers() <= spec_.n_layer);
    // What was not computed here cannot be tapped.
    if (segment.taps != nullptr && segment.taps->query_rows > 0) continue;
    if (segment.taps != nullptr && std::ranges::any_of(segment.taps->hidden_layers, [&](int layer) {
          return layer + 1 < prefix->n_layers();
        })) {
      continue;
    }
    for (size_t i = 0; i < segment.tokens.size(); ++i) {
      const int parent = segment.parents.empty() ? static_cast<int>(i) - 1 : segment.parents[i];
      const int above = parent < 0 ? -1 : rows_[Z(first_row_[s] + parent)].prefix_row;
      if (parent >= 0 && above < 0) continue;
      rows_[Z(first_row_[s]) + i].prefix_row = prefix->Find(above, segment.tokens[i]);
    }
  }
}

int PassPlan::FirstLayerOf(std::span<const ForwardSegment> segments, const PassRow& row) const {
  return row.prefix_row < 0 ? 0 : segments[Z(row.segment)].prefix->n_layers();
}

PassStage& PassPlan::NextStage() {
  if (n_stages_ == stages_.size()) {
    PassStage stage;
    for (const AttentionSpec& kind : spec_.attentions) {
      stage.kinds.emplace_back().attention = make_attention_(spec_.shape_of(kind));
    }
    stages_.push_back(std::move(stage));
  }
  PassStage& stage = stages_[n_stages_++];
  for (PassStage::Kind& kind : stage.kinds) kind.places.clear();
  return stage;
}

// Attention refers to the views: they do not move once there are some.
void PassPlan::BeginViews(size_t n_rows) {
  n_stages_ = 0;
  for (std::vector<AttentionSegment>& parts : parts_) parts.clear();
  for (std::vector<RowView>& views : views_) {
    views.clear();
    views.reserve(n_rows);
  }
}

void PassPlan::AddView(const RowView& view) {
  for (size_t k = 0; k < views_.size(); ++k) views_[k].push_back(Inside(view, spec_.attentions[k].window));
}

// Rows of the places [begin, end), whose keys lie in the same place.
void PassPlan::AddPart(const AttentionSegment& part, size_t begin, size_t end) {
  for (size_t k = 0; k < views_.size(); ++k) {
    parts_[k].push_back(part);
    parts_[k].back().rows = std::span<const RowView>(views_[k]).subspan(begin, end - begin);
  }
}

template <typename F>
void PassPlan::PlanAttention(PassStage& stage, int n_rows, const F& slot_of) {
  for (size_t k = 0; k < parts_.size(); ++k) {
    PassStage::Kind& kind = stage.kinds[k];
    kind.attention->Plan(parts_[k]);
    for (int place = 0; place < n_rows; ++place) {
      const PassRow& row = row_at(place);
      kind.places.push_back(
          {.query = kind.attention->Place(place), .to = &writers_[Z(row.segment)], .slot = slot_of(row)});
    }
  }
}

// The rows in the order of their first layers, what each sees, where its query lies, and where its key and
// value go.
void PassPlan::PlanStages(std::span<const ForwardSegment> segments) {
  seen_.Clear();
  writers_.clear();
  for (const ForwardSegment& segment : segments) {
    seen_.Add(segment.kv->cache().Span(0), segment.kv->slot(), segment.kv->n_rows(), segment.parents);
    writers_.push_back(segment.kv->Writer(0));
  }
  const auto first_layer = [&](int row) { return FirstLayerOf(segments, rows_[Z(row)]); };
  order_.resize(rows_.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::ranges::stable_sort(order_, {}, first_layer);
  place_.resize(rows_.size());
  BeginViews(rows_.size());
  const std::span<const AttentionSegment> seen = seen_.Segments();
  for (int place = 0; place < n_rows(); ++place) {
    const int r = order_[Z(place)];
    place_[Z(r)] = place;
    AddView(seen[Z(rows_[Z(r)].segment)].rows[Z(rows_[Z(r)].index)]);
  }

  // Of each sequence, rows with the same first layer are a segment of attention; a stage has those that have
  // begun by then.
  for (int begin = 0, end = 0; begin < n_rows(); begin = end) {
    const int layer = first_layer(order_[Z(begin)]), segment = rows_[Z(order_[Z(begin)])].segment;
    while (end < n_rows() && first_layer(order_[Z(end)]) == layer &&
           rows_[Z(order_[Z(end)])].segment == segment) {
      ++end;
    }
    AddPart(seen[Z(segment)], Z(begin), Z(end));
    if (end < n_rows() && first_layer(order_[Z(end)]) == layer) continue;
    PassStage& stage = NextStage();
    stage.layer_begin = layer;
    stage.layer_end = end < n_rows() ? first_layer(order_[Z(end)]) : spec_.n_layer;
    PlanAttention(stage, end,
                  [&](const PassRow& row) { return segments[Z(row.segment)].kv->slot() + row.index; });
  }
}

void PassPlan::PlanTaps(std::span<const ForwardSegment> segments) {
  hidden_taps_.clear();
  query_taps_.clear();
  size_t at = 0;
  for (size_t s = 0; s < segments.size(); ++s) {
    if (segments[s].taps == nullptr) continue;
    const Taps& wanted = *segments[s].taps;
    const int begin = first_row_[s], end = begin + static_cast<int>(segments[s].tokens.size());
    const auto add = [&](int layer) {
      hidden_taps_.push_back({.layer = layer, .row_begin = begin, .row_end = end, .at = at});
      at += Z(end - begin) * Z(spec_.n_embd);
    };
    for (const int layer : wanted.hidden_layers) {
      LS_CHECK(layer >= 0 && layer < spec_.n_layer);
      add(layer);
    }
    if (wanted.final_hidden) add(HiddenTap::kFinal);
    if (wanted.query_rows == 0) continue;
    const int first = std::max(begin, end - wanted.query_rows);
    query_taps_.push_back({.row_begin = first, .row_end = end, .at = at});
    at += Z(spec_.n_layer) * Z(end - first) * Z(spec_.n_head) * Z(spec_.head_dim);
  }
  tapped_floats_ = at;
}

TargetOutput PassPlan::Output(std::span<const ForwardSegment> segments, const LogitRows& logits,
                              const float* tapped, const StateMemory& memory) const {
  const auto q_width = spec_.n_head * spec_.head_dim;
  TargetOutput output;
  output.vocab = spec_.n_logits;
  size_t next_logits = 0;
  auto tap = hidden_taps_.begin();
  auto queries = query_taps_.begin();
  for (size_t s = 0; s < segments.size(); ++s) {
    TargetOutput::Segment out;
    const size_t first = next_logits;
    while (next_logits < logit_rows_.size() &&
           rows_[Z(logit_rows_[next_logits])].segment == static_cast<int>(s)) {
      ++next_logits;
    }
    out.logits = logits.From(static_cast<int>(first), static_cast<int>(next_logits - first));
    for (; tap != hidden_taps_.end() && tap->row_begin == first_row(s); ++tap) {
      const StateRows rows(tapped + tap->at, tap->row_end - tap->row_begin, spec_.n_embd, memory);
      if (tap->layer == HiddenTap::kFinal) {
        out.final_hidden = rows;
      } else {
        out.hidden.push_back(rows);
      }
    }
    const int end = first_row(s) + static_cast<int>(segments[s].tokens.size());
    if (queries != query_taps_.end() && queries->row_end == end) {
      const int n = queries->row_end - queries->row_begin;
      for (int layer = 0; layer < spec_.n_layer; ++layer) {
        out.queries.emplace_back(tapped + queries->at + Z(layer) * Z(n) * Z(q_width), n, q_width, memory);
      }
      ++queries;
    }
    output.segments.push_back(std::move(out));
  }
  return output;
}

bool PassPlan::ends_with_keys() const {
  const auto of_last = [this](const HiddenTap& tap) {
    return tap.layer == HiddenTap::kFinal || tap.layer == spec_.n_layer - 1;
  };
  return logit_rows_.empty() && query_taps_.empty() && std::ranges::none_of(hidden_taps_, of_last);
}

Status PassPlan::PlanPrefix(std::span<const PrefixSegment> segments) {
  rows_.clear();
  first_row_.clear();
  for (size_t s = 0; s < segments.size(); ++s) {
    const LayerPrefix& prefix = *segments[s].prefix;
    LS_CHECK(segments[s].tokens.size() == segments[s].parents.size() &&
             prefix.base() == segments[s].cache->length() &&
             prefix.n_layers() == segments[0].prefix->n_layers() && prefix.n_layers() <= spec_.n_layer);
    first_row_.push_back(n_rows());
    for (size_t i = 0; i < segments[s].tokens.size(); ++i) {
      LS_TRY(CheckToken(segments[s].tokens[i]));
      rows_.push_back({.segment = static_cast<int>(s),
                       .index = static_cast<int>(i),
                       .position = 0,
                       .prefix_row = prefix.n_rows() + static_cast<int>(i)});
    }
  }
  LS_TRY(CheckRowCount());
  std::vector<int> before;  // rows of each prefix
  for (const PrefixSegment& segment : segments) before.push_back(segment.prefix->n_rows());
  try {
    BeginViews(rows_.size());
    PassStage& stage = NextStage();
    stage.layer_begin = 0;
    stage.layer_end = segments.empty() ? 0 : segments[0].prefix->n_layers();
    writers_.clear();
    writers_.reserve(segments.size());
    for (const PrefixSegment& segment : segments) {
      LayerPrefix& prefix = *segment.prefix;
      for (size_t i = 0; i < segment.tokens.size(); ++i) prefix.Add(segment.tokens[i], segment.parents[i]);
      writers_.push_back(prefix.writer());
    }
    for (PassRow& row : rows_) {
      const LayerPrefix& prefix = *segments[Z(row.segment)].prefix;
      row.position = prefix.position(row.prefix_row);
      AddView({.begin = 0,
               .end = segments[Z(row.segment)].cache->n_slots(),
               .tail = prefix.path(row.prefix_row)});
    }
    for (size_t s = 0; s < segments.size(); ++s) {
      if (segments[s].tokens.empty()) continue;
      const LayerPrefix& prefix = *segments[s].prefix;
      AddPart({.stored = segments[s].cache->Span(0),
               .tail = prefix.span(),
               .tail_begin = 0,
               .tail_end = prefix.n_rows()},
              Z(first_row_[s]), Z(first_row_[s]) + segments[s].tokens.size());
    }
    order_.resize(rows_.size());
    std::iota(order_.begin(), order_.end(), 0);
    place_ = order_;
    PlanAttention(stage, n_rows(), [](const PassRow& row) { return row.prefix_row; });
  } catch (const std::bad_alloc&) {
    for (size_t s = 0; s < segments.size(); ++s) segments[s].prefix->Truncate(before[s]);
    return ResourceExhausted("no memory for the first layers of " + std::to_string(n_rows()) + " rows");
  }
  return {};
}

void PassPlan::ForgetPrefixRows(std::span<const PrefixSegment> segments) {
  for (const PrefixSegment& segment : segments)
    segment.prefix->Truncate(segment.prefix->n_rows() - static_cast<int>(segment.tokens.size()));
}

}  // namespace longspec
