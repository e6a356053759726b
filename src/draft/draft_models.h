// SPDX-License-Identifier: Apache-2.0
//
// Draft models loaded for one target, kept so that each is loaded once and not once per generation. Used by
// one generation at a time, like the target.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "draft/lm_model.h"
#include "draft/longspec_model.h"
#include "longspec/status.h"
#include "model/llama.h"
#include "model/shared_parts.h"

namespace longspec {

// Whether a draft model is a language model (type "lm"): a GGUF file that is no LongSpec draft. False also of
// what cannot be read; its loader says why.
bool IsLanguageModel(const std::string& path);

class DraftModels {
 public:
  // The target's tokens (borrowed), by which drafts with a vocabulary of their own are checked.
  void SetVocabulary(const std::vector<std::string>* tokens) { tokens_ = tokens; }

  // Where language models keep their packed weights.
  void SetWeightsCache(WeightsCacheOptions cache) { weights_cache_ = std::move(cache); }

  // The model of this file, loaded if it has not been. Failures are not remembered.
  Result<std::shared_ptr<const LongspecModel>> Longspec(const std::string& path, const std::string& weights,
                                                        const SharedParts& target);
  Result<std::shared_ptr<const LmModel>> Lm(const std::string& path, const SharedParts& target);

 private:
  using Key = std::pair<std::string, std::string>;  // file, type of weights
  std::map<Key, std::shared_ptr<const LongspecModel>> longspec_;
  std::map<std::string, std::shared_ptr<const LmModel>> lm_;
  const std::vector<std::string>* tokens_ = nullptr;
  WeightsCacheOptions weights_cache_;
};

}  // namespace longspec
