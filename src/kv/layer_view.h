// SPDX-License-Identifier: Apache-2.0
//
// The keys and values of one layer of a sequence, for the host to attend to: where they lie, or in a copy
// that takes in what is new. Whoever moves keys makes it (KvMover::NewLayerView), so that a draft may read a
// layer of its target wherever that computes. Not thread-safe.
#pragma once

#include <cstddef>

#include "attention/kv_span.h"
#include "kv/kv_cache.h"
#include "kv/kv_slots.h"
#include "longspec/status.h"

namespace longspec {

class LayerView {
 public:
  virtual ~LayerView() = default;

  // Sees the positions that `cache` holds now; those that it has seen are the same as then.
  // kResourceExhausted: no memory for a copy. REQUIRES: the cache holds all positions, in their order.
  virtual Status Follow(const KvCache& cache) = 0;
  // Positions from `length` on are others now.
  virtual void Truncate(int length) = 0;

  // The positions that were seen. Valid until the next Follow, and as long as the cache is as it was.
  virtual KvSpan span() const = 0;
  virtual size_t bytes() const = 0;  // of copies
};

// A view of keys that the host can address: nothing is copied.
class LayerInPlace final : public LayerView {
 public:
  explicit LayerInPlace(int layer) : layer_(layer) {}

  Status Follow(const KvCache& cache) override;
  void Truncate(int) override {}
  KvSpan span() const override { return cache_->Span(layer_); }
  size_t bytes() const override { return 0; }

 private:
  const int layer_;
  const KvCache* cache_ = nullptr;
};

// A view of keys that lie elsewhere: KvMover::Read brings the blocks of keys and the rows of values that are
// new.
class LayerCopy final : public LayerView {
 public:
  LayerCopy(const KvLayout& layout, int layer);

  Status Follow(const KvCache& cache) override;
  void Truncate(int length) override { n_ = length < n_ ? length : n_; }
  KvSpan span() const override;
  size_t bytes() const override { return slots_.bytes(); }

 private:
  const int layer_;
  KvSlots slots_;
  int n_ = 0;  // positions that it holds
};

}  // namespace longspec
