// SPDX-License-Identifier: Apache-2.0
//
// What forward passes cost on this machine: known from before, or measured now and kept for the programs that
// come. The best that is known is kept, also if the machine was busy: measuring at every start would make
// every first answer wait, and each round corrects costs that are wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "decode/calibration.h"
#include "decode/cost_model.h"
#include "longspec/status.h"

namespace longspec {

class MachineCosts {
 public:
  using Measure = std::function<Result<Calibration>()>;

  // `key`: a CalibrationKey; empty: costs are measured anew and not kept. `now`: seconds since 1970.
  MachineCosts(std::string folder, std::string key, std::function<int64_t()> now)
      : folder_(std::move(folder)), key_(std::move(key)), now_(std::move(now)) {}

  // Without any known, or measured in vain, the policy starts from a guess and learns as it goes. Nothing:
  // measuring was stopped (kCancelled), so they are asked for again.
  std::optional<CostModel> Get(const Measure& measure);

  const std::string& origin() const { return origin_; }  // of what Get returned, in words

 private:
  const std::string folder_, key_;
  const std::function<int64_t()> now_;
  std::string origin_;
};

}  // namespace longspec
