// SPDX-License-Identifier: Apache-2.0
#include "api/answer_form.h"

#include "json/json_text.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

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

}  // namespace longspec::api
