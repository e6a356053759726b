// SPDX-License-Identifier: Apache-2.0
//
// Running one transformer block of a draft that keeps keys and values of its own, made of states of the
// target (residual streams, final hidden states): a cache of one layer for committed positions, filled as
// they are computed, and slots beside it for the nodes of a tree. No attention runs over the prompt. Passes
// are composed by who runs it (draft_lane.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/attention.h"
#include "draft/drafter.h"
#include "draft_model/draft_block.h"
#include "draft_model/draft_keys.h"
#include "draft_model/draft_lane.h"
#include "kv/full_cache.h"
#include "kv/kv_slots.h"
#include "model/block.h"
#include "model/shared_parts.h"
#include "network/rope.h"
#include "tensor/state_rows.h"

namespace longspec {

// What is added to the state of each row that is read: a product with a state of the position before it.
struct StateBefore {
  const DraftMatrix* w = nullptr;  // (n_embd, n_embd), outlives the block; null: nothing is added
  StateRows first = {};            // (1, n_embd): before the first of the rows
  StateRows states = {};           // (rows.n_output_rows, n_embd)
};

class BlockForward {
 public:
  static constexpr int kMaxRows = 32;  // of one pass

  // For its passes. `n_logits`: of a row.
  static LaneSize Size(const DraftBlock& block, int64_t n_logits) {
    return {.shape = block.shape,
            .max_rows = kMaxRows,
            .n_logits = n_logits,
            .attentions = {{.shape = block.attention()}}};
  }
  // Of a model that is one layer and a head, and one matrix more, or null.
  static std::shared_ptr<DraftLane> MakeLane(const SharedParts& target, const DraftLayer& layer,
                                             const DraftHead& head, const DraftMatrix* other = nullptr);

  // `keys`: where its keys and values lie, and are found by sequences that begin alike. `capacity`:
  // positions. `lane`: of this block. `sees_first`: whether rows of a tree see position 0, which a draft
  // that reads the state before each token has not learned.
  BlockForward(const DraftBlock& block, std::shared_ptr<DraftKeys> keys, int capacity,
               std::shared_ptr<DraftLane> lane, bool sees_first = true);
  ~BlockForward();
  BlockForward(const BlockForward&) = delete;
  BlockForward& operator=(const BlockForward&) = delete;

  // --- Committed positions.

  // Forgets states of tokens that are not these, and takes what is known of them. Settles.
  Status Follow(std::span<const int32_t> committed);
  // Takes the rows' states, (rows.n_output_rows, n_embd), to keep keys and values that `w` makes of their
  // norms, or of them as they are; both outlive this. Positions that it does not read are not seen by what
  // comes after them.
  Status Read(const CommittedRows& rows, const StateRows& states, const DraftAttention& w,
              std::span<const float> norm, const StateBefore& before = {});
  // Computes the keys and values of what was read and is still waiting. What follows is of what was settled.
  Status Settle();
  // The positions that are kept, in the order of their slots in kept().
  std::span<const int32_t> positions() const { return keys_.stored(); }
  KvSpan kept() const { return keys_.cache().Span(0); }
  // Of all positions up to the last that was read.
  std::span<const int32_t> tokens() const { return tokens_; }

  // --- A tree below them. Slots are for as long as it is grown.

  void ClearTree() { n_slots_ = 0; }
  int NewSlot() { return n_slots_++; }
  KvSpan slots() const { return slots_.span(); }

  struct Row {
    int position = 0;                    // absolute
    int slot = -1;                       // for its key and value; -1: it has none
    std::span<const int32_t> tail = {};  // slots it sees after the kept positions, in their order
  };
  // Rows of a sequence in a pass over those of several. `of`: its block, of the same model.
  struct Part {
    BlockForward* of;
    std::span<const Row> rows;
  };
  // The rows of the passes that follow, at most kMaxRows; one part of each sequence. Throws std::bad_alloc.
  void Place(std::span<const Part> parts);
  // The same for rows that only get keys and values.
  void PlaceKeys(std::span<const Part> parts);
  int n_rows() const { return static_cast<int>(places_.size()); }
  // Where their keys and values go, and their queries lie.
  std::span<const RowPlace> places() const { return places_; }
  Attention& attention() { return lane_->attention(); }
  DraftLane& lane() const { return *lane_; }

  size_t bytes() const;

 private:
  AttentionSegment View(std::span<const Row> rows);
  void KeepBefore(int position);

  const RopeTable rope_;
  const int width_;  // n_embd
  SequenceKeys keys_;
  const bool sees_first_;
  KvSlots slots_;
  KvWriter slot_writer_;
  int n_slots_ = 0;
  std::vector<int32_t> tokens_;  // of all positions up to the last that is kept or waiting
  // Of positions that wait: states, (n_waiting, n_embd), states before them if something is made of those,
  // and the weights for both.
  StateBuffer waiting_states_, waiting_before_;
  const DraftAttention* weights_ = nullptr;
  std::span<const float> norm_;
  const DraftMatrix* before_ = nullptr;

  // Of one pass.
  std::vector<RowView> views_;  // of its own rows
  std::vector<AttentionSegment> segments_;
  std::vector<RowPlace> places_;
  const std::shared_ptr<DraftLane> lane_;
};

}  // namespace longspec
