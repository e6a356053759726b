// SPDX-License-Identifier: Apache-2.0
#include "decode/cost_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "base/check.h"

namespace longspec {
namespace {

// A machine's speed changes from round to round, with its clock and its neighbours, and for all row counts
// alike; what M rows cost in steps of one row hardly changes. So a surprising round says mostly that the
// machine became faster or slower, and only what stays of many such surprises says that the table is wrong: a
// Kalman filter with these deviations.
constexpr double kScaleDrift = 0.03, kRatioDrift = 0.005;  // in a round
constexpr double kNoise = 0.1;                             // of one observation
constexpr double kFirstScale = 0.05;                       // of a table's scale,
constexpr double kFirstRatio = 0.06, kGuessedRatio = 0.4;  // and ratios, measured or guessed
// A round may take many times longer than it should (a page fault, another process): no surprise counts for
// more than so many deviations, unless the last one at this row count was as large. Then the ratio is less
// certain than was believed, by this part of the surprise.
constexpr double kDoubtful = 2.0, kDoubt = 0.3;
constexpr double kMaxSurprise = 0.7;

double Square(double x) { return x * x; }

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

// The same as one number, within the axis.
double On(const std::vector<int>& axis, int x) {
  const Place place = Find(axis, x);
  return static_cast<double>(place.low) + std::clamp(place.share, 0.0, 1.0);
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

CostModel::CostModel() : CostModel(Guess()) {
  scale_known_ = false;
  for (size_t r = 1; r < table_.rows.size(); ++r) ratio(r, 0).variance = Square(kGuessedRatio);
}

CostModel::CostModel(CostTable table)
    : table_(std::move(table)),
      scale_known_(true),
      scale_{.log = 0, .variance = Square(kFirstScale)},
      ratio_(table_.ms.size(), {.log = 0, .variance = Square(kFirstRatio)}) {
  LS_CHECK(CheckCostTable(table_).ok());
  MakeMonotone(table_);
  for (size_t k = 0; k < table_.keys.size(); ++k) ratio(0, k).variance = 0;
}

double CostModel::Corrected(size_t row, int keys) const {
  const Place place = Find(table_.keys, keys);
  const size_t high = std::min(place.low + 1, table_.keys.size() - 1);
  const double share = std::clamp(place.share, 0.0, 1.0);
  const double log_ratio = ratio(row, place.low).log * (1 - share) + ratio(row, high).log * share;
  return Between(table_.at(row, place.low), table_.at(row, high), place.share) *
         std::exp(scale_.log + log_ratio);
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
    scale_.log += surprise;
    return;
  }
  const double row_at = On(table_.rows, rows), key_at = On(table_.keys, keys);
  scale_.variance += Square(kScaleDrift);
  for (Factor& factor : ratio_) {
    if (factor.variance > 0)
      factor.variance = std::min(factor.variance + Square(kRatioDrift), Square(kGuessedRatio));
  }
  const auto nearest = static_cast<size_t>(std::lround(row_at));
  Factor& own = ratio(nearest, static_cast<size_t>(std::lround(key_at)));
  const auto spread_of = [&] { return scale_.variance + own.variance + Square(kNoise); };
  const double doubtful = kDoubtful * std::sqrt(spread_of());
  const bool again = std::abs(surprise) > doubtful && std::abs(own.surprise) > doubtful &&
                     (surprise > 0) == (own.surprise > 0);
  own.surprise = surprise;
  const double most = again ? kMaxSurprise : doubtful;
  const double step = std::clamp(surprise, -most, most);
  if (again && nearest > 0) own.variance += Square(kDoubt * step);
  const double spread = spread_of();
  const auto correct = [&](Factor& factor, double covariance) {
    factor.log += covariance / spread * step;
    factor.variance = std::max(0.0, factor.variance - Square(covariance) / spread);
  };
  const double own_variance = own.variance;
  correct(scale_, scale_.variance);
  // The nearer a point of the table, the more is true of it too: tables are seldom wrong at one point only.
  // Of one row there is no ratio to be wrong.
  for (size_t r = 1; r < table_.rows.size(); ++r) {
    for (size_t k = 0; k < table_.keys.size(); ++k) {
      const double distance =
          std::abs(static_cast<double>(r) - row_at) + std::abs(static_cast<double>(k) - key_at);
      Factor& factor = ratio(r, k);
      const double kinship = std::min(row_at, 1.0) * std::exp2(-distance);
      correct(factor, kinship * std::sqrt(factor.variance * own_variance));
    }
  }
}

}  // namespace longspec
