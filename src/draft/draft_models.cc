// SPDX-License-Identifier: Apache-2.0
#include "draft/draft_models.h"

#include "base/status_macros.h"
#include "draft/longspec_checkpoint.h"
#include "formats/gguf.h"

namespace longspec {

bool IsLanguageModel(const std::string& path) {
  const auto file = GgufFile::Open(path);
  if (!file.ok()) return false;
  const auto architecture = (*file)->GetString("general.architecture");
  return architecture.ok() && *architecture != kLongspecArchitecture;
}

Result<std::shared_ptr<const LongspecModel>> DraftModels::Longspec(const std::string& path,
                                                                   const std::string& weights,
                                                                   const SharedParts& target) {
  const Key key(path, weights);
  if (const auto it = longspec_.find(key); it != longspec_.end()) return it->second;
  LS_ASSIGN(auto model, LoadLongspecModel(path, weights, target));
  longspec_[key] = model;
  return model;
}

Result<std::shared_ptr<const LmModel>> DraftModels::Lm(const std::string& path, const SharedParts& target) {
  if (const auto it = lm_.find(path); it != lm_.end()) return it->second;
  if (tokens_ == nullptr) return Unsupported(path + ": the target's vocabulary is not known");
  LS_ASSIGN(auto model, LoadLmModel(path, target, *tokens_, weights_cache_));
  lm_[path] = model;
  return model;
}

}  // namespace longspec
