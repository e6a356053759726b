// SPDX-License-Identifier: Apache-2.0
//
// longspec tokenize: a text as the model sees it. Reads the vocabulary only.
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/model_choice.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "cli/report.h"

namespace longspec::cli {
namespace {

struct TokenizeOptions {
  ModelOptions model;
  std::string file;
  bool json = false;
  bool no_parse_special = false;
};

int RunTokenize(const TokenizeOptions& options) {
  const auto text = ReadInput(options.file);
  if (!text.ok()) return Fail(text.status(), Stage::kLoad);
  const auto engine = Engine::Load(options.model);
  if (!engine.ok()) return Fail(engine.status(), Stage::kLoad);
  const std::vector<int32_t> tokens = (*engine)->Tokenize(*text, false, !options.no_parse_special);
  if (options.json) {
    nlohmann::ordered_json json;
    json["tokens"] = tokens;
    return WriteOutput(JsonLine(json));
  }
  std::string lines;
  for (const int32_t id : tokens) {
    lines += std::to_string(id) + "\t" + EscapeText((*engine)->Detokenize({id}, true)) + "\n";
  }
  return WriteOutput(lines);
}

}  // namespace

Runner SetUpTokenize(CLI::App& app) {
  auto options = std::make_shared<TokenizeOptions>();
  options->model.vocab_only = true;
  AddModelFile(app, &options->model.path, "GGUF file");
  app.add_option("-f,--file", options->file, "Text file; -: standard input")->required();
  app.add_flag("--json", options->json, "Print {\"tokens\":[...]} instead of one token a line");
  app.add_flag("--no-parse-special", options->no_parse_special, "Special tokens in the text are plain text");
  return [options] { return RunTokenize(*options); };
}

}  // namespace longspec::cli
