// SPDX-License-Identifier: Apache-2.0
#include "chat/mistral_calls.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>

#include "base/hash.h"
#include "chat/arguments_form.h"
#include "chat/tool_form.h"
#include "json/json_text.h"

namespace longspec::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kIdLength = 9;
constexpr std::string_view kIdLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
constexpr const char* kIdPattern = "[a-zA-Z0-9]{9}";

Json Elements(Json elements) { return {{"type", "sequence"}, {"elements", std::move(elements)}}; }
Json Pattern(const std::string& pattern) { return {{"type", "regex"}, {"pattern", pattern}}; }

// {"name": "f", "arguments": {...}}, which may end with an id.
Json ListedCall(const Tool& tool) {
  const Json id = {{"type", "optional"},
                   {"content", Pattern(", \"id\": \"" + std::string(kIdPattern) + "\"")}};
  return {{"begin", "{\"name\": \"" + tool.name + "\", \"arguments\": "},
          {"content", Elements(Json::array({ArgumentsForm(tool), id}))},
          {"end", "}"}};
}

Json ListTags(const ToolUse& use) {
  Json calls = Json::array();
  for (const Tool& tool : use.tools) calls.push_back(ListedCall(tool));
  const Json list = {{"type", "tags_with_separator"},
                     {"tags", std::move(calls)},
                     {"separator", ", "},
                     {"at_least_one", true},
                     {"stop_after_first", !use.parallel}};
  Json tags = Json::array();
  for (const char* open : {"[", " ["})
    tags.push_back({{"begin", std::string(kMistralCalls) + open}, {"content", list}, {"end", "]"}});
  return tags;
}

Json NamedTags(const ToolUse& use) {
  Json tags = Json::array();
  for (const Tool& tool : use.tools) {
    const std::string begin = std::string(kMistralCalls) + tool.name;
    const Json with_id = Elements(Json::array({Pattern(kIdPattern),
                                               {{"type", "const_string"}, {"value", kMistralArguments}},
                                               ArgumentsForm(tool)}));
    tags.push_back(
        {{"begin", begin + std::string(kMistralArguments)}, {"content", ArgumentsForm(tool)}, {"end", ""}});
    tags.push_back({{"begin", begin + std::string(kMistralId)}, {"content", with_id}, {"end", ""}});
  }
  return tags;
}

std::string ShortId(const std::string& id) {
  const bool is_short = id.size() == kIdLength && std::ranges::all_of(id, [](char c) {
                          return kIdLetters.find(c) != std::string_view::npos;
                        });
  if (is_short) return id;
  uint64_t hash = HashOf(std::as_bytes(std::span(id))).low;
  std::string letters;
  for (size_t i = 0; i < kIdLength; ++i, hash /= kIdLetters.size())
    letters += kIdLetters[hash % kIdLetters.size()];
  return letters;
}

// The text under `name`; empty: there is none.
std::string TextIn(const Json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
}

}  // namespace

void ShortenIds(std::vector<Message>& messages) {
  std::deque<std::string> open;  // of calls without results
  int n_calls = 0;
  const auto shorten_call = [&](Json& call) {
    const std::string id = TextIn(call, "id");
    open.push_back(ShortId(id.empty() ? "call " + std::to_string(n_calls) : id));
    call["id"] = open.back();
    ++n_calls;
  };
  const auto shorten_result = [&](Json& more) {
    std::string id = TextIn(more, "tool_call_id");
    id = !id.empty() ? ShortId(id) : open.empty() ? ShortId("result") : open.front();
    std::erase(open, id);
    more["tool_call_id"] = std::move(id);
  };
  for (Message& message : messages) {
    Json more = message.more.empty() ? Json::object() : LoadJson(message.more);
    if (message.role == "tool") {
      shorten_result(more);
    } else if (more.contains("tool_calls")) {
      for (Json& call : more["tool_calls"]) shorten_call(call);
    } else {
      continue;
    }
    message.more = WriteJson(more);
  }
}

namespace {

bool ShowsMistrals(std::string_view source) {
  return source.find("tools") != std::string_view::npos &&
         source.find(kMistralCalls) != std::string_view::npos;
}

bool ShowsNamed(std::string_view source) {
  return ShowsMistrals(source) && source.find(kMistralArguments) != std::string_view::npos;
}

void TellMistral(const ToolUse& use, GenerationRequest& generation) {
  ShortenIds(generation.messages);
  TellTemplate(use, generation);
}

Json NamedCalls(const ToolUse& use) {
  return TriggeredCalls(kMistralCalls, NamedTags(use), ToolFormat::kMistral, use);
}

Json ListedCalls(const ToolUse& use) {
  ToolUse once = use;
  once.parallel = false;  // one list
  return TriggeredCalls(kMistralCalls, ListTags(use), ToolFormat::kMistralList, once);
}

}  // namespace

constinit const ToolForm kMistralForm = {
    .format = ToolFormat::kMistral, .is_shown = ShowsNamed, .tell = TellMistral, .calls = NamedCalls};
constinit const ToolForm kMistralListForm = {
    .format = ToolFormat::kMistralList, .is_shown = ShowsMistrals, .tell = TellMistral, .calls = ListedCalls};

}  // namespace longspec::chat
