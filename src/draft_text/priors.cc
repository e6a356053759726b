// SPDX-License-Identifier: Apache-2.0
#include "draft_text/priors.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

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

Result<std::shared_ptr<const NgramPrior>> Priors::Get(const std::string& option) {
  using Prior = std::shared_ptr<const NgramPrior>;
  if (option == kNoPrior) return Prior();
  if (!source_) {
    if (option.empty()) return Prior();
    return InvalidArgument("--spec-prior " + option + ": the target's tokenizer is not known");
  }
  if (const auto it = opened_.find(option); it != opened_.end()) return it->second;
  const std::string path = option.empty() ? FindPrior(*source_) : option;
  Prior prior;
  if (!path.empty()) {
    auto opened = NgramPrior::Open(path, source_->vocab_size, source_->tokenizer);
    if (opened.ok()) {
      prior = std::move(*opened);
    } else if (option.empty()) {
      problem_ = opened.status().message() + "; it was not used";
    } else {
      return opened.status();
    }
  }
  opened_[option] = prior;
  return prior;
}

}  // namespace longspec
