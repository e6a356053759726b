// SPDX-License-Identifier: Apache-2.0
#include "draft/draft_files.h"

#include <utility>

#include "base/status_macros.h"

namespace longspec {

Result<std::string> DraftFiles::Architecture(const std::string& path) {
  if (gguf_.contains(path) || BeginsAsGguf(path)) {
    LS_ASSIGN(const auto file, Gguf(path));
    return file->GetString("general.architecture");
  }
  LS_TRY(Longspec(path).status());
  return std::string(kLongspecArchitecture);
}

Result<std::shared_ptr<const GgufFile>> DraftFiles::Gguf(const std::string& path) {
  if (const auto it = gguf_.find(path); it != gguf_.end()) return it->second;
  LS_ASSIGN(auto file, GgufFile::Open(path));
  gguf_[path] = file;
  return file;
}

Result<std::shared_ptr<const LongspecCheckpoint>> DraftFiles::Longspec(const std::string& path) {
  if (const auto it = longspec_.find(path); it != longspec_.end()) return it->second;
  const auto gguf = gguf_.find(path);
  LS_ASSIGN(LongspecCheckpoint opened,
            gguf != gguf_.end() ? LongspecCheckpointOf(gguf->second) : OpenLongspecCheckpoint(path));
  auto checkpoint = std::make_shared<const LongspecCheckpoint>(std::move(opened));
  longspec_[path] = checkpoint;
  return checkpoint;
}

void DraftFiles::Close(const std::string& path) {
  gguf_.erase(path);
  longspec_.erase(path);
}

}  // namespace longspec
