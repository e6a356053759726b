// SPDX-License-Identifier: Apache-2.0
#include "grammar/json_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "base/percent_decoding.h"
#include "base/status_macros.h"
#include "json/json_text.h"
#include "pattern/formats.h"
#include "pattern/string_rules.h"

namespace longspec {
namespace {

using Json = nlohmann::ordered_json;

struct TooDeep {};

// Rules that nothing here keeps to.
constexpr std::string_view kRefused[] = {"not",
                                         "if",
                                         "then",
                                         "else",
                                         "dependentRequired",
                                         "dependentSchemas",
                                         "dependencies",
                                         "contains",
                                         "minContains",
                                         "maxContains",
                                         "$dynamicRef",
                                         "$recursiveRef",
                                         "unevaluatedItems",
                                         "unevaluatedProperties",
                                         "disallow",
                                         "extends",
                                         "divisibleBy"};

// Of strings that several schemas are about: the further patterns that they must match.
constexpr std::string_view kMorePatterns = "(patterns)";

// Rules by the type they speak of.
struct TypeRules {
  std::string_view type;
  std::array<std::string_view, 10> keywords;
};
constexpr TypeRules kRules[] = {
    {"object",
     {"properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties",
      "maxProperties"}},
    {"array", {"items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"}},
    {"string", {"minLength", "maxLength", "pattern", "format", kMorePatterns}},
    {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
};
constexpr int kMostSchemasWithin = 128;  // reading one takes about 3 KiB of stack
constexpr size_t kLongPlace = 1000, kBytesOfAValue = 64;
constexpr std::string_view kDefinitions = "#/$defs/";
constexpr std::string_view kChoices[] = {"anyOf", "oneOf", "allOf"};

// Formats that nobody knows are notes, which say nothing of the type either: "int32" is one of numbers.
bool IsFormatNote(const Json& format) {
  if (!format.is_string()) return false;
  const auto& name = format.get_ref<const std::string&>();
  return !KnownFormat(name) && !IsUnsupportedFormat(name);
}

bool Has(const Json& object, std::string_view key) { return object.find(key) != object.end(); }

bool IsTypeOf(const Json& value, std::string_view type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (type == "number") return NumberOf(value).has_value();
  return value.is_number_integer() || IsLongInteger(value) ||
         (value.is_number() && std::trunc(value.get<double>()) == value.get<double>());
}

struct Definition {
  std::string name;
  Json schema;
};

class Normaliser {
 public:
  explicit Normaliser(Json root) : root_(std::move(root)) {}

  Result<std::string> Run() {
    LS_ASSIGN(Json schema, Schema(root_, "#", 0));
    // Definitions may name further ones.
    while (!pending_.empty()) {
      const std::string pointer = pending_.back();
      pending_.pop_back();
      LS_ASSIGN(const Json* const target, Target(pointer, "#"));
      LS_ASSIGN(Json definition, Schema(*target, pointer, 0));
      definitions_.push_back({names_.at(pointer), std::move(definition)});
    }
    LS_TRY(KeepFinite(schema));
    if (!definitions_.empty()) {
      if (schema.is_boolean()) schema = Json::object();
      Json::object_t all;
      all.reserve(definitions_.size());
      // Names are all different: nothing has to look for one.
      using Members = std::vector<Json::object_t::value_type>;
      for (Definition& d : definitions_) static_cast<Members&>(all).emplace_back(d.name, std::move(d.schema));
      schema["$defs"] = std::move(all);
    }
    return WriteJson(schema);
  }

 private:
  static Status Wrong(const std::string& place, const std::string& what) {
    return InvalidArgument("JSON schema: " + place + ": " + what);
  }
  static Status CannotKeep(const std::string& place, const std::string& what) {
    return Unsupported("JSON schema: " + place + ": " + what);
  }
  // Places are for people: those within long names are not told apart further.
  static std::string Below(const std::string& place, std::string_view key) {
    if (place.size() > kLongPlace) return place;
    std::string escaped;
    for (const char c : key) escaped += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
    return place + "/" + escaped;
  }
  static std::string Below(const std::string& place, std::string_view key, size_t index) {
    return Below(place, key) + "/" + std::to_string(index);
  }

  Status Count(const std::string& place, size_t n = 1) {
    n_parts_ += n;
    if (n_parts_ <= static_cast<size_t>(kMostSchemaParts)) return {};
    return ResourceExhausted("JSON schema: " + place + ": more than " + std::to_string(kMostSchemaParts) +
                             " schemas and values");
  }

  // Values that are written more than once, and take memory each time.
  Status CountCopies(const std::string& place, const Json& copied) {
    n_copies_ += NumValues(copied);
    if (n_copies_ <= kMostSchemaCopies) return {};
    return ResourceExhausted("JSON schema: " + place +
                             ": with rules beside references, allOf, anyOf and oneOf written into these " +
                             "there are more than " + std::to_string(kMostSchemaCopies) + " values");
  }

  // Long texts count as several.
  static size_t NumValues(const Json& json) {
    const auto of_text = [](const std::string& text) { return text.size() / kBytesOfAValue; };
    size_t n = 1;
    if (json.is_string()) n += of_text(json.get_ref<const std::string&>());
    if (json.is_array()) {
      for (const Json& value : json) n += NumValues(value);
    }
    if (json.is_object()) {
      for (const auto& [key, value] : json.get_ref<const Json::object_t&>())
        n += of_text(key) + NumValues(value);
    }
    return n;
  }

  Result<Json> Schema(const Json& given, const std::string& place, int merges) {
    if (n_within_ == kMostSchemasWithin) {
      return ResourceExhausted("JSON schema: " + place +
                               ": with what its references stand for it has more than " +
                               std::to_string(kMostSchemasWithin) + " schemas within each other");
    }
    ++n_within_;
    auto normal = IsMerged(given) ? Merged(given, place, merges) : Unmerged(given, place, merges);
    --n_within_;
    return normal;
  }

  // Whether it is written as one schema with others that it names or lists.
  static bool IsMerged(const Json& given) {
    if (!given.is_object()) return false;
    if (Has(given, "allOf")) return true;
    if (!Has(given, "$ref") && !Has(given, "anyOf") && !Has(given, "oneOf")) return false;
    const auto& members = given.get_ref<const Json::object_t&>();
    return std::ranges::count_if(members, [](const auto& member) { return IsRule(member.first); }) > 1;
  }

  // {"$ref": r, "type": t} within what r says: the same again, without end, if it did not get a name.
  Result<Json> Merged(const Json& given, const std::string& place, int merges) {
    const Json rules = Rules(given);
    LS_TRY(CountCopies(place, rules));
    const auto [at, is_first] = merging_.emplace(WriteJson(rules), "");
    if (!is_first) {
      if (at->second.empty()) at->second = NewName();
      return ReferenceTo(at->second);
    }
    LS_ASSIGN(Json normal, Unmerged(given, place, merges));
    const std::string name = at->second;
    merging_.erase(at);
    if (name.empty()) return normal;
    definitions_.push_back({name, std::move(normal)});
    return ReferenceTo(name);
  }

  std::string NewName() { return "d" + std::to_string(n_names_++); }
  static Json ReferenceTo(const std::string& name) {
    return Json{{"$ref", std::string(kDefinitions) + name}};
  }

  Result<Json> Unmerged(const Json& given, const std::string& place, int merges) {
    LS_TRY(Count(place));
    if (given.is_boolean()) {
      if (!given.get<bool>()) return Wrong(place, "the schema false allows no answer");
      return Json(true);
    }
    if (!given.is_object()) return Wrong(place, "a schema is an object, true or false");
    for (const std::string_view keyword : kRefused) {
      if (Has(given, keyword)) return CannotKeep(place, std::string(keyword) + " is not supported");
    }
    LS_ASSIGN(const Json whole, Joined(given, place, merges));
    if (whole.is_boolean()) return whole;
    if (Has(whole, "$ref")) return Reference(whole, place);
    for (const std::string_view choice : {"anyOf", "oneOf"}) {
      if (Has(whole, choice)) return Choice(whole, choice, place, merges);
    }
    if (Has(whole, "const") || Has(whole, "enum")) return Values(whole, place);
    return Typed(whole, place);
  }

  // --- What one schema says in several places. ---

  // The schema without allOf. A schema that has rules beside a reference or a choice has them in each of
  // these.
  Result<Json> Joined(const Json& given, const std::string& place, int merges) {
    if (merges > kMostSchemaNesting) return Wrong(place, "it refers to itself without end");
    Json whole = Rules(given);
    if (!Has(whole, "allOf")) return WithoutSiblings(std::move(whole), place, merges);
    const Json parts = whole["allOf"];
    whole.erase("allOf");
    if (!parts.is_array() || parts.empty()) return Wrong(Below(place, "allOf"), "must be a list of schemas");
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string here = Below(place, "allOf", i);
      LS_TRY(Count(here));
      LS_ASSIGN(Json part, Followed(parts[i], here, parts.size() > 1 || !whole.empty(), merges));
      LS_TRY(CountCopies(here, part));
      LS_ASSIGN(whole, Merge(std::move(whole), part, here));
    }
    return WithoutSiblings(std::move(whole), place, merges);
  }

  // A part to merge; what it refers to in its place, if it is not alone.
  Result<Json> Followed(const Json& part, const std::string& place, bool follow, int merges) {
    if (part.is_boolean()) {
      if (!part.get<bool>()) return Wrong(place, "the schema false allows no answer");
      return Json::object();
    }
    if (!part.is_object()) return Wrong(place, "a schema is an object, true or false");
    for (const std::string_view keyword : kRefused) {
      if (Has(part, keyword)) return CannotKeep(place, std::string(keyword) + " is not supported");
    }
    if (!follow || !Has(part, "$ref")) return Joined(part, place, merges + 1);
    LS_ASSIGN(const std::string pointer, Pointer(part, place));
    LS_ASSIGN(const Json* const target, Target(pointer, place));
    if (!target->is_object()) return Followed(*target, pointer, false, merges + 1);
    LS_TRY(CountCopies(place, *target));
    LS_ASSIGN(Json own, Joined(*target, pointer, merges + 1));
    if (Has(own, "$ref")) return Followed(own, place, true, merges + 1);
    Json rest = Rules(part);
    rest.erase("$ref");
    return Merge(std::move(own), rest, place);
  }

  // {"type": ..., "anyOf": [a, b]} is {"anyOf": [a and type, b and type]}, and {"$ref": r, "type": ...} what
  // r says and the type.
  Result<Json> WithoutSiblings(Json whole, const std::string& place, int merges) {
    if (whole.size() < 2) return whole;
    if (Has(whole, "$ref")) {
      LS_ASSIGN(Json followed, Followed(whole, place, true, merges));
      return WithoutSiblings(std::move(followed), place, merges + 1);
    }
    for (const std::string_view choice : {"anyOf", "oneOf"}) {
      const auto at = whole.find(choice);
      if (at == whole.end()) continue;
      const Json options = *at;
      if (!options.is_array()) return Wrong(Below(place, choice), "must be a list of schemas");
      Json base = whole;
      base.erase(std::string(choice));
      Json joined = Json::array();
      for (size_t i = 0; i < options.size(); ++i) {
        const std::string here = Below(place, choice, i);
        LS_TRY(Count(here, base.size()));
        LS_TRY(CountCopies(here, base));
        LS_ASSIGN(const Json option, Followed(options[i], here, true, merges));
        LS_ASSIGN(Json both, Merge(base, option, here));
        joined.push_back(std::move(both));
      }
      return Json{{choice, std::move(joined)}};
    }
    return whole;
  }

  // The rules alone: no titles, defaults, definitions and other notes.
  static Json Rules(const Json& given) {
    Json rules = Json::object();
    for (const auto& [key, value] : given.items()) {
      if (!IsRule(key)) continue;
      const bool is_bound = IsLongInteger(value) && key != "const";
      rules[key] = is_bound ? Json(*NumberOf(value)) : value;
    }
    return rules;
  }
  static bool IsRule(const std::string& key) {
    if (key == "type" || key == "enum" || key == "const" || key == "$ref") return true;
    if (std::ranges::find(kChoices, key) != std::end(kChoices)) return true;
    return std::ranges::any_of(kRules, [&](const TypeRules& of_type) {
      return std::ranges::find(of_type.keywords, key) != of_type.keywords.end();
    });
  }

  // What `closing` says of all names and items but its own, written into those that `listing` alone lists.
  static Status HoldOthers(const Json& closing, Json& listing, const std::string& place) {
    const bool lists_items = Has(listing, "prefixItems") && listing.at("prefixItems").is_array();
    if (lists_items && Has(closing, "items") && !Has(closing, "prefixItems"))
      return CannotKeep(place, "items beside prefixItems of another schema is not supported");
    const auto others = closing.find("additionalProperties");
    if (others == closing.end() || *others == true || !Has(listing, "properties")) return {};
    Json& properties = listing["properties"];
    if (!properties.is_object()) return {};  // a mistake, which is told of later
    Json held = Json::object();
    for (const auto& [name, property] : properties.items()) {
      if (Has(closing, "properties") && Has(closing.at("properties"), name)) {
        held[name] = property;
      } else if (Has(closing, "patternProperties")) {
        return CannotKeep(place, "properties beside patternProperties of another schema is not supported");
      } else if (*others != false) {
        held[name] = Json{{"allOf", {property, *others}}};
      }
    }
    properties = std::move(held);
    return {};
  }

  // Of items, or of names that are not listed.
  static Json BothOf(const Json& a, const Json& b) {
    if (a == false || b == false) return false;
    if (a == true) return b;
    return b == true ? a : Json{{"allOf", {a, b}}};
  }

  // What both say.
  static Result<Json> Merge(Json a, Json b, const std::string& place) {
    const Json given = a;
    LS_TRY(HoldOthers(b, a, place));
    LS_TRY(HoldOthers(given, b, place));
    for (const auto& [key, value] : b.items()) {
      const auto at = a.find(key);
      if (at == a.end()) {
        a[key] = value;
        continue;
      }
      if (*at == value) continue;
      if (key == "properties" && at->is_object() && value.is_object()) {
        for (const auto& [name, property] : value.items()) {
          const auto known = at->find(name);
          if (known == at->end()) {
            (*at)[name] = property;
          } else if (*known != property) {
            *known = Json{{"allOf", {*known, property}}};
          }
        }
      } else if (key == "required" && at->is_array() && value.is_array()) {
        for (const Json& name : value) {
          if (std::find(at->begin(), at->end(), name) == at->end()) at->push_back(name);
        }
      } else if (key == "type") {
        LS_ASSIGN(*at, CommonTypes(*at, value, place));
      } else if (key == "enum" && at->is_array() && value.is_array()) {
        Json common = Json::array();
        for (const Json& one : *at) {
          if (std::find(value.begin(), value.end(), one) != value.end()) common.push_back(one);
        }
        if (common.empty()) return Wrong(place, "no value is in both lists of enum");
        *at = std::move(common);
      } else if (at->is_number() && value.is_number() && key.starts_with("min")) {
        if (value.get<double>() > at->get<double>()) *at = value;
      } else if (at->is_number() && value.is_number() && key.starts_with("max")) {
        if (value.get<double>() < at->get<double>()) *at = value;
      } else if (key == "additionalProperties" || (key == "items" && !at->is_array() && !value.is_array())) {
        *at = BothOf(*at, value);
      } else if (key == "pattern" && at->is_string() && value.is_string()) {
        Json& more = a[std::string(kMorePatterns)];
        if (!more.is_null() && !more.is_array()) return Wrong(Below(place, kMorePatterns), "must be a list");
        more.push_back(value);
      } else if (key == kMorePatterns && at->is_array() && value.is_array()) {
        at->insert(at->end(), value.begin(), value.end());
      } else {
        return CannotKeep(place, "two different rules of " + key + " for one value are not supported");
      }
    }
    return a;
  }

  static Result<Json> CommonTypes(const Json& a, const Json& b, const std::string& place) {
    const auto list = [](const Json& types) { return types.is_array() ? types : Json::array({types}); };
    Json common = Json::array();
    for (const Json& x : list(a)) {
      for (const Json& y : list(b)) {
        if (x == y || (x == "integer" && y == "number")) common.push_back(x);
        if (x == "number" && y == "integer") common.push_back(y);
      }
    }
    if (common.empty()) return Wrong(place, "no type is allowed by both " + a.dump() + " and " + b.dump());
    return common.size() == 1 ? common.front() : common;
  }

  // --- References. ---

  static Result<std::string> Pointer(const Json& schema, const std::string& place) {
    const Json& reference = schema.at("$ref");
    if (!reference.is_string()) return Wrong(Below(place, "$ref"), "must be a text");
    const auto& pointer = reference.get_ref<const std::string&>();
    if (pointer == "#" || pointer.starts_with("#/")) return pointer;
    return CannotKeep(Below(place, "$ref"),
                      "only references within the schema are followed, such as #/$defs/a");
  }

  Result<const Json*> Target(const std::string& pointer, const std::string& place) const {
    try {
      return &root_.at(nlohmann::json_pointer<std::string>(PercentDecoded(pointer.substr(1))));
    } catch (const Json::exception&) {
    }
    return Wrong(place, "the reference " + pointer.substr(0, 100) + " names nothing in the schema");
  }

  Result<Json> Reference(const Json& schema, const std::string& place) {
    LS_ASSIGN(const std::string pointer, Pointer(schema, place));
    auto known = names_.find(pointer);
    if (known == names_.end()) {
      LS_TRY(Target(pointer, place).status());
      known = names_.emplace(pointer, NewName()).first;
      pending_.push_back(pointer);
    }
    return ReferenceTo(known->second);
  }

  // --- Schemas that no finite value satisfies: {"required": ["a"], "properties": {"a": {"$ref": "#"}}}. ---

  bool IsFinite(const Json& schema) const {
    if (!schema.is_object()) return true;
    if (const auto at = schema.find("$ref"); at != schema.end())
      return finite_.contains(at->get<std::string>().substr(kDefinitions.size()));
    for (const std::string_view choice : {"anyOf", "oneOf"}) {
      if (const auto at = schema.find(choice); at != schema.end())
        return std::ranges::any_of(*at, [&](const Json& option) { return IsFinite(option); });
    }
    if (const auto at = schema.find("required"); at != schema.end()) {
      for (const Json& name : *at) {
        if (!IsFinite(schema.at("properties").at(name.get<std::string>()))) return false;
      }
    }
    if (const auto at = schema.find("prefixItems"); at != schema.end()) {
      if (!std::ranges::all_of(*at, [&](const Json& item) { return IsFinite(item); })) return false;
    }
    const auto least = schema.find("minItems");
    const bool needs_items = least != schema.end() && least->get<size_t>() > NumPrefixItems(schema);
    return !needs_items || IsFinite(schema.at("items"));
  }

  static size_t NumPrefixItems(const Json& schema) {
    const auto at = schema.find("prefixItems");
    return at == schema.end() ? 0 : at->size();
  }

  // Leaves out what could be begun but not ended.
  void DropEndless(Json& schema) const {
    if (!schema.is_object()) return;
    for (const char* choice : {"anyOf", "oneOf"}) {
      if (!Has(schema, choice)) continue;
      Json kept = Json::array();
      for (Json& option : schema[choice]) {
        DropEndless(option);
        if (IsFinite(option)) kept.push_back(option);
      }
      schema[choice] = std::move(kept);
    }
    if (Has(schema, "properties")) {
      Json kept = Json::object();
      for (const auto& [name, property] : schema["properties"].items()) {
        DropEndless(property);
        if (IsFinite(property)) kept[name] = property;
      }
      if (kept.empty()) {
        schema.erase("properties");
        if (!Has(schema, "additionalProperties")) schema["additionalProperties"] = false;
      } else {
        schema["properties"] = std::move(kept);
      }
    }
    if (Has(schema, "prefixItems")) {
      for (Json& item : schema["prefixItems"]) DropEndless(item);
    }
    for (const char* key : {"items", "additionalProperties"}) {
      if (!Has(schema, key)) continue;
      DropEndless(schema[key]);
      if (!IsFinite(schema[key])) schema[key] = false;
    }
  }

  // Adds `user` to those of each definition that the schema refers to.
  static void FindUsers(const Json& schema, size_t user, std::map<std::string, std::vector<size_t>>& users) {
    if (!schema.is_structured()) return;
    if (Has(schema, "$ref") && schema["$ref"].is_string())
      users[schema["$ref"].get<std::string>()].push_back(user);
    for (const Json& part : schema) FindUsers(part, user, users);
  }

  Status KeepFinite(Json& schema) {
    // One that turns out to be finite may make those finite that refer to it, and no others.
    std::map<std::string, std::vector<size_t>> users;
    std::vector<size_t> open;
    for (size_t i = 0; i < definitions_.size(); ++i) {
      FindUsers(definitions_[i].schema, i, users);
      open.push_back(i);
    }
    while (!open.empty()) {
      const Definition& definition = definitions_[open.back()];
      open.pop_back();
      if (finite_.contains(definition.name) || !IsFinite(definition.schema)) continue;
      finite_.insert(definition.name);
      const auto of_it = users.find(std::string(kDefinitions) + definition.name);
      if (of_it != users.end()) open.insert(open.end(), of_it->second.begin(), of_it->second.end());
    }
    if (!IsFinite(schema)) return Wrong("#", "it refers to itself without end: no answer could satisfy it");
    DropEndless(schema);
    std::erase_if(definitions_, [&](const Definition& d) { return !finite_.contains(d.name); });
    for (Definition& definition : definitions_) DropEndless(definition.schema);
    return {};
  }

  // --- Values. ---

  Result<Json> Choice(const Json& schema, std::string_view choice, const std::string& place, int merges) {
    const Json& options = schema.at(std::string(choice));
    if (!options.is_array() || options.empty())
      return Wrong(Below(place, choice), "must be a list of schemas");
    Json normal = Json::array();
    for (size_t i = 0; i < options.size(); ++i) {
      LS_ASSIGN(Json option, Schema(options[i], Below(place, choice, i), merges + 1));
      normal.push_back(std::move(option));
    }
    if (normal.size() == 1) return normal.front();
    return Json{{choice, std::move(normal)}};
  }

  // Values that are listed, those of the type.
  Result<Json> Values(const Json& schema, const std::string& place) {
    Json values = Has(schema, "const") ? Json::array({schema.at("const")}) : schema.at("enum");
    if (!values.is_array() || values.empty()) return Wrong(Below(place, "enum"), "must be a list of values");
    LS_TRY(Count(place, values.size()));
    LS_TRY(KeepStrings(schema, place, values));
    for (const auto& [key, rule] : schema.items()) {
      if (IsStringRule(key)) continue;
      if (key == "const" || key == "enum") {
        if (key == "enum" && Has(schema, "const") &&
            std::find(rule.begin(), rule.end(), values[0]) == rule.end())
          return Wrong(place, "const is not in the list of enum");
      } else if (key == "type") {
        LS_ASSIGN(const std::vector<std::string> types, Types(schema, place));
        Json fitting = Json::array();
        for (const Json& value : values) {
          if (std::ranges::any_of(types, [&](const auto& type) { return IsTypeOf(value, type); }))
            fitting.push_back(value);
        }
        if (fitting.empty()) return Wrong(place, "no listed value has the type " + rule.dump());
        values = std::move(fitting);
      } else {
        return CannotKeep(place, key + " beside listed values is not supported");
      }
    }
    Json listed = values.size() == 1 ? Json{{"const", values.front()}} : Json{{"enum", std::move(values)}};
    AddSpellings(listed);
    return listed;
  }

  // xgrammar writes numbers as doubles, with 17 digits: those that it would spell differently go along as
  // text (cmake/xgrammar_edits.cmake).
  static void AddSpellings(Json& listed) {
    if (!HasSpelling(listed)) return;
    Json spellings = Json::array();
    if (Has(listed, "const")) spellings.push_back(WriteJson(listed.at("const")));
    for (const Json& value : listed.value("enum", Json::array())) spellings.push_back(WriteJson(value));
    listed["(spellings)"] = std::move(spellings);
  }
  static bool HasSpelling(const Json& value) {
    if (value.is_structured()) return std::ranges::any_of(value, HasSpelling);
    constexpr auto kLargest = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    const bool is_large = value.is_number_unsigned() && value.get<uint64_t>() > kLargest;
    return is_large || value.is_number_float() || IsLongInteger(value);
  }

  static bool IsStringRule(std::string_view key) {
    const auto& of_strings = *std::ranges::find(kRules, std::string_view("string"), &TypeRules::type);
    return std::ranges::find(of_strings.keywords, key) != of_strings.keywords.end();
  }

  // Of listed values, leaves out the strings that do not keep to what is said of strings beside them.
  Status KeepStrings(const Json& schema, const std::string& place, Json& values) {
    const auto& members = schema.get_ref<const Json::object_t&>();
    if (std::ranges::none_of(members, [](const auto& member) { return IsStringRule(member.first); }))
      return {};
    LS_ASSIGN(const auto compiled, CompiledStringRules(schema, place));
    Json kept = Json::array();
    for (const Json& value : values) {
      if (!value.is_string() || compiled.second.Describes(value.get_ref<const std::string&>()))
        kept.push_back(value);
    }
    if (kept.empty()) return Wrong(place, "no listed value keeps to the other rules");
    values = std::move(kept);
    return {};
  }

  static Result<std::vector<std::string>> Types(const Json& schema, const std::string& place) {
    const auto at = schema.find("type");
    std::vector<std::string> types;
    if (at == schema.end()) {
      // Rules of one type say nothing of others; what they say is kept by allowing no other.
      for (const TypeRules& rules : kRules) {
        const bool any = std::ranges::any_of(rules.keywords, [&](auto k) {
          return !k.empty() && Has(schema, k) && (k != "format" || !IsFormatNote(schema.at("format")));
        });
        if (any) return std::vector<std::string>{std::string(rules.type)};
      }
      return types;
    }
    const Json list = at->is_array() ? *at : Json::array({*at});
    constexpr std::string_view kKnown[] = {"string", "number", "integer", "boolean",
                                           "null",   "array",  "object"};
    for (const Json& type : list) {
      if (!type.is_string() || std::ranges::find(kKnown, type.get<std::string>()) == std::end(kKnown)) {
        return Wrong(Below(place, "type"),
                     "must be string, number, integer, boolean, null, array, object or a list of these");
      }
      types.push_back(type.get<std::string>());
    }
    if (types.empty()) return Wrong(Below(place, "type"), "must not be an empty list");
    return types;
  }

  Result<Json> Typed(const Json& schema, const std::string& place) {
    LS_ASSIGN(const std::vector<std::string> types, Types(schema, place));
    if (types.empty()) return Json(true);
    Json options = Json::array();
    for (const std::string& type : types) {
      Json own = {{"type", type}};
      if (type == "object") LS_TRY(ObjectRules(schema, place, own));
      if (type == "array") LS_TRY(ArrayRules(schema, place, own));
      if (type == "string") LS_TRY(StringRulesOf(schema, place, own));
      if (type == "number" || type == "integer") LS_TRY(NumberRules(schema, place, own));
      options.push_back(std::move(own));
    }
    return options.size() == 1 ? options.front() : Json{{"anyOf", std::move(options)}};
  }

  // Copies a count; what it is, or `otherwise`.
  static Result<int64_t> Bound(const Json& schema, std::string_view key, const std::string& place,
                               int64_t otherwise, Json& own) {
    const auto at = schema.find(key);
    if (at == schema.end()) return otherwise;
    if (!at->is_number() || at->get<double>() < 0 || std::trunc(at->get<double>()) != at->get<double>())
      return Wrong(Below(place, key), "must be a whole number, 0 or more");
    if (at->get<double>() > kMostSchemaBound) {
      return ResourceExhausted("JSON schema: " + Below(place, key) + ": must be at most " +
                               std::to_string(kMostSchemaBound));
    }
    own[std::string(key)] = static_cast<int64_t>(at->get<double>());
    return own[std::string(key)].get<int64_t>();
  }

  Status ObjectRules(const Json& schema, const std::string& place, Json& own) {
    const Json none = Json::object();
    const Json& properties = Has(schema, "properties") ? schema.at("properties") : none;
    if (!properties.is_object()) return Wrong(Below(place, "properties"), "must be an object of schemas");
    Json normal = Json::object();
    for (const auto& [name, property] : properties.items()) {
      LS_ASSIGN(normal[name], Schema(property, Below(Below(place, "properties"), name), 0));
    }
    const bool has_more = Has(schema, "additionalProperties");
    const bool has_patterns = Has(schema, "patternProperties");
    const bool has_names = Has(schema, "propertyNames");
    const bool closed = has_more && schema.at("additionalProperties") == false;
    Json more = true;
    if (has_more && !closed) {
      LS_ASSIGN(more, Schema(schema.at("additionalProperties"), Below(place, "additionalProperties"), 0));
    }
    LS_TRY(RequiredRules(schema, place, closed, more, normal, own));
    if (has_patterns) {
      if (!normal.empty() || (has_more && !closed) || has_names)
        return CannotKeep(Below(place, "patternProperties"),
                          "beside other rules of names it is not supported");
      LS_TRY(PatternRules(schema.at("patternProperties"), Below(place, "patternProperties"), own));
    }
    if (has_names) {
      if (!normal.empty() || has_more)
        return CannotKeep(Below(place, "propertyNames"), "beside other rules of names it is not supported");
      LS_ASSIGN(own["propertyNames"], Schema(schema.at("propertyNames"), Below(place, "propertyNames"), 0));
    }
    // An empty list of properties is one: a function without arguments.
    const bool lists_none =
        Has(schema, "properties") && normal.empty() && !has_more && !has_patterns && !has_names;
    if (closed || lists_none) own["additionalProperties"] = false;
    if (has_more && !closed) own["additionalProperties"] = more;
    const bool free_names = has_patterns || has_names || (has_more && !closed) || normal.empty();
    LS_ASSIGN(const int64_t least, Bound(schema, "minProperties", place, 0, own));
    LS_ASSIGN(const int64_t most, Bound(schema, "maxProperties", place, kMostSchemaBound, own));
    if (most < least) return Wrong(place, "maxProperties is less than minProperties");
    // A name that is written twice counts once.
    if (free_names && !closed && least > 1)
      return CannotKeep(Below(place, "minProperties"), "above 1 it is not supported where names are free");
    if (!normal.empty()) own["properties"] = std::move(normal);
    return {};
  }

  // A required property that has no schema of its own gets that of all others.
  static Status RequiredRules(const Json& schema, const std::string& place, bool closed, const Json& more,
                              Json& properties, Json& own) {
    const auto at = schema.find("required");
    if (at == schema.end() || *at == false || *at == true) return {};  // booleans: of version 3
    if (!at->is_array()) return Wrong(Below(place, "required"), "must be a list of names");
    for (const Json& name : *at) {
      if (!name.is_string()) return Wrong(Below(place, "required"), "must be a list of names");
      if (Has(properties, name.get<std::string>())) continue;
      if (closed)
        return Wrong(Below(place, "required"),
                     name.dump() + " is required, but additionalProperties is false");
      if (Has(schema, "patternProperties") || Has(schema, "propertyNames"))
        return CannotKeep(Below(place, "required"), "beside rules of names it is not supported");
      properties[name.get<std::string>()] = more;
    }
    own["required"] = *at;
    return {};
  }

  Status PatternRules(const Json& patterns, const std::string& place, Json& own) {
    if (!patterns.is_object() || patterns.empty()) return Wrong(place, "must be an object of schemas");
    // A name that fits two patterns would have to fit both schemas.
    if (patterns.size() > 1) return CannotKeep(place, "more than one pattern is not supported");
    for (const auto& [pattern, property] : patterns.items()) {
      const std::string here = Below(place, pattern);
      LS_ASSIGN(const auto names, Compiled({.patterns = {pattern}}, here, here));
      LS_ASSIGN(Json normal, Schema(property, here, 0));
      own["patternProperties"] = {{StringRulesLine(names.first), std::move(normal)}};
    }
    return {};
  }

  Status ArrayRules(const Json& schema, const std::string& place, Json& own) {
    if (Has(schema, "uniqueItems") && schema.at("uniqueItems") != false)
      return CannotKeep(Below(place, "uniqueItems"), "is not supported");
    const bool tuple = Has(schema, "items") && schema.at("items").is_array();  // before 2020-12
    const std::string_view first = tuple ? "items" : "prefixItems",
                           rest = tuple ? "additionalItems" : "items";
    Json prefix = Json::array();
    if (Has(schema, first)) {
      const Json& given = schema.at(std::string(first));
      if (!given.is_array()) return Wrong(Below(place, first), "must be a list of schemas");
      for (size_t i = 0; i < given.size(); ++i) {
        LS_ASSIGN(Json item, Schema(given[i], Below(place, first, i), 0));
        prefix.push_back(item.is_boolean() ? Json::object() : std::move(item));
      }
    }
    LS_ASSIGN(const int64_t least, Bound(schema, "minItems", place, 0, own));
    LS_ASSIGN(const int64_t most, Bound(schema, "maxItems", place, kMostSchemaBound, own));
    if (most < least) return Wrong(place, "maxItems is less than minItems");
    const auto n_first = static_cast<int64_t>(prefix.size());
    if (Has(schema, rest) && schema.at(std::string(rest)) == false) {
      own["items"] = false;
      if (least > n_first) return Wrong(place, "minItems is more than there are items");
    } else if (Has(schema, rest)) {
      LS_ASSIGN(own["items"], Schema(schema.at(std::string(rest)), Below(place, rest), 0));
    } else {
      // Where the first items are listed, others are not invented unless they are needed.
      own["items"] = n_first == 0 || least > n_first;
    }
    // All listed items are written, so there must be room for them.
    while (static_cast<int64_t>(prefix.size()) > most) prefix.erase(prefix.size() - 1);
    if (static_cast<int64_t>(prefix.size()) < n_first) own["items"] = false;
    if (!prefix.empty()) own["prefixItems"] = std::move(prefix);
    return {};
  }

  using CompiledRules = std::pair<StringRules, StringAutomaton>;

  // `of_pattern`: the place of what a mistake is likely in.
  Result<CompiledRules> Compiled(StringRules rules, const std::string& place, const std::string& of_pattern) {
    for (const std::string& pattern : rules.patterns) {
      if (pattern.size() > kMostPatternBytes) {
        return ResourceExhausted("JSON schema: " + of_pattern + ": a pattern may have " +
                                 std::to_string(kMostPatternBytes) + " bytes");
      }
    }
    auto compiled = CompileStringRules(rules, pattern_work_);
    if (compiled.ok()) return CompiledRules(std::move(rules), *std::move(compiled));
    const bool is_one_rule = rules.min_length == 0 && rules.max_length == StringRules::kNoMost;
    return Status(compiled.status().code(),
                  "JSON schema: " + (is_one_rule ? of_pattern : place) + ": " + compiled.status().message());
  }

  // What is said of strings, all at once.
  Result<CompiledRules> CompiledStringRules(const Json& schema, const std::string& place) {
    StringRules rules;
    LS_ASSIGN(rules.min_length, Length(schema, "minLength", place, 0));
    LS_ASSIGN(rules.max_length, Length(schema, "maxLength", place, StringRules::kNoMost));
    if (rules.max_length != StringRules::kNoMost && rules.max_length < rules.min_length)
      return Wrong(place, "maxLength is less than minLength");
    for (const char* key : {"pattern", "format"}) {
      if (Has(schema, key) && !schema.at(key).is_string()) return Wrong(Below(place, key), "must be a text");
    }
    const char* of_pattern = "format";
    if (Has(schema, "format") && !IsFormatNote(schema.at("format"))) rules.format = schema.at("format");
    if (Has(schema, "pattern")) {
      of_pattern = "pattern";
      rules.patterns.push_back(schema.at("pattern"));
    }
    if (const auto more = schema.find(kMorePatterns); more != schema.end()) {
      if (!more->is_array() || !std::ranges::all_of(*more, [](const Json& p) { return p.is_string(); }))
        return Wrong(Below(place, kMorePatterns), "must be a list of patterns");
      for (const Json& pattern : *more) rules.patterns.push_back(pattern);
    }
    return Compiled(std::move(rules), place, Below(place, of_pattern));
  }

  // As one line for xgrammar (grammar/xgrammar_strings.h).
  Status StringRulesOf(const Json& schema, const std::string& place, Json& own) {
    LS_ASSIGN(const auto compiled, CompiledStringRules(schema, place));
    if (compiled.first != StringRules()) own["pattern"] = StringRulesLine(compiled.first);
    return {};
  }

  // Of a string, in characters. A large one costs nothing.
  static Result<int64_t> Length(const Json& schema, std::string_view key, const std::string& place,
                                int64_t otherwise) {
    const auto at = schema.find(key);
    if (at == schema.end()) return otherwise;
    if (!at->is_number() || at->get<double>() < 0 || std::trunc(at->get<double>()) != at->get<double>())
      return Wrong(Below(place, key), "must be a whole number, 0 or more");
    return static_cast<int64_t>(std::min<double>(at->get<double>(), 2.0 * kMostStringLength));
  }

  static Status NumberRules(const Json& schema, const std::string& place, Json& own) {
    for (const char* key : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}) {
      if (!Has(schema, key)) continue;
      const Json& bound = schema.at(key);
      if (bound.is_boolean() && std::string_view(key).starts_with("exclusive")) continue;  // version 4, below
      if (!bound.is_number()) return Wrong(Below(place, key), "must be a number");
      own[key] = bound;
    }
    for (const auto& [exclusive, bound] :
         {std::pair("exclusiveMinimum", "minimum"), std::pair("exclusiveMaximum", "maximum")}) {
      if (!Has(schema, exclusive) || schema.at(exclusive) != true || !Has(own, bound)) continue;
      own[exclusive] = own[bound];
      own.erase(bound);
    }
    if (own["type"] == "integer") RoundBounds(own);
    if (own["type"] == "number" && Has(own, "multipleOf"))
      return CannotKeep(Below(place, "multipleOf"), "is supported for integers only");
    return {};
  }

  // Between whole numbers there are none.
  static void RoundBounds(Json& own) {
    constexpr double kLarge = 9e15;  // beyond it doubles are whole
    const auto round = [&](const char* key, const char* to, auto&& rounded) {
      if (!Has(own, key) || own[key].is_number_integer()) return;
      const double bound = own[key].get<double>();
      if (std::abs(bound) > kLarge) return;
      const double nearest = rounded(bound);
      if (nearest == bound) {
        own[key] = static_cast<int64_t>(nearest);
        return;
      }
      own.erase(key);
      // Of two bounds on one side the stricter one counts.
      const bool is_stricter = !Has(own, to) || (nearest > bound ? nearest > own[to].get<double>()
                                                                 : nearest < own[to].get<double>());
      if (is_stricter) own[to] = static_cast<int64_t>(nearest);
    };
    round("minimum", "minimum", [](double x) { return std::ceil(x); });
    round("maximum", "maximum", [](double x) { return std::floor(x); });
    round("exclusiveMinimum", "minimum", [](double x) { return std::ceil(x); });
    round("exclusiveMaximum", "maximum", [](double x) { return std::floor(x); });
  }

  const Json root_;
  size_t n_parts_ = 0, n_copies_ = 0, n_names_ = 0;
  int n_within_ = 0;                            // schemas that are being read, each within the one before
  std::map<std::string, std::string> names_;    // of definitions, by what refers to them
  std::map<std::string, std::string> merging_;  // names by the rules that are being merged; most have none
  std::vector<std::string> pending_;
  std::vector<Definition> definitions_;
  std::set<std::string> finite_;  // definitions that some finite value satisfies
  PatternWork pattern_work_;
};

Result<Json> ParseSchema(std::string_view text) {
  try {
    auto read = ReadJson(text, [](int depth, Json::parse_event_t) {
      if (depth > kMostSchemaNesting) throw TooDeep();
    });
    if (auto* json = std::get_if<Json>(&read)) return std::move(*json);
    const auto& mistake = std::get<JsonMistake>(read);
    if (mistake.number_out_of_range)
      return InvalidArgument("JSON schema: not JSON that can be read: a number is out of range");
    return InvalidArgument("JSON schema: not JSON: a mistake at byte " + std::to_string(mistake.byte));
  } catch (const TooDeep&) {
    return ResourceExhausted("JSON schema: more than " + std::to_string(kMostSchemaNesting) +
                             " brackets within each other");
  }
}

}  // namespace

Result<std::string> NormaliseSchema(std::string_view text) {
  LS_ASSIGN(Json root, ParseSchema(text));
  return Normaliser(std::move(root)).Run();
}

}  // namespace longspec
