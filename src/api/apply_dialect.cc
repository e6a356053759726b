// SPDX-License-Identifier: Apache-2.0
#include "api/apply_dialect.h"

#include <algorithm>
#include <string>
#include <utility>

#include "api/grammar_fields.h"
#include "chat/channels.h"
#include "chat/thinking.h"
#include "chat/tool_form.h"
#include "chat/tool_history.h"
#include "json/json_text.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

std::optional<Error> CheckStrict(const chat::ToolForm& form, const chat::Tool& tool) {
  const std::string rule = tool.strict ? form.rule_not_kept(tool) : "";
  if (rule.empty()) return std::nullopt;
  return Error{.message = "tools: the function " + tool.name +
                          " is strict, but this model's calls cannot be held to " + rule,
               .param = "tools",
               .code = "unsupported_value"};
}

using Kind = GrammarText::Kind;

// Where a model may call or not, its text is free, and so are its thoughts.
bool HoldsFirstWords(const Request& request) {
  return request.grammar_field != "tools" || request.tools.choice == chat::ToolChoice::kRequired;
}

// Makes the form of the answer one of what is said. False: it holds what is thought, too.
template <typename Around>
bool HoldWhatIsSaid(const Around& around, Request* request) {
  GrammarText& grammar = request->generation.grammar;
  if (grammar.kind == Kind::kNone || !HoldsFirstWords(*request)) return true;
  Json said = TagElementOf(grammar);
  if (said.is_null()) return false;
  grammar = {Kind::kStructuralTag,
             WriteJson({{"type", "structural_tag"}, {"format", around(std::move(said))}})};
  return true;
}

bool GoesOn(const GenerationRequest& request) {
  return request.prompt_end == PromptEnd::kContinued && !request.messages.empty();
}

// Nothing: the answer's form holds all of its text, which then has no channels.
std::optional<chat::ChannelForm> ChannelFormOf(Request* request) {
  if (request->endpoint != Endpoint::kChatCompletions) return std::nullopt;
  const ThoughtsPlace place = request->wishes.thoughts;
  const chat::ChannelForm form = {.shown = place != ThoughtsPlace::kNowhere,
                                  .apart = place != ThoughtsPlace::kInContent,
                                  .within = GoesOn(request->generation)};
  if (form.within) return form;
  const bool has_channel = request->grammar_field == "tools" || request->tools.text_has_form;
  const bool thinks = !chat::ForbidThinking(request->generation.template_variables);
  const auto around = [&](Json said) {
    Json message = has_channel ? std::move(said) : chat::InFinal(std::move(said));
    return thinks ? chat::AnalysisThen(std::move(message)) : message;
  };
  return HoldWhatIsSaid(around, request) ? std::optional(form) : std::nullopt;
}

}  // namespace

std::optional<Error> ApplyTools(const chat::Dialect& dialect, Request* request) {
  GenerationRequest& generation = request->generation;
  const chat::ToolUse& use = request->tools;
  if (dialect.thoughts_in_contents) chat::PutThoughtsIntoContents(generation);
  if (!use.offered() && !std::ranges::any_of(generation.messages, chat::IsOfCalls)) return std::nullopt;
  const chat::ToolForm& form = chat::FormOf(dialect.tools);
  form.tell(use, generation);
  if (!use.offered()) return std::nullopt;
  for (const chat::Tool& tool : use.tools) {
    if (auto error = CheckStrict(form, tool)) return error;
  }
  const auto set = [&](const Json& what) {
    const Json tag = {{"type", "structural_tag"}, {"format", what}};
    generation.grammar = {GrammarText::Kind::kStructuralTag, WriteJson(tag)};
  };
  if (request->grammar_field.empty() || use.choice == chat::ToolChoice::kRequired) {
    set(form.calls(use));
    request->grammar_field = "tools";
    return std::nullopt;
  }
  Json said = TagElementOf(generation.grammar);
  if (said.is_null()) {
    return Error{.message = "tools is not supported beside " + request->grammar_field +
                            ": a JSON schema or response_format can be",
                 .param = "tools",
                 .code = "unsupported_value"};
  }
  if (dialect.has_channels()) said = chat::InFinal(std::move(said));
  request->tools.text_has_form = true;
  chat::ToolUse called = request->tools;
  called.choice = chat::ToolChoice::kRequired;
  set({{"type", "or"}, {"elements", {form.calls(called), std::move(said)}}});
  return std::nullopt;
}

std::optional<chat::ThinkingForm> ThinkingFormOf(const std::optional<chat::ThinkingTags>& model,
                                                 std::string_view prompt_end, Request* request) {
  const ThoughtsPlace place = request->wishes.thoughts;
  if (request->endpoint != Endpoint::kChatCompletions || place == ThoughtsPlace::kInContent)
    return std::nullopt;
  if (!model && place != ThoughtsPlace::kApart) return std::nullopt;
  chat::ThinkingForm form = {.tags = model.value_or(chat::kThinkTags),
                             .shown = place != ThoughtsPlace::kNowhere};
  const std::string_view said =
      GoesOn(request->generation) ? request->generation.messages.back().content : std::string_view();
  const chat::ThoughtState thought = chat::ThoughtAt(form.tags, prompt_end, said);
  if (thought == chat::ThoughtState::kOver) return std::nullopt;
  form.begun = thought == chat::ThoughtState::kBegun;
  const auto around = [&](Json what) { return chat::ThoughtThen(form, std::move(what)); };
  if (!HoldWhatIsSaid(around, request)) form.begun = false;
  return form;
}

chat::ReadingForm ReadingFormOf(const chat::Dialect& dialect, std::string_view prompt_end, Request* request) {
  chat::ReadingForm form = {.calls = chat::CallFormOf(dialect.tools, request->tools)};
  if (dialect.has_channels()) {
    form.channels = ChannelFormOf(request);
  } else {
    form.thinking = ThinkingFormOf(dialect.thinking, prompt_end, request);
  }
  return form;
}

}  // namespace longspec::api
