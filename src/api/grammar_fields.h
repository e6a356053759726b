// SPDX-License-Identifier: Apache-2.0
//
// What a request wants its answer to be: response_format of OpenAI, as llama.cpp and vLLM extend it,
// llama.cpp's grammar and json_schema, SGLang's regex and ebnf, vLLM's structured_outputs and its older names
// guided_*.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "api/errors.h"
#include "api/fields.h"
#include "api/request.h"
#include "longspec/generation.h"

namespace longspec::api {

// The field `name` in the form of response_format: {"type": "text"}, {"type": "json_object"}, {"type":
// "json_schema", "json_schema": {"name", "schema"}}, or with the schema beside the type. Leaves *grammar as
// it is if there is none. Whether a schema or a grammar can be kept to, the engine says.
void ParseResponseFormat(Fields& fields, std::string_view name, GrammarText* grammar);

// All of these of a request, of which one may be given.
void ParseAnswerForm(Fields& fields, Request* request);

// What of a structural tag says the same. Null: nothing does.
nlohmann::ordered_json TagElementOf(const GrammarText& grammar);

// Makes it the form of the answer; `field` is the one that asks for it. The error: another one does, too.
std::optional<Error> SetAnswerForm(GrammarText grammar, std::string field, Request* request);

}  // namespace longspec::api
