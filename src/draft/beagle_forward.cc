// SPDX-License-Identifier: Apache-2.0
#include "draft/beagle_forward.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"

namespace longspec {
namespace {

InputForms FormsOf(const BeagleModel& model) {
  InputForms forms = model.layer.forms();
  forms.Add(model.head.matrix);
  return forms;
}

// Queries are the draft's rows, keys and values its states.
AttentionWeights QueriesOf(const DraftLayer& layer) {
  AttentionWeights w = layer.attention();
  w.k = w.v = nullptr;
  return w;
}

}  // namespace

BeagleForward::BeagleForward(std::shared_ptr<const BeagleModel> model, const SharedParts& target,
                             std::shared_ptr<DraftStates> states, int capacity)
    : model_(std::move(model)),
      block_(target, model_->layer.block, FormsOf(*model_), std::move(states), capacity,
             model_->head.matrix.n_out) {}

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

const float* BeagleForward::state(int node) const {
  return states_.data() + Z(node) * Z(model_->layer.block.shape.n_embd);
}

Status BeagleForward::Run(std::span<const BeagleRow> rows, int k,
                          std::vector<std::vector<TokenScore>>& next) try {
  const size_t part = Z(StateBlock::kMaxRows);
  next.resize(rows.size());
  for (size_t begin = 0; begin < rows.size(); begin += part) {
    const size_t n = std::min(part, rows.size() - begin);
    LS_TRY(RunPass(rows.subspan(begin, n), k, std::span(next).subspan(begin, n)));
  }
  return {};
} catch (const std::bad_alloc&) {
  return ResourceExhausted("no memory for a draft of " + std::to_string(rows.size()) + " rows");
}

// Keys and values of the parents' states, those that have none yet.
void BeagleForward::ProjectParents(std::span<const BeagleRow> rows) {
  rows_.clear();
  std::vector<int> parents;
  for (const BeagleRow& row : rows) {
    if (row.parent < 0 || nodes_[Z(row.parent)].slot >= 0) continue;
    Node& parent = nodes_[Z(row.parent)];
    parent.slot = block_.NewSlot();
    rows_.push_back({.position = parent.position, .slot = parent.slot});
    parents.push_back(row.parent);
  }
  if (rows_.empty()) return;
  block_.PlaceKeys(rows_);
  const size_t width = Z(model_->layer.block.shape.n_embd);
  for (size_t i = 0; i < parents.size(); ++i) {
    std::memcpy(block_.x(static_cast<int>(i)), state(parents[i]), width * sizeof(float));
  }
  block_.target().team->Run(
      [&](ThreadTeam::Worker& worker) { block_.Store(worker, model_->layer.keys(model_->state_norm)); });
  n_projected_ += static_cast<int>(parents.size());
}

Status BeagleForward::RunPass(std::span<const BeagleRow> rows, int k,
                              std::span<std::vector<TokenScore>> next) {
  const size_t width = Z(model_->layer.block.shape.n_embd);
  for (const BeagleRow& row : rows) {
    LS_CHECK(row.parent < row.node);
    if (nodes_.size() <= Z(row.node)) nodes_.resize(Z(row.node) + 1);
  }
  if (states_.size() < nodes_.size() * width) states_.resize(nodes_.size() * width);
  if (model_->concat) ProjectParents(rows);
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
  block_.Place(rows_);
  for (size_t i = 0; i < rows.size(); ++i) {
    LS_TRY(EmbedToken(block_.target(), rows[i].token, block_.x(static_cast<int>(i))));
  }
  block_.target().team->Run([&](ThreadTeam::Worker& worker) {
    block_.Attend(worker, QueriesOf(model_->layer));
    block_.RunMlp(worker, model_->layer.mlp());
    block_.Top(worker, {}, model_->head, k, next);
  });
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(states_.data() + Z(rows[i].node) * width, block_.x(static_cast<int>(i)),
                width * sizeof(float));
  }
  return {};
}

}  // namespace longspec
