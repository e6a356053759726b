// SPDX-License-Identifier: Apache-2.0
#include "draft/lm_model.h"

#include <algorithm>
#include <new>

#include "base/status_macros.h"
#include "formats/gguf.h"
#include "formats/gguf_format.h"

namespace longspec {
namespace {

Status CheckVocabulary(const GgufFile& file, int n_draft, int n_target,
                       const std::vector<std::string>& tokens) {
  const std::string misfit = file.path() + ": the draft model does not fit the target: ";
  if (n_draft != n_target) {
    return Unsupported(misfit + "a vocabulary of " + std::to_string(n_draft) + " tokens, the target has " +
                       std::to_string(n_target));
  }
  LS_ASSIGN(const std::vector<std::string> own, file.GetStrings("tokenizer.ggml.tokens"));
  if (own.size() != tokens.size()) {
    return Unsupported(misfit + "its tokenizer has " + std::to_string(own.size()) +
                       " tokens, the target's has " + std::to_string(tokens.size()));
  }
  const auto [a, b] = std::ranges::mismatch(own, tokens);
  if (a == own.end()) return {};
  return Unsupported(misfit + "token " + std::to_string(a - own.begin()) + " is " + Quote(*a) +
                     ", the target has " + Quote(*b));
}

}  // namespace

KvLayout LmCacheLayout(const LlamaConfig& draft, const KvLayout& target) {
  const KvLayout layout = draft.kv_layout(target.k_type, target.v_type);
  return CheckLayout(layout).ok() ? layout : draft.kv_layout(CacheType::kF16, CacheType::kF16);
}

Result<std::shared_ptr<const LmModel>> LoadLmModel(const std::string& path, const SharedParts& target,
                                                   const std::vector<std::string>& tokens,
                                                   const WeightsCacheOptions& weights_cache) try {
  LS_ASSIGN(const std::shared_ptr<const GgufFile> file, GgufFile::Open(path));
  auto model = std::make_shared<LmModel>();
  model->path = path;
  LS_ASSIGN(model->config, ReadLlamaConfig(*file, {}));
  LS_TRY(CheckVocabulary(*file, model->config.n_vocab, target.config->n_vocab, tokens));
  LlamaLoadOptions load;
  load.kernels = target.kernels;
  load.team = target.team;
  load.max_rows = kLmMaxRows;
  load.weights_cache = weights_cache;
  LS_ASSIGN(model->target, LoadLlama(file, model->config, load));
  return std::shared_ptr<const LmModel>(std::move(model));
} catch (const std::bad_alloc&) {
  return ResourceExhausted(path + ": no memory for the draft model");
}

}  // namespace longspec
