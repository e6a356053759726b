// SPDX-License-Identifier: Apache-2.0
//
// JSON schemas become what the grammar compiler takes, with the meaning that they had.
#include "grammar/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace longspec {
namespace {

using ::testing::HasSubstr;

std::string Normal(std::string_view text) {
  auto normal = NormaliseSchema(text);
  return normal.ok() ? *normal : "error: " + normal.status().message();
}

TEST(JsonSchema, NotesAreLeftOutAndTheOrderOfPropertiesIsKept) {
  EXPECT_EQ(Normal(R"({"title": "T", "type": "object", "description": "d", "x-order": 1,
                       "properties": {"b": {"type": "string", "default": "x"}, "a": {"examples": [1]}}})"),
            R"({"type":"object","properties":{"b":{"type":"string"},"a":true}})");
}

TEST(JsonSchema, RulesWithoutATypeAreThoseOfTheTypeTheySpeakOf) {
  EXPECT_EQ(Normal(R"({"minLength": 2})"), R"({"type":"string","pattern":"(?string){\"min\":2}"})");
  EXPECT_EQ(Normal(R"({"format": "date"})"),
            R"({"type":"string","pattern":"(?string){\"format\":\"date\"}"})");
  EXPECT_EQ(Normal(R"({"format": "int32"})"), "true");  // a note, and one of numbers
  EXPECT_EQ(Normal(R"({"maximum": 2})"), R"({"type":"number","maximum":2})");
  EXPECT_EQ(Normal(R"({"items": {"type": "null"}})"), R"({"type":"array","items":{"type":"null"}})");
  EXPECT_EQ(Normal(R"({"required": ["a"]})"),
            R"({"type":"object","required":["a"],"properties":{"a":true}})");
  EXPECT_EQ(Normal(R"({"properties": {}})"), R"({"type":"object","additionalProperties":false})");
  EXPECT_EQ(Normal("true"), "true");
  EXPECT_EQ(Normal("{}"), "true");
}

TEST(JsonSchema, ListedValuesAreThoseOfTheType) {
  EXPECT_EQ(Normal(R"({"type": "string", "enum": ["a", 1, null, "b"]})"), R"({"enum":["a","b"]})");
  EXPECT_EQ(Normal(R"({"type": ["integer", "null"], "enum": ["a", 1, null, 2.0]})"),
            R"~({"enum":[1,null,2.0],"(spellings)":["1","null","2.0"]})~");
  EXPECT_THAT(Normal(R"({"type": "string", "enum": [1]})"),
              HasSubstr("#: no listed value has the type \"string\""));
}

TEST(JsonSchema, WhatSeveralSchemasSayIsOneSchema) {
  EXPECT_EQ(Normal(R"({"allOf": [{"type": "integer", "minimum": 1}, {"minimum": 3, "maximum": 9}]})"),
            R"({"type":"integer","minimum":3,"maximum":9})");
  EXPECT_EQ(Normal(R"({"type": "number", "allOf": [{"type": ["integer", "string"]}]})"),
            R"({"type":"integer"})");
  EXPECT_EQ(Normal(R"({"type": "object", "properties": {"a": {"type": "null"}},
                       "anyOf": [{"required": ["a"]}, {"minProperties": 1}]})"),
            R"({"anyOf":[{"type":"object","required":["a"],"properties":{"a":{"type":"null"}}},)"
            R"({"type":"object","minProperties":1,"properties":{"a":{"type":"null"}}}]})");
  EXPECT_EQ(Normal(R"({"$ref": "#/$defs/a", "maximum": 3, "$defs": {"a": {"type": "integer"}}})"),
            R"({"type":"integer","maximum":3})");
  EXPECT_THAT(Normal(R"({"allOf": [{"type": "integer"}, {"type": "string"}]})"),
              HasSubstr("#/allOf/1: no type is allowed by both"));
}

// What one schema says of all other names holds for those that another one lists.
TEST(JsonSchema, WhatIsSaidOfOtherNamesHoldsInAllParts) {
  EXPECT_EQ(Normal(R"({"allOf": [{"properties": {"a": {"type": "null"}}, "additionalProperties": false},
                                 {"properties": {"a": {}, "b": {"type": "integer"}}}]})"),
            R"({"type":"object","additionalProperties":false,"properties":{"a":{"type":"null"}}})");
  EXPECT_EQ(Normal(R"({"allOf": [{"properties": {"b": {"minimum": 3}}},
                                 {"additionalProperties": {"type": "integer"}}]})"),
            R"({"type":"object","additionalProperties":{"type":"integer"},)"
            R"("properties":{"b":{"type":"integer","minimum":3}}})");
  EXPECT_EQ(Normal(R"({"allOf": [{"items": {"type": "null"}}, {"items": true}, {"maxItems": 2}]})"),
            R"({"type":"array","maxItems":2,"items":{"type":"null"}})");
  EXPECT_THAT(Normal(R"({"additionalProperties": false, "properties": {"a": {}},
                         "allOf": [{"properties": {"b": {}}, "required": ["b"]}]})"),
              HasSubstr("\"b\" is required, but additionalProperties is false"));
  EXPECT_THAT(Normal(R"({"allOf": [{"prefixItems": [{}]}, {"items": {"type": "null"}}]})"),
              HasSubstr("#/allOf/1: items beside prefixItems of another schema is not supported"));
  EXPECT_THAT(Normal(R"~({"(patterns)": 3, "allOf": [{"pattern": "a"}, {"pattern": "b"}]
})~"),
              HasSubstr("(patterns): must be a list"));
}

TEST(JsonSchema, BoundsOfIntegersAreWhole) {
  EXPECT_EQ(Normal(R"({"type": "integer", "minimum": 0.5, "exclusiveMaximum": 9.5})"),
            R"({"type":"integer","minimum":1,"maximum":9})");
  EXPECT_EQ(Normal(R"({"type": "integer", "minimum": 2, "exclusiveMinimum": true})"),
            R"({"type":"integer","exclusiveMinimum":2})");
  EXPECT_EQ(Normal(R"({"type": "integer", "exclusiveMaximum": 9.0})"),
            R"({"type":"integer","exclusiveMaximum":9})");
  EXPECT_EQ(Normal(R"({"type": "integer", "minimum": 10, "exclusiveMinimum": 0.5})"),
            R"({"type":"integer","minimum":10})");
  EXPECT_EQ(Normal(R"({"type": "integer", "minimum": 3.5, "exclusiveMinimum": 7.5})"),
            R"({"type":"integer","minimum":8})");
  EXPECT_EQ(Normal(R"({"type": "integer", "maximum": -0.5, "exclusiveMaximum": 1.5})"),
            R"({"type":"integer","maximum":-1})");
}

// What src/pattern makes of it, its own tests say.
TEST(JsonSchema, WhatIsSaidOfStringsIsKeptAtOnce) {
  const auto line = [](const std::string& rules) {
    return nlohmann::ordered_json{{"type", "string"}, {"pattern", "(?string){" + rules + "}"}}.dump();
  };
  EXPECT_EQ(Normal(R"({"type": "string", "maxLength": 4, "minLength": 0})"), line("\"max\":4"));
  EXPECT_EQ(Normal(R"({"pattern": "^é$"})"), line("\"patterns\":[\"^\\u00e9$\"]"));
  EXPECT_EQ(Normal(R"({"pattern": "^2", "format": "date", "maxLength": 30})"),
            line("\"patterns\":[\"^2\"],\"format\":\"date\",\"max\":30"));
  EXPECT_EQ(Normal(R"({"type": "string", "format": "nobody-knows", "minLength": 0})"),
            R"({"type":"string"})");
  EXPECT_EQ(
      Normal(R"({"allOf": [{"pattern": "a"}, {"pattern": "^b?a$"}, {"maxLength": 3}, {"pattern": "a"}]})"),
      line("\"patterns\":[\"a\",\"^b?a$\"],\"max\":3"));
  EXPECT_EQ(Normal(R"({"enum": ["a", "bb", "2024-01-01", 1], "maxLength": 1})"), R"({"enum":["a",1]})");
  EXPECT_EQ(Normal(R"({"enum": ["a", "2024-01-01"], "format": "date"})"), R"({"const":"2024-01-01"})");
  EXPECT_EQ(Normal(R"({"patternProperties": {"^a": true}})"),
            R"({"type":"object","patternProperties":{"(?string){\"patterns\":[\"^a\"]}":true}})");
  EXPECT_THAT(Normal(R"({"enum": ["aa"], "maxLength": 1})"),
              HasSubstr("#: no listed value keeps to the other"));
  EXPECT_THAT(Normal(R"({"format": "date", "maxLength": 9})"), HasSubstr("#: no text could satisfy it"));
  EXPECT_THAT(Normal(R"({"properties": {"a": {"pattern": "("}}})"),
              HasSubstr("#/properties/a/pattern: the pattern has no ) for the ( at byte 0"));
}

TEST(JsonSchema, LargeLengthsAreKept) {
  EXPECT_THAT(Normal(R"({"maxLength": 524288})"), HasSubstr("524288"));
  EXPECT_THAT(Normal(R"({"maxLength": 1e300})"), HasSubstr("(?string)"));
  EXPECT_EQ(NormaliseSchema(R"({"minLength": 9007199254740991})").status().code(), StatusCode::kUnsupported);
}

TEST(JsonSchema, ReferencesAreFollowedAndMayRecur) {
  EXPECT_EQ(Normal(R"({"type": "object", "properties": {"a": {"$ref": "#"}}})"),
            R"({"type":"object","properties":{"a":{"$ref":"#/$defs/d0"}},)"
            R"("$defs":{"d0":{"type":"object","properties":{"a":{"$ref":"#/$defs/d0"}}}}})");
  // Also where it has rules of its own, which agents write beside each reference.
  const std::string tree = R"({"type":"object","properties":{"x":{"$ref":"#/$defs/d1"}}})";
  for (const std::string within : {R"({"$ref": "#/$defs/a", "type": "object"})",
                                   R"({"allOf": [{"$ref": "#/$defs/a"}, {"type": "object"}]})"}) {
    EXPECT_EQ(Normal(R"({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"x": )" + within + "}}}}"),
              R"({"$ref":"#/$defs/d0","$defs":{"d1":)" + tree + R"(,"d0":)" + tree + "}}");
  }
}

TEST(JsonSchema, WhatCouldNotEndIsRefusedOrLeftOut) {
  const std::string endless = "refers to itself without end";
  EXPECT_THAT(Normal(R"({"$ref": "#"})"), HasSubstr(endless));
  EXPECT_THAT(
      Normal(R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})"),
      HasSubstr(endless));
  EXPECT_THAT(Normal(R"({"allOf": [{"$ref": "#"}, {"type": "string"}]})"), HasSubstr(endless));
  EXPECT_THAT(Normal(R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})"),
              HasSubstr(endless));
  EXPECT_THAT(Normal(R"({"type": "array", "items": {"$ref": "#"}, "minItems": 1})"), HasSubstr(endless));
  EXPECT_EQ(Normal(R"({"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#/$defs/e"}}],
                       "$defs": {"e": {"type": "array", "prefixItems": [{"$ref": "#/$defs/e"}]}}})"),
            R"({"anyOf":[{"type":"null"},{"type":"array","items":false}]})");
}

TEST(JsonSchema, RulesThatCannotBeKeptAreRefusedByName) {
  const auto expect = [](std::string_view text, const std::string& message) {
    const auto normal = NormaliseSchema(text);
    EXPECT_EQ(normal.status().code(), StatusCode::kUnsupported) << text;
    EXPECT_THAT(normal.status().message(), HasSubstr("JSON schema: " + message)) << text;
  };
  expect(R"({"not": {}})", "#: not is not supported");
  expect(R"({"properties": {"a/b": {"if": {}}}})", "#/properties/a~1b: if is not supported");
  expect(R"({"items": {"uniqueItems": true}})", "#/items/uniqueItems: is not supported");
  expect(R"({"type": "array", "contains": {}})", "#: contains is not supported");
  expect(R"({"type": "number", "multipleOf": 0.5})", "#/multipleOf: is supported for integers only");
  expect(R"~({"pattern": "^(?=a)"})~", "#/pattern: lookahead at byte 4 of the pattern is not supported");
  expect(R"({"format": "regex"})", "#/format: the format regex is not supported");
  expect(R"({"properties": {"a": {}}, "patternProperties": {"b": {}}})",
         "#/patternProperties: beside other rules");
  expect(R"({"type": "object", "minProperties": 2})", "#/minProperties: above 1");
  expect(R"({"$ref": "https://example.com/a.json"})", "#/$ref: only references within the schema");
  expect(R"({"enum": [1], "minimum": 1})", "#: minimum beside listed values");
}

TEST(JsonSchema, MistakesAreNamedWithTheirPlace) {
  const auto expect = [](std::string_view text, const std::string& message) {
    const auto normal = NormaliseSchema(text);
    EXPECT_EQ(normal.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(normal.status().message(), HasSubstr("JSON schema: " + message)) << text;
  };
  expect("{", "not JSON: a mistake at byte 2");
  expect("{\"title\": \"\xC3\x28\"}", "not JSON");
  expect("[]", "#: a schema is an object, true or false");
  expect("false", "#: the schema false allows no answer");
  expect(R"({"properties": {"a": 3}})", "#/properties/a: a schema is an object");
  expect(R"({"type": "text"})", "#/type: must be string, number");
  expect(R"({"enum": []})", "#/enum: must be a list of values");
  expect(R"({"required": "a"})", "#/required: must be a list of names");
  expect(R"({"minLength": -1})", "#/minLength: must be a whole number");
  expect(R"({"minItems": 3, "maxItems": 2})", "#: maxItems is less than minItems");
  expect(R"({"$ref": "#/$defs/none"})", "#: the reference #/$defs/none names nothing");
  expect(R"({"required": ["b"], "properties": {}, "additionalProperties": false})",
         "#/required: \"b\" is required");
}

TEST(JsonSchema, HostileOnesAreRefused) {
  const auto expect = [](const std::string& text, const std::string& message) {
    const auto normal = NormaliseSchema(text);
    EXPECT_EQ(normal.status().code(), StatusCode::kResourceExhausted) << text.substr(0, 50);
    EXPECT_THAT(normal.status().message(), HasSubstr(message));
  };
  std::string deep = "{}", wide = "[0", bomb = R"({"$defs": {"a0": {"type": "null"})";
  for (int i = 0; i < 5000; ++i) deep = R"({"items": )" + deep + "}";
  for (int i = 0; i < 20'000; ++i) wide += "," + std::to_string(i);
  expect(deep, "more than 64 brackets within each other");
  expect(R"({"enum": )" + wide + "]}", "#: more than 10000 schemas and values");
  expect(R"({"maxItems": 1e12})", "#/maxItems: must be at most 1000000");
  expect(R"({"pattern": ")" + std::string(5000, 'a') + "\"}", "a pattern may have 4096 bytes");
  // Each definition is the next one twice: merging them all would take 2^30 steps.
  for (int i = 1; i <= 30; ++i) {
    const std::string below = R"({"$ref": "#/$defs/a)" + std::to_string(i - 1) + "\"}";
    bomb += ", \"a" + std::to_string(i) + R"(": {"allOf": [)" + below + ", " + below + ", {}]}";
  }
  expect(bomb + R"(}, "$ref": "#/$defs/a30", "title": "b"})", "more than 10000 schemas and values");
  // A property with many values, once more in each of many options.
  std::string empties = "[]", options = "true";
  for (int i = 0; i < 5000; ++i) empties += ",[]";
  for (int i = 0; i < 4000; ++i) options += ",true";
  expect(R"({"properties": {"a": {"enum": [)" + empties + R"(]}}, "anyOf": [)" + options + "]}",
         "there are more than 1000000 values");
  // References that grow with each step: none is ever the same again.
  const auto growing = [](const std::string& name) {
    const std::string a = R"({"$ref": "#/$defs/a"})", x = "{\"properties\": {\"" + name + "\": ";
    return R"({"$ref": "#/$defs/a", "$defs": {"a": )" + x + R"({"allOf": [)" + a + ", " + x + a + "}}]}}}}}";
  };
  expect(growing("x"), "more than");
  expect(growing(std::string(60'000, 'x')), "more than");
  std::string chain = R"({"$ref": "#/$defs/a0", "$defs": {"a200": {})";
  for (int i = 0; i < 200; ++i) {
    chain += ", \"a" + std::to_string(i) +
             R"(": {"properties": {"x": {"type": "object", "$ref": "#/$defs/a)" + std::to_string(i + 1) +
             "\"}}}";
  }
  expect(chain + "}}", "more than 128 schemas within each other");
  // Long values that are written once for each reference.
  std::string many = R"({"$ref": "#/$defs/a", "type": "string"})";
  for (int i = 0; i < 3000; ++i) many += R"(,{"$ref": "#/$defs/a", "type": "string"})";
  expect(R"({"anyOf": [)" + many + R"(], "$defs": {"a": {"const": ")" + std::string(60'000, 'c') + R"("}}})",
         "more than 1000000 values");
}

}  // namespace
}  // namespace longspec
