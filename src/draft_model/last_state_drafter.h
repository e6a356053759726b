// SPDX-License-Identifier: Apache-2.0
//
// A draft model that begins its trees from one state of the target, the final one before the newest token,
// and keeps nothing else of the text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/size.h"
#include "draft/growing_drafter.h"

namespace longspec {

class LastStateDrafter : public GrowingDrafter {
 public:
  bool uses_dice() const final { return true; }
  Taps taps() const final { return {.final_hidden = true}; }

  int overlap(std::span<const int32_t> committed, int n) const final {
    return std::ssize(read_) == n && IsBeginning(read_, committed, n) ? 0 : std::min(n, 1);
  }

  Status Follow(std::span<const int32_t> committed) final {
    if (!std::ranges::equal(read_, committed.first(std::min(read_.size(), committed.size())))) read_.clear();
    return {};
  }

  Status Read(const CommittedRows& rows) final {
    const size_t n_read = Z(rows.first) + rows.rows.size();
    if (rows.output == nullptr || rows.rows.empty()) return {};
    rows.output->final_hidden.From(rows.rows.back(), 1).Copy(state_.data());
    read_.resize(std::min(read_.size(), Z(rows.first)));
    const auto more = rows.sequence.first(n_read).subspan(read_.size());
    read_.insert(read_.end(), more.begin(), more.end());
    return {};
  }

  size_t bytes() const override {
    return state_.capacity() * sizeof(float) + read_.capacity() * sizeof(int32_t);
  }

 protected:
  LastStateDrafter(TreeShape shape, int n_embd) : GrowingDrafter(std::move(shape)), state_(Z(n_embd)) {}

  // Whether state() is the one before the last of `committed`. Else that was not computed while this read.
  bool KnowsStateOf(std::span<const int32_t> committed) const { return read_.size() + 1 == committed.size(); }
  const float* state() const { return state_.data(); }  // (n_embd)

 private:
  std::vector<float> state_;   // at the last position of read_
  std::vector<int32_t> read_;  // committed tokens whose states were computed
};

}  // namespace longspec
