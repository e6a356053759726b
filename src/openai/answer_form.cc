// SPDX-License-Identifier: Apache-2.0
#include "openai/answer_form.h"

#include <string>

#include "openai/json.h"

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

void ParseResponseFormat(Fields& fields, GrammarText* grammar) {
  const Json* value = fields.Find("response_format");
  if (value == nullptr) return;
  Fields format(*value, "response_format");
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

}  // namespace

void ParseAnswerForm(Fields& fields, GrammarText* grammar) {
  int n_given = 0;
  const auto given = [&](std::string_view name) {
    const Json* value = fields.Find(name);
    if (value != nullptr && !(value->is_string() && value->get_ref<const std::string&>().empty())) ++n_given;
    return value;
  };
  ParseResponseFormat(fields, grammar);
  if (fields.Find("response_format") != nullptr && grammar->kind != Kind::kNone) ++n_given;
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

}  // namespace longspec::openai
