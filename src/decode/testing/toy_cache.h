// SPDX-License-Identifier: Apache-2.0
//
// A KvCache for tests that remembers which token each slot stands for, so that a target can see exactly what
// a real one would.
#pragma once

#include <vector>

#include "kv/kv_cache.h"

namespace longspec::testing {

class ToyCache final : public KvCache {
 public:
  explicit ToyCache(int capacity) : capacity_(capacity) {}

  int length() const override { return static_cast<int>(committed_.size()); }
  int capacity() const override { return capacity_; }
  Exactness exactness() const override { return Exactness::kLossless; }
  size_t bytes() const override { return committed_.capacity() * sizeof(int32_t); }
  KvSpan Span(int) const override {
    KvSpan span;
    span.n_committed = length();
    span.n_speculated = static_cast<int>(speculated_.size());
    return span;
  }
  void Truncate(int length) override {
    ++n_truncated;
    committed_.resize(static_cast<size_t>(length));
  }

  const std::vector<int32_t>& tokens() const { return committed_; }
  void Write(int row, int32_t token) { speculated_[static_cast<size_t>(row)] = token; }
  bool open() const { return transaction_open(); }

  int n_rollback = 0;
  int n_truncated = 0;
  Status reserve_status;  // what Reserve returns

 protected:
  Status Reserve(int n_rows) override {
    if (!reserve_status.ok()) return reserve_status;
    speculated_.assign(static_cast<size_t>(n_rows), -1);
    return {};
  }
  void CommitRows(std::span<const int32_t> rows) override {
    for (const int32_t row : rows) committed_.push_back(speculated_[static_cast<size_t>(row)]);
    speculated_.clear();
  }
  void Rollback() override {
    ++n_rollback;
    speculated_.clear();
  }

 private:
  int capacity_;
  std::vector<int32_t> committed_;
  std::vector<int32_t> speculated_;
};

}  // namespace longspec::testing
