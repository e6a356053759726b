// SPDX-License-Identifier: Apache-2.0
//
// A Beagle draft (arXiv 2505.24544): one layer of cross-attention from tokens to the target's final hidden
// states.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "draft/growing_drafter.h"
#include "draft_model/block_forward.h"
#include "draft_model/draft_block.h"
#include "draft_model/learned_draft.h"
#include "model/shared_parts.h"

namespace longspec {

// At position i, with token t, states s at positions before i, the target's embedding E and head W:
//   y = E[t] + cross(norm(E[t]), s);  p = y + mlp(norm(y));  logits of the next token = W p
// where s are the target's final hidden states, and at positions that are guesses the draft's own p. Keys and
// values are made of s as it is, or of norm(s) where the draft has a norm for it ("kv_norm").
struct BeagleModel : LoadedFromFile<BeagleModel> {
  static constexpr std::string_view kKind = "beagle";
  static const DraftKind kFile;
  static Result<BeagleModel> Read(const DraftCheckpoint& checkpoint, const ModelSizes& target);
  std::vector<DraftPart> Parts();
  DraftMemory Working(const SpeculationOptions& options, const TargetFacts& target, int64_t n_logits) const;

  bool concat = true;  // guesses see the states of the guesses before them, not the target's alone
  DraftLayer layer;
  std::vector<float> state_norm;  // empty: none
};

// A node to run.
struct BeagleRow {
  int node = 0;     // of the tree, the root's is 0
  int parent = -1;  // one that has been run
  int32_t token = 0;
  int position = 0;  // absolute
};

class BeagleForward;

// They see the states of all positions that are kept, and of their proper ancestors in the tree, but never
// their own. Each node is run once in a tree's life.
struct BeagleRows final : ForwardRows<BeagleRows, BeagleForward, BeagleRow> {
  using ForwardRows::ForwardRows;
  Key key() const override;
};

// Running it for one sequence. Of committed positions it keeps keys and values of the target's final hidden
// states, two products each and no attention; of a tree's nodes those of its own states, made when a child is
// first run: states of the last level never are.
class BeagleForward {
 public:
  static constexpr int kMaxRows = BlockForward::kMaxRows;

  static std::shared_ptr<DraftLane> MakeLane(const BeagleModel& model, const SharedParts& target) {
    return BlockForward::MakeLane(target, model.layer, model.head);
  }

  // As a BlockForward's.
  BeagleForward(std::shared_ptr<const BeagleModel> model, std::shared_ptr<DraftKeys> keys, int capacity,
                std::shared_ptr<DraftLane> lane);

  // BlockForward's, of final hidden states.
  Status Follow(std::span<const int32_t> committed) { return block_.Follow(committed); }
  Status Read(const CommittedRows& rows);

  Status BeginTree();
  // Rows of this draft alone.
  Status Run(std::span<const BeagleRow> rows, int k, std::vector<std::vector<TokenScore>>& next) {
    return BeagleRows(this, rows, k, &next).RunAlone();
  }
  const BeagleModel* model() const { return model_.get(); }

  // States of nodes that became keys since BeginTree.
  int n_projected() const { return n_projected_; }
  // A node's own state, (n_embd). REQUIRES: it was run.
  const float* state(int node) const;
  const BlockForward& block() const { return block_; }
  size_t bytes() const { return block_.bytes() + states_.capacity() * sizeof(float); }

 private:
  struct Node {
    int position = 0;
    int slot = -1;                   // of its state's key and value; -1: none so far
    std::vector<int32_t> ancestors;  // slots of its proper ones, in depth order
  };

  friend BeagleRows::ForwardRows;
  using Piece = RowPiece<BeagleRows>;

  size_t width() const { return static_cast<size_t>(model_->layer.block.shape.n_embd); }

  // Of several drafts.
  Status RunPass(std::span<const Piece> pieces);
  void ProjectParents(std::span<const Piece> pieces);

  // Of its own rows.
  void MakeRoom(std::span<const BeagleRow> rows);
  std::span<const BlockForward::Row> ParentsToProject(std::span<const BeagleRow> rows);
  std::span<const BlockForward::Row> Place(std::span<const BeagleRow> rows);

  const std::shared_ptr<const BeagleModel> model_;
  BlockForward block_;
  std::vector<Node> nodes_;
  std::vector<float> states_;  // (nodes, n_embd)
  std::vector<BlockForward::Row> rows_;
  std::vector<int> parents_;  // nodes whose states are to become keys
  std::vector<BlockForward::Part> parts_;
  std::vector<std::vector<TokenScore>> next_;
  int n_projected_ = 0;
};

}  // namespace longspec
