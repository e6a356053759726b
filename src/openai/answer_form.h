// SPDX-License-Identifier: Apache-2.0
//
// What a request wants its answer to be: response_format of OpenAI, as llama.cpp and vLLM extend it, and
// llama.cpp's grammar and json_schema.
#pragma once

#include "longspec/generation.h"
#include "openai/fields.h"

namespace longspec::openai {

// Leaves *grammar as it is if the request has none of the fields. Whether a schema or a grammar can be kept
// to, the engine says.
void ParseAnswerForm(Fields& fields, GrammarText* grammar);

}  // namespace longspec::openai
