// SPDX-License-Identifier: Apache-2.0
//
// Names of the files of a model in several shards: `prefix-00001-of-00003.gguf`.
#pragma once

#include <optional>
#include <string>

namespace longspec {

struct ShardName {
  std::string prefix;
  int number = 0;  // from 1
  int count = 0;
};

std::optional<ShardName> ParseShardName(const std::string& path);
std::string FormatShardName(const ShardName& name);

}  // namespace longspec
