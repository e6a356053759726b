// SPDX-License-Identifier: Apache-2.0
//
// The types of arguments are read off their schema.
#include "chat/json_types.h"

#include <gtest/gtest.h>

namespace longspec::chat {
namespace {

using Json = nlohmann::ordered_json;

JsonTypes Types(const std::string& schema) {
  const Json json = Json::parse(schema);
  return TypesOf(json, json);
}

TEST(JsonTypes, OfASchema) {
  EXPECT_EQ(Types(R"({"type": "string", "minLength": 3})"), kStringType);
  EXPECT_EQ(Types(R"({"type": "number"})"), kIntegerType | kFractionType);
  EXPECT_EQ(Types(R"({"type": ["string", "null"]})"), kStringType | kNullType);
  EXPECT_EQ(Types(R"({"type": "string", "nullable": true})"), kStringType | kNullType);
  EXPECT_EQ(Types(R"({"enum": ["a", 1, null]})"), kStringType | kIntegerType | kNullType);
  EXPECT_EQ(Types(R"({"const": 0.5})"), kFractionType);
  EXPECT_EQ(Types(R"({"anyOf": [{"type": "array"}, {"type": "object"}]})"), kArrayType | kObjectType);
  EXPECT_EQ(Types(R"({"allOf": [{"type": ["array", "null"]}, {"type": ["object", "null"]}]})"), kNullType);
  EXPECT_EQ(
      Types(R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"type": "boolean"}}})"),
      kBooleanType);
  // What says nothing, or nothing that is understood.
  for (const char* schema :
       {"{}", "true", R"({"type": "text"})", R"({"$ref": "http://x"})", R"({"$ref": "#/nowhere"})",
        R"({"$ref": "#"})", R"({"anyOf": 3})", R"({"$ref": "#/~2"})"}) {
    EXPECT_EQ(Types(schema), kAnyType) << schema;
  }
}

TEST(JsonTypes, SchemasOfArguments) {
  const Json parameters =
      Json::parse(R"({"properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "array"}})");
  EXPECT_EQ((*SchemaOfArgument(parameters, "a"))["type"], "null");
  EXPECT_EQ((*SchemaOfArgument(parameters, "b"))["type"], "array");
  EXPECT_EQ(SchemaOfArgument(Json::parse(R"({"properties": {}, "additionalProperties": true})"), "a"),
            nullptr);
  EXPECT_EQ(SchemaOfArgument(Json(), "a"), nullptr);
}

}  // namespace
}  // namespace longspec::chat
