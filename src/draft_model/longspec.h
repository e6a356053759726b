// SPDX-License-Identifier: Apache-2.0
//
// A LongSpec draft (arXiv 2502.17421): one block that reads tokens, and the target's last layer of keys and
// values.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/attention.h"
#include "draft/growing_drafter.h"
#include "draft/tree_growth.h"
#include "draft_model/draft_block.h"
#include "draft_model/draft_lane.h"
#include "draft_model/learned_draft.h"
#include "kv/kv_slots.h"
#include "model/block.h"
#include "model/shared_parts.h"
#include "network/rope.h"

namespace longspec {

// One position's input is a token and nothing else of the target but its last layer's keys and values:
//   r1 = E[x] + self(norm(r0)); r2 = r1 + cross(norm(r1)); r3 = r2 + mlp(norm(r2)); logits = W r3
// with the target's embedding E and head W, and no norm before W. With keys of its own ("longspec_own_keys")
// cross-attention makes them of the target's final hidden states instead.
struct LongspecModel : LoadedFromFile<LongspecModel> {
  static constexpr std::string_view kKind = "longspec";
  static const DraftKind kFile;
  static Result<LongspecModel> Read(const DraftCheckpoint& checkpoint, const ModelSizes& target);
  std::vector<DraftPart> Parts();
  DraftMemory Working(const SpeculationOptions& options, const TargetFacts& target, int64_t n_logits) const;

  DraftBlock block;       // the target's, but for the width of the MLP, which the file says
  int window = 512;       // self-attention at position p sees p - window .. p
  bool own_keys = false;  // keys and values of cross-attention are made with `cross`
  std::vector<float> self_norm, cross_norm, mlp_norm;  // (n_embd)
  DraftAttention self, cross;
  DraftMlp mlp;
};

// A row to run: a committed token, which sees the window before it, or a node of a tree below the last
// committed one, which also sees its path.
struct LongspecRow {
  int32_t token = 0;
  int position = 0;               // absolute
  int slot = -1;                  // of the tree, where its keys and values go; -1: a committed token
  std::span<const int32_t> path;  // slots of its ancestors in depth order, then its own; empty: committed
};

class LongspecForward;

// `target` is the target's last layer, or the draft's own keys of the target's states: committed positions,
// and nothing else of it, are read. REQUIRES: LongspecForward::Extend has been called for all committed
// tokens.
struct LongspecRows final : ForwardRows<LongspecRows, LongspecForward, LongspecRow> {
  LongspecRows(LongspecForward* of, std::span<const LongspecRow> some, const KvSpan& keys, int n_best,
               std::vector<std::vector<TokenScore>>* to)
      : ForwardRows(of, some, n_best, to), target(keys) {}

  Key key() const override;

  KvSpan target;
};

// Running it for one sequence. A token's own keys and values depend on the token and its position only, so
// those of committed tokens are kept in a ring as long as the window, computed from the tokens alone whenever
// they are missing; those of a tree's nodes are kept beside it until the next tree. Cross-attention reads the
// target's last layer, which its drafter sees (kv/layer_view.h). Memory does not depend on the context.
class LongspecForward {
 public:
  // Rows of one pass; more are run in parts.
  static constexpr int kMaxRows = 32;

  static LaneSize Size(const DraftBlock& block, int64_t n_logits);
  static std::shared_ptr<DraftLane> MakeLane(const LongspecModel& model, const SharedParts& target);

  // Keys and values are kept in the types of `layout`, the target cache's.
  LongspecForward(std::shared_ptr<const LongspecModel> model, const KvLayout& layout,
                  std::shared_ptr<DraftLane> lane);

  // Forgets the sequence.
  void Reset() { ring_end_ = 0; }

  // Makes the ring hold the window before and including the last of `committed`. What it holds already is not
  // computed again. Returns how many tokens were.
  Result<int> Extend(std::span<const int32_t> committed);

  // Rows of this draft alone.
  Status Run(std::span<const LongspecRow> rows, const KvSpan& target, int k,
             std::vector<std::vector<TokenScore>>& next) {
    return LongspecRows(this, rows, target, k, &next).RunAlone();
  }
  const LongspecModel* model() const { return model_.get(); }

  // For tests: the logits of the last pass, (rows of it, n_logits).
  const float* logits() const { return lane_->logits(); }
  int n_logits() const { return static_cast<int>(model_->head.matrix.n_out()); }
  // The keys and values of committed tokens; those of position p lie in chunk p / 256 round the ring.
  KvSpan ring() const { return ring_.span(); }
  int n_ring_chunks() const { return n_ring_chunks_; }
  // As many as a window's worth of positions can touch.
  static int RingChunks(int window) { return (window + kKvChunk - 1) / kKvChunk + 1; }

  size_t bytes() const;

 private:
  friend LongspecRows::ForwardRows;

  int n_rows() const { return static_cast<int>(rows_.size()); }

  Status Embed(std::span<const LongspecRow> rows);
  void ReserveSlots(int n_slots);
  using Piece = RowPiece<LongspecRows>;

  Status RunPass(std::span<const Piece> pieces);
  void PlanAttention(std::span<const Piece> pieces);
  void ViewRows(std::span<const LongspecRow> rows, const KvSpan& target, std::vector<AttentionSegment>* self,
                std::vector<AttentionSegment>* cross);
  void PlaceKeys(std::span<const LongspecRow> rows, std::vector<RowPlace>* places) const;

  const std::shared_ptr<const LongspecModel> model_;
  const RopeTable rope_;

  const int n_ring_chunks_;
  KvSlots ring_, tree_;
  KvWriter ring_writer_, tree_writer_;
  int ring_end_ = 0;  // positions before it are in the ring, as far back as the window reaches

  // Of one pass.
  std::vector<LongspecRow> rows_;
  std::vector<RowView> self_views_, cross_views_;  // of its own rows
  std::vector<AttentionSegment> self_segments_, cross_segments_;
  std::vector<std::vector<TokenScore>> next_;
  std::vector<RowPlace> self_places_, cross_places_;
  const std::shared_ptr<DraftLane> lane_;
  Attention &self_ = lane_->attention(0), &cross_ = lane_->attention(1);
};

}  // namespace longspec
