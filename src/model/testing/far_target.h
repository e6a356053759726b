// SPDX-License-Identifier: Apache-2.0
//
// For tests: a target as a device has it. It computes what another one computes, and all that it gives or
// keeps lies in a memory that the host cannot read: logits, states, keys and values. Who reads any of it but
// by the calls that are for it dies.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/testing/guarded_pages.h"
#include "kv/full_cache.h"
#include "kv/testing/guarded_chunks.h"
#include "model/shared_parts.h"
#include "model/target.h"
#include "sampling/testing/guarded_logits.h"
#include "tensor/testing/guarded_states.h"
#include "tensor/testing/values_of.h"

namespace longspec::testing {

class FarTarget final : public Target {
 public:
  // Borrows `near`. REQUIRES: caches and drafters that this made are gone before it.
  explicit FarTarget(Target* near) : near_(*near) {}

  int vocab_size() const override { return near_.vocab_size(); }
  int context_length() const override { return near_.context_length(); }
  const SharedParts* shared_parts() const override { return near_.shared_parts(); }

  std::shared_ptr<ChunkPool> NewPool(const KvLayout& layout, int n_layer, const KvOffload&) const override {
    return mover_.NewPool(layout, n_layer);
  }
  std::unique_ptr<LayerPrefix> NewPrefix(const KvLayout& layout, int n_layers) const override {
    return std::make_unique<LayerPrefix>(NewPool(layout, n_layers, {}), shared_parts()->sizes->n_embd,
                                         states_);
  }
  std::unique_ptr<FullCache> NewCache(const KvLayout& layout, int capacity) const {
    return MakeFullCache(NewPool(layout, shared_parts()->sizes->n_layer, {}), capacity);
  }

  void AttentionMass(const KvCache& cache, int layer, const StateRows& query,
                     std::vector<float>* mass) const override {
    const GuardedPages::Opening open(*pages_);
    near_.AttentionMass(cache, layer, query, mass);
  }
  Result<double> AttentionMs(std::span<const ForwardSegment> segments) override {
    const GuardedPages::Opening open(*pages_);
    return near_.AttentionMs(segments);
  }
  Status RunPrefix(std::span<const PrefixSegment> segments) override {
    const GuardedPages::Opening open(*pages_);
    return near_.RunPrefix(segments);
  }

  Result<TargetOutput> Forward(std::span<const ForwardSegment> segments) override {
    far_.clear();  // what the pass before gave is gone
    logits_.Clear();
    const GuardedPages::Opening open(*pages_);
    LS_ASSIGN(TargetOutput output, near_.Forward(segments));
    for (TargetOutput::Segment& segment : output.segments) {
      segment.logits = logits_.Write(segment.logits);
      for (StateRows& rows : segment.hidden) rows = Moved(rows);
      segment.final_hidden = Moved(segment.final_hidden);
      for (StateRows& rows : segment.queries) rows = Moved(rows);
    }
    return output;
  }

  // How often the host had a copy of states, of rows of logits, and how many bytes of keys and values.
  int64_t n_state_copies() const { return states_.n_copies; }
  int64_t n_logit_copies() const { return logits_.n_read; }
  size_t n_key_bytes() const { return mover_.n_read; }

 private:
  StateRows Moved(const StateRows& rows) {
    if (rows.empty()) return {};
    StateBuffer& to = far_.emplace_back(rows.width(), states_);
    const std::vector<float> values = ValuesOf(rows);
    states_.Write(values.data(), values.size(), to.Grow(rows.size()));
    return to.rows();
  }

  Target& near_;
  const std::shared_ptr<GuardedPages> pages_ = std::make_shared<GuardedPages>();
  const GuardedMover mover_{pages_};
  const GuardedStates states_{pages_};
  GuardedLogits logits_{pages_};
  std::deque<StateBuffer> far_;
};

}  // namespace longspec::testing
