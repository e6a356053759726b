// SPDX-License-Identifier: Apache-2.0
//
// Answers in the form of OpenAI's API, whole and in pieces, with llama.cpp's `timings`. Pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longspec/generation.h"
#include "openai/requests.h"

namespace longspec::openai {

struct ResponseHead {
  std::string id;                // without its beginning, which says what the response is: "chatcmpl-"
  int64_t created = 0;           // seconds since 1970
  std::string model;             // the one that answered
  std::string fingerprint = {};  // `system_fingerprint`; empty: none is given
};

// A token as answers speak of it.
struct TokenText {
  int32_t id = 0;
  std::string bytes;
  float logprob = 0;
};
struct TokenReport {
  TokenText token;
  std::vector<TokenText> likeliest = {};
  std::string source = {};              // the drafter that had guessed it; empty: none had
  size_t text_begin = 0, text_end = 0;  // of its bytes in the text
  size_t text_offset = 0;               // of its first character, counted in characters
  bool has_chance = true;               // false: the first token of a prompt
};

struct Answer {
  GenerationResult result;
  int slot = -1;                         // llama.cpp's; -1: it was in none
  std::vector<TokenReport> tokens = {};  // of its text, if `logprobs` or sources are wanted
};

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
                                    std::span<const Answer> answers, const Shown& shown = {});

// A chunk of a stream: what is common to all, with no choice yet.
nlohmann::ordered_json ChunkJson(Endpoint endpoint, const ResponseHead& head);
// Choices of chunks. Of a chat, the first of each index says who speaks; the last of each says why it ended.
nlohmann::ordered_json FirstChoiceJson(int index);  // chat only
nlohmann::ordered_json PieceChoiceJson(Endpoint endpoint, int index, std::string_view text,
                                       std::span<const TokenReport> tokens, const Shown& shown);
nlohmann::ordered_json LastChoiceJson(Endpoint endpoint, int index, FinishReason reason);

// n: as in Shown.
nlohmann::ordered_json UsageJson(std::span<const Answer> answers, int n = 0);
nlohmann::ordered_json TimingsJson(const Timings& timings);
// {"type", "rounds", "mean_acceptance_length", "by_drafter": [{"name", "drafted", "accepted"}]}
nlohmann::ordered_json SpeculationJson(const SpeculativeStats& stats);
// Names of the drafters that had guessed the tokens; null where none had.
nlohmann::ordered_json SourcesJson(std::span<const TokenReport> tokens);

// A list of {"id", "token", "logprob", "bytes", "top_logprobs"}.
nlohmann::ordered_json LogprobsContentJson(std::span<const TokenReport> tokens);

}  // namespace longspec::openai
