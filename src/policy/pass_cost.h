// SPDX-License-Identifier: Apache-2.0
//
// What a forward pass over the rows of several sequences costs, from a CostModel that knows passes of one.
//
//   ms(pass) = W(R) + sum over the sequences s of A(m_s, N_s)
//   W(R) = TargetMs(R, 0)                          products of all R rows with the weights
//   A(m, N) = TargetMs(m, N) - TargetMs(m, 0)      attention of m rows to N keys; never below 0
//
// Keys that several sequences share are attended once for the rows of all of them: keys [a, b) cost
// A(M, b) - A(M, a) for the M rows that see them. With one sequence the sum is TargetMs(m, N), and is
// computed as that. Prices are those the model had when the object was made: make one for each round. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "policy/cost_model.h"

namespace longspec {

// The rows of one sequence.
struct PassPart {
  int rows = 1;
  int keys = 0;  // committed tokens, as in CostModel::TargetMs; where rows see different numbers, the mean
  // The part before this one with which it shares most keys, and how many: the first keys of both.
  int shared_with = -1;
  int shared_keys = 0;
};

// A chain of rows, such as a piece of a prompt, after `computed` positions. A single row is the last one of
// computed + 1 committed tokens.
PassPart ChainPart(int rows, int computed);

class PassCost {
 public:
  explicit PassCost(const CostModel& costs) : costs_(costs) {}  // borrowed

  // Parts of no rows cost nothing; a pass of no rows costs 0.
  double Ms(std::span<const PassPart> parts) const;

 private:
  friend class GrowingPass;

  // Costs of 1, 2, ... rows after some number of keys; those of few rows are looked up once.
  class Curve {
   public:
    Curve(const CostModel& costs, int keys) : costs_(&costs), keys_(keys) {}
    double Ms(int rows) const;
    int keys() const { return keys_; }

   private:
    const CostModel* costs_;
    int keys_;
    mutable std::vector<double> ms_;
  };
  const Curve& After(int keys) const;
  double Attention(const Curve& after, int rows) const;

  const CostModel& costs_;
  mutable std::map<int, Curve> curves_;  // by keys; addresses are held
};

// The cost of a pass that gets more rows one by one, for those who compare many. Borrows the PassCost.
class GrowingPass {
 public:
  GrowingPass(const PassCost& cost, std::span<const PassPart> parts);

  double ms() const;
  // What products would take for each row of so many more: the same whatever part has them. 0 of none.
  double ProductsMs(int more_rows) const;
  // What attention would take for one row more of this part.
  double NextAttentionMs(int part) const;
  void AddRow(int part);
  // Whether parts attend to keys together: then the price of one changes with the rows of the other.
  bool Share(int a, int b) const;

 private:
  // Keys [begin, end) that the same parts see, with the rows of all of them.
  struct Stretch {
    const PassCost::Curve* begin;
    const PassCost::Curve* end;
    int rows;
  };
  double Ms(const Stretch& stretch, int rows) const;
  void Split(size_t stretch, int at);
  size_t PathUpTo(int part, int keys);
  void CountRows(int part, int rows);

  const PassCost& cost_;
  std::vector<PassPart> parts_;
  std::vector<Stretch> stretches_;
  std::vector<std::vector<size_t>> paths_;  // of each part: the stretches it sees, from the first key on
  int rows_ = 0, parts_with_rows_ = 0;
};

// Tells the model what a pass of these parts took. It is told of one sequence of as many rows, after the mean
// of their keys, that surprises it as much as this pass did: in the same proportion.
void ObservePass(std::span<const PassPart> parts, double ms, CostModel* costs);

}  // namespace longspec
