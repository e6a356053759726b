// SPDX-License-Identifier: Apache-2.0
//
// Tools that an answer may call: what a request says of them, how the model is told, and what form its calls
// must have. Each family of models writes calls in its own way, which its chat template shows. Pure
// functions.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longspec/generation.h"
#include "openai/errors.h"

namespace longspec::openai {

class Fields;
struct ApiRequest;

enum class ToolFormat : uint8_t {
  kHermes,  // <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>: Hermes, Qwen 2.5 and 3
  kTagged,  // <tool_call>\n<function=f>\n<parameter=a>\n...\n</parameter>\n</function>\n</tool_call>: Qwen 3
            // Coder and Qwen 3.5
  kLlama3,  // {"name": "f", "parameters": {...}}: Llama 3.1 and 3.2
  kMistralList,  // [TOOL_CALLS][{"name": "f", "arguments": {...}}]: Mistral 7B v0.3 and Nemo
  kMistral,      // [TOOL_CALLS]f[ARGS]{...}: Mistral Small 3.2, Devstral, Magistral
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

// How the calls in an answer are read.
struct CallForm {
  ToolFormat format = ToolFormat::kGeneric;
  std::vector<Tool> tools;
  bool parallel = true;
  bool takes_untagged = true;   // calls that are written in another way than was shown
  bool holds_untagged = false;  // the grammar holds them to the schemas of strict functions
};
// Null if none are offered: then nothing in an answer is a call.
std::shared_ptr<const CallForm> CallFormOf(ToolFormat format, const ToolUse& use);

// A function as every API describes it: name, description, strict, and its arguments' schema under the name
// `schema`.
void ParseFunction(Fields& fields, std::string_view schema, Tool* tool);
// Mistakes are those of the field "tools": too many, or two of one name.
void AddTool(Fields& fields, Tool tool, ToolUse* use);
// It and no other is to be called, once. False: there is none of this name.
bool ChooseTool(std::string_view name, ToolUse* use);

// tools, tool_choice and parallel_tool_calls of a chat.
void ParseTools(Fields& fields, ToolUse* use);
// tool_calls, tool_call_id and name of a message, into Message::more.
void ParseToolMembers(Fields& fields, Message* message);

// By the chat template's source.
ToolFormat ToolFormatOf(std::string_view chat_template);

// Tells the model of the tools and of calls in earlier messages, in its format, and makes the form of calls
// the answer's grammar. Does nothing if there are neither. An answer that the request wants in a form of its
// own calls, or has it; the error: it is a form that cannot stand beside calls.
std::optional<ApiError> ApplyTools(ToolFormat format, ApiRequest* request);

}  // namespace longspec::openai
