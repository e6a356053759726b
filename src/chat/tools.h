// SPDX-License-Identifier: Apache-2.0
//
// Tools that an answer may call, and the forms that models write calls in. Pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace longspec::chat {

// Each family of models has its own, which its chat template shows (chat/tool_form.h).
enum class ToolFormat : uint8_t {
  kHermes,  // <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>: Hermes, Qwen 2.5 and 3
  kTagged,  // <tool_call>\n<function=f>\n<parameter=a>\n...\n</parameter>\n</function>\n</tool_call>: Qwen 3
            // Coder and Qwen 3.5
  kLlama3,  // {"name": "f", "parameters": {...}}: Llama 3.1 and 3.2
  kMistralList,  // [TOOL_CALLS][{"name": "f", "arguments": {...}}]: Mistral 7B v0.3 and Nemo
  kMistral,      // [TOOL_CALLS]f[ARGS]{...}: Mistral Small 3.2, Devstral, Magistral
  kHarmony,      // <|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>: gpt-oss
  kGeneric,  // <tool_call>[{"name": "f", "arguments": {...}}]</tool_call>: SmolLM2, and all that show nothing
             // else
};

// From 1 to 64 letters, digits, "_", "-" and ".".
bool IsToolName(std::string_view name);

struct Tool {
  std::string name;
  nlohmann::ordered_json definition;  // as it was given: {"type": "function", "function": {...}}
  nlohmann::ordered_json parameters;  // their schema
  bool strict = false;                // a schema that cannot be kept to is an error
  bool is_announced = false;          // the conversation tells of it, so that its beginning need not
};

enum class ToolChoice : uint8_t { kNone, kAuto, kRequired };

struct ToolUse {
  std::vector<Tool> tools;  // of a named choice, that one
  ToolChoice choice = ToolChoice::kNone;
  bool parallel = true;        // more than one call
  bool text_has_form = false;  // where nothing is called: then calls are those that models were shown

  bool offered() const { return choice != ToolChoice::kNone && !tools.empty(); }
};

// It and no other is to be called, once. False: there is none of this name.
bool ChooseTool(std::string_view name, ToolUse* use);

// How the calls in an answer are read.
struct CallForm {
  ToolFormat format = ToolFormat::kGeneric;
  std::vector<Tool> tools;
  bool parallel = true;
  bool takes_untagged = true;   // calls that are written in another way than was shown
  bool holds_untagged = false;  // the grammar holds them to the schemas of strict functions

  const Tool* Find(std::string_view name) const;  // null: it is none of these
};
// Null if none are offered: then nothing in an answer is a call.
std::shared_ptr<const CallForm> CallFormOf(ToolFormat format, const ToolUse& use);

}  // namespace longspec::chat
