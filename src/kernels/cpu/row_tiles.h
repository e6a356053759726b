// SPDX-License-Identifier: Apache-2.0
//
// Rows in tiles, whose number of rows is known when what they do is compiled. Everything lives in an unnamed
// namespace on purpose: files built for different instruction sets include this, and each gets its own copy.
#pragma once

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

template <int N>
struct Count {
  static constexpr int kValue = N;
};

// f(Count<rows>(), row), of 1 to Most rows.
template <int Most, typename F>
[[gnu::always_inline]] inline void WithRows(int rows, int row, const F& f) {
  if (rows == Most) return f(Count<Most>(), row);
  if constexpr (Most > 1) WithRows<Most - 1>(rows, row, f);
}

// How many of the `left` rows the next tile of at most `most` takes: tiles are as equal as can be, so that 9
// rows are 5 and 4, not 8 and 1.
inline int NextTile(int left, int most) {
  const int tiles = (left + most - 1) / most;
  return (left + tiles - 1) / tiles;
}

// f(Count<rows>(), row) for tiles of at most Most rows.
template <int Most, typename F>
[[gnu::always_inline]] inline void ForEachTile(int n_rows, const F& f) {
  for (int row = 0; row < n_rows;) {
    const int rows = NextTile(n_rows - row, Most);
    WithRows<Most>(rows, row, f);
    row += rows;
  }
}

// The same for tiles of Most rows while they last, and one of the rest.
template <int Most, typename F>
[[gnu::always_inline]] inline void ForEachWholeTile(int n_rows, const F& f) {
  int row = 0;
  for (; row + Most <= n_rows; row += Most) f(Count<Most>(), row);
  if constexpr (Most > 1) {
    if (row < n_rows) WithRows<Most - 1>(n_rows - row, row, f);
  }
}

}  // namespace
}  // namespace longspec::kernels
