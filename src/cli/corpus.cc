// SPDX-License-Identifier: Apache-2.0
//
// longspec corpus: texts as tokens, indexed, for drafts from what was written before; or counted
// (cli/ngrams.h). Reads no weights.
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/model_choice.h"
#include "cli/ngrams.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "draft_text/suffix_corpus.h"
#include "engine/opened_model.h"
#include "longspec/engine.h"

namespace longspec::cli {
namespace {

struct CorpusOptions {
  ModelOptions model;
  std::vector<std::string> texts;
  std::string output;
  NgramFlags ngrams;
};

int RunCorpus(const CorpusOptions& options) {
  for (const std::string& path : options.texts) {
    if (const Status there = CheckInput(path); !there.ok()) return Fail(there, Stage::kLoad);
  }
  if (options.ngrams.ngrams) {
    return CountNgrams(options.model, options.texts, options.output, options.ngrams);
  }
  if (options.texts.empty()) return Fail(kExitUsage, "--file is required");
  // The vocabulary that counts is the one of the model's logits, which may be larger than the tokenizer's.
  ModelFiles files;
  const auto info = InspectModel(options.model, files);
  if (!info.ok()) return Fail(info.status(), Stage::kLoad);
  ModelOptions vocabulary = options.model;
  vocabulary.vocab_only = true;
  const auto engine = LoadModelOf(vocabulary, files);
  if (!engine.ok()) return Fail(engine.status(), Stage::kLoad);
  std::vector<int32_t> tokens;
  for (const std::string& path : options.texts) {
    const auto text = ReadInput(path);
    if (!text.ok()) return Fail(text.status(), Stage::kLoad);
    if (!tokens.empty()) tokens.push_back(SuffixCorpus::kSeparator);
    const std::vector<int32_t> added = (*engine)->Tokenize(*text);
    tokens.insert(tokens.end(), added.begin(), added.end());
  }
  if (tokens.empty()) return Fail(kExitUsage, "the texts are empty: there is nothing to index");
  const Status written = SuffixCorpus::Write(options.output, info->n_vocab, tokens);
  if (!written.ok()) return Fail(written, Stage::kWrite);
  return WriteOutput(options.output + ": " + std::to_string(tokens.size()) + " tokens\n");
}

}  // namespace

Runner SetUpCorpus(CLI::App& app) {
  auto options = std::make_shared<CorpusOptions>();
  AddModelFile(app, &options->model.path, "GGUF file whose tokens are counted");
  app.add_option("-f,--file", options->texts, "Text files; -: standard input")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("-o,--output", options->output, "File to write")->required();
  AddNgramOptions(app, &options->ngrams);
  return [options] { return RunCorpus(*options); };
}

}  // namespace longspec::cli
