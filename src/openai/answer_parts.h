// SPDX-License-Identifier: Apache-2.0
//
// What is thought and called in an answer, where OpenAI's API has it. Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "chat/answer_reader.h"

namespace longspec::openai {

// {"index", "id", "type": "function", "function": {"name", "arguments"}} for a piece, as a stream has it;
// `id` is that of the response, and `choice` the answer's index in it. Without id, type and name where it is
// not the first.
nlohmann::ordered_json ToolCallDeltaJson(const chat::ToolCallPiece& piece, const std::string& id, int choice);

// Moves what is thought and called in the texts of a chat response (responses.h) to where its API has it:
// message.reasoning_content; message.tool_calls, finish_reason "tool_calls", content null if nothing is said.
// `id` is that of the response.
void MoveParts(const chat::ReadingForm& form, const std::string& id, nlohmann::ordered_json* response);

}  // namespace longspec::openai
