// SPDX-License-Identifier: Apache-2.0
//
// Chat templates: the subset of Jinja that model files use, interpreted. Parsing finds syntax errors and
// constructs that are not offered, and names them with their line; rendering is a pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
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
  // Further variables, as JSON text (for example {"tools": [...]}); empty: none. One that has the name of a
  // variable above replaces it, so messages with more than a role and a content can be given here. `tools`
  // and `documents` are none unless given.
  std::string extra_json;
  // What strftime_now shows; empty: the local time.
  std::optional<std::tm> now;
  // A template is a program from a stranger. Past these limits rendering ends with kResourceExhausted.
  int64_t max_steps = 10'000'000;
  size_t max_bytes = size_t{64} << 20;  // of the output and of any text on the way
};

class ChatTemplate {
 public:
  // kUnsupported for tags, filters and tests that are not offered, kInvalidArgument for other errors.
  static Result<std::shared_ptr<const ChatTemplate>> Parse(std::string_view source);
  virtual ~ChatTemplate() = default;
  // raise_exception in the template becomes kInvalidArgument with its message. May be called by several
  // threads.
  virtual Result<std::string> Render(const ChatTemplateInput& input) const = 0;
};

}  // namespace longspec
