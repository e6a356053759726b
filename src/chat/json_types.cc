// SPDX-License-Identifier: Apache-2.0
#include "chat/json_types.h"

#include <string>

#include "json/json_text.h"

namespace longspec::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostSchemas = 16;  // within each other: one may refer to itself

JsonTypes TypesOfName(const Json& name) {
  if (name == "null") return kNullType;
  if (name == "boolean") return kBooleanType;
  if (name == "integer") return kIntegerType;
  if (name == "number") return kIntegerType | kFractionType;
  if (name == "string") return kStringType;
  if (name == "array") return kArrayType;
  if (name == "object") return kObjectType;
  return kAnyType;
}

// Null: it refers to nothing.
const Json* Referred(const Json& schema, const Json& root) {
  const auto reference = schema.is_object() ? schema.find("$ref") : schema.end();
  if (reference == schema.end() || !reference->is_string()) return nullptr;
  const auto& text = reference->get_ref<const std::string&>();
  if (!text.starts_with('#')) return nullptr;
  try {
    return &root.at(Json::json_pointer(text.substr(1)));
  } catch (const Json::exception&) {
    return nullptr;
  }
}

JsonTypes Within(const Json& schema, const Json& root, int depth);

JsonTypes AnyOf(const Json& schemas, const Json& root, int depth) {
  if (!schemas.is_array()) return kAnyType;
  JsonTypes types = 0;
  for (const Json& schema : schemas) types |= Within(schema, root, depth);
  return types;
}

JsonTypes Within(const Json& schema, const Json& root, int depth) {
  if (!schema.is_object() || depth == kMostSchemas) return kAnyType;
  JsonTypes types = kAnyType;
  if (const auto type = schema.find("type"); type != schema.end()) {
    types = type->is_array() ? 0 : TypesOfName(*type);
    if (type->is_array()) {
      for (const Json& name : *type) types |= TypesOfName(name);
    }
  }
  if (const auto value = schema.find("const"); value != schema.end()) types &= TypeOf(*value);
  if (const auto values = schema.find("enum"); values != schema.end() && values->is_array()) {
    JsonTypes of_values = 0;
    for (const Json& value : *values) of_values |= TypeOf(value);
    types &= of_values;
  }
  if (const Json* target = Referred(schema, root); target != nullptr)
    types &= Within(*target, root, depth + 1);
  for (const char* choice : {"anyOf", "oneOf"}) {
    if (const auto found = schema.find(choice); found != schema.end())
      types &= AnyOf(*found, root, depth + 1);
  }
  if (const auto all = schema.find("allOf"); all != schema.end() && all->is_array()) {
    for (const Json& part : *all) types &= Within(part, root, depth + 1);
  }
  if (const auto nullable = schema.find("nullable"); nullable != schema.end() && *nullable == true)
    types |= kNullType;
  return types;
}

}  // namespace

JsonTypes TypeOf(const Json& value) {
  if (IsLongInteger(value)) return kIntegerType;
  switch (value.type()) {
    case Json::value_t::null:
      return kNullType;
    case Json::value_t::boolean:
      return kBooleanType;
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return kIntegerType;
    case Json::value_t::number_float:
      return kFractionType;
    case Json::value_t::string:
      return kStringType;
    case Json::value_t::array:
      return kArrayType;
    case Json::value_t::object:
      return kObjectType;
    default:
      return kAnyType;
  }
}

const Json& ResolveReferences(const Json& schema, const Json& root) {
  const Json* at = &schema;
  for (int i = 0; i < kMostSchemas; ++i) {
    const Json* target = Referred(*at, root);
    if (target == nullptr) break;
    at = target;
  }
  return *at;
}

JsonTypes TypesOf(const Json& schema, const Json& root) { return Within(schema, root, 0); }

const Json* SchemaOfArgument(const Json& parameters, std::string_view name) {
  if (!parameters.is_object()) return nullptr;
  if (const auto properties = parameters.find("properties");
      properties != parameters.end() && properties->is_object()) {
    if (const auto found = properties->find(name); found != properties->end()) return &*found;
  }
  const auto others = parameters.find("additionalProperties");
  return others != parameters.end() && others->is_object() ? &*others : nullptr;
}

}  // namespace longspec::chat
