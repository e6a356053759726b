// SPDX-License-Identifier: Apache-2.0
//
// Fits a chat to the model that answers it, as its chat template has it (chat/dialect.h): how it is told of
// tools, what its answer is held to, and how that is read. Pure functions.
#pragma once

#include <optional>
#include <string_view>

#include "api/errors.h"
#include "api/request.h"
#include "chat/answer_reader.h"
#include "chat/dialect.h"

namespace longspec::api {

// Tells the model of the tools, and of calls and thoughts in earlier messages, as its template wants it, and
// makes the form of calls the answer's grammar. An answer that the request wants in a form of its own calls,
// or has it; the error: it is a form that cannot stand beside calls.
std::optional<Error> ApplyTools(const chat::Dialect& dialect, Request* request);

// How the answer to a chat is read, whose request still has its messages and whose tools were applied, behind
// a prompt of which `prompt_end` is the end, at least kPromptEndTokens of it. What form the answer is to have
// is then asked of what is said, and what is thought before it is free.
inline constexpr size_t kPromptEndTokens = 32;
chat::ReadingForm ReadingFormOf(const chat::Dialect& dialect, std::string_view prompt_end, Request* request);
// Its part about thoughts between tags. Nothing: there are none.
std::optional<chat::ThinkingForm> ThinkingFormOf(const std::optional<chat::ThinkingTags>& model,
                                                 std::string_view prompt_end, Request* request);

}  // namespace longspec::api
