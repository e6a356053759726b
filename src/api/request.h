// SPDX-License-Identifier: Apache-2.0
//
// A request for text as every API makes it: what the engine is asked for, how the answer is given, and what
// of it waits for the model that answers. Plain values.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chat/tools.h"
#include "longspec/generation.h"
#include "longspec/infill.h"

namespace longspec::api {

enum class ThoughtsPlace : uint8_t {
  kAuto,       // apart from what is said, if the model is known to think
  kApart,      // apart, if it thinks
  kInContent,  // they stay in the text
  kNowhere     // they are left out, if the model is known to think
};

enum class Endpoint : uint8_t {
  kChatCompletions,
  kCompletions,
  kLlamaCompletion,  // /completion
  kInfill,           // llama.cpp's /infill
};
// Has the fields and the form of llama.cpp's /completion.
constexpr bool IsLlamas(Endpoint endpoint) {
  return endpoint == Endpoint::kLlamaCompletion || endpoint == Endpoint::kInfill;
}

inline constexpr int kMostChoices = 128;                    // of `n`
inline constexpr size_t kMostStopBytes = size_t{64} << 10;  // of all of them
inline constexpr size_t kMostStopStrings = 64;  // of `stop`: OpenAI takes 4, others as many as there are
inline constexpr int kMostLogprobs = 20;
inline constexpr size_t kMostBiases = size_t{1} << 17;  // of logit_bias; each costs time at every token
inline constexpr int kDefaultCompletionTokens = 16;     // of a text completion that does not say max_tokens

// A text, or token numbers where there is no text.
struct PromptPart {
  std::string text = {};
  std::vector<int32_t> tokens = {};
};
using Prompt = std::vector<PromptPart>;  // one behind the other

// How an answer is given, which does not change what it says.
struct AnswerWishes {
  bool stream = false;
  bool include_usage = false;        // stream_options: the last chunk has `usage`
  bool timings_per_token = false;    // llama.cpp: `timings` in every chunk
  bool return_progress = false;      // llama.cpp: chunks that say how far the prompt is
  bool return_tokens = false;        // llama.cpp: token numbers
  bool return_token_source = false;  // which drafter had guessed each token
  ThoughtsPlace thoughts = ThoughtsPlace::kAuto;
  bool echo = false;           // of text completions: the prompt before the answer
  int sse_ping_interval = -1;  // seconds; 0: no pings; -1: the server's
  int id_slot = -1;            // llama.cpp: where the answer's tokens are left; -1: anywhere
  int t_max_predict_ms = 0;    // after so long generation ends with a line; 0: when it ends
  std::vector<std::string> response_fields = {};  // of llama.cpp's form: what the answer is cut down to
};

// Who drafts and how much: of a request's options of speculation, which keep the server's.
struct SpeculativeWish {
  std::string type;  // as SpeculationOptions has it; empty: the server's
  int max_rows = -1;
};

struct Request {
  Endpoint endpoint = Endpoint::kChatCompletions;
  std::string model;  // as asked for; may be empty
  GenerationRequest generation;
  std::string grammar_field;  // what asks for the generation's grammar; empty: nothing in the request does
  chat::ToolUse tools;        // ApplyTools (api/apply_dialect.h) tells the generation of them
  int n = 1;                  // answers
  AnswerWishes wishes;
  SpeculativeWish speculative;  // whoever makes the generation applies it (SpeculationOf)
  // Several prompts, or one of several parts; then the generation has none. Each gets n answers.
  std::vector<Prompt> prompts;
  std::optional<InfillText>
      infill;  // a text with a hole, which is the answer's place; then there is no prompt
  std::optional<std::string> prediction;  // a text that the answer may be made of (predicted outputs)
  std::vector<std::pair<std::string, float>> text_bias;                // logit_bias of all tokens of a text
  nlohmann::ordered_json repeated = nlohmann::ordered_json::object();  // fields that the answer has, too
  std::vector<std::string> ignored;  // fields and parts of them that are known and not granted
  std::vector<std::string> unknown;  // fields that no API has, at most 8; they were passed over
};

// Whether the answer begins with its prompt, and says how likely the tokens of that are.
inline bool TellsOfPrompts(const Request& request) {
  return request.wishes.echo && request.generation.n_logprobs >= 0;
}

// What the fields of requests replace, one by one.
struct RequestDefaults {
  GenerationRequest generation;  // without a prompt
  ThoughtsPlace thoughts = ThoughtsPlace::kAuto;
};

}  // namespace longspec::api
