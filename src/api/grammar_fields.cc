// SPDX-License-Identifier: Apache-2.0
#include "api/grammar_fields.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "api/fields.h"
#include "json/json_text.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;
using Kind = GrammarText::Kind;

bool IsSchema(const Json& value) { return value.is_object() || value.is_boolean(); }

// {"type": "json_schema", "json_schema": {"name": ..., "schema": {...}, "strict": ...}}; llama.cpp has the
// schema beside the type, too.
GrammarText SchemaOf(Fields& format) {
  if (const Json* schema = format.Find("schema"); schema != nullptr && !format.Find("json_schema")) {
    if (!IsSchema(*schema)) format.Fail("schema", "must be a JSON schema", "invalid_type");
    return {Kind::kJsonSchema, WriteJson(*schema)};
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
  return {Kind::kJsonSchema, WriteJson(*schema)};
}

// --- Other fields that ask for a form: what each of them holds. ---

using FormParser = GrammarText (*)(Fields& fields, std::string_view name, const Json& value);

struct FormField {
  std::string_view name;
  FormParser parse;
};

// As a value or as its text.
GrammarText SchemaForm(Fields& fields, std::string_view name, const Json& value) {
  if (IsSchema(value)) return {Kind::kJsonSchema, WriteJson(value)};
  if (value.is_string()) {
    const auto schema = ParseJson(value.get_ref<const std::string&>());
    const auto* read = std::get_if<Json>(&schema);
    if (read != nullptr && IsSchema(*read)) return {Kind::kJsonSchema, WriteJson(*read)};
  }
  fields.Fail(name, "must be a JSON schema", "invalid_type");
  return {};
}

GrammarText GrammarForm(Fields& fields, std::string_view name, const Json&) {
  std::string text;
  fields.Text(name, &text);
  return {Kind::kGbnf, text};
}

GrammarText RegexForm(Fields& fields, std::string_view name, const Json&) {
  std::string text;
  fields.Text(name, &text);
  return {Kind::kRegex, text};
}

GrammarText ObjectForm(Fields& fields, std::string_view name, const Json&) {
  bool wanted = false;
  fields.Bool(name, &wanted);
  return {wanted ? Kind::kJsonObject : Kind::kNone, ""};
}

GrammarText TagForm(Fields& fields, std::string_view name, const Json& value) {
  if (value.is_object()) return {Kind::kStructuralTag, WriteJson(value)};
  std::string text;
  fields.Text(name, &text);
  return {Kind::kStructuralTag, text};
}

// A text of GBNF that is this text alone.
std::string Literal(const std::string& text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string literal = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      literal += {'\\', 'x', kHex[byte >> 4U], kHex[byte & 15U]};
    } else {
      if (c == '"' || c == '\\') literal += '\\';
      literal += c;
    }
  }
  return literal + '"';
}

GrammarText ChoiceForm(Fields& fields, std::string_view name, const Json& value) {
  const bool right = value.is_array() && !value.empty() && std::ranges::all_of(value, [](const Json& choice) {
                       return choice.is_string() && !choice.get_ref<const std::string&>().empty();
                     });
  if (!right) {
    fields.Fail(name, "must be a list of texts, none of them empty", "invalid_type");
    return {};
  }
  std::string rule = "root ::= ";
  for (const Json& choice : value) {
    if (&choice != &value.front()) rule += " | ";
    rule += Literal(choice.get_ref<const std::string&>());
  }
  return {Kind::kGbnf, rule};
}

constexpr FormField kFormFields[] = {
    {"json_schema", SchemaForm},   {"grammar", GrammarForm},         // llama.cpp
    {"regex", RegexForm},          {"ebnf", GrammarForm},            // SGLang
    {"guided_json", SchemaForm},   {"guided_regex", RegexForm},      // vLLM, as it was
    {"guided_choice", ChoiceForm}, {"guided_grammar", GrammarForm},  //
    {"structural_tag", TagForm},   {"guided_json_object", ObjectForm},
};
// vLLM's structured_outputs.
constexpr FormField kStructuredOutputs[] = {
    {"json", SchemaForm},     {"regex", RegexForm},        {"choice", ChoiceForm},
    {"grammar", GrammarForm}, {"json_object", ObjectForm}, {"structural_tag", TagForm},
};

// Fields that ask for a form, of which one may.
class FormFields {
 public:
  explicit FormFields(Fields& fields) : fields_(fields) {}

  // An empty text asks for nothing.
  void Read(Fields& place, const FormField& field) {
    const Json* value = place.Find(field.name);
    if (value == nullptr || (value->is_string() && value->get_ref<const std::string&>().empty())) return;
    GrammarText form = field.parse(place, field.name, *value);
    if (!place.error() && form.kind != Kind::kNone) Take(place.PlaceOf(field.name), std::move(form));
  }

  void Take(std::string name, GrammarText form) {
    if (!name_.empty()) {
      fields_.Fail(name, "is given beside " + name_ + ": only one form of an answer may be asked for",
                   "invalid_value");
    }
    name_ = std::move(name);
    form_ = std::move(form);
  }

  void Give(Request* request) {
    if (name_.empty()) return;
    request->generation.grammar = std::move(form_);
    request->grammar_field = std::move(name_);
  }

 private:
  Fields& fields_;
  std::string name_;
  GrammarText form_;
};

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
    *grammar = {Kind::kStructuralTag, WriteJson(*value)};
  } else {
    format.Fail("type", "must be text, json_object, json_schema or structural_tag", "invalid_value");
  }
  if (format.error()) fields.Fail(*format.error());
}

void ParseAnswerForm(Fields& fields, Request* request) {
  FormFields forms(fields);
  ParseResponseFormat(fields, "response_format", &request->generation.grammar);
  if (request->generation.grammar.kind != Kind::kNone) {
    const GrammarText format = request->generation.grammar;
    forms.Take("response_format", format);
  }
  for (const FormField& field : kFormFields) forms.Read(fields, field);
  if (const Json* value = fields.Find("structured_outputs"); value != nullptr) {
    Fields inside(*value, "structured_outputs");
    for (const FormField& field : kStructuredOutputs) forms.Read(inside, field);
    for (const char* name : {"disable_any_whitespace", "disable_additional_properties"})
      inside.Only(name, "[false]", "a grammar can say so");
    inside.Only("whitespace_pattern", "[]", "a grammar can say what white space there is");
    for (const char* name : {"backend", "disable_fallback"}) inside.Find(name);
    if (inside.error()) fields.Fail(*inside.error());
    for (const std::string& name : inside.Unknown())
      fields.Fail("structured_outputs." + name,
                  "is not known: there are json, regex, choice, grammar, json_object and structural_tag",
                  "invalid_value");
  }
  forms.Give(request);
}

Json TagElementOf(const GrammarText& grammar) {
  if (grammar.kind == Kind::kJsonObject)
    return {{"type", "json_schema"}, {"json_schema", {{"type", "object"}}}};
  if (grammar.kind != Kind::kJsonSchema && grammar.kind != Kind::kStructuralTag) return nullptr;
  const auto parsed = ParseJson(grammar.text);
  const Json* value = std::get_if<Json>(&parsed);
  if (value == nullptr) return nullptr;
  if (grammar.kind == Kind::kJsonSchema) return {{"type", "json_schema"}, {"json_schema", *value}};
  return value->is_object() ? value->value("format", Json()) : Json();
}

std::optional<Error> SetAnswerForm(GrammarText grammar, std::string field, Request* request) {
  if (!request->grammar_field.empty()) {
    return Error{.message = field + " is not supported beside " + request->grammar_field,
                 .param = field,
                 .code = "unsupported_value"};
  }
  request->generation.grammar = std::move(grammar);
  request->grammar_field = std::move(field);
  return std::nullopt;
}

}  // namespace longspec::api
