// SPDX-License-Identifier: Apache-2.0
//
// Answers, and how they look on the wire: a form for each API. A form makes text; who sends it, and when, is
// the job's business (server/generation_job.h). Called from one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/errors.h"
#include "api/request.h"
#include "chat/answer_reader.h"
#include "longspec/generation.h"

namespace longspec::api {

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

struct FinishedAnswer {
  GenerationResult result;
  int slot = -1;                         // llama.cpp's; -1: it was in none
  std::vector<TokenReport> tokens = {};  // of its text, if `logprobs` or sources are wanted
};

struct Progress {
  int total = 0, cached = 0, processed = 0;  // tokens of the prompt; processed: those that were cached, too
  double ms = 0;                             // since the prompt's evaluation began
};

struct Start {
  int index = 0;                   // of the answer
  int n_prompt = 0, n_cached = 0;  // tokens of the prompt, and those of them that need not be evaluated
  int slot = -1;
};

struct Piece {
  int index = 0;  // of the answer
  std::string_view text;
  std::span<const TokenReport> tokens;  // that became whole with this text, if they are wanted
  Timings timings;                      // so far
};

// Is asked either for the whole, once, or for events.
class AnswerForm {
 public:
  virtual ~AnswerForm() = default;

  // Whether what is streamed are server-sent events; else they are lines of JSON, with nothing between them.
  virtual bool has_events() const { return true; }

  // The body of a response that is not streamed.
  virtual std::string Whole(std::span<const FinishedAnswer> answers) = 0;

  // Events of a stream, ready to be sent; empty: nothing is.
  virtual std::string OnStart(const Start& start) = 0;
  virtual std::string OnProgress(int index, const Progress& progress) = 0;
  virtual std::string OnPiece(const Piece& piece) = 0;
  virtual std::string OnAnswerEnd(int index, const FinishedAnswer& answer) = 0;
  virtual std::string OnEnd(std::span<const FinishedAnswer> answers) = 0;
  virtual std::string OnError(const Error& error) = 0;
};

// An event of JSON data, and with a name.
std::string Event(const nlohmann::ordered_json& data);
std::string NamedEvent(std::string_view name, const nlohmann::ordered_json& data);

struct FormPrompt {
  std::string text;  // only if the form shows it
  int n_tokens = 0;
};
struct FormParts {
  ResponseHead head;
  std::shared_ptr<const Request> request;
  chat::ReadingForm reading = {};  // of the answers' texts
  int n_ctx = 0;                   // positions of a context; 0: not known
  std::vector<FormPrompt> prompts = {
      FormPrompt()};  // each has request.n answers, one prompt's after another's

  size_t n_answers() const { return prompts.size() * static_cast<size_t>(request->n); }
};

// --- What several forms show, as llama.cpp does. ---

// Names of the drafters that had guessed the tokens; null where none had.
nlohmann::ordered_json SourcesJson(std::span<const TokenReport> tokens);
// A list of {"id", "token", "logprob", "bytes", "top_logprobs"}.
nlohmann::ordered_json LogprobsContentJson(std::span<const TokenReport> tokens);

}  // namespace longspec::api
