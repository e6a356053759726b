// SPDX-License-Identifier: Apache-2.0
//
// For tests: states in a memory like that of a device. The host reads and writes them in copies only.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/testing/guarded_pages.h"
#include "tensor/state_rows.h"

namespace longspec::testing {

class GuardedStates final : public StateMemory {
 public:
  // `pages`: of a device on which other things lie, too.
  explicit GuardedStates(std::shared_ptr<GuardedPages> pages = std::make_shared<GuardedPages>())
      : pages_(std::move(pages)) {}

  float* Take(size_t floats) const override {
    return reinterpret_cast<float*>(pages_->Take(floats * sizeof(float)));
  }
  void Return(float* at) const override { pages_->Return(reinterpret_cast<std::byte*>(at)); }
  void Copy(const float* from, size_t floats, float* to) const override {
    if (floats == 0) return;
    LS_CHECK(pages_->Holds(from));
    Write(from, floats, to);
    ++n_copies;
  }

  // From the host, as a pass on the device would write it.
  void Write(const float* from, size_t floats, float* to) const {
    const GuardedPages::Opening open(*pages_);
    std::memcpy(to, from, floats * sizeof(float));
  }

  mutable std::atomic<int64_t> n_copies = 0;

 private:
  const std::shared_ptr<GuardedPages> pages_;
};

}  // namespace longspec::testing
