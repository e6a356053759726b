// SPDX-License-Identifier: Apache-2.0
#include "model/layer_prefix.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace longspec {

LayerPrefix::LayerPrefix(const KvLayout& layout, int n_layers, int n_embd)
    : layout_(layout), n_layers_(n_layers), n_embd_(n_embd) {
  LS_CHECK(n_layers > 0 && n_embd > 0);
}

int LayerPrefix::Find(int parent, int32_t token) const {
  const auto found =
      std::ranges::find_if(rows_, [&](const Row& row) { return row.parent == parent && row.token == token; });
  return found == rows_.end() ? -1 : static_cast<int>(found - rows_.begin());
}

KvSpan LayerPrefix::span() const { return {.layout = layout_, .chunks = bases_.data()}; }

KvWriter LayerPrefix::writer() { return {.layout = layout_, .chunks = bases_.data()}; }

void LayerPrefix::Clear(int base) {
  base_ = base;
  rows_.clear();
}

void LayerPrefix::Add(int32_t token, int32_t parent) {
  LS_CHECK(parent < n_rows());
  const size_t n = rows_.size() + 1;
  if (hidden_.size() < n * Z(n_embd_)) hidden_.resize(n * Z(n_embd_));
  while (chunks_.size() * kKvChunk < n) {
    bases_.reserve(chunks_.size() + 1);
    chunks_.emplace_back(Z(n_layers_) * layout_.layer_bytes());
    bases_.push_back(chunks_.back().data());
  }
  Row row = {.token = token, .parent = parent, .path = {}};
  if (parent >= 0) row.path = At(parent).path;
  row.path.push_back(n_rows());
  rows_.push_back(std::move(row));
}

size_t LayerPrefix::bytes() const {
  return hidden_.capacity() * sizeof(float) + chunks_.size() * Z(n_layers_) * layout_.layer_bytes();
}

}  // namespace longspec
