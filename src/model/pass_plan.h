// SPDX-License-Identifier: Apache-2.0
//
// What a forward pass is going to do, worked out before anything is computed: the rows and where they stand,
// which of them were begun elsewhere, what each kind of layer's attention reads, and what is to be copied
// out. It computes nothing and knows no weights.
//
// Rows are counted twice: as the segments have them (row), and by their place in the workspace, where rows
// with the same first layer lie together (place).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "attention/attention.h"
#include "attention/tree_rows.h"
#include "longspec/status.h"
#include "model/block.h"
#include "model/target.h"
#include "network/model_spec.h"

namespace longspec {

// One row of a pass: whose it is, and where it stands.
struct PassRow {
  int segment;
  int index;            // in its segment
  int position;         // absolute
  int prefix_row = -1;  // of its segment's prefix; -1: it is run from the start
};

// What a segment asks to be copied: the residual stream after a layer, or what the LM head sees.
struct HiddenTap {
  static constexpr int kFinal = -1;
  int layer, row_begin, row_end;
  size_t at;  // floats before it among all that is copied
};

// Queries of some rows: (n_layer, rows, n_head * head_dim).
struct QueryTap {
  int row_begin, row_end;
  size_t at;
};

// Layers that all of the first rows of the workspace pass: those that were begun elsewhere join later.
struct PassStage {
  struct Kind {  // of attention: ModelSpec::attentions
    std::unique_ptr<Attention> attention;
    std::vector<RowPlace> places;  // of its rows, by place
  };
  int layer_begin = 0, layer_end = 0;
  std::vector<Kind> kinds;

  int n_rows() const { return static_cast<int>(kinds[0].places.size()); }
};

class PassPlan {
 public:
  // What plans and computes the attention of one kind of layers.
  using MakeAttention = std::function<std::unique_ptr<Attention>(const AttentionShape& shape)>;
  PassPlan(const ModelSpec& spec, MakeAttention make_attention, int max_rows);

  // A pass over these segments. kInvalidArgument: a token or too many rows. kResourceExhausted: no memory.
  Status Plan(std::span<const ForwardSegment> segments);
  // The same for new rows of prefixes, in one stage. Adds them to the prefixes, but not after an error.
  Status PlanPrefix(std::span<const PrefixSegment> segments);
  // What PlanPrefix added is not computed.
  static void ForgetPrefixRows(std::span<const PrefixSegment> segments);

  std::span<const PassRow> rows() const { return rows_; }
  int n_rows() const { return static_cast<int>(rows_.size()); }
  int first_row(size_t segment) const { return first_row_[segment]; }
  const PassRow& row_at(int place) const { return rows_[static_cast<size_t>(row_number_at(place))]; }
  int row_number_at(int place) const { return order_[static_cast<size_t>(place)]; }
  int place_of(int row) const { return place_[static_cast<size_t>(row)]; }
  std::span<PassStage> stages() { return {stages_.data(), n_stages_}; }
  const KvWriter& writer(size_t segment) const { return writers_[segment]; }

  std::span<const int> logit_rows() const { return logit_rows_; }  // those whose logits are asked for
  // They stand in the order of the segments, and for each segment in that of what it asks for.
  std::span<const HiddenTap> hidden_taps() const { return hidden_taps_; }
  std::span<const QueryTap> query_taps() const { return query_taps_; }
  size_t tapped_floats() const { return tapped_floats_; }
  // What the segments asked for, when it is computed: rows of logits in the order of logit_rows(), and what
  // was copied, in this memory.
  TargetOutput Output(std::span<const ForwardSegment> segments, const LogitRows& logits, const float* tapped,
                      const StateMemory& memory) const;
  // Nobody asks for what comes out of the last layer, as of the pieces of a prompt: its keys and values are
  // all that is needed of it.
  bool ends_with_keys() const;

 private:
  Status CheckToken(int32_t token) const;
  Status CheckRowCount() const;
  Status PlaceRows(std::span<const ForwardSegment> segments);
  void FindPrefixRows(std::span<const ForwardSegment> segments);
  int FirstLayerOf(std::span<const ForwardSegment> segments, const PassRow& row) const;
  void PlanStages(std::span<const ForwardSegment> segments);
  void PlanTaps(std::span<const ForwardSegment> segments);
  PassStage& NextStage();
  void BeginViews(size_t n_rows);
  void AddView(const RowView& view);
  void AddPart(const AttentionSegment& part, size_t begin, size_t end);
  // For the first n_rows places. slot_of(row): where the row's key and value go.
  template <typename F>
  void PlanAttention(PassStage& stage, int n_rows, const F& slot_of);

  const ModelSpec& spec_;
  const MakeAttention make_attention_;
  const int max_rows_;

  std::vector<PassRow> rows_;
  std::vector<int> first_row_;      // of each segment
  std::vector<int> order_, place_;  // the row at each place, and where each row is
  std::vector<int> logit_rows_;
  std::vector<KvWriter> writers_;  // of each segment
  TreeRows seen_;
  // What rows of each kind of attention see, by place, and the parts of a stage's plan.
  std::vector<std::vector<RowView>> views_;
  std::vector<std::vector<AttentionSegment>> parts_;
  std::vector<PassStage> stages_;
  size_t n_stages_ = 0;
  std::vector<HiddenTap> hidden_taps_;
  std::vector<QueryTap> query_taps_;
  size_t tapped_floats_ = 0;
};

}  // namespace longspec
