// SPDX-License-Identifier: Apache-2.0
//
// What a forward pass of M rows after N keys costs on this machine, in milliseconds: a table measured once
// (decode/calibration.h), and corrections learned from every round since, so that a wrong table cures itself.
// Costs never fall when rows rise. Not thread-safe.
#pragma once

#include <span>
#include <vector>

#include "longspec/status.h"

namespace longspec {

struct CostTable {
  std::vector<int> rows;   // ascending, the first is 1
  std::vector<int> keys;   // ascending
  std::vector<double> ms;  // (rows, keys)

  double& at(size_t row, size_t key) { return ms[row * keys.size() + key]; }
  double at(size_t row, size_t key) const { return ms[row * keys.size() + key]; }
};

// Whether a table can be used: sizes that agree, ascending axes, finite positive costs.
Status CheckCostTable(const CostTable& table);

class CostModel {
 public:
  // Knows the shape of costs only: rows get dearer slowly. The first observation sets the scale.
  CostModel();
  // REQUIRES: CheckCostTable(table).ok()
  explicit CostModel(CostTable table);

  double TargetMs(int rows, int keys) const;
  // The costs of 1, 2, ... ms.size() rows after `keys` keys.
  void TargetMs(int keys, std::span<double> ms) const;

  // A round of `rows` rows after `keys` keys took this long.
  void Observe(int rows, int keys, double ms);

  const CostTable& table() const { return table_; }  // as measured, made monotone

 private:
  // An estimate of the logarithm of a factor, and how far it may be wrong.
  struct Factor {
    double log = 0, variance = 0;
    double surprise = 0;  // the last, of a point of the table
  };

  Factor& ratio(size_t row, size_t key) { return ratio_[row * table_.keys.size() + key]; }
  const Factor& ratio(size_t row, size_t key) const { return ratio_[row * table_.keys.size() + key]; }
  double Corrected(size_t row, int keys) const;
  void RowCurve(int keys) const;
  double OnCurve(int rows) const;

  CostTable table_;
  bool scale_known_;
  Factor scale_;  // of all costs: how fast the machine is now
  // (rows, keys): of the table's costs on top of that; those of one row stay 1.
  std::vector<Factor> ratio_;
  mutable std::vector<double> curve_;
};

}  // namespace longspec
