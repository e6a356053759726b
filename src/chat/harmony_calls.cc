// SPDX-License-Identifier: Apache-2.0
//
// Calls as gpt-oss writes them: messages to a function (chat/channels.h). Mostly an answer has one, for it
// ends there.
#include <algorithm>
#include <iterator>
#include <utility>

#include "chat/arguments_form.h"
#include "chat/channels.h"
#include "chat/tool_form.h"
#include "json/json_text.h"

namespace longspec::chat {
namespace {

using Json = nlohmann::ordered_json;

// --- What the model is told. Its template knows messages with one call, which has one result. ---

bool IsResult(const Message& message) { return message.role == "tool"; }

// Moves the result of `call` from `results`, by its id or as the first one, behind `messages`.
void MoveResult(const Json& call, std::vector<Message>& results, std::vector<Message>& messages) {
  const Json id = call.value("id", Json());
  auto result = std::ranges::find_if(results, [&](const Message& message) {
    return !id.is_null() && !message.more.empty() &&
           LoadJson(message.more).value("tool_call_id", Json()) == id;
  });
  if (result == results.end()) result = results.begin();
  if (result == results.end()) return;
  messages.push_back(std::move(*result));
  results.erase(result);
}

// What is thought has another name there, and before a call it is one with what is said.
void NameThought(bool calls, Message& message, Json& more) {
  auto thought = more.find("reasoning_content");
  if (thought == more.end()) thought = more.find("thinking");
  if (thought == more.end() || !thought->is_string()) return;
  const auto text = thought->get<std::string>();
  if (text.empty()) return;
  const bool joins = calls && !message.content.empty();
  more["thinking"] = joins ? text + "\n\n" + message.content : text;
  if (joins) message.content.clear();
}

// Each call of a message as a message with its result.
void OneCallEach(std::vector<Message>& messages) {
  std::vector<Message> told;
  for (size_t i = 0; i < messages.size(); ++i) {
    Message& message = messages[i];
    Json more = message.more.empty() ? Json::object() : LoadJson(message.more);
    const bool calls = more.contains("tool_calls");
    NameThought(calls, message, more);
    if (!calls) {
      if (!more.empty()) message.more = WriteJson(more);
      told.push_back(std::move(message));
      continue;
    }
    size_t end = i + 1;
    while (end < messages.size() && IsResult(messages[end])) ++end;
    std::vector<Message> results(std::move_iterator(messages.begin() + static_cast<std::ptrdiff_t>(i) + 1),
                                 std::move_iterator(messages.begin() + static_cast<std::ptrdiff_t>(end)));
    for (const Json& call : more["tool_calls"]) {
      const bool is_first = &call == &more["tool_calls"].front();
      Json its = is_first ? more : Json::object();
      its["tool_calls"] = Json::array({call});
      told.push_back({.role = message.role,
                      .content = is_first ? message.content : std::string(),
                      .more = WriteJson(its)});
      MoveResult(call, results, told);
    }
    std::ranges::move(results, std::back_inserter(told));
    i = end - 1;
  }
  messages = std::move(told);
}

void TellHarmony(const ToolUse& use, GenerationRequest& generation) {
  OneCallEach(generation.messages);
  ToolUse described = use;
  for (Tool& tool : described.tools) {
    // The template adds it to a text.
    Json& function = tool.definition["function"];
    if (!function.contains("description")) function["description"] = "";
  }
  TellTemplate(described, generation);
}

// --- What form calls have. ---

// What may stand between the function's name and the arguments. The first is what the model was trained to
// write before the channel is named.
constexpr const char* kRestOfHeader =
    "(<\\|channel\\|>(commentary|analysis))?( ?(<\\|constrain\\|>)?[a-z]+)?<\\|message\\|>";

Json CallMessage(std::string begin, const Tool& tool) {
  const Json rest = {{"type", "regex"}, {"pattern", kRestOfHeader}};
  return {{"type", "tag"},
          {"begin", std::move(begin) + tool.name},
          {"content", {{"type", "sequence"}, {"elements", {rest, ArgumentsForm(tool)}}}},
          {"end", ""}};
}

Json HarmonyCalls(const ToolUse& use) {
  const std::string in_commentary =
      std::string(kChannelMark) + std::string(kCommentary) + " to=" + std::string(kFunctions);
  const std::string to_function = std::string(kStartMark) + "assistant to=" + std::string(kFunctions);
  Json tags = Json::array();
  if (use.choice == ToolChoice::kRequired) {
    for (const Tool& tool : use.tools) tags.push_back(CallMessage(in_commentary, tool));
    return {{"type", "or"}, {"elements", std::move(tags)}};
  }
  for (const Tool& tool : use.tools) {
    for (const std::string& begin : {in_commentary, to_function}) {
      Json tag = CallMessage(begin, tool);
      tag.erase("type");
      tags.push_back(std::move(tag));
    }
  }
  return {{"type", "triggered_tags"},
          {"triggers", {in_commentary, to_function}},
          {"tags", std::move(tags)},
          {"at_least_one", false},
          {"stop_after_first", !use.parallel}};
}

}  // namespace

constinit const ToolForm kHarmonyForm = {
    .format = ToolFormat::kHarmony, .is_shown = ShowsChannels, .tell = TellHarmony, .calls = HarmonyCalls};

}  // namespace longspec::chat
