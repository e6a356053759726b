// SPDX-License-Identifier: Apache-2.0
//
// How well a draft foresees text that it is not trained on, by the position in the sequence and by how far it
// has gone without the target: what a draft proposes first is lag 1, what it proposes after that lag 2, and
// so on.
#pragma once

#include <cstdint>
#include <vector>

#include "train/feature_set.h"
#include "train/trainee.h"

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

// The best static tree of so many nodes: rates[j][r] is the chance that at depth j + 1 the draft's choice of
// rank r is right. Its nodes as paths of ranks, parents before children.
std::vector<std::vector<int>> BestTree(const std::vector<std::vector<double>>& rates, int n_nodes);

// Looks at drafts of one target on the same sequences again and again.
class Validator {
 public:
  // All are borrowed.
  Validator(const FeatureSet& set, const ShardNeeds& needs, const LabelOptions& labels);

  // At plain positions, lags 1 .. kValidatedLags. Nothing is changed; one thread.
  Validation Look(const Trainee& trainee);

 private:
  const FeatureSet& set_;
  ShardNeeds needs_;
  const LabelOptions& labels_;
  std::vector<std::vector<int64_t>> choices_;  // by sequence: what is right, as rows of the draft's head
};

}  // namespace longspec::train
