// SPDX-License-Identifier: Apache-2.0
#include "model/layer_prefix.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace longspec {

LayerPrefix::LayerPrefix(std::shared_ptr<ChunkPool> pool, int n_embd, const StateMemory& memory)
    : hidden_(n_embd, memory), slots_(std::move(pool)) {
  LS_CHECK(n_layers() > 0 && n_embd > 0);
}

int LayerPrefix::Find(int parent, int32_t token) const {
  const auto found =
      std::ranges::find_if(rows_, [&](const Row& row) { return row.parent == parent && row.token == token; });
  return found == rows_.end() ? -1 : static_cast<int>(found - rows_.begin());
}

void LayerPrefix::Clear(int base) {
  base_ = base;
  rows_.clear();
}

void LayerPrefix::Add(int32_t token, int32_t parent) {
  LS_CHECK(parent < n_rows());
  if (hidden_.size() == n_rows()) hidden_.Grow(1);
  slots_.Reserve(n_rows() + 1);
  Row row = {.token = token, .parent = parent, .path = {}};
  if (parent >= 0) row.path = At(parent).path;
  row.path.push_back(n_rows());
  rows_.push_back(std::move(row));
}

}  // namespace longspec
