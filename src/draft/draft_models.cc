// SPDX-License-Identifier: Apache-2.0
#include "draft/draft_models.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/status_macros.h"

namespace longspec {
namespace {

// The first file of the folder that is for this tokenizer; "" if there is none. Others are passed over,
// whatever they are.
std::string FindPrior(const PriorSource& source) {
  if (source.folder.empty()) return "";
  std::vector<std::string> paths;
  std::error_code error;
  for (std::filesystem::directory_iterator it(source.folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".ngrams") paths.push_back(it->path().string());
  }
  std::sort(paths.begin(), paths.end());
  const auto fits = [&](const std::string& path) {
    const auto tokenizer = NgramPrior::TokenizerOf(path);
    return tokenizer.ok() && *tokenizer == source.tokenizer;
  };
  const auto found = std::ranges::find_if(paths, fits);
  return found == paths.end() ? "" : *found;
}

}  // namespace

Result<std::string> DraftModels::Architecture(const std::string& path) {
  if (const auto it = lm_.find(path); it != lm_.end()) return it->second->config.architecture;
  if (const auto it = learned_.lower_bound({path, ""}); it != learned_.end() && it->first.first == path) {
    return std::string(it->second.kind);
  }
  return files_.Architecture(path);
}

std::shared_ptr<DraftStates> DraftModels::StatesOf(const StatesKey& key, const KvLayout& layout, int n_layer,
                                                   size_t own_chunks) {
  std::shared_ptr<DraftStates>& states = states_[key];
  const auto is_of = [&](const KvLayout& other) {
    return other.k_type == layout.k_type && other.v_type == layout.v_type;
  };
  if (states == nullptr || !is_of(states->pool()->layout())) {
    states = std::make_shared<DraftStates>(layout, n_layer, own_chunks + room_.beside);
  }
  return states;
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

Result<std::shared_ptr<const NgramPrior>> DraftModels::Prior(const std::string& option) {
  using Prior = std::shared_ptr<const NgramPrior>;
  if (option == kNoPrior) return Prior();
  if (!priors_) {
    if (option.empty()) return Prior();
    return InvalidArgument("--spec-prior " + option + ": the target's tokenizer is not known");
  }
  if (const auto it = opened_priors_.find(option); it != opened_priors_.end()) return it->second;
  const std::string path = option.empty() ? FindPrior(*priors_) : option;
  Prior prior;
  if (!path.empty()) {
    auto opened = NgramPrior::Open(path, priors_->vocab_size, priors_->tokenizer);
    if (opened.ok()) {
      prior = std::move(*opened);
    } else if (option.empty()) {
      prior_problem_ = opened.status().message() + "; it was not used";
    } else {
      return opened.status();
    }
  }
  opened_priors_[option] = prior;
  return prior;
}

}  // namespace longspec
