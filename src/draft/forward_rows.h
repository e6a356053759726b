// SPDX-License-Identifier: Apache-2.0
//
// The rows that one draft hands to a forward pass of its model, and how the rows of several drafts are cut
// into passes.
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

// Some of the rows of one draft in a pass, `begin` the first of them.
template <typename Rows>
struct RowPiece {
  Rows* of;
  size_t begin, n;
  auto rows() const { return of->rows.subspan(begin, n); }
};

// Rows to run, which must see nothing that has not been run, and do not see each other; the k most probable
// tokens after each go to `next`. All borrowed. `Rows`: the class that is made of it, with what a row of that
// model needs besides. `Forward` runs pieces of several drafts in one pass: RunPass(pieces) of the first
// one's.
template <typename Rows, typename Forward, typename Row>
struct ForwardRows : MeetingRows {
  ForwardRows(Forward* of, std::span<const Row> some, int n_best, std::vector<std::vector<TokenScore>>* to)
      : forward(of), rows(some), k(n_best), next(to) {}

  // In as few passes as hold all rows, in their order.
  Status Run(std::span<MeetingRows* const> together) final {
    std::vector<RowPiece<Rows>> pieces;
    size_t n_rows = 0;
    for (MeetingRows* const other : together) {
      auto* const one = static_cast<Rows*>(other);
      one->next->resize(one->rows.size());
      for (size_t begin = 0; begin < one->rows.size(); begin += pieces.back().n) {
        if (n_rows == kMost) {
          LS_TRY(RunPass(pieces));
          pieces.clear();
          n_rows = 0;
        }
        pieces.push_back(
            {.of = one, .begin = begin, .n = std::min(kMost - n_rows, one->rows.size() - begin)});
        n_rows += pieces.back().n;
      }
    }
    return pieces.empty() ? Status() : RunPass(pieces);
  }
  Status RunAlone() {
    MeetingRows* const alone = this;
    return Run({&alone, 1});
  }

  Forward* forward;
  std::span<const Row> rows;
  int k;
  std::vector<std::vector<TokenScore>>* next;

 private:
  static constexpr size_t kMost = static_cast<size_t>(Forward::kMaxRows);

  static Status RunPass(std::span<const RowPiece<Rows>> pieces) {
    return pieces.front().of->forward->RunPass(pieces);
  }
};

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
