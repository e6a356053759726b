// SPDX-License-Identifier: Apache-2.0
//
// Keys put into slots whose values stay as they are: those that were turned to other positions.
#pragma once

#include <cstddef>
#include <vector>

#include "attention/kv_span.h"
#include "kernels/ops.h"

namespace longspec {

class KeyWriter {
 public:
  // Borrowed.
  KeyWriter(const KvLayout& layout, const kernels::KernelTable& kernels);

  // One KV head's key, (head_dim). REQUIRES: `to` is of the layout.
  void Store(const float* key, const KvWriter& to, int slot, int head);

 private:
  const KvLayout layout_;
  const kernels::KernelTable& kernels_;
  const std::vector<float> no_value_;  // the kernel stores both
  std::vector<std::byte> value_;
};

}  // namespace longspec
