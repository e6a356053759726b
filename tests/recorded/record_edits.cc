// SPDX-License-Identifier: Apache-2.0
//
// record_edits MODEL < requests.jsonl > recordings.jsonl: what the model answers to an editor's requests at
// temperature 0, with all that a server guesses of the answer (record_edits.py makes the requests).
//
// A request has "family" and one of "infill" {"prefix", "prompt", "suffix"}, "prompt" (a text) and
// "messages"; and perhaps "prediction", "stop", "n_predict", or the answer itself: "answer" (a text) or
// "tokens".
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "longspec/engine.h"
#include "server/predictions.h"

namespace {

using Json = nlohmann::ordered_json;
using Tokens = std::vector<int32_t>;

// As `longspec serve --fim` has it.
constexpr longspec::InfillLayout kLayout = {.window = 1024, .anchored = true, .suffix = 64};

Json Record(longspec::Engine& engine, longspec::Session& session, longspec::server::Suggestions& suggestions,
            const Json& request) {
  longspec::GenerationRequest generation;
  Json line = {{"family", request.at("family")}};
  Json beginnings = Json::array();
  longspec::InfillText text;
  std::string prediction = request.value("prediction", "");
  if (request.contains("infill")) {
    const Json& given = request["infill"];
    text = {.prefix = given.at("prefix"), .suffix = given.at("suffix"), .prompt = given.at("prompt")};
    generation.tokens = *engine.InfillTokens(text, kLayout);
    for (const auto& beginning : longspec::server::HolePrediction(text, suggestions, engine).beginnings)
      beginnings.push_back({{"chance", beginning.chance}, {"tokens", beginning.tokens}});
  } else if (request.contains("prompt")) {
    generation.prompt = request["prompt"];
    generation.tokens = *engine.PromptTokens(generation);
    prediction = longspec::server::UneditedRegion(generation.prompt).value_or("");
    generation.prompt.clear();
  } else {
    for (const Json& message : request.at("messages"))
      generation.messages.push_back({.role = message.at("role"), .content = message.at("content")});
    generation.tokens = *engine.PromptTokens(generation);
    generation.messages.clear();
  }
  line["length"] = generation.tokens.size();
  line["prompt"] = generation.tokens;
  line["prediction"] = engine.Tokenize(prediction, false, false);
  line["beginnings"] = beginnings;
  Tokens answer;
  if (request.contains("tokens")) {
    answer = request["tokens"].get<Tokens>();
  } else if (request.contains("answer")) {
    answer = engine.Tokenize(request["answer"].get<std::string>(), false, false);
  } else {
    generation.n_predict = request.value("n_predict", 64);
    generation.stop = request.value("stop", std::vector<std::string>());
    generation.sampling.temperature = 0;
    answer = engine.Generate(session, generation)->tokens;
    std::fprintf(stderr, "%s: %zu tokens: %s\n", line["family"].get<std::string>().c_str(), answer.size(),
                 engine.Detokenize(answer).substr(0, 200).c_str());
  }
  if (request.contains("infill"))
    suggestions.Keep(text, engine.Detokenize(answer, false), answer, engine.EndsAnswer(answer.back()));
  line["answers"] = {{{"temperature", 0.0},
                      {"seed", 1},
                      {"top_k", 40},
                      {"top_p", 0.95},
                      {"min_p", 0.05},
                      {"tokens", answer}}};
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: record_edits MODEL < requests.jsonl > recordings.jsonl\n";
    return 2;
  }
  auto engine = longspec::Engine::Load({.path = argv[1], .ctx_size = 8192, .threads = 1});
  if (!engine.ok()) {
    std::cerr << engine.status().message() << "\n";
    return 1;
  }
  const auto session = (*engine)->NewSession();
  longspec::server::Suggestions suggestions;
  for (std::string line; std::getline(std::cin, line);)
    std::cout << Record(**engine, **session, suggestions, Json::parse(line)).dump() << std::endl;
  return 0;
}
