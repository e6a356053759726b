// SPDX-License-Identifier: Apache-2.0
#include "engine/machine_costs.h"

#include "base/clock.h"

namespace longspec {
namespace {

const char* Machine(const KeptCosts& costs) { return costs.steady ? "" : ", which was busy"; }

}  // namespace

CostModel MachineCosts::Known() {
  if (!key_.empty()) {
    if (auto read = ReadCalibration(folder_, key_); read.ok()) kept_ = std::move(*read);
  }
  if (!kept_) {
    origin_ = "guessed, and learned by the way";
    return {};
  }
  settled_ = !AreWorthMeasuringAgain(*kept_, now_());
  origin_ = std::string("measured earlier on this machine") + Machine(*kept_);
  return CostModel(kept_->table);
}

std::optional<CostModel> MachineCosts::Measured(const Measure& measure) {
  if (settled_) return std::nullopt;
  const double start = NowMs();
  auto measured = measure();
  if (measured.status().code() == StatusCode::kCancelled) return std::nullopt;
  settled_ = true;
  if (!measured.ok()) {
    origin_ += ", not measured: " + measured.status().message();
    return std::nullopt;
  }
  KeptCosts costs = {.table = std::move(measured->table), .steady = measured->steady, .measured_at = now_()};
  origin_ = "measured in " + std::to_string(static_cast<int>(NowMs() - start)) + " ms on this machine" +
            Machine(costs);
  if (!key_.empty()) {
    if (kept_) costs = BetterOf(std::move(*kept_), std::move(costs));
    const Status written = WriteCalibration(folder_, key_, costs);
    origin_ += written.ok() ? ", kept in " + folder_ : ", not kept: " + written.message();
  }
  return CostModel(std::move(costs.table));
}

}  // namespace longspec
