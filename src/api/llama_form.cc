// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "api/errors.h"
#include "api/llama.h"
#include "api/statistics.h"
#include "json/json_text.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

// "none" while it is being written.
const char* StopType(const GenerationResult& result) {
  switch (result.finish_reason) {
    case FinishReason::kStop:
      return result.stop_string.empty() ? "eos" : "word";
    case FinishReason::kLength:
    case FinishReason::kContext:
      return "limit";
    case FinishReason::kCancelled:
      break;
  }
  return "none";
}

// A path's slashes lead into objects: "timings/prompt_n" is the answer's member of that name. What is not
// there is left out.
Json Picked(const Json& json, const std::vector<std::string>& paths) {
  if (paths.empty()) return json;
  Json picked = Json::object();
  for (const std::string& path : paths) {
    const Json* at = &json;
    for (size_t begin = 0; at != nullptr && begin <= path.size();) {
      const size_t end = std::min(path.find('/', begin), path.size());
      const auto inside = at->is_object() ? at->find(path.substr(begin, end - begin)) : at->end();
      at = at->is_object() && inside != at->end() ? &*inside : nullptr;
      begin = end + 1;
    }
    if (at != nullptr) picked[path] = *at;
  }
  return picked;
}

class LlamaForm final : public AnswerForm {
 public:
  explicit LlamaForm(FormParts parts)
      : n_tokens_(parts.n_answers(), 0),
        head_(std::move(parts.head)),
        request_(std::move(parts.request)),
        prompts_(std::move(parts.prompts)),
        n_ctx_(parts.n_ctx),
        slots_(n_tokens_.size(), -1) {}

  std::string Whole(std::span<const FinishedAnswer> answers) override {
    Json all = Json::array();
    for (size_t i = 0; i < answers.size(); ++i) {
      Json json = Last(static_cast<int>(i), answers[i]);
      json["content"] = answers[i].result.text;
      if (request_->wishes.return_tokens) json["tokens"] = answers[i].result.tokens;
      if (HasChances()) json["completion_probabilities"] = LogprobsContentJson(answers[i].tokens);
      AddSources(answers[i].tokens, &json);
      all.push_back(Picked(json, request_->wishes.response_fields));
    }
    return WriteJson(answers.size() == 1 ? all[0] : all) + "\n";
  }

  std::string OnStart(const Start& start) override {
    slots_[static_cast<size_t>(start.index)] = start.slot;
    return {};
  }

  std::string OnProgress(int index, const Progress& progress) override {
    if (!request_->wishes.return_progress) return {};
    Json chunk = First(index, "");
    chunk["prompt_progress"] = {{"total", progress.total},
                                {"cache", progress.cached},
                                {"processed", progress.processed},
                                {"time_ms", progress.ms}};
    return Event(chunk);
  }

  std::string OnPiece(const Piece& piece) override {
    const auto i = static_cast<size_t>(piece.index);
    n_tokens_[i] = piece.timings.predicted_n;
    Json chunk = First(piece.index, piece.text);
    for (const TokenReport& report : piece.tokens) chunk["tokens"].push_back(report.token.id);
    if (HasChances()) chunk["completion_probabilities"] = LogprobsContentJson(piece.tokens);
    AddSources(piece.tokens, &chunk);
    if (request_->wishes.timings_per_token) chunk["timings"] = TimingsJson(piece.timings);
    return Event(chunk);
  }

  std::string OnAnswerEnd(int index, const FinishedAnswer& answer) override {
    return Event(Picked(Last(index, answer), request_->wishes.response_fields));
  }

  // No "[DONE]": the last event says `stop`.
  std::string OnEnd(std::span<const FinishedAnswer>) override { return {}; }
  std::string OnError(const Error& error) override { return Event(ErrorBody(error)); }

 private:
  const FormPrompt& PromptOf(int index) const { return prompts_[static_cast<size_t>(index / request_->n)]; }

  bool HasChances() const { return request_->generation.n_logprobs >= 0; }

  void AddSources(std::span<const TokenReport> tokens, Json* json) const {
    if (request_->wishes.return_token_source) (*json)["token_sources"] = SourcesJson(tokens);
  }

  // What all chunks but the last have.
  Json First(int index, std::string_view content) const {
    return {{"index", index},
            {"content", content},
            {"tokens", Json::array()},
            {"stop", false},
            {"id_slot", slots_[static_cast<size_t>(index)]},
            {"tokens_predicted", n_tokens_[static_cast<size_t>(index)]},
            {"tokens_evaluated", PromptOf(index).n_tokens}};
  }

  Json Last(int index, const FinishedAnswer& answer) const {
    const GenerationResult& result = answer.result;
    Json settings = GenerationSettingsJson(request_->generation, n_ctx_);
    settings["seed"] = result.seed;
    const FormPrompt& prompt = PromptOf(index);
    const int64_t n_known = prompt.n_tokens + static_cast<int64_t>(result.tokens.size());
    return {{"index", index},
            {"content", ""},
            {"tokens", Json::array()},
            {"id_slot", answer.slot},
            {"stop", true},
            {"model", head_.model},
            {"tokens_predicted", result.tokens.size()},
            {"tokens_evaluated", prompt.n_tokens},
            {"generation_settings", std::move(settings)},
            {"prompt", prompt.text},
            {"has_new_line", result.text.find('\n') != std::string::npos},
            {"truncated", n_ctx_ > 0 && n_known >= n_ctx_},  // the context is full, whatever ended the answer
            {"stop_type", StopType(result)},
            {"stopping_word", result.stop_string},
            {"tokens_cached", std::max<int64_t>(n_known - 1, 0)},
            {"timings", TimingsJson(result.timings)},
            {"speculation", SpeculationJson(result.speculative)}};
  }

  std::vector<int64_t> n_tokens_;  // of each answer so far
  const ResponseHead head_;
  const std::shared_ptr<const Request> request_;
  const std::vector<FormPrompt> prompts_;
  const int n_ctx_;
  std::vector<int> slots_;
};

}  // namespace

std::unique_ptr<AnswerForm> MakeLlamaForm(FormParts parts) {
  return std::make_unique<LlamaForm>(std::move(parts));
}

Json GenerationSettingsJson(const GenerationRequest& request, int n_ctx) {
  const SamplingOptions& s = request.sampling;
  Json json = {{"seed", s.seed ? Json(*s.seed) : Json(-1)},
               {"temperature", s.temperature},
               {"top_k", s.top_k},
               {"top_p", s.top_p},
               {"min_p", s.min_p},
               {"repeat_last_n", s.repeat_last_n},
               {"repeat_penalty", s.repeat_penalty},
               {"presence_penalty", s.presence_penalty},
               {"frequency_penalty", s.frequency_penalty},
               {"stop", request.stop},
               {"n_predict", request.n_predict},
               {"max_tokens", request.n_predict},
               {"ignore_eos", request.ignore_eos},
               {"n_probs", std::max(request.n_logprobs, 0)},
               {"speculative.type", request.speculation.type}};
  if (n_ctx > 0) json["n_ctx"] = n_ctx;
  Json bias = Json::array();
  for (const auto& [token, value] : s.logit_bias) bias.push_back({token, value});
  json["logit_bias"] = std::move(bias);
  return json;
}

Json PublicSettingsJson(const GenerationRequest& request, int n_ctx) {
  Json json = GenerationSettingsJson(request, n_ctx);
  for (const char* name : {"stop", "logit_bias"}) json.erase(name);
  return json;
}

}  // namespace longspec::api
