// SPDX-License-Identifier: Apache-2.0
#include "draft_model/beagle_forward.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "draft_model/embed_token.h"

namespace longspec {
namespace {

// Queries are the draft's rows, keys and values its states.
AttentionWeights QueriesOf(const DraftLayer& layer) {
  AttentionWeights w = layer.attention();
  w.k = w.v = nullptr;
  return w;
}

}  // namespace

std::shared_ptr<BeagleForward::Scratch> BeagleForward::MakeScratch(const BeagleModel& model,
                                                                   const SharedParts& target) {
  return std::make_shared<Scratch>(target, model.layer, model.head);
}

BeagleForward::BeagleForward(std::shared_ptr<const BeagleModel> model, const SharedParts& target,
                             std::shared_ptr<DraftStates> states, int capacity,
                             std::shared_ptr<Scratch> scratch)
    : model_(std::move(model)),
      block_(target, model_->layer.block, std::move(states), capacity,
             scratch != nullptr ? std::move(scratch) : MakeScratch(*model_, target)) {}

Status BeagleForward::Read(const CommittedRows& rows) {
  return block_.Read(rows, rows.output->final_hidden, model_->layer.keys(model_->state_norm));
}

Status BeagleForward::BeginTree() {
  LS_TRY(block_.Settle());
  block_.ClearTree();
  nodes_.clear();
  n_projected_ = 0;
  return {};
}

const float* BeagleForward::state(int node) const { return states_.data() + Z(node) * width(); }

MeetingRows::Key BeagleRows::key() const { return {.model = forward->model()}; }

void BeagleForward::MakeRoom(std::span<const BeagleRow> rows) {
  for (const BeagleRow& row : rows) {
    LS_CHECK(row.parent < row.node);
    if (nodes_.size() <= Z(row.node)) nodes_.resize(Z(row.node) + 1);
  }
  if (states_.size() < nodes_.size() * width()) states_.resize(nodes_.size() * width());
}

// Those that have no slot so far; they get one.
std::span<const StateBlock::Row> BeagleForward::ParentsToProject(std::span<const BeagleRow> rows) {
  rows_.clear();
  parents_.clear();
  for (const BeagleRow& row : rows) {
    if (row.parent < 0 || nodes_[Z(row.parent)].slot >= 0) continue;
    Node& parent = nodes_[Z(row.parent)];
    parent.slot = block_.NewSlot();
    rows_.push_back({.position = parent.position, .slot = parent.slot});
    parents_.push_back(row.parent);
  }
  n_projected_ += static_cast<int>(parents_.size());
  return rows_;
}

// Keys and values of the parents' states, those that have none yet.
void BeagleForward::ProjectParents(std::span<const Piece> pieces) {
  parts_.clear();
  for (const Piece& piece : pieces) {
    BeagleForward& of = *piece.of->forward;
    const auto rows = of.ParentsToProject(piece.rows());
    if (!rows.empty()) parts_.push_back({.of = &of.block_, .rows = rows});
  }
  if (parts_.empty()) return;
  block_.PlaceKeys(parts_);
  int r = 0;
  for (const Piece& piece : pieces) {
    const BeagleForward& of = *piece.of->forward;
    for (const int parent : of.parents_) {
      std::memcpy(block_.x(r++), of.state(parent), width() * sizeof(float));
    }
  }
  block_.target().team->Run(
      [&](ThreadTeam::Worker& worker) { block_.Store(worker, model_->layer.keys(model_->state_norm)); });
}

std::span<const StateBlock::Row> BeagleForward::Place(std::span<const BeagleRow> rows) {
  rows_.clear();
  for (const BeagleRow& row : rows) {
    Node& node = nodes_[Z(row.node)];
    node = {.position = row.position, .slot = -1, .ancestors = {}};
    if (model_->concat && row.parent >= 0) {
      node.ancestors = nodes_[Z(row.parent)].ancestors;
      node.ancestors.push_back(nodes_[Z(row.parent)].slot);
    }
    rows_.push_back({.position = row.position, .slot = -1, .tail = node.ancestors});
  }
  return rows_;
}

Status BeagleForward::RunPass(std::span<const Piece> pieces) {
  for (const Piece& piece : pieces) piece.of->forward->MakeRoom(piece.rows());
  if (model_->concat) ProjectParents(pieces);
  parts_.clear();
  for (const Piece& piece : pieces) {
    BeagleForward& of = *piece.of->forward;
    parts_.push_back({.of = &of.block_, .rows = of.Place(piece.rows())});
  }
  block_.Place(parts_);
  int n_rows = 0;
  for (const Piece& piece : pieces) {
    for (const BeagleRow& row : piece.rows()) {
      LS_TRY(EmbedToken(block_.target(), row.token, block_.x(n_rows++)));
    }
  }
  next_.resize(Z(n_rows));
  const int k = MostWanted(pieces);
  block_.target().team->Run([&](ThreadTeam::Worker& worker) {
    block_.Attend(worker, QueriesOf(model_->layer));
    block_.RunMlp(worker, model_->layer.mlp());
    block_.Top(worker, {}, model_->head, k, next_);
  });
  const float* x = block_.x(0);
  for (const Piece& piece : pieces) {
    for (const BeagleRow& row : piece.rows()) {
      std::memcpy(piece.of->forward->states_.data() + Z(row.node) * width(), x, width() * sizeof(float));
      x += width();
    }
  }
  HandOut(pieces, std::span(next_));
  return {};
}

}  // namespace longspec
