// SPDX-License-Identifier: Apache-2.0
//
// sample_answers [--answers N] [--seed S] < forms.jsonl: answers under schemas and grammars, written by a
// stand-in for a model that wants to break out of them (grammar/testing/breakout_writer.h). Another program
// judges them (tests/e2e/test_kept_schemas.py).
//
// A line of input is {"schema": ...}, {"grammar": "..."}, {"regex": "..."} or {"tag": ...}; a line of output
// {"error": "..."} or {"answers": [{"text": ..., "whole": ...}], "faults": [...]}: a text's bytes are code
// points up to 255.
#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "grammar/grammar.h"
#include "grammar/testing/breakout_writer.h"
#include "json/json_text.h"

namespace {

using Json = nlohmann::ordered_json;

longspec::GrammarText TextOf(const Json& form) {
  using Kind = longspec::GrammarText::Kind;
  if (form.contains("grammar")) return {Kind::kGbnf, form["grammar"].get<std::string>()};
  if (form.contains("regex")) return {Kind::kRegex, form["regex"].get<std::string>()};
  if (form.contains("tag")) return {Kind::kStructuralTag, longspec::WriteJson(form["tag"])};
  return {Kind::kJsonSchema, longspec::WriteJson(form.at("schema"))};
}

std::string Latin(const std::string& bytes) {
  std::string utf8;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      utf8 += c;
    } else {
      utf8 += static_cast<char>(0xC0 | byte >> 6);
      utf8 += static_cast<char>(0x80 | (byte & 0x3F));
    }
  }
  return utf8;
}

Json Answers(longspec::GrammarCompiler& compiler, longspec::testing::BreakoutWriter& writer, const Json& form,
             int n) {
  const auto grammar = compiler.Compile(TextOf(form));
  if (!grammar.ok()) return {{"error", grammar.status().message()}};
  Json answers = Json::array(), faults = Json::array();
  for (int i = 0; i < n; ++i) {
    const auto written = writer.Write(**grammar);
    answers.push_back({{"text", Latin(written.text)}, {"whole", written.whole}});
    for (const std::string& fault : written.faults) faults.push_back(Latin(fault));
  }
  return {{"answers", std::move(answers)}, {"faults", std::move(faults)}};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Answers under schemas and grammars, by a stand-in for a model that wants to break out of them.");
  int n_answers = 12;
  uint64_t seed = 1;
  app.add_option("--answers", n_answers, "for each line");
  app.add_option("--seed", seed, "of the stand-in's choices");
  CLI11_PARSE(app, argc, argv);
  longspec::testing::BreakoutWriter writer(seed);
  const auto compiler = longspec::GrammarCompiler::Create(writer.vocabulary());
  if (!compiler.ok()) {
    std::cerr << compiler.status().message() << "\n";
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);)
    std::cout << Answers(**compiler, writer, std::get<Json>(longspec::ReadJson(line)), n_answers).dump()
              << std::endl;
  return 0;
}
