// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a JSON schema: what is written under it by one who wants to break out is JSON in UTF-8 when it
// is whole, a string has a length that the schema allows, and no way ends where no token is allowed.
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "grammar/grammar.h"
#include "grammar/testing/breakout_writer.h"

namespace {

using Json = nlohmann::json;
using longspec::testing::BreakoutWriter;

constexpr size_t kMostSchemaBytes = 2000;  // what compiles at once
constexpr int kAnswers = 3;

void Require(bool condition, const std::string& what, const std::string& text) {
  if (condition) return;
  std::cerr << what << ": " << text << "\n";
  __builtin_trap();
}

void RequireLength(const Json& schema, const Json& answer, const std::string& text) {
  if (!schema.is_object() || !answer.is_string() || schema.contains("$ref")) return;
  const auto length = static_cast<double>(longspec::CountCharacters(answer.get_ref<const std::string&>()));
  for (const auto& [key, bound] : schema.items()) {
    if (!bound.is_number()) continue;
    if (key == "maxLength") Require(length <= bound.get<double>(), "too long", text);
    if (key == "minLength") Require(length >= bound.get<double>(), "too short", text);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > kMostSchemaBytes || !longspec::HasGrammars()) return 0;
  const std::string schema(reinterpret_cast<const char*>(data), size);
  BreakoutWriter writer(std::hash<std::string>()(schema),
                        {.free_tokens = 15, .most_tokens = 150, .tokens_each_look = 50});
  longspec::GrammarLimits limits;
  limits.compile_ms = 300;
  static const auto compiler = *longspec::GrammarCompiler::Create(writer.vocabulary(), limits);
  const auto grammar = compiler->Compile({longspec::GrammarText::Kind::kJsonSchema, schema});
  if (!grammar.ok()) {
    const std::string& message = grammar.status().message();
    Require(!message.empty() && message.size() < 4096 && message.find('\n') == std::string::npos,
            "what is said is no line", message);
    return 0;
  }
  const Json parsed = Json::parse(schema);
  for (int i = 0; i < kAnswers; ++i) {
    const auto written = writer.Write(**grammar);
    for (const std::string& fault : written.faults) Require(false, "a fault", fault);
    if (!written.whole) continue;
    try {
      RequireLength(parsed, Json::parse(written.text), written.text);
    } catch (const Json::parse_error&) {
      Require(false, "not JSON", written.text);
    } catch (const Json::out_of_range&) {
      // A number beyond what a double holds is JSON.
    }
  }
  return 0;
}
