// SPDX-License-Identifier: Apache-2.0
#include "draft/draft_models.h"

#include "base/status_macros.h"

namespace longspec {

Result<std::shared_ptr<const LongspecModel>> DraftModels::Longspec(const std::string& path,
                                                                   const std::string& weights,
                                                                   const SharedParts& target) {
  const Key key(path, weights);
  if (const auto it = longspec_.find(key); it != longspec_.end()) return it->second;
  LS_ASSIGN(auto model, LoadLongspecModel(path, weights, target));
  longspec_[key] = model;
  return model;
}

}  // namespace longspec
