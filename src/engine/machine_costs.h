// SPDX-License-Identifier: Apache-2.0
//
// What forward passes cost on this machine: known from before, or guessed until somebody has the time to
// measure it, which is then kept for the programs that come. The best that is known is kept, also if the
// machine was busy: each round corrects costs that are wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "decode/calibration.h"
#include "engine/calibration_cache.h"
#include "longspec/status.h"
#include "policy/cost_model.h"

namespace longspec {

class MachineCosts {
 public:
  using Measure = std::function<Result<Calibration>()>;

  // `key`: a CalibrationKey; empty: costs are measured anew and not kept. `now`: seconds since 1970.
  MachineCosts(std::string folder, std::string key, std::function<int64_t()> now)
      : folder_(std::move(folder)), key_(std::move(key)), now_(std::move(now)) {}

  // The costs that are kept, or a guess, which the policy corrects as it goes. Takes no time.
  CostModel Known();
  // Measures, if that can bring better costs, and returns them. It returns nothing where what is known is as
  // good as it gets, where measuring failed, and where it was stopped (kCancelled): then the next call
  // measures.
  std::optional<CostModel> Measured(const Measure& measure);

  const std::string& origin() const { return origin_; }  // of the last that were returned, in words

 private:
  const std::string folder_, key_;
  const std::function<int64_t()> now_;
  std::optional<KeptCosts> kept_;
  bool settled_ = false;  // measuring would bring nothing better
  std::string origin_;
};

}  // namespace longspec
