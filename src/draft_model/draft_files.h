// SPDX-License-Identifier: Apache-2.0
//
// Files of draft models, each opened once and handed on: its header tells who reads it, whether it fits the
// target and what memory it will take, and then its weights are loaded. Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "draft_model/draft_checkpoint.h"
#include "formats/gguf.h"
#include "longspec/status.h"

namespace longspec {

// kUnsupported, with what would be right, of a file that holds a draft model and can only stand beside its
// target.
Status CheckStandsAlone(const GgufFile& file);

class DraftFiles {
 public:
  // general.architecture of a GGUF file; of anything else, which only a learned draft can be, its kind
  // (DraftKind), which is what a GGUF file of it would say.
  Result<std::string> Architecture(const std::string& path);

  // A GGUF file, whatever is in it.
  Result<std::shared_ptr<const GgufFile>> Gguf(const std::string& path);
  // A learned draft in any of its containers. One of another kind is refused.
  Result<std::shared_ptr<const DraftCheckpoint>> Draft(const std::string& path, std::string_view kind);

  // Once its weights are loaded, or were refused. What it returned stays valid as long as it is held.
  void Close(const std::string& path);

 private:
  Result<std::shared_ptr<const DraftCheckpoint>> Open(const std::string& path);

  std::map<std::string, std::shared_ptr<const GgufFile>> gguf_;
  std::map<std::string, std::shared_ptr<const DraftCheckpoint>> drafts_;
};

}  // namespace longspec
