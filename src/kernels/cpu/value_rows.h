// SPDX-License-Identifier: Apache-2.0
//
// The two ways in which attention kernels are given values. Everything lives in an unnamed namespace on
// purpose: files built for different instruction sets include this, and each gets its own copy.
#pragma once

#include <cstddef>

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

// Where a key's values lie: in the chunk, or scattered.
struct ChunkRows {
  const std::byte* values;
  size_t row_bytes;
  const std::byte* operator()(int key) const { return values + static_cast<size_t>(key) * row_bytes; }
};
struct ScatteredRows {
  const std::byte* const* values;
  const std::byte* operator()(int key) const { return values[key]; }
};

}  // namespace
}  // namespace longspec::kernels
