// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "api/errors.h"
#include "api/openai.h"
#include "api/statistics.h"
#include "base/check.h"
#include "chat/answer_reader.h"
#include "json/json_text.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

// A full context is a length, too.
const char* FinishReasonName(FinishReason reason) {
  return reason == FinishReason::kStop ? "stop" : "length";
}

// A text completion's: lists by position.
Json LegacyLogprobsJson(std::span<const TokenReport> tokens) {
  Json json = {{"text_offset", Json::array()},
               {"token_logprobs", Json::array()},
               {"tokens", Json::array()},
               {"top_logprobs", Json::array()}};
  for (const TokenReport& report : tokens) {
    json["text_offset"].push_back(report.text_offset);
    json["tokens"].push_back(report.token.bytes);
    if (!report.has_chance) {
      json["token_logprobs"].push_back(nullptr);
      json["top_logprobs"].push_back(nullptr);
      continue;
    }
    json["token_logprobs"].push_back(report.token.logprob);
    Json top = Json::object();
    for (const TokenText& other : report.likeliest) top[other.bytes] = other.logprob;
    json["top_logprobs"].push_back(std::move(top));
  }
  return json;
}

Json LogprobsJson(Endpoint endpoint, std::span<const TokenReport> tokens, const Shown& shown) {
  if (!shown.logprobs) return nullptr;
  if (endpoint == Endpoint::kCompletions) return LegacyLogprobsJson(tokens);
  return {{"content", LogprobsContentJson(tokens)}, {"refusal", nullptr}};
}

void AddTokens(std::span<const TokenReport> tokens, const Shown& shown, Json& choice) {
  if (shown.sources) choice["token_sources"] = SourcesJson(tokens);
  if (!shown.token_ids) return;
  Json& ids = choice["tokens"] = Json::array();
  for (const TokenReport& report : tokens) ids.push_back(report.token.id);
}

Json ChoiceJson(Endpoint endpoint, size_t index, const FinishedAnswer& answer, const Shown& shown) {
  Json choice;
  if (endpoint == Endpoint::kChatCompletions) {
    choice["index"] = index;
    choice["message"] = {{"role", "assistant"}, {"content", answer.result.text}, {"refusal", nullptr}};
  } else {
    choice["text"] = answer.result.text;
    choice["index"] = index;
  }
  choice["logprobs"] = LogprobsJson(endpoint, answer.tokens, shown);
  choice["finish_reason"] = FinishReasonName(answer.result.finish_reason);
  AddTokens(answer.tokens, shown, choice);
  return choice;
}

void MovePartsOf(chat::AnswerReader reader, const std::string& id, Json* choice) {
  Json& message = (*choice)["message"];
  if (!message["content"].is_string()) return;
  std::string content, thoughts;
  Json calls = Json::array();
  for (const auto& part : reader.ReadWhole(message["content"].get_ref<const std::string&>())) {
    if (const auto* call = std::get_if<chat::ToolCallPiece>(&part)) {
      calls.push_back(ToolCallDeltaJson(*call, id, (*choice)["index"].get<int>()));
      calls.back().erase("index");
    } else if (const auto* thought = std::get_if<chat::Thought>(&part)) {
      thoughts += thought->text;
    } else {
      content += std::get<std::string>(part);
    }
  }
  message["content"] = content.empty() && !calls.empty() ? Json(nullptr) : Json(content);
  if (!thoughts.empty()) message["reasoning_content"] = std::move(thoughts);
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  Json& reason = (*choice)["finish_reason"];
  if (reader.has_whole_calls() && reason == "stop") reason = "tool_calls";
}

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
        echoes_(wishes_.echo && !TellsOfPrompts(*parts.request)) {}

  std::string Whole(std::span<const FinishedAnswer> answers) override {
    Json json = ResponseJson(endpoint_, head_, answers, shown_);
    if (echoes_) {
      for (size_t i = 0; i < answers.size(); ++i) {
        Json& text = json["choices"][i]["text"];
        text = PromptOf(static_cast<int>(i)) + text.get<std::string>();
      }
    }
    if (reading_.reads()) MoveParts(reading_, head_.id, &json);
    if (answers.size() == 1) json["speculation"] = SpeculationJson(answers[0].result.speculative);
    return WriteJson(json) + "\n";
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

  std::string OnAnswerEnd(int index, const FinishedAnswer& answer) override {
    std::string events = First(index);
    events += Parts(Reader(index).Finish(), {.index = index, .text = {}, .tokens = {}, .timings = {}});
    Json chunk = Chunk(LastChoiceJson(endpoint_, index, answer.result.finish_reason));
    Json& reason = chunk["choices"][0]["finish_reason"];
    if (Reader(index).has_whole_calls() && reason == "stop") reason = "tool_calls";
    // llama.cpp's place for it; with usage, the chunk after this one is the last.
    if (!wishes_.include_usage && readers_.size() == 1) AddNumbers(answer, &chunk);
    return events + Event(chunk);
  }

  std::string OnEnd(std::span<const FinishedAnswer> answers) override {
    std::string events;
    if (wishes_.include_usage) {
      Json chunk = ChunkJson(endpoint_, head_);
      chunk["usage"] = UsageJson(answers, shown_.n);
      if (answers.size() == 1) AddNumbers(answers[0], &chunk);
      events = Event(chunk);
    }
    return events + "data: [DONE]\n\n";
  }

  std::string OnError(const Error& error) override { return Event(ErrorBody(error)); }

 private:
  const std::string& PromptOf(int index) const {
    return prompts_[static_cast<size_t>(index / shown_.n)].text;
  }
  chat::AnswerReader& Reader(int index) { return readers_[static_cast<size_t>(index)]; }

  // The delta of a part; a text is that of a text completion, too.
  Json ChoiceOf(const chat::AnswerParts::value_type& part, const Piece& piece) const {
    const auto* said = std::get_if<std::string>(&part);
    Json choice = PieceChoiceJson(endpoint_, piece.index, said != nullptr ? *said : "", piece.tokens, shown_);
    if (const auto* thought = std::get_if<chat::Thought>(&part)) {
      choice["delta"] = {{"reasoning_content", thought->text}};
    } else if (const auto* call = std::get_if<chat::ToolCallPiece>(&part)) {
      Json calls = Json::array({ToolCallDeltaJson(*call, head_.id, piece.index)});
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
      if (wishes_.timings_per_token) chunk["timings"] = TimingsJson(piece.timings);
      events += Event(chunk);
      piece.tokens = {};
    }
    return events;
  }

  // With include_usage all chunks have the field; only the last says something.
  Json Chunk(Json choice) const {
    Json chunk = ChunkJson(endpoint_, head_);
    chunk["choices"].push_back(std::move(choice));
    if (wishes_.include_usage) chunk["usage"] = nullptr;
    return chunk;
  }

  static void AddNumbers(const FinishedAnswer& answer, Json* chunk) {
    (*chunk)["timings"] = TimingsJson(answer.result.timings);
    (*chunk)["speculation"] = SpeculationJson(answer.result.speculative);
  }

  Json Empty(int index) const {
    Json choice = LastChoiceJson(endpoint_, index, FinishReason::kStop);
    choice["finish_reason"] = nullptr;
    return choice;
  }

  // What comes before anything else of an answer.
  std::string First(int index) {
    if (!begun_.insert(index).second) return {};
    if (endpoint_ == Endpoint::kChatCompletions) return Event(Chunk(FirstChoiceJson(index)));
    if (!echoes_) return {};
    return Event(Chunk(PieceChoiceJson(endpoint_, index, PromptOf(index), {}, shown_)));
  }

  std::vector<chat::AnswerReader> readers_;  // one for each answer
  const ResponseHead head_;
  const Endpoint endpoint_;
  const AnswerWishes wishes_;
  const chat::ReadingForm reading_;
  const Shown shown_;
  const std::vector<FormPrompt> prompts_;
  const bool echoes_;  // an answer that tells of its prompt has it in its text
  std::set<int> begun_;
};

}  // namespace

// Of several answers to a prompt the first may have evaluated it; the others found it in the cache.
Json UsageJson(std::span<const FinishedAnswer> answers, int n) {
  const size_t per_prompt = n > 0 ? static_cast<size_t>(n) : answers.size();
  int64_t prompt = 0, cached = 0, completion = 0, drafted = 0, accepted = 0;
  for (size_t first = 0; first < answers.size(); first += per_prompt) {
    int64_t known = answers[first].result.timings.cache_n;
    prompt += known + answers[first].result.timings.prompt_n;
    for (const FinishedAnswer& answer : answers.subspan(first, std::min(per_prompt, answers.size() - first)))
      known = std::min(known, answer.result.timings.cache_n);
    cached += known;
  }
  for (const FinishedAnswer& answer : answers) {
    const Timings& timings = answer.result.timings;
    completion += timings.predicted_n;
    drafted += timings.draft_n;
    accepted += timings.draft_n_accepted;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", cached}}},
          {"completion_tokens_details",
           {{"accepted_prediction_tokens", accepted}, {"rejected_prediction_tokens", drafted - accepted}}}};
}

Json ChunkJson(Endpoint endpoint, const ResponseHead& head) {
  const bool chat = endpoint == Endpoint::kChatCompletions;
  Json chunk = {{"id", (chat ? "chatcmpl-" : "cmpl-") + head.id},
                {"object", chat ? "chat.completion.chunk" : "text_completion"},
                {"created", head.created},
                {"model", head.model}};
  if (!head.fingerprint.empty()) chunk["system_fingerprint"] = head.fingerprint;
  chunk["choices"] = Json::array();
  return chunk;
}

Json FirstChoiceJson(int index) {
  return {{"index", index},
          {"delta", {{"role", "assistant"}, {"content", nullptr}}},
          {"logprobs", nullptr},
          {"finish_reason", nullptr}};
}

Json PieceChoiceJson(Endpoint endpoint, int index, std::string_view text, std::span<const TokenReport> tokens,
                     const Shown& shown) {
  Json choice;
  if (endpoint == Endpoint::kChatCompletions) {
    choice["index"] = index;
    choice["delta"] = {{"content", text}};
  } else {
    choice["text"] = text;
    choice["index"] = index;
  }
  choice["logprobs"] = LogprobsJson(endpoint, tokens, shown);
  choice["finish_reason"] = nullptr;
  AddTokens(tokens, shown, choice);
  return choice;
}

Json LastChoiceJson(Endpoint endpoint, int index, FinishReason reason) {
  Json choice;
  if (endpoint == Endpoint::kChatCompletions) {
    choice["index"] = index;
    choice["delta"] = Json::object();
  } else {
    choice["text"] = "";
    choice["index"] = index;
  }
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = FinishReasonName(reason);
  return choice;
}

Json ResponseJson(Endpoint endpoint, const ResponseHead& head, std::span<const FinishedAnswer> answers,
                  const Shown& shown) {
  LS_CHECK(!answers.empty());
  Json response = ChunkJson(endpoint, head);
  if (endpoint == Endpoint::kChatCompletions) response["object"] = "chat.completion";
  Json& choices = response["choices"];
  for (size_t i = 0; i < answers.size(); ++i) choices.push_back(ChoiceJson(endpoint, i, answers[i], shown));
  response["usage"] = UsageJson(answers, shown.n);
  response["seed"] = answers.front().result.seed;
  if (answers.size() == 1) response["timings"] = TimingsJson(answers.front().result.timings);
  return response;
}

Json ToolCallDeltaJson(const chat::ToolCallPiece& piece, const std::string& id, int choice) {
  Json json = {{"index", piece.index}};
  if (!piece.name.empty()) {
    json["id"] =
        "call_" + id + (choice == 0 ? "" : "_" + std::to_string(choice)) + "_" + std::to_string(piece.index);
    json["type"] = "function";
    json["function"] = {{"name", piece.name}};
  }
  json["function"]["arguments"] = piece.arguments;
  return json;
}

void MoveParts(const chat::ReadingForm& form, const std::string& id, Json* response) {
  for (Json& choice : (*response)["choices"]) MovePartsOf(chat::AnswerReader(form), id, &choice);
}

std::unique_ptr<AnswerForm> MakeOpenAiForm(FormParts parts) {
  return std::make_unique<OpenAiForm>(std::move(parts));
}

}  // namespace longspec::api
