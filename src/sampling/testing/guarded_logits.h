// SPDX-License-Identifier: Apache-2.0
//
// For tests: logits in a memory like that of a device. The host is given answers and copies, and cannot read
// them where they lie.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/testing/guarded_pages.h"
#include "sampling/logit_rows.h"

namespace longspec::testing {

class GuardedLogits final : public LogitMemory {
 public:
  // `pages`: of a device on which other things lie, too.
  explicit GuardedLogits(std::shared_ptr<GuardedPages> pages = std::make_shared<GuardedPages>())
      : pages_(std::move(pages)) {}
  ~GuardedLogits() override { Clear(); }

  // As a pass on the device would write them; until Clear.
  LogitRows Write(const LogitRows& rows) {
    if (rows.size() == 0) return {};
    const auto vocab = static_cast<size_t>(rows[0].vocab());
    taken_.push_back(pages_->Take(static_cast<size_t>(rows.size()) * vocab * sizeof(float)));
    auto* const to = reinterpret_cast<float*>(taken_.back());
    const GuardedPages::Opening open(*pages_);
    std::vector<float> room;
    for (int i = 0; i < rows.size(); ++i) {
      std::memcpy(to + static_cast<size_t>(i) * vocab, rows[i].Read(&room).data(), vocab * sizeof(float));
    }
    return {to, rows.size(), rows[0].vocab(), *this};
  }
  void Clear() {
    for (std::byte* const at : taken_) pages_->Return(at);
    taken_.clear();
  }

  std::span<const float> Read(std::span<const float> row, std::vector<float>* room) const override {
    const GuardedPages::Opening open(*pages_);
    room->assign(row.begin(), row.end());
    ++n_read;
    return *room;
  }

  mutable std::atomic<int64_t> n_read = 0;  // rows

 private:
  const std::shared_ptr<GuardedPages> pages_;
  std::vector<std::byte*> taken_;
};

}  // namespace longspec::testing
