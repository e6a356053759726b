// SPDX-License-Identifier: Apache-2.0
#include "api/answer_form.h"

#include "json/json_text.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

double PerSecond(int64_t n, double ms) { return ms > 0 ? static_cast<double>(n) * 1000.0 / ms : 0.0; }

double PerToken(int64_t n, double ms) { return n > 0 ? ms / static_cast<double>(n) : 0.0; }

// As llama.cpp shows it, whose `id` OpenAI's clients pass over. A token's bytes as text; what is no UTF-8 by
// itself is shown as U+FFFD when it is written.
Json TokenJson(const TokenText& token) {
  Json bytes = Json::array();
  for (const char c : token.bytes) bytes.push_back(static_cast<unsigned char>(c));
  return {{"id", token.id}, {"token", token.bytes}, {"logprob", token.logprob}, {"bytes", std::move(bytes)}};
}

}  // namespace

std::string Event(const nlohmann::ordered_json& data) { return "data: " + WriteJson(data) + "\n\n"; }

std::string NamedEvent(std::string_view name, const nlohmann::ordered_json& data) {
  return "event: " + std::string(name) + "\n" + Event(data);
}

Json LogprobsContentJson(std::span<const TokenReport> tokens) {
  Json content = Json::array();
  for (const TokenReport& report : tokens) {
    Json token = TokenJson(report.token);
    Json& top = token["top_logprobs"] = Json::array();
    for (const TokenText& other : report.likeliest) top.push_back(TokenJson(other));
    content.push_back(std::move(token));
  }
  return content;
}

Json SourcesJson(std::span<const TokenReport> tokens) {
  Json sources = Json::array();
  for (const TokenReport& report : tokens)
    sources.push_back(report.source.empty() ? Json(nullptr) : Json(report.source));
  return sources;
}

Json TimingsJson(const Timings& t) {
  return {{"cache_n", t.cache_n},
          {"prompt_n", t.prompt_n},
          {"prompt_ms", t.prompt_ms},
          {"prompt_per_token_ms", PerToken(t.prompt_n, t.prompt_ms)},
          {"prompt_per_second", PerSecond(t.prompt_n, t.prompt_ms)},
          {"prompt_draft_ms", t.prompt_draft_ms},
          {"predicted_n", t.predicted_n},
          {"predicted_ms", t.predicted_ms},
          {"predicted_per_token_ms", PerToken(t.predicted_n, t.predicted_ms)},
          {"predicted_per_second", PerSecond(t.predicted_n, t.predicted_ms)},
          {"draft_n", t.draft_n},
          {"draft_n_accepted", t.draft_n_accepted}};
}

Json SpeculationJson(const SpeculativeStats& stats) {
  Json json = {{"type", stats.type},
               {"rounds", stats.steps},
               {"mean_acceptance_length", stats.mean_acceptance_length},
               {"by_drafter", Json::array()}};
  for (const AcceptanceCounts& counts : stats.by_drafter) {
    json["by_drafter"].push_back(
        {{"name", counts.name}, {"drafted", counts.drafted}, {"accepted", counts.accepted}});
  }
  if (!stats.notice.empty()) json["notice"] = stats.notice;
  return json;
}

}  // namespace longspec::api
