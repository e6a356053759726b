// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a JSON schema and as a grammar: what is accepted can be read again, and what is said of the
// rest is a line.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "grammar/gbnf.h"
#include "grammar/json_schema.h"

namespace {

void Require(bool condition) {
  if (!condition) __builtin_trap();
}

void RequireLine(const longspec::Status& status) {
  Require(!status.message().empty() && status.message().size() < 4096);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto schema = longspec::NormaliseSchema(text); schema.ok()) {
    Require(nlohmann::json::accept(*schema));
  } else {
    RequireLine(schema.status());
  }
  if (const auto grammar = longspec::TranslateGbnf(text); grammar.ok()) {
    Require(grammar->starts_with("root ::= r"));
    for (const char c : *grammar) Require(c == '\n' || (c >= ' ' && c <= '~'));
  } else {
    RequireLine(grammar.status());
  }
  return 0;
}
