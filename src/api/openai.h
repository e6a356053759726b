// SPDX-License-Identifier: Apache-2.0
//
// OpenAI's chat and text completions, and Mistral's completion of a hole. Pure functions but for the form,
// which counts chunks.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "api/answer_form.h"
#include "api/errors.h"
#include "api/fields.h"
#include "api/request.h"
#include "chat/answer_reader.h"

namespace longspec::api {

inline constexpr std::string_view kChatCompletionsUrl = "/v1/chat/completions";
inline constexpr std::string_view kCompletionsUrl = "/v1/completions";

// `body` is the request's JSON.
std::variant<Request, Error> ParseChatRequest(const nlohmann::ordered_json& body,
                                              const RequestDefaults& defaults);
std::variant<Request, Error> ParseCompletionRequest(const nlohmann::ordered_json& body,
                                                    const RequestDefaults& defaults);
// Mistral's: a text completion with a hole behind the prompt, also without a suffix, and with no limit where
// none is given. Answers have the form of a chat's.
std::variant<Request, Error> ParseFimRequest(const nlohmann::ordered_json& body,
                                             const RequestDefaults& defaults);

// The same of fields that another API has put into these words.
std::variant<Request, Error> ParseChat(Fields& fields, const RequestDefaults& defaults);
std::variant<Request, Error> ParseCompletion(Fields& fields, const RequestDefaults& defaults);

// What of `tokens` an answer shows.
struct Shown {
  bool logprobs = false;
  bool sources = false;    // longspec's `token_sources`
  bool token_ids = false;  // llama.cpp's `tokens`
  int n = 0;               // answers to each prompt, one prompt's after another's; 0: there is one prompt
};

// {"id", "object", "created", "model", "choices": [...], "usage", "seed", "timings"}. Choice i is answers[i];
// usage counts each prompt once. `timings` only of a single answer: several share theirs.
// REQUIRES: !answers.empty()
nlohmann::ordered_json ResponseJson(Endpoint endpoint, const ResponseHead& head,
                                    std::span<const FinishedAnswer> answers, const Shown& shown = {});

// A chunk of a stream: what is common to all, with no choice yet.
nlohmann::ordered_json ChunkJson(Endpoint endpoint, const ResponseHead& head);
// Choices of chunks. Of a chat, the first of each index says who speaks; the last of each says why it ended.
nlohmann::ordered_json FirstChoiceJson(int index);  // chat only
nlohmann::ordered_json PieceChoiceJson(Endpoint endpoint, int index, std::string_view text,
                                       std::span<const TokenReport> tokens, const Shown& shown);
nlohmann::ordered_json LastChoiceJson(Endpoint endpoint, int index, FinishReason reason);

// n: as in Shown.
nlohmann::ordered_json UsageJson(std::span<const FinishedAnswer> answers, int n = 0);

// {"index", "id", "type": "function", "function": {"name", "arguments"}} for a piece, as a stream has it;
// `id` is that of the response, and `choice` the answer's index in it. Without id, type and name where it is
// not the first.
nlohmann::ordered_json ToolCallDeltaJson(const chat::ToolCallPiece& piece, const std::string& id, int choice);

// Moves what is thought and called in the texts of a chat response to where its API has it:
// message.reasoning_content; message.tool_calls, finish_reason "tool_calls", content null if nothing is said.
// `id` is that of the response.
void MoveParts(const chat::ReadingForm& form, const std::string& id, nlohmann::ordered_json* response);

std::unique_ptr<AnswerForm> MakeOpenAiForm(FormParts parts);

}  // namespace longspec::api
