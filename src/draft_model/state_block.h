// SPDX-License-Identifier: Apache-2.0
//
// Running one transformer block of a draft that keeps keys and values of its own, made of states of the
// target (residual streams, final hidden states): a cache of one layer for committed positions, filled as
// they are computed, and slots beside it for the nodes of a tree. No attention runs over the prompt. One
// thread; uses the target's team, which must be free.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/attention.h"
#include "base/aligned_buffer.h"
#include "draft/drafter.h"
#include "draft/tree_growth.h"
#include "draft_model/draft_block.h"
#include "draft_model/draft_keys.h"
#include "draft_model/draft_pass.h"
#include "draft_model/draft_weights.h"
#include "kv/full_cache.h"
#include "kv/kv_slots.h"
#include "model/block.h"
#include "model/shared_parts.h"
#include "network/rope.h"
#include "tensor/state_rows.h"

namespace longspec {

// What is added to the state of each row that is read: a product with a state of the position before it.
struct StateBefore {
  const kernels::PackedMatrix* w = nullptr;  // (n_embd, n_embd), outlives the block; null: nothing is added
  StateRows first = {};                      // (1, n_embd): before the first of the rows
  StateRows states = {};                     // (rows.n_output_rows, n_embd)
};

class StateBlock {
 public:
  static constexpr int kMaxRows = 32;  // of one pass

  struct Scratch : DraftScratch {
    // `head`: the largest number of logits of a row.
    Scratch(const SharedParts& target, const DraftBlock& block, InputForms forms, int64_t head)
        : DraftScratch(target, block.shape, forms, kMaxRows, head),
          attention(target.lane.kernels, block.attention(), target.lane.team->size()) {}
    // Of a model that is one layer and a head.
    Scratch(const SharedParts& target, const DraftLayer& layer, const DraftHead& head)
        : Scratch(target, layer.block, FormsOf(layer, head), head.matrix.n_out) {}
    size_t bytes() const { return DraftScratch::bytes() + attention.bytes(); }
    AttentionPlan attention;

   private:
    static InputForms FormsOf(const DraftLayer& layer, const DraftHead& head) {
      InputForms forms = layer.forms();
      forms.Add(head.matrix);
      return forms;
    }
  };

  // `states`: where its keys and values lie, and are found by sequences that begin alike. `capacity`:
  // positions. `scratch`: of this block. `sees_first`: whether rows of a tree see position 0, which a draft
  // that reads the state before each token has not learned.
  StateBlock(const SharedParts& target, const DraftBlock& block, std::shared_ptr<DraftKeys> keys,
             int capacity, std::shared_ptr<Scratch> scratch, bool sees_first = true);
  ~StateBlock();
  StateBlock(const StateBlock&) = delete;
  StateBlock& operator=(const StateBlock&) = delete;

  // --- Committed positions.

  // Forgets states of tokens that are not these, and takes what is known of them. Settles.
  Status Follow(std::span<const int32_t> committed);
  // Takes the rows' states, (rows.n_output_rows, n_embd), to keep keys and values of them; `w`, what it views
  // included, outlives this. Positions that it does not read are not seen by what comes after them.
  Status Read(const CommittedRows& rows, const StateRows& states, const AttentionWeights& w,
              const StateBefore& before = {});
  // Computes the keys and values of what was read and is still waiting: a few rows after each round cost a
  // pass over the weights each time, and nobody looks at them before the next tree. What follows is of what
  // was settled.
  Status Settle();
  // The positions that are kept, in the order of their slots in kept().
  std::span<const int32_t> positions() const { return positions_; }
  KvSpan kept() const { return cache_->Span(0); }
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
    StateBlock* of;
    std::span<const Row> rows;
  };
  // The rows of the passes that follow, at most kMaxRows; one part of each sequence. Throws std::bad_alloc.
  void Place(std::span<const Part> parts);
  // The same for rows that only get keys and values.
  void PlaceKeys(std::span<const Part> parts);
  int n_rows() const { return static_cast<int>(places_.size()); }
  float* x(int row);  // (n_embd), to be filled

  // Of these rows; called by every worker, with barriers as those of block.h.
  // x += the product of w, (n_embd, n_embd), and `inputs`, (n_rows, n_embd). Ends with a barrier.
  void AddProduct(ThreadTeam::Worker& worker, const kernels::PackedMatrix& w, const float* inputs);
  void Attend(ThreadTeam::Worker& worker, const AttentionWeights& w) {
    AddAttention(worker, work_, w, places_, 0, attention_);
  }
  void RunMlp(ThreadTeam::Worker& worker, const MlpWeights& w) { AddMlp(worker, work_, w, n_rows()); }
  // Keys and values of norm(x), or of x itself if there is no norm.
  void Store(ThreadTeam::Worker& worker, const AttentionWeights& w);
  // The k most probable tokens after each row by this head; `norm`: before it, empty: none. x must be whole.
  void Top(ThreadTeam::Worker& worker, std::span<const float> norm, const DraftHead& head, int k,
           std::span<std::vector<TokenScore>> next);

  // What that norm made of a row.
  const float* normed(int row) const;

  const SharedParts& target() const { return target_; }
  // For tests: of the last pass, (n_rows, head).
  const float* logits() const { return scratch_->logits.as<float>(); }
  size_t bytes() const;
  // Scratch::bytes(), for one thread.
  static size_t ScratchBytes(const DraftBlock& block, int64_t head);

 private:
  void SetAngles(int row, int position);
  AttentionSegment View(std::span<const Row> rows);
  void KeepBefore(int position);
  void Share();

  const SharedParts target_;
  const RopeTable rope_;
  const std::shared_ptr<DraftKeys> kept_keys_;
  const std::unique_ptr<FullCache> cache_;
  const bool sees_first_;
  KvSlots slots_;
  KvWriter slot_writer_;
  int n_slots_ = 0;
  std::vector<int32_t> positions_;
  std::vector<int32_t> tokens_;  // of all positions up to the last that is kept or waiting
  // Read and not settled: as many positions as states, (waiting_.size(), n_embd), states before them if
  // something is made of those, and the weights for both.
  std::vector<int32_t> waiting_;
  StateBuffer waiting_states_, waiting_before_;
  AttentionWeights weights_ = {};
  const kernels::PackedMatrix* before_ = nullptr;

  // Of one pass.
  std::vector<RowView> views_;  // of its own rows
  std::vector<AttentionSegment> segments_;
  std::vector<RowPlace> places_;
  const std::shared_ptr<Scratch> scratch_;
  AttentionPlan& attention_ = scratch_->attention;
  Workspace& work_ = scratch_->work;
};

}  // namespace longspec
