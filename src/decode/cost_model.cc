// SPDX-License-Identifier: Apache-2.0
#include "decode/cost_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "base/check.h"

namespace longspec {
namespace {

// How far one observation moves the common scale and the ratio of its row count; those of other row counts
// move by half as much for each step of the table, since tables are seldom wrong at one point only. A round
// that took many times longer than it should (a page fault, another process) counts as twice as long.
constexpr double kScaleRate = 0.06;
constexpr double kRatioRate = 0.2;
constexpr double kMaxSurprise = 0.7;

// Where `x` lies on an axis: between points `low` and `low + 1`, at `share` of the way; outside the axis the
// share continues the nearest interval.
struct Place {
  size_t low;
  double share;
};

Place Find(const std::vector<int>& axis, int x) {
  if (axis.size() == 1) return {0, 0.0};
  const auto above = std::upper_bound(axis.begin() + 1, axis.end() - 1, x);
  const auto low = static_cast<size_t>(above - axis.begin()) - 1;
  return {low, static_cast<double>(x - axis[low]) / static_cast<double>(axis[low + 1] - axis[low])};
}

// Linear between two values that do not fall; below the axis at least a tenth of the first.
double Between(double a, double b, double share) { return std::max(a + (b - a) * share, 0.1 * a); }

Status CheckAxis(const std::vector<int>& axis, const char* name) {
  if (axis.empty() || axis.front() < 1 ||
      std::adjacent_find(axis.begin(), axis.end(), std::greater_equal<>()) != axis.end()) {
    return Corrupt(std::string("cost table: ") + name + " must be ascending and at least 1");
  }
  return {};
}

void MakeMonotone(CostTable& table) {
  for (size_t r = 0; r < table.rows.size(); ++r) {
    for (size_t k = 0; k < table.keys.size(); ++k) {
      double& ms = table.at(r, k);
      if (r > 0) ms = std::max(ms, table.at(r - 1, k));
      if (k > 0) ms = std::max(ms, table.at(r, k - 1));
    }
  }
}

// One row costs 1 and 64 cost 7.3: on most machines the truth is dearer, which the first rounds will show.
CostTable Guess() { return {.rows = {1, 8, 64}, .keys = {1}, .ms = {1.0, 1.7, 7.3}}; }

}  // namespace

Status CheckCostTable(const CostTable& table) {
  if (Status status = CheckAxis(table.rows, "rows"); !status.ok()) return status;
  if (Status status = CheckAxis(table.keys, "keys"); !status.ok()) return status;
  if (table.rows.front() != 1) return Corrupt("cost table: rows must begin with 1");
  if (table.ms.size() != table.rows.size() * table.keys.size()) {
    return Corrupt("cost table: " + std::to_string(table.ms.size()) + " costs for " +
                   std::to_string(table.rows.size()) + " x " + std::to_string(table.keys.size()) + " points");
  }
  const bool sane =
      std::all_of(table.ms.begin(), table.ms.end(), [](double ms) { return ms > 0 && ms < 1e9; });
  return sane ? Status() : Corrupt("cost table: costs must be positive and finite");
}

CostModel::CostModel() : CostModel(Guess()) { scale_known_ = false; }

CostModel::CostModel(CostTable table)
    : table_(std::move(table)), scale_known_(true), log_ratio_(table_.rows.size(), 0.0) {
  LS_CHECK(CheckCostTable(table_).ok());
  MakeMonotone(table_);
}

double CostModel::Corrected(size_t row, int keys) const {
  const Place place = Find(table_.keys, keys);
  const size_t high = std::min(place.low + 1, table_.keys.size() - 1);
  return Between(table_.at(row, place.low), table_.at(row, high), place.share) *
         std::exp(log_scale_ + log_ratio_[row]);
}

// The corrected costs at the table's row counts. Corrections could make more rows cheaper than fewer: they
// may not.
void CostModel::RowCurve(int keys) const {
  curve_.resize(table_.rows.size());
  double most = 0;
  for (size_t r = 0; r < curve_.size(); ++r) curve_[r] = most = std::max(most, Corrected(r, keys));
}

void CostModel::TargetMs(int keys, std::span<double> ms) const {
  RowCurve(keys);
  for (size_t i = 0; i < ms.size(); ++i) ms[i] = OnCurve(static_cast<int>(i) + 1);
}

double CostModel::TargetMs(int rows, int keys) const {
  RowCurve(keys);
  return OnCurve(rows);
}

// More rows than the table knows cost in proportion.
double CostModel::OnCurve(int rows) const {
  if (rows >= table_.rows.back()) return curve_.back() * rows / table_.rows.back();
  const Place place = Find(table_.rows, rows);
  return Between(curve_[place.low], curve_[place.low + 1], place.share);
}

void CostModel::Observe(int rows, int keys, double ms) {
  if (!(ms > 0) || rows < 1) return;
  const double surprise = std::log(ms / TargetMs(rows, keys));
  if (!std::exchange(scale_known_, true)) {
    log_scale_ += surprise;
    return;
  }
  const double step = std::clamp(surprise, -kMaxSurprise, kMaxSurprise);
  log_scale_ += kScaleRate * step;
  const Place place = Find(table_.rows, rows);
  const double at = static_cast<double>(place.low) + std::clamp(place.share, 0.0, 1.0);
  for (size_t r = 0; r < log_ratio_.size(); ++r) {
    log_ratio_[r] += kRatioRate * std::exp2(-std::abs(static_cast<double>(r) - at)) * step;
  }
}

}  // namespace longspec
