// SPDX-License-Identifier: Apache-2.0
//
// Rows of several drafts, cut into passes of a model. `Rows`: a MeetingRows with members `rows` (a span), `k`
// and `next`, to which the k most probable tokens after each row go.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "base/status_macros.h"
#include "draft/pass_meeting.h"
#include "draft/tree_growth.h"
#include "longspec/status.h"

namespace longspec {

// Those that meet, who are of one kind.
template <typename Rows>
std::vector<Rows*> AsOne(std::span<MeetingRows* const> together) {
  std::vector<Rows*> all;
  for (MeetingRows* const one : together) all.push_back(static_cast<Rows*>(one));
  return all;
}

// Some of the rows of one draft in a pass, `begin` the first of them.
template <typename Rows>
struct RowPiece {
  Rows* of;
  size_t begin, n;
  auto rows() const { return of->rows.subspan(begin, n); }
};

// Calls pass(pieces) until all rows were in one, no more than `most` in each, in their order.
template <typename Rows, typename Pass>
Status RunInPasses(std::span<Rows* const> all, size_t most, const Pass& pass) {
  std::vector<RowPiece<Rows>> pieces;
  size_t n_rows = 0;
  for (Rows* const one : all) {
    one->next->resize(one->rows.size());
    for (size_t begin = 0; begin < one->rows.size(); begin += pieces.back().n) {
      if (n_rows == most) {
        LS_TRY(pass(std::span<const RowPiece<Rows>>(pieces)));
        pieces.clear();
        n_rows = 0;
      }
      pieces.push_back({.of = one, .begin = begin, .n = std::min(most - n_rows, one->rows.size() - begin)});
      n_rows += pieces.back().n;
    }
  }
  return pieces.empty() ? Status() : pass(std::span<const RowPiece<Rows>>(pieces));
}

// What a pass has to find for each of its rows.
template <typename Rows>
int MostWanted(std::span<const RowPiece<Rows>> pieces) {
  int k = 0;
  for (const RowPiece<Rows>& piece : pieces) k = std::max(k, piece.of->k);
  return k;
}

// Hands out what was found for the rows of a pass.
template <typename Rows>
void HandOut(std::span<const RowPiece<Rows>> pieces, std::span<std::vector<TokenScore>> found) {
  size_t row = 0;
  for (const RowPiece<Rows>& piece : pieces) {
    for (size_t i = 0; i < piece.n; ++i, ++row) {
      std::vector<TokenScore>& to = (*piece.of->next)[piece.begin + i];
      to.swap(found[row]);
      to.resize(std::min(to.size(), static_cast<size_t>(piece.of->k)));
    }
  }
}

}  // namespace longspec
