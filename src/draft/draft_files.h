// SPDX-License-Identifier: Apache-2.0
//
// Files of draft models, each opened once and handed on: its header tells who reads it, whether it fits the
// target and what memory it will take, and then its weights are loaded. Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "draft/longspec_checkpoint.h"
#include "formats/gguf.h"
#include "longspec/status.h"

namespace longspec {

class DraftFiles {
 public:
  // general.architecture of a GGUF file; kLongspecArchitecture of anything else, which only a LongSpec draft
  // can be.
  Result<std::string> Architecture(const std::string& path);

  // A GGUF file, whatever is in it.
  Result<std::shared_ptr<const GgufFile>> Gguf(const std::string& path);
  // A LongSpec draft in any of its containers.
  Result<std::shared_ptr<const LongspecCheckpoint>> Longspec(const std::string& path);

  // Once its weights are loaded, or were refused. What it returned stays valid as long as it is held.
  void Close(const std::string& path);

 private:
  std::map<std::string, std::shared_ptr<const GgufFile>> gguf_;
  std::map<std::string, std::shared_ptr<const LongspecCheckpoint>> longspec_;
};

}  // namespace longspec
