// SPDX-License-Identifier: Apache-2.0
//
// Task samples from JSON lines, plain or gzip: one object a line with `id`, `prompt_text`, and if they apply
// `instruction`, `reference` and `subset`, which says from which of several sources of the family it is. A
// file is a family, named after it. Free functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "longspec/status.h"

namespace longspec {

struct Sample {
  std::string family, id, instruction, text;
  std::optional<std::string> reference = {};
  std::string subset = {};
};

// The families of a folder, by name: files called FAMILY.jsonl or FAMILY.jsonl.gz.
Result<std::vector<std::string>> ListFamilies(const std::string& folder);
Result<std::vector<Sample>> ReadFamily(const std::string& folder, const std::string& family);

}  // namespace longspec
