// SPDX-License-Identifier: Apache-2.0
//
// The forward pass. Every worker of the team runs all of it; between two operations that need each other's
// whole result stands a barrier. Row results do not depend on the rows beside them, because no kernel's do.
#include "model/llama.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <new>
#include <numeric>

#include "attention/eager_attention.h"
#include "attention/tree_rows.h"
#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "kv/copy_slot.h"
#include "model/block.h"
#include "model/llama_weights.h"
#include "model/shared_parts.h"
#include "tensor/dequantize.h"

namespace longspec {
namespace {

AttentionWeights AttentionOf(const LlamaLayer& layer) {
  return {.norm = layer.attn_norm,
          .q = &layer.q.matrix(),
          .k = &layer.k.matrix(),
          .v = &layer.v.matrix(),
          .output = &layer.attn_output.matrix(),
          .q_bias = layer.q_bias,
          .k_bias = layer.k_bias,
          .v_bias = layer.v_bias,
          .q_norm = layer.q_norm,
          .k_norm = layer.k_norm};
}

MlpWeights MlpOf(const LlamaLayer& layer) {
  return {.norm = layer.ffn_norm,
          .gate = &layer.gate.matrix(),
          .up = &layer.up.matrix(),
          .down = &layer.down.matrix()};
}

// One row of the call: whose it is, and where it stands.
struct Row {
  int segment;
  int index;            // in its segment
  int position;         // absolute
  int prefix_row = -1;  // of its segment's prefix; -1: it is run from the start
};

class Llama final : public Target {
 public:
  Llama(std::shared_ptr<const GgufFile> file, const LlamaConfig& config, const LlamaLoadOptions& options,
        std::unique_ptr<const LlamaWeights> weights)
      : file_(std::move(file)),
        config_(config),
        kernels_(*options.kernels),
        team_(*options.team),
        max_rows_(options.max_rows),
        weights_(std::move(weights)),
        rope_(config.rope),
        shared_{&config_, &kernels_, &team_, weights_->embedding, &weights_->output.matrix(), weights_->head},
        work_(config_.block(), &kernels_, max_rows_, weights_->input_forms),
        out_rows_(Z(max_rows_) * Z(config_.n_embd) * sizeof(float)) {}

  int vocab_size() const override { return config_.n_logits; }
  int context_length() const override { return config_.context_length(); }

  const SharedParts* shared_parts() const override { return &shared_; }

  Result<TargetOutput> Forward(std::span<const ForwardSegment> segments) override {
    LS_TRY(Prepare(segments));
    team_.Run([&](ThreadTeam::Worker& worker) { ForwardOn(worker, segments); });
    return Output(segments);
  }

  Status RunPrefix(std::span<const PrefixSegment> segments) override;

 private:
  // What a segment asks to be copied: the residual stream after a layer, or what the LM head sees.
  struct Tap {
    static constexpr int kFinal = -1;
    int layer, row_begin, row_end;
    size_t at;  // of tapped_
  };
  // Queries of some rows: (n_layer, rows, n_head * head_dim).
  struct QueryTap {
    int row_begin, row_end;
    size_t at;  // of tapped_
  };
  // Layers that all of the first rows of the workspace pass: those that were begun elsewhere join later.
  struct Stage {
    explicit Stage(std::unique_ptr<Attention> own) : attention(std::move(own)) {}
    int layer_begin = 0, layer_end = 0;
    std::unique_ptr<Attention> attention;
    std::vector<RowPlace> places;  // of its rows, in the order of the workspace
  };

  Status CheckToken(int32_t token) const;
  Status CheckRowCount(int n) const;
  Status Prepare(std::span<const ForwardSegment> segments);
  Status PlaceRows(std::span<const ForwardSegment> segments);
  void FindPrefixRows(std::span<const ForwardSegment> segments);
  int FirstLayerOf(std::span<const ForwardSegment> segments, const Row& row) const;
  void PlanTaps(std::span<const ForwardSegment> segments);
  void PlanStages(std::span<const ForwardSegment> segments);
  void PlanPrefix(std::span<const PrefixSegment> segments, int n_rows);
  std::unique_ptr<Attention> MakeAttention() const;
  Stage& StageAt(size_t i);
  TargetOutput Output(std::span<const ForwardSegment> segments) const;
  void ForwardOn(ThreadTeam::Worker& worker, std::span<const ForwardSegment> segments);
  void BeginRow(std::span<const ForwardSegment> segments, const Row& row, float* x);
  void Embed(int32_t token, float* x) const;
  void RunLayer(ThreadTeam::Worker& worker, Stage& stage, int layer, std::span<const QueryTap> query_taps);
  template <typename F>
  void ForEachTappedRow(const ThreadTeam::Worker& worker, int layer, const F& f);
  void TapQueries(const ThreadTeam::Worker& worker, const Stage& stage, int layer,
                  std::span<const QueryTap> query_taps);
  size_t q_width() const { return Z(int64_t{config_.n_head} * config_.head_dim); }
  int n_rows() const { return static_cast<int>(rows_.size()); }

  const std::shared_ptr<const GgufFile> file_;  // keeps the mapped embedding alive
  const LlamaConfig config_;
  const kernels::KernelTable& kernels_;
  ThreadTeam& team_;
  const int max_rows_;
  const std::unique_ptr<const LlamaWeights> weights_;
  const RopeTable rope_;
  const SharedParts shared_;

  // Of one pass.
  std::vector<Row> rows_;
  std::vector<int> first_row_;     // of each segment
  std::vector<int> logit_rows_;    // rows whose logits are asked for
  std::vector<KvWriter> writers_;  // of each segment
  TreeRows seen_;
  std::vector<int> order_, place_;  // the row at each place of the workspace, and where each row is
  std::vector<RowView> views_;      // by place
  std::vector<AttentionSegment> parts_;
  std::deque<Stage> stages_;
  size_t n_stages_ = 0;
  Workspace work_;
  AlignedBuffer out_rows_;     // (n logit rows, n_embd): the residual stream of those that pass the head
  std::vector<float> logits_;  // (logit_rows_, n_logits)
  std::vector<Tap> taps_;      // in the order of the segments, and of what each asks for
  std::vector<QueryTap> query_taps_;
  std::vector<float> tapped_;
};

Status Llama::CheckToken(int32_t token) const {
  if (token >= 0 && token < config_.n_vocab) return {};
  return InvalidArgument("token " + std::to_string(token) + " is outside the vocabulary of " +
                         std::to_string(config_.n_vocab));
}

Status Llama::CheckRowCount(int n) const {
  if (n <= max_rows_) return {};
  return InvalidArgument("a forward pass of " + std::to_string(n) + " rows; this model was loaded for " +
                         std::to_string(max_rows_) + " (batch_size)");
}

Status Llama::PlaceRows(std::span<const ForwardSegment> segments) {
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
  return CheckRowCount(n_rows());
}

// Of each row that its segment's prefix has, where.
void Llama::FindPrefixRows(std::span<const ForwardSegment> segments) {
  for (size_t s = 0; s < segments.size(); ++s) {
    const ForwardSegment& segment = segments[s];
    const LayerPrefix* prefix = segment.prefix;
    if (prefix == nullptr || prefix->n_rows() == 0 || prefix->base() != segment.kv->base()) continue;
    LS_CHECK(prefix->n_layers() <= config_.n_layer);
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

int Llama::FirstLayerOf(std::span<const ForwardSegment> segments, const Row& row) const {
  return row.prefix_row < 0 ? 0 : segments[Z(row.segment)].prefix->n_layers();
}

void Llama::PlanTaps(std::span<const ForwardSegment> segments) {
  taps_.clear();
  query_taps_.clear();
  size_t at = 0;
  for (size_t s = 0; s < segments.size(); ++s) {
    if (segments[s].taps == nullptr) continue;
    const Taps& wanted = *segments[s].taps;
    const int begin = first_row_[s], end = begin + static_cast<int>(segments[s].tokens.size());
    const auto add = [&](int layer) {
      taps_.push_back({.layer = layer, .row_begin = begin, .row_end = end, .at = at});
      at += Z(end - begin) * Z(config_.n_embd);
    };
    for (const int layer : wanted.hidden_layers) {
      LS_CHECK(layer >= 0 && layer < config_.n_layer);
      add(layer);
    }
    if (wanted.final_hidden) add(Tap::kFinal);
    if (wanted.query_rows == 0) continue;
    const int first = std::max(begin, end - wanted.query_rows);
    query_taps_.push_back({.row_begin = first, .row_end = end, .at = at});
    at += Z(config_.n_layer) * Z(end - first) * q_width();
  }
  if (tapped_.size() < at) tapped_.resize(at);
}

Status Llama::Prepare(std::span<const ForwardSegment> segments) {
  LS_TRY(PlaceRows(segments));
  FindPrefixRows(segments);
  try {
    PlanStages(segments);
    PlanTaps(segments);
    logits_.resize(std::max(logits_.size(), logit_rows_.size() * Z(config_.n_logits)));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for a forward pass of " + std::to_string(n_rows()) + " rows");
  }
  for (int r = 0; r < n_rows(); ++r) {
    rope_.Row(rows_[Z(order_[Z(r)])].position, work_.cos_sin.as<float>() + Z(r) * Z(config_.rope.n_rot));
  }
  return {};
}

std::unique_ptr<Attention> Llama::MakeAttention() const {
  if (config_.attention_kind == AttentionKind::kEager) {
    return std::make_unique<EagerAttention>(&kernels_, config_.attention(), team_.size());
  }
  return std::make_unique<AttentionPlan>(&kernels_, config_.attention(), team_.size());
}

Llama::Stage& Llama::StageAt(size_t i) {
  if (i == stages_.size()) stages_.emplace_back(MakeAttention());
  return stages_[i];
}

// The rows in the order of their first layers, what each sees, where its query lies, and where its key and
// value go.
void Llama::PlanStages(std::span<const ForwardSegment> segments) {
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
  views_.resize(rows_.size());
  const std::span<const AttentionSegment> seen = seen_.Segments();
  for (int place = 0; place < n_rows(); ++place) {
    const int r = order_[Z(place)];
    place_[Z(r)] = place;
    views_[Z(place)] = seen[Z(rows_[Z(r)].segment)].rows[Z(rows_[Z(r)].index)];
  }

  // Of each sequence, rows with the same first layer are a segment of attention; a stage has those that have
  // begun by then.
  parts_.clear();
  n_stages_ = 0;
  for (int begin = 0, end = 0; begin < n_rows(); begin = end) {
    const int layer = first_layer(order_[Z(begin)]), segment = rows_[Z(order_[Z(begin)])].segment;
    while (end < n_rows() && first_layer(order_[Z(end)]) == layer &&
           rows_[Z(order_[Z(end)])].segment == segment) {
      ++end;
    }
    AttentionSegment part = seen[Z(segment)];
    part.rows = std::span<const RowView>(views_).subspan(Z(begin), Z(end - begin));
    parts_.push_back(part);
    if (end < n_rows() && first_layer(order_[Z(end)]) == layer) continue;
    Stage& stage = StageAt(n_stages_++);
    stage.layer_begin = layer;
    stage.layer_end = end < n_rows() ? first_layer(order_[Z(end)]) : config_.n_layer;
    stage.attention->Plan(parts_);
    stage.places.clear();
    for (int place = 0; place < end; ++place) {
      const Row& row = rows_[Z(order_[Z(place)])];
      stage.places.push_back({.query = stage.attention->Place(place),
                              .to = &writers_[Z(row.segment)],
                              .slot = segments[Z(row.segment)].kv->slot() + row.index});
    }
  }
}

// The new rows of the prefixes, what each sees, and where its key and value go.
void Llama::PlanPrefix(std::span<const PrefixSegment> segments, int n_rows) {
  Stage& stage = StageAt(0);
  views_.clear();
  views_.reserve(Z(n_rows));  // attention refers to them
  parts_.clear();
  writers_.clear();
  writers_.reserve(segments.size());
  stage.places.clear();
  for (const PrefixSegment& segment : segments) {
    if (segment.tokens.empty()) continue;
    LayerPrefix& prefix = *segment.prefix;
    const size_t first_view = views_.size();
    const int before = prefix.n_rows();
    for (size_t i = 0; i < segment.tokens.size(); ++i) prefix.Add(segment.tokens[i], segment.parents[i]);
    writers_.push_back(prefix.writer());
    for (int row = before; row < prefix.n_rows(); ++row) {
      views_.push_back({.begin = 0, .end = segment.cache->n_slots(), .tail = prefix.path(row)});
      stage.places.push_back({.to = &writers_.back(), .slot = row});
      const auto r = static_cast<int>(views_.size()) - 1;
      rope_.Row(prefix.position(row), work_.cos_sin.as<float>() + Z(r) * Z(config_.rope.n_rot));
    }
    parts_.push_back({.stored = segment.cache->Span(0),
                      .tail = prefix.span(),
                      .tail_begin = 0,
                      .tail_end = prefix.n_rows(),
                      .rows = std::span<const RowView>(views_).subspan(first_view)});
  }
  stage.attention->Plan(parts_);
  for (int r = 0; r < n_rows; ++r) stage.places[Z(r)].query = stage.attention->Place(r);
}

Status Llama::RunPrefix(std::span<const PrefixSegment> segments) {
  std::vector<int> before;  // rows of each prefix
  int n_rows = 0;
  for (const PrefixSegment& segment : segments) {
    const LayerPrefix& prefix = *segment.prefix;
    LS_CHECK(segment.tokens.size() == segment.parents.size() && prefix.base() == segment.cache->length() &&
             prefix.n_layers() == segments[0].prefix->n_layers() && prefix.n_layers() <= config_.n_layer);
    for (const int32_t token : segment.tokens) LS_TRY(CheckToken(token));
    before.push_back(prefix.n_rows());
    n_rows += static_cast<int>(segment.tokens.size());
  }
  if (n_rows == 0) return {};
  LS_TRY(CheckRowCount(n_rows));
  try {
    PlanPrefix(segments, n_rows);
  } catch (const std::bad_alloc&) {
    for (size_t s = 0; s < segments.size(); ++s) segments[s].prefix->Truncate(before[s]);
    return ResourceExhausted("no memory for the first layers of " + std::to_string(n_rows) + " rows");
  }
  const size_t width = Z(config_.n_embd);
  // f(row of the workspace, segment, row of its new ones), for this worker's part.
  const auto for_each_row = [&](const ThreadTeam::Worker& worker, const auto& f) {
    const auto share = worker.ShareOf(n_rows);
    int r = 0;
    for (size_t s = 0; s < segments.size(); ++s) {
      for (size_t i = 0; i < segments[s].tokens.size(); ++i, ++r) {
        if (r >= share.begin && r < share.end) f(work_.x.as<float>() + Z(r) * width, s, i);
      }
    }
  };
  team_.Run([&](ThreadTeam::Worker& worker) {
    for_each_row(worker, [&](float* x, size_t s, size_t i) { Embed(segments[s].tokens[i], x); });
    worker.Barrier();
    for (int layer = 0; layer < segments[0].prefix->n_layers(); ++layer) {
      RunLayer(worker, StageAt(0), layer, {});
    }
    for_each_row(worker, [&](const float* x, size_t s, size_t i) {
      std::memcpy(segments[s].prefix->hidden(before[s] + static_cast<int>(i)), x, width * sizeof(float));
    });
  });
  return {};
}

TargetOutput Llama::Output(std::span<const ForwardSegment> segments) const {
  TargetOutput output;
  output.vocab = config_.n_logits;
  output.width = config_.n_embd;
  size_t next_logits = 0;
  auto tap = taps_.begin();
  auto queries = query_taps_.begin();
  for (size_t s = 0; s < segments.size(); ++s) {
    TargetOutput::Segment out;
    out.logits = logits_.data() + next_logits * Z(config_.n_logits);
    while (next_logits < logit_rows_.size() &&
           rows_[Z(logit_rows_[next_logits])].segment == static_cast<int>(s)) {
      ++next_logits;
      ++out.n_logits;
    }
    for (; tap != taps_.end() && tap->row_begin == first_row_[s]; ++tap) {
      const float* from = tapped_.data() + tap->at;
      if (tap->layer == Tap::kFinal) {
        out.final_hidden = from;
      } else {
        out.hidden.push_back(from);
      }
    }
    const int end = first_row_[s] + static_cast<int>(segments[s].tokens.size());
    if (queries != query_taps_.end() && queries->row_end == end) {
      out.n_query_rows = queries->row_end - queries->row_begin;
      for (int layer = 0; layer < config_.n_layer; ++layer) {
        out.queries.push_back(tapped_.data() + queries->at + Z(layer) * Z(out.n_query_rows) * q_width());
      }
      ++queries;
    }
    output.segments.push_back(std::move(out));
  }
  return output;
}

// f(row of the workspace, where its copy goes), for this worker's part of all rows tapped at `layer`.
template <typename F>
void Llama::ForEachTappedRow(const ThreadTeam::Worker& worker, int layer, const F& f) {
  const auto share = worker.ShareOf(n_rows());
  for (const Tap& tap : taps_) {
    if (tap.layer != layer) continue;
    for (int r = std::max(share.begin, tap.row_begin); r < std::min(share.end, tap.row_end); ++r) {
      f(place_[Z(r)], tapped_.data() + tap.at + Z(r - tap.row_begin) * Z(config_.n_embd));
    }
  }
}

// As attention had them: of each KV head its group's. Rows that were begun elsewhere are never tapped.
void Llama::TapQueries(const ThreadTeam::Worker& worker, const Stage& stage, int layer,
                       std::span<const QueryTap> query_taps) {
  const auto share = worker.ShareOf(static_cast<int>(stage.places.size()));
  const size_t n = stage.places.size(), group = q_width() / Z(config_.n_head_kv);
  for (const QueryTap& tap : query_taps) {
    float* const to = tapped_.data() + tap.at + Z(layer) * Z(tap.row_end - tap.row_begin) * q_width();
    for (int place = share.begin; place < share.end; ++place) {
      const int row = order_[Z(place)];
      if (row < tap.row_begin || row >= tap.row_end) continue;
      for (int head = 0; head < config_.n_head_kv; ++head) {
        const size_t from = (Z(head) * n + Z(stage.places[Z(place)].query)) * group;
        std::copy_n(work_.q_by_head.as<float>() + from, group,
                    to + Z(row - tap.row_begin) * q_width() + Z(head) * group);
      }
    }
  }
}

void Llama::Embed(int32_t token, float* x) const {
  const TensorView& embedding = weights_->embedding;
  DequantizeRow(embedding.dtype, embedding.row(token), config_.n_embd, x);
}

// The residual stream before a row's first layer; of layers that were run elsewhere, its keys and values.
void Llama::BeginRow(std::span<const ForwardSegment> segments, const Row& row, float* x) {
  const ForwardSegment& segment = segments[Z(row.segment)];
  if (row.prefix_row < 0) {
    Embed(segment.tokens[Z(row.index)], x);
    return;
  }
  const LayerPrefix& prefix = *segment.prefix;
  std::memcpy(x, prefix.hidden(row.prefix_row), Z(config_.n_embd) * sizeof(float));
  KvSpan from = prefix.span();
  KvWriter to = writers_[Z(row.segment)];
  for (int layer = 0; layer < prefix.n_layers(); ++layer) {
    CopySlot(from, row.prefix_row, to, segment.kv->slot() + row.index);
    from.layer_offset += from.layout.layer_bytes();
    to.layer_offset += to.layout.layer_bytes();
  }
}

void Llama::RunLayer(ThreadTeam::Worker& worker, Stage& stage, int layer,
                     std::span<const QueryTap> query_taps) {
  const LlamaLayer& weights = weights_->layers[Z(layer)];
  AddAttention(worker, work_, AttentionOf(weights), stage.places, layer, *stage.attention);
  if (!query_taps.empty()) TapQueries(worker, stage, layer, query_taps);
  AddMlp(worker, work_, MlpOf(weights), static_cast<int>(stage.places.size()));
}

void Llama::ForwardOn(ThreadTeam::Worker& worker, std::span<const ForwardSegment> segments) {
  float* x = work_.x.as<float>();
  const size_t row_bytes = Z(config_.n_embd) * sizeof(float);
  const auto row_of = [&](int place) { return x + Z(place) * Z(config_.n_embd); };
  const auto share = worker.ShareOf(n_rows());
  for (int place = share.begin; place < share.end; ++place) {
    BeginRow(segments, rows_[Z(order_[Z(place)])], row_of(place));
  }
  worker.Barrier();
  // Rows that are begun after a layer are, until they join, as that layer left them.
  const auto tap = [&](int layer) {
    ForEachTappedRow(worker, layer, [&](int place, float* to) { std::memcpy(to, row_of(place), row_bytes); });
  };
  const int first_layer = stages_[0].layer_begin;
  if (first_layer > 0) tap(first_layer - 1);
  for (size_t s = 0; s < n_stages_; ++s) {
    for (int layer = stages_[s].layer_begin; layer < stages_[s].layer_end; ++layer) {
      if (worker.index() == 0) {  // while this layer is computed
        for (const ForwardSegment& segment : segments) {
          segment.kv->cache().Prefetch((layer + 1) % config_.n_layer);
        }
      }
      RunLayer(worker, stages_[s], layer, query_taps_);
      tap(layer);
    }
  }
  ForEachTappedRow(worker, Tap::kFinal, [&](int place, float* to) {
    kernels_.rms_norm(row_of(place), weights_->output_norm.data(), config_.n_embd, config_.rms_eps, to);
  });
  // Only the rows whose logits are asked for pass the head.
  const auto n_logits = static_cast<int>(logit_rows_.size());
  if (n_logits == 0) return;
  float* out_rows = out_rows_.as<float>();
  const auto logit_share = worker.ShareOf(n_logits);
  for (int i = logit_share.begin; i < logit_share.end; ++i) {
    std::memcpy(out_rows + Z(i) * Z(config_.n_embd), row_of(place_[Z(logit_rows_[Z(i)])]), row_bytes);
  }
  Normalise(worker, work_, out_rows, weights_->output_norm, n_logits);
  worker.Barrier();
  const std::array head = {LinearJob{&weights_->output.matrix(), logits_.data()}};
  Project(worker, work_, head, work_.normed.as<float>(), config_.n_embd, n_logits);
}

}  // namespace

LlamaMemory PlanLlamaMemory(const LlamaConfig& config, const GgufFile& file, int max_rows, int n_threads) {
  constexpr int kMostLogitRows = 256;  // the largest tree decoding proposes, its root included
  LlamaMemory memory;
  InputForms forms;
  for (const TensorView& t : file.tensors()) {
    if (t.n_rows() == 1) continue;
    if (t.name == "token_embd.weight" && !config.tied_embeddings) continue;  // read in place
    if (!CanDequantize(t.dtype)) continue;
    memory.weights += kernels::PackedBytes(t.dtype, t.shape[0], t.n_rows());
    forms.Add({.format = kernels::PackedFormat(t.dtype, config.bf16_format)});
  }
  memory.scratch =
      Z(max_rows) * (Workspace::RowBytes(config.block(), forms) + Z(config.n_embd) * sizeof(float)) +
      Z(std::min(max_rows, kMostLogitRows)) * Z(config.n_logits) * sizeof(float) +
      AttentionPlan::MostBytes(config.attention(), n_threads, max_rows);
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
