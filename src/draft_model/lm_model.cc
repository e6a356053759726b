// SPDX-License-Identifier: Apache-2.0
#include "draft_model/lm_model.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#include "base/status_macros.h"
#include "draft_model/draft_block.h"
#include "formats/gguf_format.h"

namespace longspec {

KvLayout LmCacheLayout(const LlamaConfig& draft, const KvLayout& target) {
  return DraftCacheLayout(draft.n_head_kv, draft.head_dim, target);
}

Status CheckLmFit(const LmFile& draft, int n_vocab, const std::vector<std::string>& tokens) {
  if (draft.of_target) return {};
  const std::string misfit = draft.file->path() + ": the draft model does not fit the target: ";
  if (std::abs(int64_t{draft.config.n_vocab} - n_vocab) > kMostPadding) {
    return Unsupported(misfit + "a vocabulary of " + std::to_string(draft.config.n_vocab) +
                       " tokens, the target has " + std::to_string(n_vocab) + ", and a difference of " +
                       std::to_string(kMostPadding) + " is allowed for padding");
  }
  LS_ASSIGN(const std::vector<std::string> own, draft.file->GetStrings("tokenizer.ggml.tokens"));
  const size_t more = std::max(own.size(), tokens.size()) - std::min(own.size(), tokens.size());
  if (more > size_t{kMostPadding}) {
    return Unsupported(misfit + "its tokenizer has " + std::to_string(own.size()) +
                       " tokens, the target's has " + std::to_string(tokens.size()) +
                       ", and a difference of " + std::to_string(kMostPadding) + " is allowed for padding");
  }
  const auto [a, b] = std::ranges::mismatch(own, tokens);
  if (a == own.end() || b == tokens.end()) return {};
  return Unsupported(misfit + "token " + std::to_string(a - own.begin()) + " is " + Quote(*a) +
                     ", the target has " + Quote(*b));
}

Result<std::shared_ptr<const LmModel>> LoadLmModel(const std::shared_ptr<const GgufFile>& draft,
                                                   const SharedParts& target,
                                                   const std::vector<std::string>& tokens,
                                                   const WeightsCacheOptions& weights_cache) try {
  auto model = std::make_shared<LmModel>();
  model->path = draft->path();
  LS_ASSIGN(LmFile lm, ReadLmFile(draft, target.embedding, target.head));
  LS_TRY(CheckLmFit(lm, target.config->n_vocab, tokens));
  model->config = lm.config;
  model->vocab = std::move(lm.vocab);
  model->n_shared = std::min(model->config.n_vocab, target.config->n_vocab);
  LlamaLoadOptions load;
  load.kernels = target.kernels;
  load.team = target.team;
  load.max_rows = kLmMaxRows;
  // What is kept on disk is known by the file that it is of.
  if (!lm.of_target) load.weights_cache = weights_cache;
  LS_ASSIGN(model->target, LoadLlama(lm.file, model->config, load));
  return std::shared_ptr<const LmModel>(std::move(model));
} catch (const std::bad_alloc&) {
  return ResourceExhausted(draft->path() + ": no memory for the draft model");
}

}  // namespace longspec
