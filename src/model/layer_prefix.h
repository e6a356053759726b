// SPDX-License-Identifier: Apache-2.0
//
// Rows of one sequence that were run through the target's first layers, ahead of the pass that verifies them
// (early exit): a tree below the committed positions, with its keys and values in those layers and its
// residual stream after them. A row's result does not depend on the rows beside it, so a pass over the same
// rows goes on from here and gets the bits that it would have got from the start. Rows that no pass asks for
// are forgotten with the rest. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/kv_span.h"
#include "kv/kv_slots.h"
#include "tensor/state_rows.h"

namespace longspec {

class LayerPrefix {
 public:
  // For a target whose residual stream is n_embd wide. `pool`: laid out as its cache, with as many layers as
  // rows are run through. `memory`: for that stream, where the target computes; borrowed.
  LayerPrefix(std::shared_ptr<ChunkPool> pool, int n_embd, const StateMemory& memory = HostStates());

  int n_layers() const { return slots_.n_layer(); }
  int base() const { return base_; }  // position of rows without a parent
  int n_rows() const { return static_cast<int>(rows_.size()); }
  int32_t token(int row) const { return At(row).token; }
  int32_t parent(int row) const { return At(row).parent; }  // -1: right after the committed positions
  int position(int row) const { return base_ + static_cast<int>(At(row).path.size()) - 1; }
  // Rows from the first below the committed positions to this one: slots of span(), too.
  std::span<const int32_t> path(int row) const { return At(row).path; }
  // The row below `parent` (-1: without a parent) with this token, or -1.
  int Find(int parent, int32_t token) const;

  // (n_rows, n_embd), after layer n_layers - 1. Valid until the next Add.
  StateRows hidden() const { return hidden_.rows().From(0, n_rows()); }
  // Keys and values of row i are in slot i. Valid until the next Add.
  KvSpan span() const { return slots_.span(); }

  // Forgets its rows. The rows that come next stand below `base` committed positions.
  void Clear(int base);

  // For the target, which fills what it adds. Throws std::bad_alloc.
  void Add(int32_t token, int32_t parent);
  void Truncate(int n_rows) { rows_.resize(Z(n_rows)); }
  float* hidden(int row) { return hidden_.row(row); }
  KvWriter writer() const { return slots_.writer(); }

  size_t bytes() const { return hidden_.bytes() + slots_.bytes(); }

 private:
  struct Row {
    int32_t token, parent;
    std::vector<int32_t> path;
  };
  static size_t Z(int64_t n) { return static_cast<size_t>(n); }
  const Row& At(int row) const { return rows_[Z(row)]; }

  int base_ = 0;
  std::vector<Row> rows_;
  StateBuffer hidden_;  // (rows, n_embd), never fewer than there were
  KvSlots slots_;
};

}  // namespace longspec
