// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <utility>

#include "chat/answer_reader.h"
#include "openai/answer_parts.h"
#include "openai/json.h"
#include "wire/answer_form.h"
#include "wire/errors.h"

namespace longspec::wire {
namespace {

using Json = nlohmann::ordered_json;
using openai::Answer;
using openai::Endpoint;

class OpenAiForm final : public AnswerForm {
 public:
  explicit OpenAiForm(FormParts parts)
      : readers_(parts.n_answers(), chat::AnswerReader(parts.reading)),
        head_(std::move(parts.head)),
        endpoint_(parts.request->endpoint),
        wishes_(parts.request->wishes),
        reading_(parts.reading),
        shown_({.logprobs = parts.request->generation.n_logprobs >= 0,
                .sources = wishes_.return_token_source,
                .token_ids = wishes_.return_tokens,
                .n = parts.request->n}),
        prompts_(std::move(parts.prompts)),
        echoes_(wishes_.echo && !openai::TellsOfPrompts(*parts.request)) {}

  std::string Whole(std::span<const Answer> answers) override {
    Json json = openai::ResponseJson(endpoint_, head_, answers, shown_);
    if (echoes_) {
      for (size_t i = 0; i < answers.size(); ++i) {
        Json& text = json["choices"][i]["text"];
        text = PromptOf(static_cast<int>(i)) + text.get<std::string>();
      }
    }
    if (reading_.reads()) openai::MoveParts(reading_, head_.id, &json);
    if (answers.size() == 1) json["speculation"] = openai::SpeculationJson(answers[0].result.speculative);
    return openai::DumpJson(json) + "\n";
  }

  std::string OnStart(const Start&) override { return {}; }

  std::string OnProgress(int index, const Progress& progress) override {
    if (!wishes_.return_progress) return {};
    Json chunk = Chunk(Empty(index));
    chunk["prompt_progress"] = {{"total", progress.total},
                                {"cache", progress.cached},
                                {"processed", progress.processed},
                                {"time_ms", progress.ms}};
    return First(index) + Event(chunk);
  }

  std::string OnPiece(const Piece& piece) override {
    return First(piece.index) + Parts(Reader(piece.index).Push(piece.text), piece);
  }

  std::string OnAnswerEnd(int index, const Answer& answer) override {
    std::string events = First(index);
    events += Parts(Reader(index).Finish(), {.index = index, .text = {}, .tokens = {}, .timings = {}});
    Json chunk = Chunk(openai::LastChoiceJson(endpoint_, index, answer.result.finish_reason));
    Json& reason = chunk["choices"][0]["finish_reason"];
    if (Reader(index).has_whole_calls() && reason == "stop") reason = "tool_calls";
    // llama.cpp's place for it; with usage, the chunk after this one is the last.
    if (!wishes_.include_usage && readers_.size() == 1) AddNumbers(answer, &chunk);
    return events + Event(chunk);
  }

  std::string OnEnd(std::span<const Answer> answers) override {
    std::string events;
    if (wishes_.include_usage) {
      Json chunk = openai::ChunkJson(endpoint_, head_);
      chunk["usage"] = openai::UsageJson(answers, shown_.n);
      if (answers.size() == 1) AddNumbers(answers[0], &chunk);
      events = Event(chunk);
    }
    return events + "data: [DONE]\n\n";
  }

  std::string OnError(const openai::ApiError& error) override { return Event(ErrorBody(error)); }

 private:
  const std::string& PromptOf(int index) const {
    return prompts_[static_cast<size_t>(index / shown_.n)].text;
  }
  chat::AnswerReader& Reader(int index) { return readers_[static_cast<size_t>(index)]; }

  // The delta of a part; a text is that of a text completion, too.
  Json ChoiceOf(const chat::AnswerParts::value_type& part, const Piece& piece) const {
    const auto* said = std::get_if<std::string>(&part);
    Json choice =
        openai::PieceChoiceJson(endpoint_, piece.index, said != nullptr ? *said : "", piece.tokens, shown_);
    if (const auto* thought = std::get_if<chat::Thought>(&part)) {
      choice["delta"] = {{"reasoning_content", thought->text}};
    } else if (const auto* call = std::get_if<chat::ToolCallPiece>(&part)) {
      Json calls = Json::array({openai::ToolCallDeltaJson(*call, head_.id, piece.index)});
      choice["delta"] = {{"tool_calls", std::move(calls)}};
    }
    return choice;
  }

  // A chunk for each part that the piece has made readable. The piece's tokens are those of the first, or of
  // a chunk of their own.
  std::string Parts(chat::AnswerParts parts, Piece piece) const {
    if (parts.empty() && !piece.tokens.empty()) parts.emplace_back(std::string());
    std::string events;
    for (const auto& part : parts) {
      Json chunk = Chunk(ChoiceOf(part, piece));
      if (wishes_.timings_per_token) chunk["timings"] = openai::TimingsJson(piece.timings);
      events += Event(chunk);
      piece.tokens = {};
    }
    return events;
  }

  // With include_usage all chunks have the field; only the last says something.
  Json Chunk(Json choice) const {
    Json chunk = openai::ChunkJson(endpoint_, head_);
    chunk["choices"].push_back(std::move(choice));
    if (wishes_.include_usage) chunk["usage"] = nullptr;
    return chunk;
  }

  static void AddNumbers(const Answer& answer, Json* chunk) {
    (*chunk)["timings"] = openai::TimingsJson(answer.result.timings);
    (*chunk)["speculation"] = openai::SpeculationJson(answer.result.speculative);
  }

  Json Empty(int index) const {
    Json choice = openai::LastChoiceJson(endpoint_, index, FinishReason::kStop);
    choice["finish_reason"] = nullptr;
    return choice;
  }

  // What comes before anything else of an answer.
  std::string First(int index) {
    if (!begun_.insert(index).second) return {};
    if (endpoint_ == Endpoint::kChatCompletions) return Event(Chunk(openai::FirstChoiceJson(index)));
    if (!echoes_) return {};
    return Event(Chunk(openai::PieceChoiceJson(endpoint_, index, PromptOf(index), {}, shown_)));
  }

  std::vector<chat::AnswerReader> readers_;  // one for each answer
  const openai::ResponseHead head_;
  const Endpoint endpoint_;
  const openai::AnswerWishes wishes_;
  const chat::ReadingForm reading_;
  const openai::Shown shown_;
  const std::vector<FormPrompt> prompts_;
  const bool echoes_;  // an answer that tells of its prompt has it in its text
  std::set<int> begun_;
};

}  // namespace

std::unique_ptr<AnswerForm> MakeOpenAiForm(FormParts parts) {
  return std::make_unique<OpenAiForm>(std::move(parts));
}

}  // namespace longspec::wire
