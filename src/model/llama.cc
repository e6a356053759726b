// SPDX-License-Identifier: Apache-2.0
//
// The forward pass. Every worker of the team runs all of it; between two operations that need each other's
// whole result stands a barrier. Row results do not depend on the rows beside them, because no kernel's do.
#include "model/llama.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "attention/tree_rows.h"
#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "model/block.h"
#include "model/llama_weights.h"
#include "model/shared_parts.h"
#include "tensor/dequantize.h"

namespace longspec {
namespace {

size_t Z(int64_t n) { return static_cast<size_t>(n); }

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
  int index;     // in its segment
  int position;  // absolute
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
        shared_{&config_, &kernels_, &team_, weights_->embedding, &weights_->output.matrix()},
        attention_(&kernels_, config_.attention(), team_.size()),
        work_(config_.block(), &kernels_, max_rows_,
              {.q8 = weights_->any_quantized, .bf16 = weights_->any_in_bf16}),
        out_rows_(Z(max_rows_) * Z(config_.n_embd) * sizeof(float)) {}

  int vocab_size() const override { return config_.n_vocab; }
  int context_length() const override {
    return static_cast<int>(std::min(config_.n_ctx_train * std::max(1.0, config_.rope.scale), 2147483647.0));
  }

  const SharedParts* shared_parts() const override { return &shared_; }

  Result<TargetOutput> Forward(std::span<const ForwardSegment> segments) override {
    LS_TRY(Prepare(segments));
    team_.Run([&](ThreadTeam::Worker& worker) { ForwardOn(worker, segments); });
    return Output(segments);
  }

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

  Status Prepare(std::span<const ForwardSegment> segments);
  Status PlaceRows(std::span<const ForwardSegment> segments);
  void PlanTaps(std::span<const ForwardSegment> segments);
  void PlanAttention(std::span<const ForwardSegment> segments);
  TargetOutput Output(std::span<const ForwardSegment> segments) const;
  void ForwardOn(ThreadTeam::Worker& worker, std::span<const ForwardSegment> segments);
  template <typename F>
  void ForEachTappedRow(const ThreadTeam::Worker& worker, int layer, const F& f);
  void TapQueries(const ThreadTeam::Worker& worker, int layer);
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
  std::vector<RowPlace> places_;
  TreeRows seen_;
  AttentionPlan attention_;
  Workspace work_;
  AlignedBuffer out_rows_;     // (n logit rows, n_embd): the residual stream of those that pass the head
  std::vector<float> logits_;  // (logit_rows_, n_vocab)
  std::vector<Tap> taps_;      // in the order of the segments, and of what each asks for
  std::vector<QueryTap> query_taps_;
  std::vector<float> tapped_;
};

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
      if ((segment.logits == LogitsFor::kAllRows && i >= segment.first_logits) ||
          (segment.logits == LogitsFor::kLastRow && i == n - 1)) {
        logit_rows_.push_back(first + i);
      }
    }
  }
  if (n_rows() > max_rows_) {
    return InvalidArgument("a forward pass of " + std::to_string(n_rows()) +
                           " rows; this model was loaded for " + std::to_string(max_rows_) + " (batch_size)");
  }
  return {};
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
  try {
    PlanAttention(segments);
    PlanTaps(segments);
    logits_.resize(std::max(logits_.size(), logit_rows_.size() * Z(config_.n_vocab)));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for a forward pass of " + std::to_string(n_rows()) + " rows");
  }
  for (int r = 0; r < n_rows(); ++r) {
    rope_.Row(rows_[Z(r)].position, work_.cos_sin.as<float>() + Z(r) * Z(config_.rope.n_rot));
  }
  return {};
}

// What each row sees, where its query lies, and where its key and value go.
void Llama::PlanAttention(std::span<const ForwardSegment> segments) {
  seen_.Clear();
  writers_.clear();
  for (const ForwardSegment& segment : segments) {
    seen_.Add(segment.kv->cache().Span(0), segment.kv->slot(), segment.kv->n_rows(), segment.parents);
    writers_.push_back(segment.kv->Writer(0));
  }
  attention_.Plan(seen_.Segments());
  places_.clear();
  for (int r = 0; r < n_rows(); ++r) {
    const Row& row = rows_[Z(r)];
    places_.push_back({.query = attention_.Place(r),
                       .to = &writers_[Z(row.segment)],
                       .slot = segments[Z(row.segment)].kv->slot() + row.index});
  }
}

TargetOutput Llama::Output(std::span<const ForwardSegment> segments) const {
  TargetOutput output;
  output.vocab = config_.n_vocab;
  output.width = config_.n_embd;
  size_t next_logits = 0;
  auto tap = taps_.begin();
  auto queries = query_taps_.begin();
  for (size_t s = 0; s < segments.size(); ++s) {
    TargetOutput::Segment out;
    out.logits = logits_.data() + next_logits * Z(config_.n_vocab);
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

// f(row, where its copy goes), for this worker's part of all rows tapped at `layer`.
template <typename F>
void Llama::ForEachTappedRow(const ThreadTeam::Worker& worker, int layer, const F& f) {
  const auto share = worker.ShareOf(n_rows());
  for (const Tap& tap : taps_) {
    if (tap.layer != layer) continue;
    for (int r = std::max(share.begin, tap.row_begin); r < std::min(share.end, tap.row_end); ++r) {
      f(r, tapped_.data() + tap.at + Z(r - tap.row_begin) * Z(config_.n_embd));
    }
  }
}

// As attention had them: of each KV head its group's.
void Llama::TapQueries(const ThreadTeam::Worker& worker, int layer) {
  const auto share = worker.ShareOf(n_rows());
  const size_t group = q_width() / Z(config_.n_head_kv);
  for (const QueryTap& tap : query_taps_) {
    float* const to = tapped_.data() + tap.at + Z(layer) * Z(tap.row_end - tap.row_begin) * q_width();
    for (int r = std::max(share.begin, tap.row_begin); r < std::min(share.end, tap.row_end); ++r) {
      for (int head = 0; head < config_.n_head_kv; ++head) {
        const size_t from = (Z(head) * Z(n_rows()) + Z(places_[Z(r)].query)) * group;
        std::copy_n(work_.q_by_head.as<float>() + from, group,
                    to + Z(r - tap.row_begin) * q_width() + Z(head) * group);
      }
    }
  }
}

void Llama::ForwardOn(ThreadTeam::Worker& worker, std::span<const ForwardSegment> segments) {
  float* x = work_.x.as<float>();
  const size_t row_bytes = Z(config_.n_embd) * sizeof(float);
  const auto row_of = [&](int r) { return x + Z(r) * Z(config_.n_embd); };
  const auto share = worker.ShareOf(n_rows());
  for (int r = share.begin; r < share.end; ++r) {
    const int32_t token = segments[Z(rows_[Z(r)].segment)].tokens[Z(rows_[Z(r)].index)];
    const TensorView& embedding = weights_->embedding;
    DequantizeRow(embedding.dtype, embedding.row(token), config_.n_embd, row_of(r));
  }
  worker.Barrier();
  for (int i = 0; i < config_.n_layer; ++i) {
    const LlamaLayer& layer = weights_->layers[Z(i)];
    if (worker.index() == 0) {  // while this layer is computed
      for (const ForwardSegment& segment : segments) segment.kv->cache().Prefetch((i + 1) % config_.n_layer);
    }
    AddAttention(worker, work_, AttentionOf(layer), places_, i, attention_);
    TapQueries(worker, i);
    AddMlp(worker, work_, MlpOf(layer), n_rows());
    ForEachTappedRow(worker, i, [&](int r, float* to) { std::memcpy(to, row_of(r), row_bytes); });
  }
  ForEachTappedRow(worker, Tap::kFinal, [&](int r, float* to) {
    kernels_.rms_norm(row_of(r), weights_->output_norm.data(), config_.n_embd, config_.rms_eps, to);
  });
  // Only the rows whose logits are asked for pass the head.
  const auto n_logits = static_cast<int>(logit_rows_.size());
  if (n_logits == 0) return;
  float* out_rows = out_rows_.as<float>();
  const auto logit_share = worker.ShareOf(n_logits);
  for (int i = logit_share.begin; i < logit_share.end; ++i) {
    std::memcpy(out_rows + Z(i) * Z(config_.n_embd), row_of(logit_rows_[Z(i)]), row_bytes);
  }
  Normalise(worker, work_, out_rows, weights_->output_norm, n_logits);
  worker.Barrier();
  const std::array head = {LinearJob{&weights_->output.matrix(), logits_.data()}};
  Project(worker, work_, head, work_.normed.as<float>(), config_.n_embd, n_logits);
}

}  // namespace

LlamaMemory PlanLlamaMemory(const LlamaConfig& config, const GgufFile& file, int max_rows) {
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
      Z(std::min(max_rows, kMostLogitRows)) * Z(config.n_vocab) * sizeof(float) +
      AttentionPlan::MostBytes(config.attention(), 1, max_rows);
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
