// SPDX-License-Identifier: Apache-2.0
#include "draft_model/draft_files.h"

#include <utility>

#include "base/status_macros.h"
#include "formats/draft_names.h"

namespace longspec {

Status CheckStandsAlone(const GgufFile& file) {
  const auto architecture = file.GetString("general.architecture");
  if (!architecture.ok()) return {};
  std::string kind;
  if (FindDraftKind(*architecture) != nullptr) kind = *architecture;
  const bool is_lm = file.Has(kLmTargetKey) || file.FindTensor(kDraftVocabTensor) != nullptr;
  if (kind.empty() && is_lm) kind = "lm";
  if (kind.empty()) return {};
  return Unsupported(file.path() + ": a draft model of kind " + kind +
                     ", which is nothing without its target: -m TARGET -md " + file.path());
}

Result<std::string> DraftFiles::Architecture(const std::string& path) {
  if (!gguf_.contains(path) && !drafts_.contains(path)) {
    LS_ASSIGN(auto file, GgufFile::OpenIfGguf(path));
    if (file != nullptr) gguf_[path] = std::move(file);
  }
  if (const auto it = gguf_.find(path); it != gguf_.end())
    return it->second->GetString("general.architecture");
  LS_ASSIGN(const auto checkpoint, Open(path));
  return std::string(checkpoint->kind->name);
}

Result<std::shared_ptr<const GgufFile>> DraftFiles::Gguf(const std::string& path) {
  if (const auto it = gguf_.find(path); it != gguf_.end()) return it->second;
  LS_ASSIGN(auto file, GgufFile::Open(path));
  gguf_[path] = file;
  return file;
}

Result<std::shared_ptr<const DraftCheckpoint>> DraftFiles::Open(const std::string& path) {
  if (const auto it = drafts_.find(path); it != drafts_.end()) return it->second;
  const auto gguf = gguf_.find(path);
  LS_ASSIGN(DraftCheckpoint opened,
            gguf != gguf_.end() ? DraftCheckpointOf(gguf->second) : OpenDraftCheckpoint(path));
  auto checkpoint = std::make_shared<const DraftCheckpoint>(std::move(opened));
  drafts_[path] = checkpoint;
  return checkpoint;
}

Result<std::shared_ptr<const DraftCheckpoint>> DraftFiles::Draft(const std::string& path,
                                                                 std::string_view kind) {
  LS_ASSIGN(auto checkpoint, Open(path));
  if (checkpoint->kind->name == kind) return checkpoint;
  return Unsupported(path + ": a draft model of kind " + std::string(checkpoint->kind->name) + ", not " +
                     std::string(kind));
}

void DraftFiles::Close(const std::string& path) {
  gguf_.erase(path);
  drafts_.erase(path);
}

}  // namespace longspec
