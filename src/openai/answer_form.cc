// SPDX-License-Identifier: Apache-2.0
#include "openai/answer_form.h"

#include <string>
#include <utility>

#include "openai/json.h"
#include "openai/requests.h"

namespace longspec::openai {
namespace {

using Json = nlohmann::ordered_json;
using Kind = GrammarText::Kind;

bool IsSchema(const Json& value) { return value.is_object() || value.is_boolean(); }

// {"type": "json_schema", "json_schema": {"name": ..., "schema": {...}, "strict": ...}}; llama.cpp has the
// schema beside the type, too.
GrammarText SchemaOf(Fields& format) {
  if (const Json* schema = format.Find("schema"); schema != nullptr && !format.Find("json_schema")) {
    if (!IsSchema(*schema)) format.Fail("schema", "must be a JSON schema", "invalid_type");
    return {Kind::kJsonSchema, schema->dump()};
  }
  const Json* wrapped = format.Find("json_schema");
  if (wrapped == nullptr) {
    format.Missing("json_schema");
    return {};
  }
  Fields fields(*wrapped, format.PlaceOf("json_schema"));
  std::string name;
  bool strict = true;
  fields.Text("name", &name);
  fields.Bool("strict", &strict);  // every schema is kept to
  const Json* schema = fields.Find("schema");
  if (schema == nullptr) fields.Missing("schema");
  if (schema != nullptr && !IsSchema(*schema)) fields.Fail("schema", "must be a JSON schema", "invalid_type");
  if (fields.error()) {
    format.Fail(*fields.error());
    return {};
  }
  return {Kind::kJsonSchema, schema->dump()};
}

}  // namespace

void ParseResponseFormat(Fields& fields, std::string_view name, GrammarText* grammar) {
  const Json* value = fields.Find(name);
  if (value == nullptr) return;
  Fields format(*value, fields.PlaceOf(name));
  std::string type;
  if (!format.Text("type", &type)) format.Missing("type");
  if (format.error()) return fields.Fail(*format.error());
  if (type == "text") {
    *grammar = {};
  } else if (type == "json_object") {
    *grammar = format.Find("schema") != nullptr ? SchemaOf(format) : GrammarText{Kind::kJsonObject, ""};
  } else if (type == "json_schema") {
    *grammar = SchemaOf(format);
  } else if (type == "structural_tag") {
    *grammar = {Kind::kStructuralTag, value->dump()};
  } else {
    format.Fail("type", "must be text, json_object, json_schema or structural_tag", "invalid_value");
  }
  if (format.error()) fields.Fail(*format.error());
}

void ParseAnswerForm(Fields& fields, ApiRequest* request) {
  GrammarText* const grammar = &request->generation.grammar;
  int n_given = 0;
  const auto given = [&](const char* name) {
    const Json* value = fields.Find(name);
    if (value == nullptr || (value->is_string() && value->get_ref<const std::string&>().empty()))
      return value;
    ++n_given;
    request->grammar_field = name;
    return value;
  };
  ParseResponseFormat(fields, "response_format", grammar);
  if (grammar->kind != Kind::kNone) given("response_format");
  if (const Json* schema = given("json_schema"); schema != nullptr) {
    if (!IsSchema(*schema)) fields.Fail("json_schema", "must be a JSON schema", "invalid_type");
    *grammar = {Kind::kJsonSchema, schema->dump()};
  }
  if (given("grammar") != nullptr) {
    std::string text;
    fields.Text("grammar", &text);
    if (!text.empty()) *grammar = {Kind::kGbnf, text};
  }
  if (n_given > 1)
    fields.Fail("response_format", "json_schema and grammar: only one of them may be given", "invalid_value");
}

std::optional<ApiError> SetAnswerForm(GrammarText grammar, std::string field, ApiRequest* request) {
  if (!request->grammar_field.empty()) {
    return ApiError{.message = field + " is not supported beside " + request->grammar_field,
                    .param = field,
                    .code = "unsupported_value"};
  }
  request->generation.grammar = std::move(grammar);
  request->grammar_field = std::move(field);
  return std::nullopt;
}

}  // namespace longspec::openai
