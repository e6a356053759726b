// SPDX-License-Identifier: Apache-2.0
//
// What a forward pass of M rows after N keys costs on this machine, in milliseconds: a table measured once
// (decode/calibration.h), and corrections learned from every round since, so that a wrong table cures itself.
// Where the table is wrong about a few rows it is mostly wrong about many, too, since another program on the
// machine slows computing and reading down by different amounts. So a round of three rows tells something
// about a round of twelve. Costs never fall when rows rise. Not thread-safe.
#pragma once

#include <span>
#include <vector>

#include "longspec/status.h"
#include "policy/kalman_filter.h"

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
  // The filter's numbers are logarithms of factors on the table's costs: one for all costs, which says how
  // fast the machine is now, and one for each point of more than one row.
  static constexpr size_t kScale = 0;
  size_t RatioAt(size_t row, size_t key) const { return 1 + (row - 1) * table_.keys.size() + key; }
  std::vector<double> FirstCovariance(double common, double own) const;
  void FindTerms(int rows, int keys);

  double Corrected(size_t row, int keys) const;
  void RowCurve(int keys) const;
  double OnCurve(int rows) const;

  CostTable table_;
  bool scale_known_;
  KalmanFilter factors_;
  std::vector<double> surprise_;           // the last at each row count of the table
  std::vector<KalmanFilter::Term> terms_;  // of the round being observed
  mutable std::vector<double> curve_;
};

}  // namespace longspec
