// SPDX-License-Identifier: Apache-2.0
//
// How answers look on the wire: a form for each API. A form makes text; who sends it, and when, is the job's
// business (server/generation_job.h). Called from one thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/answer_reader.h"
#include "openai/errors.h"
#include "openai/responses.h"

namespace longspec::wire {

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
  std::span<const openai::TokenReport> tokens;  // that became whole with this text, if they are wanted
  Timings timings;                              // so far
};

// Is asked either for the whole, once, or for events.
class AnswerForm {
 public:
  virtual ~AnswerForm() = default;

  // Whether what is streamed are server-sent events; else they are lines of JSON, with nothing between them.
  virtual bool has_events() const { return true; }

  // The body of a response that is not streamed.
  virtual std::string Whole(std::span<const openai::Answer> answers) = 0;

  // Events of a stream, ready to be sent; empty: nothing is.
  virtual std::string OnStart(const Start& start) = 0;
  virtual std::string OnProgress(int index, const Progress& progress) = 0;
  virtual std::string OnPiece(const Piece& piece) = 0;
  virtual std::string OnAnswerEnd(int index, const openai::Answer& answer) = 0;
  virtual std::string OnEnd(std::span<const openai::Answer> answers) = 0;
  virtual std::string OnError(const openai::ApiError& error) = 0;
};

// An event of JSON data, and with a name.
std::string Event(const nlohmann::ordered_json& data);
std::string NamedEvent(std::string_view name, const nlohmann::ordered_json& data);

struct FormPrompt {
  std::string text;  // only if the form shows it
  int n_tokens = 0;
};
struct FormParts {
  openai::ResponseHead head;
  std::shared_ptr<const openai::ApiRequest> request;
  chat::ReadingForm reading = {};  // of the answers' texts
  int n_ctx = 0;                   // positions of a context; 0: not known
  std::vector<FormPrompt> prompts = {
      FormPrompt()};  // each has request.n answers, one prompt's after another's

  size_t n_answers() const { return prompts.size() * static_cast<size_t>(request->n); }
};
// Chat and text completions of OpenAI's API; llama.cpp's /completion.
std::unique_ptr<AnswerForm> MakeOpenAiForm(FormParts parts);
std::unique_ptr<AnswerForm> MakeLlamaForm(FormParts parts);

// What a request asked for, in llama.cpp's names.
nlohmann::ordered_json GenerationSettingsJson(const GenerationRequest& request, int n_ctx);
// The same without what is anybody's own, for others to see: stop strings, biases.
nlohmann::ordered_json PublicSettingsJson(const GenerationRequest& request, int n_ctx);

}  // namespace longspec::wire
