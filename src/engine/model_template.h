// SPDX-License-Identifier: Apache-2.0
//
// Which chat template a model's chats are written by.
#pragma once

#include <string>
#include <string_view>

#include "formats/gguf.h"
#include "longspec/status.h"

namespace longspec {

struct ModelTemplate {
  std::string source;
  bool is_given = false;  // by the file, or by somebody: else it is the one of any model
};

// `chosen`: ModelOptions::chat_template.
Result<ModelTemplate> TemplateOf(const GgufFile& file, std::string_view chosen);

}  // namespace longspec
