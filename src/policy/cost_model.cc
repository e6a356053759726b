// SPDX-License-Identifier: Apache-2.0
#include "policy/cost_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "base/check.h"

namespace longspec {
namespace {

// Standard deviations of logarithms. A machine's speed changes from round to round, with its clock and its
// neighbours, and for all row counts alike; what M rows cost in steps of one row changes slowly.
constexpr double kScaleDrift = 0.03;  // in a round
constexpr double kNoise = 0.1;        // of one observation
constexpr double kFirstScale = 0.05;  // of a table's scale
// Of a table's ratios, what is wrong of all rows beyond the first alike, and of each point alone; of a
// measured table and of a guess.
struct Doubt {
  double common, own;
};
constexpr Doubt kMeasured = {0.15, 0.06}, kGuessed = {0.5, 0.2};
// Correlation of neighbours in the table: in what is their own, and along the keys in what is common.
constexpr double kKinRows = 0.6, kKinKeys = 0.7, kKinKeysInCommon = 0.9;
constexpr double kForget = 0.003;  // in a round
// A round may take many times longer than it should (a page fault, another process): no surprise counts for
// more than so many deviations, unless the last one at this row count was as large.
constexpr double kDoubtful = 2.0;
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
  factors_ = KalmanFilter(FirstCovariance(kGuessed.common, kGuessed.own));
}

CostModel::CostModel(CostTable table)
    : table_(std::move(table)), scale_known_(true), factors_({}), surprise_(table_.rows.size()) {
  LS_CHECK(CheckCostTable(table_).ok());
  MakeMonotone(table_);
  factors_ = KalmanFilter(FirstCovariance(kMeasured.common, kMeasured.own));
}

std::vector<double> CostModel::FirstCovariance(double common, double own) const {
  const size_t n_rows = table_.rows.size(), n_keys = table_.keys.size(), n = 1 + (n_rows - 1) * n_keys;
  std::vector<double> covariance(n * n);
  covariance[0] = Square(kFirstScale);
  // The part of a point's cost that is not that of one row.
  const auto extra = [&](size_t row, size_t key) { return 1 - table_.at(0, key) / table_.at(row, key); };
  const auto kin = [](double neighbours, size_t a, size_t b) {
    return std::pow(neighbours, std::abs(static_cast<double>(a) - static_cast<double>(b)));
  };
  for (size_t row = 1; row < n_rows; ++row) {
    for (size_t key = 0; key < n_keys; ++key) {
      for (size_t row2 = 1; row2 < n_rows; ++row2) {
        for (size_t key2 = 0; key2 < n_keys; ++key2) {
          covariance[RatioAt(row, key) * n + RatioAt(row2, key2)] =
              Square(common) * extra(row, key) * extra(row2, key2) * kin(kKinKeysInCommon, key, key2) +
              Square(own) * kin(kKinRows, row, row2) * kin(kKinKeys, key, key2);
        }
      }
    }
  }
  return covariance;
}

// The logarithm of a cost is the table's and this sum.
void CostModel::FindTerms(int rows, int keys) {
  terms_.assign(1, {kScale, 1.0});
  const auto add = [&](size_t row, size_t key, double weight) {
    if (row > 0 && weight > 0) terms_.push_back({RatioAt(row, key), weight});  // one row has no ratio
  };
  const double row_at = On(table_.rows, rows), key_at = On(table_.keys, keys);
  for (const size_t row : {static_cast<size_t>(row_at), static_cast<size_t>(row_at) + 1}) {
    const double row_weight = 1 - std::abs(static_cast<double>(row) - row_at);
    for (const size_t key : {static_cast<size_t>(key_at), static_cast<size_t>(key_at) + 1}) {
      add(row, key, row_weight * (1 - std::abs(static_cast<double>(key) - key_at)));
    }
  }
}

double CostModel::Corrected(size_t row, int keys) const {
  const Place place = Find(table_.keys, keys);
  const size_t high = std::min(place.low + 1, table_.keys.size() - 1);
  const double share = std::clamp(place.share, 0.0, 1.0);
  double log_factor = factors_.mean(kScale);
  if (row > 0) {
    log_factor +=
        factors_.mean(RatioAt(row, place.low)) * (1 - share) + factors_.mean(RatioAt(row, high)) * share;
  }
  return Between(table_.at(row, place.low), table_.at(row, high), place.share) * std::exp(log_factor);
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
    factors_.Shift(kScale, surprise);
    return;
  }
  factors_.Forget(kForget);
  factors_.Drift(kScale, Square(kScaleDrift));
  FindTerms(rows, keys);
  const double doubtful = kDoubtful * std::sqrt(factors_.Variance(terms_) + Square(kNoise));
  double& last = surprise_[static_cast<size_t>(std::lround(On(table_.rows, rows)))];
  const bool again =
      std::abs(surprise) > doubtful && std::abs(last) > doubtful && (surprise > 0) == (last > 0);
  last = surprise;
  const double most = again ? kMaxSurprise : doubtful;
  factors_.Observe(terms_, std::clamp(surprise, -most, most), Square(kNoise));
}

}  // namespace longspec
