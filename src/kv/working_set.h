// SPDX-License-Identifier: Apache-2.0
//
// A cache that holds a part of another cache's positions, for drafting on: what the target says of the part
// is what it would most likely say of the whole.
#pragma once

#include <span>

#include "kv/kv_cache.h"
#include "tensor/state_rows.h"

namespace longspec {

class WorkingSet : public KvCache {
 public:
  // Makes this cache hold what it is to hold of `source`, and drops rows of its own. Only what it does not
  // have from there yet is copied. REQUIRES: `source` keeps every position, has the same layout and layers,
  // and has not changed a position since the last call other than by growing; after anything else, Forget
  // first.
  virtual Status Follow(const KvCache& source) = 0;
  // Takes in what choosing will ask of the positions that `source` holds, as far as it is not known yet, so
  // that Follow has less to do: while a prompt is read. REQUIRES: as Follow.
  virtual void Prepare(const KvCache& /*source*/) {}
  // Positions of the source from `length` on are others than they were, or gone.
  virtual void Forget(int /*length*/) { Truncate(0); }

  // Whether what it holds depends on what the target asked for last.
  virtual bool wants_queries() const { return false; }
  // The rotated queries of the newest position of `source`, per layer (1, n_head * head_dim); or of several
  // rows that are to choose together.
  virtual void SetQueries(std::span<const StateRows> /*by_layer*/) {}
};

}  // namespace longspec
