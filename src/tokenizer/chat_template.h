// SPDX-License-Identifier: Apache-2.0
//
// Chat templates: the subset of Jinja that model files use, interpreted. Parsing finds syntax errors and
// constructs that are not offered, and names them with their line; rendering is a pure function.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "longspec/status.h"

namespace longspec {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", or what the template knows
  std::string content;
};

struct ChatTemplateInput {
  std::vector<ChatMessage> messages;
  bool add_generation_prompt = true;
  std::string bos_token;
  std::string eos_token;
  // Further variables, as JSON text (for example {"tools": [...]}); empty: none.
  std::string extra_json;
};

class ChatTemplate {
 public:
  static Result<std::shared_ptr<const ChatTemplate>> Parse(std::string_view source);
  virtual ~ChatTemplate() = default;
  // raise_exception in the template becomes kInvalidArgument with its message.
  virtual Result<std::string> Render(const ChatTemplateInput& input) const = 0;
};

}  // namespace longspec
