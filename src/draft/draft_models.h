// SPDX-License-Identifier: Apache-2.0
//
// Draft models loaded for one target, kept so that each is loaded once and not once per generation. Used by
// one generation at a time, like the target.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "draft/longspec_model.h"
#include "longspec/status.h"
#include "model/shared_parts.h"

namespace longspec {

class DraftModels {
 public:
  // The model of this file, loaded if it has not been. Failures are not remembered.
  Result<std::shared_ptr<const LongspecModel>> Longspec(const std::string& path, const std::string& weights,
                                                        const SharedParts& target);

 private:
  using Key = std::pair<std::string, std::string>;  // file, type of weights
  std::map<Key, std::shared_ptr<const LongspecModel>> longspec_;
};

}  // namespace longspec
