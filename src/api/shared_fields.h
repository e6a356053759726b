// SPDX-License-Identifier: Apache-2.0
//
// What requests for text say in every API, with the fields that OpenAI, llama.cpp and vLLM have for it: all
// but what an answer goes on from, which each API has in its own words. Every field that these know is
// honoured, refused by name or changes nothing here (api/field_rules.h).
#pragma once

#include <string>
#include <variant>

#include "api/errors.h"
#include "api/fields.h"
#include "api/request.h"
#include "longspec/generation.h"

namespace longspec::api {

// What a request means that says nothing: temperature 1 and no filters.
RequestDefaults OpenAiDefaults();

// n_predict -1 of the defaults means OpenAI's: no limit in a chat, kDefaultCompletionTokens otherwise.
Request ParseSharedFields(Endpoint endpoint, Fields& fields, const RequestDefaults& defaults);
// How the template of a chat is applied. REQUIRES: the messages have been read.
void ParseChatEnd(Fields& fields, Request* request);

// The request, with what its API says of the answer's form in a field of its own; or the first mistake.
std::variant<Request, Error> Parsed(const Fields& fields, Request request, GrammarText grammar = {},
                                    std::string grammar_field = {});

}  // namespace longspec::api
