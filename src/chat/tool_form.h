// SPDX-License-Identifier: Apache-2.0
//
// All that is known of a form in which models write calls of tools, but for reading them: one record for
// each, in a file of its own. Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "chat/tools.h"
#include "longspec/generation.h"

namespace longspec::chat {

struct ToolForm {
  ToolFormat format;
  // Whether it is what a chat template shows. The first form that says so is it.
  bool (*is_shown)(std::string_view chat_template);
  // Tells the model of the tools, if some are offered, and of calls in earlier messages.
  void (*tell)(const ToolUse& use, GenerationRequest& generation);
  // What an answer with calls may be, as an element of a structural tag of xgrammar.
  nlohmann::ordered_json (*calls)(const ToolUse& use);
  // What a schema asks for and this form is not held to; empty: it is held to all.
  std::string (*rule_not_kept)(const Tool& tool) = [](const Tool&) { return std::string(); };
};

// In the files of their names, mistral_calls.cc having both of Mistral's.
extern const ToolForm kHermesForm, kTaggedForm, kLlama3Form, kMistralListForm, kMistralForm, kHarmonyForm,
    kGenericForm;

const ToolForm& FormOf(ToolFormat format);

// By the chat template's source.
ToolFormat ToolFormatOf(std::string_view chat_template);

// --- What several of them do. ---

// What stands before the conversation: a list of definitions.
nlohmann::ordered_json Definitions(const ToolUse& use);

// For templates that know of tools: the variable `tools`, and calls with values for arguments.
void TellTemplate(const ToolUse& use, GenerationRequest& generation);

// {"name": "f", "arguments": {...}} between two texts, as a tag. `arguments`: the name of that member.
nlohmann::ordered_json JsonCallTag(const std::string& begin, const char* arguments, const std::string& end,
                                   const Tool& tool);

// Text in which `trigger` begins one of the tags, or nothing but these where a call is required.
nlohmann::ordered_json TriggeredCalls(std::string_view trigger, nlohmann::ordered_json tags,
                                      ToolFormat format, const ToolUse& use);

}  // namespace longspec::chat
