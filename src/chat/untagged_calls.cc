// SPDX-License-Identifier: Apache-2.0
#include "chat/untagged_calls.h"

#include <algorithm>
#include <string>
#include <utility>

#include "chat/tagged_grammar.h"
#include "json/json_text.h"

namespace longspec::chat {
namespace {

using Json = nlohmann::ordered_json;

std::string LlamaBegin(const std::string& name) { return "{\"name\": \"" + name + "\", \"parameters\": "; }

// On one line or indented, as Python writes an object.
std::vector<std::string> JsonBegins(ToolFormat format, const std::string& name) {
  std::vector<std::string> begins = {"{\n  \"name\": \"" + name + "\",\n  \"arguments\": "};
  // There the first words of this one are those of the model's own form.
  if (format != ToolFormat::kLlama3) begins.push_back("{\"name\": \"" + name + "\", \"arguments\": ");
  return begins;
}

std::string FunctionBegin(const std::string& name) { return "<function=" + name + ">\n"; }

}  // namespace

bool HoldsUntagged(const ToolUse& use) {
  constexpr size_t kMostBytes = size_t{8} << 10;
  size_t bytes = 0;
  for (const Tool& tool : use.tools) bytes += tool.strict ? WriteJson(tool.parameters).size() : 0;
  return use.choice == ToolChoice::kAuto && !use.text_has_form && bytes <= kMostBytes;
}

std::vector<Json> UntaggedCallTags(ToolFormat format, const Tool& tool) {
  std::vector<Json> tags;
  const Json arguments = {{"type", "json_schema"}, {"json_schema", tool.parameters}};
  for (const std::string& begin : JsonBegins(format, tool.name))
    tags.push_back({{"begin", begin}, {"content", arguments}, {"end", {"}", "\n}"}}});
  if (format != ToolFormat::kTagged) return tags;
  Json tagged = TaggedCallTag(tool);
  tagged["begin"] = FunctionBegin(tool.name);
  tagged["end"] = "";
  tags.push_back(std::move(tagged));
  return tags;
}

bool IsHeldBegin(const CallForm& form, const Tool& tool, std::string_view begin) {
  if (form.format == ToolFormat::kLlama3 && begin == LlamaBegin(tool.name)) return true;
  if (!form.holds_untagged) return false;
  if (form.format == ToolFormat::kTagged && begin == FunctionBegin(tool.name)) return true;
  const auto begins = JsonBegins(form.format, tool.name);
  return std::ranges::find(begins, begin) != begins.end();
}

}  // namespace longspec::chat
