// SPDX-License-Identifier: Apache-2.0
#include "openai/thoughts.h"

#include <string>
#include <utility>

#include "openai/answer_form.h"
#include "openai/fields.h"
#include "openai/json.h"
#include "openai/requests.h"

namespace longspec::openai {
namespace {

using Json = nlohmann::ordered_json;
using Kind = GrammarText::Kind;

// Where a model may call or not, its text is free, and so are its thoughts.
bool HoldsFirstWords(const ApiRequest& request) {
  return request.grammar_field != "tools" || request.tools.choice == chat::ToolChoice::kRequired;
}

// Makes the form of the answer one of what is said. False: it holds what is thought, too.
template <typename Around>
bool HoldWhatIsSaid(const Around& around, ApiRequest* request) {
  GrammarText& grammar = request->generation.grammar;
  if (grammar.kind == Kind::kNone || !HoldsFirstWords(*request)) return true;
  Json said = TagElementOf(grammar);
  if (said.is_null()) return false;
  grammar = {Kind::kStructuralTag,
             DumpJson({{"type", "structural_tag"}, {"format", around(std::move(said))}})};
  return true;
}

bool GoesOn(const GenerationRequest& request) {
  return request.prompt_end == PromptEnd::kContinued && !request.messages.empty();
}

// Nothing: the answer's form holds all of its text, which then has no channels.
std::optional<chat::ChannelForm> ChannelFormOf(ApiRequest* request) {
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

std::optional<chat::ThinkingForm> ThinkingFormOf(const std::optional<chat::ThinkingTags>& model,
                                                 std::string_view prompt_end, ApiRequest* request) {
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

chat::ReadingForm ReadingFormOf(const chat::Dialect& dialect, std::string_view prompt_end,
                                ApiRequest* request) {
  chat::ReadingForm form = {.calls = chat::CallFormOf(dialect.tools, request->tools)};
  if (dialect.has_channels()) {
    form.channels = ChannelFormOf(request);
  } else {
    form.thinking = ThinkingFormOf(dialect.thinking, prompt_end, request);
  }
  return form;
}

}  // namespace longspec::openai
