// SPDX-License-Identifier: Apache-2.0
//
// How well a draft foresees text that it is not trained on, by the position in the sequence and by how far it
// has gone without the target: what a draft proposes first is lag 1, what it proposes after that lag 2, and
// so on. Free of LibTorch.
#pragma once

#include <cstdint>
#include <vector>

namespace longspec::train {

// Tokens drafted right in a row. Trees have the nodes that are right most often, as far as the ranks of all
// validated rows say, and are as deep as a chain at most.
struct AcceptedLengths {
  double chain = 0.0;  // of kValidatedLags tokens
  double tree_8 = 0.0, tree_16 = 0.0;
};

struct ValidationBucket {
  int64_t begin = 0, end = 0;  // positions
  int64_t rows = 0;            // tokens that are to be predicted
  double loss = 0.0;           // mean at lag 1
  // By lag - 1: the share of rows at which the draft's most probable token is the target's, or that of the
  // text if the features do not tell the target's. With a reduced vocabulary others count as wrong.
  std::vector<double> agreement;
  std::vector<double> top_4;  // the same of its four most probable tokens
  AcceptedLengths accepted;   // mean, of rows that so many rows follow
};

struct Validation {
  ValidationBucket all;
  std::vector<ValidationBucket> buckets;  // those that have rows; each twice as long as the one before
};

// The lags that are looked at, whatever was trained: a chain of as many tokens.
inline constexpr int kValidatedLags = 4;

}  // namespace longspec::train
