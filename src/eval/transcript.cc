// SPDX-License-Identifier: Apache-2.0
#include "eval/transcript.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "eval/lines.h"

namespace longspec {
namespace {

using Json = nlohmann::ordered_json;

// What tells the lines of a file apart; of prompts, which have no temperature, the rest.
std::string KeyOf(const Json& line) {
  Json key = Json::array();
  for (const char* name : {"family", "length", "id", "temperature"}) {
    if (line.contains(name)) key.push_back(line[name]);
  }
  return key.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::set<std::string> KeysIn(const std::string& path) {
  std::set<std::string> keys;
  std::ifstream in(path, std::ios::binary);
  for (std::string text; std::getline(in, text);) {
    const Json line = Json::parse(text, nullptr, false);
    if (line.is_object()) keys.insert(KeyOf(line));  // else cut short when the evaluation was killed
  }
  return keys;
}

Status AddLine(const Json& line, const std::string& path, std::set<std::string>& keys) {
  if (!keys.insert(KeyOf(line)).second) return {};
  return AppendLines(path, line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Json LineOf(const Transcript::Prompt& prompt) {
  return {{"family", prompt.family}, {"length", prompt.length}, {"id", prompt.id}};
}

}  // namespace

Transcript::Transcript(const std::string& out)
    : prompts_{.path = out + "/prompts.jsonl", .keys = KeysIn(out + "/prompts.jsonl")},
      answers_{.path = out + "/answers.jsonl", .keys = KeysIn(out + "/answers.jsonl")} {}

Status Transcript::AddPrompt(const Prompt& prompt, const std::vector<int32_t>& tokens) {
  Json line = LineOf(prompt);
  line["tokens"] = tokens;
  return AddLine(line, prompts_.path, prompts_.keys);
}

Status Transcript::AddAnswer(const Prompt& prompt, double temperature, const std::vector<int32_t>& tokens,
                             const std::string& text) {
  Json line = LineOf(prompt);
  line["temperature"] = temperature;
  line["tokens"] = tokens;
  line["text"] = text;
  return AddLine(line, answers_.path, answers_.keys);
}

}  // namespace longspec
