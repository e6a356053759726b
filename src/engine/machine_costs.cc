// SPDX-License-Identifier: Apache-2.0
#include "engine/machine_costs.h"

#include "base/clock.h"
#include "engine/calibration_cache.h"

namespace longspec {
namespace {

const char* Machine(const KeptCosts& costs) { return costs.steady ? "" : ", which was busy"; }

}  // namespace

std::optional<CostModel> MachineCosts::Get(const Measure& measure) {
  const bool keep = !key_.empty();
  std::optional<KeptCosts> known;
  if (auto read = ReadCalibration(folder_, key_); keep && read.ok()) known = std::move(*read);
  if (known && !AreWorthMeasuringAgain(*known, now_())) {
    origin_ = std::string("measured earlier on this machine") + Machine(*known);
    return CostModel(std::move(known->table));
  }
  const double start = NowMs();
  auto measured = measure();
  if (!measured.ok()) {
    origin_ = "not measured: " + measured.status().message();
    if (measured.status().code() == StatusCode::kCancelled) return std::nullopt;
    return CostModel();
  }
  KeptCosts costs = {.table = std::move(measured->table), .steady = measured->steady, .measured_at = now_()};
  origin_ = "measured in " + std::to_string(static_cast<int>(NowMs() - start)) + " ms on this machine" +
            Machine(costs);
  if (keep) {
    if (known) costs = BetterOf(std::move(*known), std::move(costs));
    const Status kept = WriteCalibration(folder_, key_, costs);
    origin_ += kept.ok() ? ", kept in " + folder_ : ", not kept: " + kept.message();
  }
  return CostModel(std::move(costs.table));
}

}  // namespace longspec
