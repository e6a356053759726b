// SPDX-License-Identifier: Apache-2.0
//
// What is done to rows of a pass between its large steps, for each number (each.h).
#pragma once

#include "kernels/gpu/cta.h"

namespace longspec::kernels::gpu {

// Row i / width, with the same numbers added to each row. In place.
struct WithBias {
  using Result = float;
  const float* x;     // (n_rows, width)
  const float* bias;  // (width)
  int width;
  template <class Cta>
  LONGSPEC_GPU float At(int i) const {
    return Cta::Add(x[i], bias[i % width]);
  }
  bool operator==(const WithBias&) const = default;
};

// In place, if x is where the sum goes.
struct Sum {
  using Result = float;
  const float* x;
  const float* y;
  template <class Cta>
  LONGSPEC_GPU float At(int i) const {
    return Cta::Add(x[i], y[i]);
  }
  bool operator==(const Sum&) const = default;
};

// A row of logits in which only some tokens may be chosen.
struct AllowedLogits {
  using Result = float;
  const float* x;
  const uint32_t* mask;  // (n_words): bit t % 32 of word t / 32 says whether token t may; none behind its end
  int n_words;
  template <class Cta>
  LONGSPEC_GPU float At(int i) const {
    const bool may = i / 32 < n_words && (mask[i / 32] >> i % 32 & 1) != 0;
    return may ? x[i] : -__builtin_inff();
  }
  bool operator==(const AllowedLogits&) const = default;
};

// Some rows, side by side.
struct GatheredRows {
  using Result = float;
  const float* from;    // (n, width)
  const int32_t* rows;  // which
  int width;
  template <class Cta>
  LONGSPEC_GPU float At(int i) const {
    return from[int64_t{rows[i / width]} * width + i % width];
  }
  bool operator==(const GatheredRows&) const = default;
};

// Queries in the order in which attention reads them: (n_kv_head, n_rows, group), numbers of a row's group of
// heads side by side.
struct QueriesByHead {
  using Result = float;
  const float* q;       // (n_rows, n_kv_head * group)
  const int32_t* rows;  // (n_rows): whose query is at each place
  int n_rows, n_kv_head, group;
  template <class Cta>
  LONGSPEC_GPU float At(int i) const {
    const int at = i / group, head = at / n_rows;
    return q[(int64_t{rows[at % n_rows]} * n_kv_head + head) * group + i % group];
  }
  bool operator==(const QueriesByHead&) const = default;
};

}  // namespace longspec::kernels::gpu
