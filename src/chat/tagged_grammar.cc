// SPDX-License-Identifier: Apache-2.0
#include "chat/tagged_grammar.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "chat/json_types.h"
#include "chat/tool_form.h"
#include "json/json_text.h"

namespace longspec::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kClosingTag = "</parameter>";
constexpr int kMostChoices = 16;  // within each other: a schema may refer to itself

// What says nothing about a value, or is looked at by itself.
constexpr std::string_view kSilent[] = {
    "type",     "title", "description", "default",  "examples",  "deprecated", "example",
    "nullable", "anyOf", "oneOf",       "allOf",    "$ref",      "$defs",      "definitions",
    "$schema",  "$id",   "$comment",    "readOnly", "writeOnly", "const",      "enum"};
constexpr std::string_view kSilentOfArguments[] = {"properties", "required", "additionalProperties"};

bool HasKey(const Json& object, std::string_view key) { return object.is_object() && object.contains(key); }

Json ConstString(std::string text) { return {{"type", "const_string"}, {"value", std::move(text)}}; }

Json SequenceOf(Json elements) { return {{"type", "sequence"}, {"elements", std::move(elements)}}; }

// Up to the closing tag, which is not part of it.
Json AnyText() { return {{"type", "any_text"}, {"excludes", {kClosingTag}}}; }

// The values that it lists, if it lists any; null: it does not.
Json ListedValues(const Json& schema, const Json& root) {
  const Json& resolved = ResolveReferences(schema, root);
  if (HasKey(resolved, "const")) return Json::array({resolved["const"]});
  return HasKey(resolved, "enum") && resolved["enum"].is_array() ? resolved["enum"] : Json(nullptr);
}

// With the definitions that it may refer to.
Json StandingAlone(const Json& schema, const Json& root) {
  Json alone = schema;
  for (const char* name : {"$defs", "definitions"}) {
    if (alone.is_object() && HasKey(root, name) && !alone.contains(name)) alone[name] = root[name];
  }
  return alone;
}

Json OneOf(const Json& values) {
  Json choices = Json::array();
  for (const Json& value : values)
    choices.push_back(ConstString(value.is_string() ? value.get<std::string>() : WriteJson(value)));
  return {{"type", "or"}, {"elements", std::move(choices)}};
}

Json ValueFormat(const Json& schema, const Tool& tool) {
  const Json& root = tool.parameters;
  if (const Json values = ListedValues(schema, root); values.is_array() && !values.empty())
    return OneOf(values);
  Json format = {{"type", "json_schema"}, {"json_schema", StandingAlone(schema, root)}};
  if (!tool.strict)
    format["otherwise"] = HasKey(schema, "type") ? Json{{"type", schema["type"]}} : Json(true);
  return format;
}

bool IsSilent(std::string_view key) { return std::ranges::count(kSilent, key) > 0; }

// A rule of a value beyond its type; empty: there is none.
std::string RuleOf(const Json& schema, const Json& root, int depth) {
  if (!schema.is_object() || depth == kMostChoices) return {};
  for (const auto& [key, value] : schema.items()) {
    if (!IsSilent(key)) return key;
  }
  const Json& resolved = ResolveReferences(schema, root);
  if (&resolved != &schema) return RuleOf(resolved, root, depth + 1);
  for (const char* choice : {"anyOf", "oneOf", "allOf"}) {
    if (!HasKey(schema, choice) || !schema[choice].is_array()) continue;
    for (const Json& part : schema[choice]) {
      if (std::string rule = RuleOf(part, root, depth + 1); !rule.empty()) return rule;
    }
  }
  return {};
}

// Whether the value is a text, or null, and more is said of it.
bool IsTextWithRules(const Json& schema, const Json& root) {
  const JsonTypes types = TypesOf(schema, root);
  return (types & kStringType) != 0 && (types & ~(kStringType | kNullType)) == 0 &&
         !RuleOf(schema, root, 0).empty();
}

Json ArgumentFormat(const std::string& name, const Json& schema, const Tool& tool) {
  const std::string open = "<parameter=" + name + ">\n";
  const bool is_text = (TypesOf(schema, tool.parameters) & kStringType) != 0 &&
                       !ListedValues(schema, tool.parameters).is_array();
  const auto with = [&](const Json& value) {
    return SequenceOf(
        Json::array({ConstString(open), value, ConstString(std::string("\n") + kClosingTag + "\n")}));
  };
  if (!is_text) return with(ValueFormat(schema, tool));
  // The line break before the closing tag is the model's to write.
  const Json tag = {{"type", "tag"}, {"begin", open}, {"content", AnyText()}, {"end", kClosingTag}};
  const Json any = SequenceOf(Json::array({tag, ConstString("\n")}));
  if (!IsTextWithRules(schema, tool.parameters)) return any;
  const Json text = with(
      {{"type", "text"}, {"json_schema", StandingAlone(schema, tool.parameters)}, {"without", kClosingTag}});
  return tool.strict ? text : Json{{"type", "first_kept"}, {"elements", {text, any}}};
}

// Arguments that the schema does not list.
Json OtherArguments() {
  const Json inner = SequenceOf(
      Json::array({{{"type", "regex"}, {"pattern", "[A-Za-z0-9_.-]+"}}, ConstString(">\n"), AnyText()}));
  const Json tag = {{"type", "tag"}, {"begin", "<parameter="}, {"content", inner}, {"end", kClosingTag}};
  return {{"type", "star"}, {"content", SequenceOf(Json::array({tag, ConstString("\n")}))}};
}

bool AllowsOthers(const Json& parameters) {
  if (const auto others = parameters.find("additionalProperties"); others != parameters.end())
    return *others != false;
  return std::ranges::any_of(
      std::initializer_list<const char*>{"patternProperties", "$ref", "anyOf", "oneOf", "allOf"},
      [&](const char* key) { return parameters.contains(key); });
}

}  // namespace

std::string RuleNotKept(const Tool& tool) {
  const Json& root = tool.parameters;
  for (const auto& [key, value] : root.items()) {
    const bool known = IsSilent(key) || std::ranges::count(kSilentOfArguments, std::string_view(key)) > 0;
    if (!known || key == "anyOf" || key == "oneOf" || key == "allOf" || key == "$ref") return key;
  }
  if (HasKey(root, "additionalProperties") && root["additionalProperties"].is_object())
    return "additionalProperties";
  if (!HasKey(root, "properties")) return {};
  for (const auto& [name, schema] : root["properties"].items()) {
    if ((TypesOf(schema, root) & kStringType) == 0 || ListedValues(schema, root).is_array()) continue;
    if (IsTextWithRules(schema, root)) continue;  // which are held to
    if (std::string rule = RuleOf(schema, root, 0); !rule.empty()) return rule + " of " + name;
  }
  return {};
}

Json TaggedCallTag(const Tool& tool) {
  const Json& parameters = tool.parameters;
  Json elements = Json::array();
  const bool listed = HasKey(parameters, "properties") && parameters["properties"].is_object();
  const Json required = parameters.value("required", Json::array());
  if (listed) {
    for (const auto& [name, schema] : parameters["properties"].items()) {
      Json argument = ArgumentFormat(name, schema, tool);
      const bool is_required = required.is_array() && std::ranges::count(required, Json(name)) > 0;
      if (!is_required) argument = {{"type", "optional"}, {"content", std::move(argument)}};
      elements.push_back(std::move(argument));
    }
  }
  if (AllowsOthers(parameters)) elements.push_back(OtherArguments());
  elements.push_back(ConstString("</function>"));
  return {{"begin", "<tool_call>\n<function=" + tool.name + ">\n"},
          {"content", SequenceOf(std::move(elements))},
          {"end", "\n</tool_call>"}};
}

namespace {

bool ShowsTags(std::string_view source) {
  const auto has = [&](std::string_view text) { return source.find(text) != std::string_view::npos; };
  return has("tools") && has("<tool_call>") && has("<function=");
}

Json TaggedCalls(const ToolUse& use) {
  Json tags = Json::array();
  for (const Tool& tool : use.tools) tags.push_back(TaggedCallTag(tool));
  return TriggeredCalls("<tool_call>", std::move(tags), ToolFormat::kTagged, use);
}

}  // namespace

constinit const ToolForm kTaggedForm = {.format = ToolFormat::kTagged,
                                        .is_shown = ShowsTags,
                                        .tell = TellTemplate,
                                        .calls = TaggedCalls,
                                        .rule_not_kept = RuleNotKept};

}  // namespace longspec::chat
