// SPDX-License-Identifier: Apache-2.0
#include "draft_model/draft_models.h"

#include <algorithm>

#include "base/status_macros.h"

namespace longspec {

Result<std::string> DraftModels::Architecture(const std::string& path) {
  if (const auto it = lm_.find(path); it != lm_.end()) return it->second->spec.architecture;
  if (const auto it = learned_.lower_bound({path, ""}); it != learned_.end() && it->first.first == path) {
    return std::string(it->second.kind);
  }
  return files_.Architecture(path);
}

std::shared_ptr<DraftKeys> DraftModels::KeysOf(const KeysKey& key, std::shared_ptr<ChunkPool> pool,
                                               size_t own_chunks) {
  std::shared_ptr<DraftKeys>& keys = keys_[key];
  const auto is_of = [&](const KvLayout& other) {
    return other.k_type == pool->layout().k_type && other.v_type == pool->layout().v_type;
  };
  if (keys == nullptr || !is_of(keys->pool()->layout())) {
    keys = std::make_shared<DraftKeys>(std::move(pool), own_chunks + room_.beside);
  }
  return keys;
}

Result<std::shared_ptr<const LmModel>> DraftModels::Lm(const std::string& path, const SharedParts& target) {
  if (const auto it = lm_.find(path); it != lm_.end()) return it->second;
  if (tokens_ == nullptr) return Unsupported(path + ": the target's vocabulary is not known");
  LS_ASSIGN(const auto file, files_.Gguf(path));
  auto model = LoadLmModel(file, target, *tokens_, weights_cache_);
  files_.Close(path);
  if (model.ok()) lm_[path] = *model;
  return model;
}

}  // namespace longspec
