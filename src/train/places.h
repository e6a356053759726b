// SPDX-License-Identifier: Apache-2.0
//
// Packed sequences as rows of one table, each filled up to the longest: what attention of a whole batch in
// one call wants.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "train/attention.h"

namespace longspec::train {

// Masks whose rows are no multiple of this are copied by LibTorch's kernels.
inline constexpr int64_t kPlaceStep = 16;
inline int64_t WholePlaces(int64_t length) { return (length + kPlaceStep - 1) / kPlaceStep * kPlaceStep; }

class Places {
 public:
  Places(const Ends& ends, at::Device device);

  int64_t n() const { return n_; }            // sequences
  int64_t length() const { return length_; }  // of each, a multiple of kPlaceStep

  // x (rows, ...) as (n, length, ...), 0 where there is no row.
  at::Tensor Beside(const at::Tensor& x) const;
  // And back.
  at::Tensor Behind(const at::Tensor& x) const;

 private:
  int64_t n_ = 0, length_ = 0;
  bool full_ = false;  // every place has a row
  at::Tensor places_;  // (rows) int64, if not full
};

}  // namespace longspec::train
