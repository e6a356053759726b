// SPDX-License-Identifier: Apache-2.0
#include "chat/tool_form.h"

#include <utility>

#include "base/check.h"
#include "chat/arguments_form.h"
#include "chat/tool_history.h"
#include "chat/untagged_calls.h"
#include "json/json_text.h"

namespace longspec::chat {
namespace {

using Json = nlohmann::ordered_json;

// The last one is any template's.
constexpr const ToolForm* kForms[] = {&kHarmonyForm,     &kTaggedForm, &kHermesForm, &kMistralForm,
                                      &kMistralListForm, &kLlama3Form, &kGenericForm};

}  // namespace

const ToolForm& FormOf(ToolFormat format) {
  for (const ToolForm* form : kForms) {
    if (form->format == format) return *form;
  }
  LS_CHECK(false);
  return kGenericForm;
}

ToolFormat ToolFormatOf(std::string_view chat_template) {
  for (const ToolForm* form : kForms) {
    if (form->is_shown(chat_template)) return form->format;
  }
  return ToolFormat::kGeneric;
}

// Where what stands before the conversation tells of none, the model would not know how one is called.
Json Definitions(const ToolUse& use) {
  Json all = Json::array(), first = Json::array();
  for (const Tool& tool : use.tools) {
    all.push_back(tool.definition);
    if (!tool.is_announced) first.push_back(tool.definition);
  }
  return first.empty() ? all : first;
}

void TellTemplate(const ToolUse& use, GenerationRequest& generation) {
  TellCalls(generation.messages);
  if (!use.offered()) return;
  Json variables = Json::object();
  if (!generation.template_variables.empty()) variables = LoadJson(generation.template_variables);
  variables["tools"] = Definitions(use);
  generation.template_variables = WriteJson(variables);
}

Json JsonCallTag(const std::string& begin, const char* arguments, const std::string& end, const Tool& tool) {
  return {{"begin", begin + "{\"name\": \"" + tool.name + "\", \"" + arguments + "\": "},
          {"content", ArgumentsForm(tool)},
          {"end", "}" + end}};
}

Json TriggeredCalls(std::string_view trigger, Json tags, ToolFormat format, const ToolUse& use) {
  Json triggers = Json::array({trigger});
  const bool holds_untagged = HoldsUntagged(use);
  for (const Tool& tool : use.tools) {
    if (!tool.strict || !holds_untagged) continue;
    for (Json& tag : UntaggedCallTags(format, tool)) {
      triggers.push_back(tag["begin"]);
      tags.push_back(std::move(tag));
    }
  }
  return {{"type", "triggered_tags"},
          {"triggers", std::move(triggers)},
          {"tags", std::move(tags)},
          {"at_least_one", use.choice == ToolChoice::kRequired},
          {"stop_after_first", !use.parallel}};
}

}  // namespace longspec::chat
