// SPDX-License-Identifier: Apache-2.0
//
// The fields of a chat that say how its template is applied: where the prompt ends, and what the template is
// told besides the messages.
#pragma once

#include <optional>

#include "longspec/generation.h"
#include "openai/fields.h"

namespace longspec::openai {

// add_generation_prompt and continue_final_message mean what they do in vLLM; where neither is given, a last
// message of the assistant's is gone on with, as llama.cpp does it. chat_template_kwargs, enable_thinking,
// thinking, reasoning_effort and documents become variables. REQUIRES: the messages have been read.
void ParseTemplateFields(Fields& fields, GenerationRequest* request);

// {"type": "enabled", "adaptive" or "disabled"} of the field `thinking`, as enable_thinking; nothing if it is
// not there.
std::optional<bool> ParseThinking(Fields& fields);

}  // namespace longspec::openai
