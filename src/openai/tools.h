// SPDX-License-Identifier: Apache-2.0
//
// Tools that an answer may call (chat/tools.h): what a request says of them, and what becomes of it. Pure
// functions.
#pragma once

#include <optional>
#include <string_view>

#include "chat/dialect.h"
#include "chat/tools.h"
#include "longspec/generation.h"
#include "openai/errors.h"

namespace longspec::openai {

class Fields;
struct ApiRequest;

// A function as every API describes it: name, description, strict, and its arguments' schema under the name
// `schema`.
void ParseFunction(Fields& fields, std::string_view schema, chat::Tool* tool);
// Mistakes are those of the field "tools": too many, or two of one name.
void AddTool(Fields& fields, chat::Tool tool, chat::ToolUse* use);

// tools, tool_choice and parallel_tool_calls of a chat.
void ParseTools(Fields& fields, chat::ToolUse* use);
// tool_calls, tool_call_id and name of a message, into Message::more.
void ParseToolMembers(Fields& fields, Message* message);

// Tells the model of the tools, and of calls and thoughts in earlier messages, as its template wants it, and
// makes the form of calls the answer's grammar. An answer that the request wants in a form of its own calls,
// or has it; the error: it is a form that cannot stand beside calls.
std::optional<ApiError> ApplyTools(const chat::Dialect& dialect, ApiRequest* request);

}  // namespace longspec::openai
