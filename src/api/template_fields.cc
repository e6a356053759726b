// SPDX-License-Identifier: Apache-2.0
#include "api/template_fields.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "api/fields.h"
#include "json/json_text.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

// Variables that have fields of their own.
constexpr std::string_view kNoVariables[] = {"messages",  "tools",         "bos_token",
                                             "eos_token", "chat_template", "tokenize"};
// Those that say how the prompt ends.
constexpr const char* kOfTheEnd[] = {"add_generation_prompt", "continue_final_message"};

void RefuseOthersVariables(Fields& kwargs) {
  for (const std::string_view name : kNoVariables) {
    if (kwargs.Find(name) != nullptr)
      kwargs.Fail(name, "is no variable of the request's: it has a field of its own", "unsupported_value");
  }
}

// What a request says of the prompt's end; nothing: it does not.
struct EndWishes {
  std::optional<bool> add_generation_prompt, continue_final_message;
};

std::optional<bool> OptionalBool(Fields& fields, std::string_view name) {
  bool value = false;
  return fields.Bool(name, &value) ? std::optional(value) : std::nullopt;
}

// llama.cpp also says which part of the message is open.
std::optional<bool> ContinueFinalMessage(Fields& fields) {
  const Json* value = fields.Find("continue_final_message");
  if (value != nullptr && value->is_string()) {
    if (*value == "content") return true;
    fields.Fail("continue_final_message",
                "must be true, false or \"content\": only contents are gone on with", "unsupported_value");
  }
  return OptionalBool(fields, "continue_final_message");
}

Json ParseVariables(Fields& fields, EndWishes* wishes) {
  const Json* given = fields.Find("chat_template_kwargs");
  if (given == nullptr) return Json::object();
  Fields kwargs(*given, "chat_template_kwargs");
  RefuseOthersVariables(kwargs);
  if (!wishes->add_generation_prompt)
    wishes->add_generation_prompt = OptionalBool(kwargs, "add_generation_prompt");
  if (!wishes->continue_final_message) wishes->continue_final_message = ContinueFinalMessage(kwargs);
  if (kwargs.error()) {
    fields.Fail(*kwargs.error());
    return Json::object();
  }
  Json variables = *given;
  for (const char* name : kOfTheEnd) variables.erase(name);
  return variables;
}

// {"effort", "enabled"}: the two in one object, as routers of models have it.
void ParseReasoningWish(Fields& fields, ThinkingWish* wish) {
  const Json* value = fields.Find("reasoning");
  if (value == nullptr) return;
  Fields reasoning(*value, "reasoning");
  if (std::string effort; reasoning.Text("effort", &effort)) wish->effort = effort;
  wish->thinks = OptionalBool(reasoning, "enabled");
  if (reasoning.error()) fields.Fail(*reasoning.error());
}

// What a request says of thinking, beside its variables.
ThinkingWish ParseThinkingWish(Fields& fields, const Json& variables) {
  ThinkingWish wish;
  fields.Text("reasoning_effort", &wish.effort);
  ParseReasoningWish(fields, &wish);
  if (variables.contains("reasoning_effort")) wish.effort.clear();
  // A limit of none. Others are refused by their names.
  for (const char* name : {"thinking_token_budget", "thinking_budget_tokens", "thinking_budget",
                           "reasoning_budget_tokens", "reasoning_budget"}) {
    const Json* budget = fields.Find(name);
    if (budget != nullptr && WholeNumber(*budget) == 0) wish.thinks = false;
  }
  if (const auto thinks = ParseThinking(fields)) wish.thinks = thinks;
  if (const auto thinks = OptionalBool(fields, "enable_thinking")) wish.thinks = thinks;
  return wish;
}

void AddWish(const ThinkingWish& wish, Json* variables) {
  if (!wish.effort.empty()) (*variables)["reasoning_effort"] = wish.effort;
  if (wish.effort == "none" && !variables->contains("enable_thinking"))
    (*variables)["enable_thinking"] = false;
  if (wish.thinks) (*variables)["enable_thinking"] = *wish.thinks;
  if (!wish.remembers) return;
  // As llama.cpp tells templates.
  (*variables)["preserve_thinking"] = *wish.remembers;
  for (const char* name : {"clear_thinking", "truncate_history_thinking", "drop_thinking"})
    (*variables)[name] = !*wish.remembers;
}

Json VariablesOf(const std::string& text) { return text.empty() ? Json::object() : LoadJson(text); }

bool IsOpen(const Message& message) {
  if (message.role != "assistant") return false;
  return message.more.empty() || !LoadJson(message.more).contains("tool_calls");
}

void ParseEnd(Fields& fields, const EndWishes& wishes, GenerationRequest* request) {
  const Message& last = request->messages.back();
  const bool said = wishes.add_generation_prompt || wishes.continue_final_message;
  const bool goes_on = said ? wishes.continue_final_message.value_or(false) : IsOpen(last);
  if (goes_on && wishes.add_generation_prompt.value_or(false)) {
    return fields.Fail("continue_final_message",
                       "and add_generation_prompt cannot both be true: either the last message goes on or a "
                       "new one begins",
                       "invalid_value");
  }
  if (goes_on && last.role == "assistant" && !IsOpen(last)) {
    return fields.Fail("continue_final_message", "must be false where the last message has tool_calls",
                       "invalid_value");
  }
  request->prompt_end = goes_on                                       ? PromptEnd::kContinued
                        : wishes.add_generation_prompt.value_or(true) ? PromptEnd::kNewTurn
                                                                      : PromptEnd::kClosed;
}

}  // namespace

std::optional<bool> ParseThinking(Fields& fields) {
  const Json* value = fields.Find("thinking");
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  Fields thinking(*value, fields.PlaceOf("thinking"));
  std::string type;
  if (!thinking.Text("type", &type)) thinking.Missing("type");
  if (!thinking.error() && type != "enabled" && type != "adaptive" && type != "auto" && type != "disabled")
    thinking.Fail("type", "must be enabled, adaptive or disabled", "invalid_value");
  if (thinking.error()) fields.Fail(*thinking.error());
  return type != "disabled";
}

void ParseTemplateFields(Fields& fields, GenerationRequest* request) {
  EndWishes wishes = {.add_generation_prompt = OptionalBool(fields, "add_generation_prompt"),
                      .continue_final_message = ContinueFinalMessage(fields)};
  Json variables = ParseVariables(fields, &wishes);
  AddWish(ParseThinkingWish(fields, variables), &variables);
  if (const Json* documents = fields.Find("documents"); documents != nullptr) {
    if (!documents->is_array()) fields.Fail("documents", "must be a list of objects", "invalid_type");
    variables["documents"] = *documents;
  }
  if (fields.error()) return;
  ParseEnd(fields, wishes, request);
  if (variables.empty()) return;
  Json all = VariablesOf(request->template_variables);
  all.update(variables);
  request->template_variables = WriteJson(all);
}

std::string WithThinking(std::string variables, const ThinkingWish& wish) {
  Json all = VariablesOf(variables);
  AddWish(wish, &all);
  return all.empty() ? std::string() : WriteJson(all);
}

Result<std::string> ReadTemplateVariables(std::string_view text) {
  const auto parsed = ParseJson(text);
  if (const auto* error = std::get_if<Error>(&parsed)) return InvalidArgument(error->message);
  const Json& variables = std::get<Json>(parsed);
  Fields kwargs(variables, "");
  if (!kwargs.error()) RefuseOthersVariables(kwargs);
  for (const char* name : kOfTheEnd) {
    if (!kwargs.error() && kwargs.Find(name) != nullptr)
      kwargs.Fail(name, "is for a request to say: it has a field of this name", "unsupported_value");
  }
  if (kwargs.error()) return InvalidArgument(kwargs.error()->message);
  return variables.empty() ? std::string() : WriteJson(variables);
}

std::optional<ThoughtsPlace> ThoughtsPlaceOf(std::string_view format) {
  if (format == "auto") return ThoughtsPlace::kAuto;
  if (format == "none") return ThoughtsPlace::kInContent;
  if (format == "deepseek") return ThoughtsPlace::kApart;
  return std::nullopt;
}

ThoughtsPlace ParseThoughtsPlace(Fields& fields, ThoughtsPlace otherwise) {
  ThoughtsPlace place = otherwise;
  std::string format;
  const bool has_format = fields.Text("reasoning_format", &format);
  if (has_format && !ThoughtsPlaceOf(format))
    fields.Fail("reasoning_format", "must be auto, none or deepseek", "invalid_value");
  if (has_format) place = ThoughtsPlaceOf(format).value_or(otherwise);
  bool apart = true, included = true;
  const bool says_apart = fields.Bool("separate_reasoning", &apart);
  fields.Bool("include_reasoning", &included);
  if (const Json* reasoning = fields.Find("reasoning"); reasoning != nullptr && reasoning->is_object())
    included = included && reasoning->value("exclude", Json()) != true;
  if (!apart) place = ThoughtsPlace::kInContent;
  if (says_apart && apart && !has_format && place == ThoughtsPlace::kInContent) place = ThoughtsPlace::kAuto;
  return included ? place : ThoughtsPlace::kNowhere;
}

}  // namespace longspec::api
