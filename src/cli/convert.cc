// SPDX-License-Identifier: Apache-2.0
//
// longspec convert: a learned draft model from one container to another.
#include <CLI/Option.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/options.h"
#include "cli/output.h"
#include "draft_model/draft_checkpoint.h"
#include "draft_model/lm_file.h"
#include "engine/gguf_tokenizer.h"
#include "formats/ngram_prior.h"
#include "tensor/dequantize.h"
#include "tokenizer/control_tokens.h"
#include "tokenizer/tokenizer_hash.h"

namespace longspec::cli {
namespace {

struct ConvertOptions {
  std::string input, output, type, prior;
  std::vector<std::string> layers;
  int vocab = 0;
  double coverage = 0.0;  // in percent

  bool reduced() const { return vocab > 0 || coverage > 0.0; }
  bool of_lm() const { return reduced() || !layers.empty(); }
};

constexpr int kMostLayers = 100'000;

std::optional<int> ParseWhole(const std::string& digits) {
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0) return {};
  return number;
}

Result<std::optional<DType>> ParseType(const std::string& name) {
  if (name.empty()) return std::optional<DType>();
  const std::optional<DType> type = FindDType(name);
  if (type && CanDequantize(*type)) return type;
  return InvalidArgument("--type " + name +
                         ": must be a type weights may have, such as f32, f16, bf16 or q8_0");
}

// "0", "4-11": numbers of layers, each range in order.
Result<std::vector<int>> ParseLayers(const std::vector<std::string>& ranges) {
  std::vector<int> layers;
  for (const std::string& range : ranges) {
    const size_t dash = range.find('-');
    const auto first = ParseWhole(range.substr(0, dash)),
               last = dash == std::string::npos ? first : ParseWhole(range.substr(dash + 1));
    if (!first || !last || *last < *first || *last > kMostLayers) {
      return InvalidArgument("--layers " + range +
                             ": must be numbers of layers and ranges of them, as in 0-11,20-23");
    }
    for (int layer = *first; layer <= *last; ++layer) layers.push_back(layer);
  }
  return layers;
}

struct DraftVocab {
  std::vector<int32_t> tokens;  // ascending
  double coverage = 0.0;        // percent of what the prior has counted
};

// What a model writes most often, by the counts of a prior, and what ends an answer: as many as are asked for
// or, most frequent first, as cover so much of what was counted.
Result<DraftVocab> FrequentTokens(const GgufFile& model, const ConvertOptions& options) {
  LS_ASSIGN(TokenizerSpec spec, TokenizerSpecFromGguf(model));
  const auto n_vocab = static_cast<int>(spec.tokens.size());
  LS_ASSIGN(const auto prior, NgramPrior::Open(options.prior, n_vocab, TokenizerHash(spec)));
  SettleControlTokens(&spec);
  std::vector<int32_t> tokens = EndsOfGeneration(spec);
  std::ranges::sort(tokens);
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  const std::vector<int32_t> ends = tokens;
  const std::vector<NgramPrior::CountedToken> by_count = prior->TokensByCount();
  double all = 0.0, covered = 0.0;
  for (const auto& [token, count] : by_count) {
    all += static_cast<double>(count);
    if (std::ranges::binary_search(ends, token)) covered += static_cast<double>(count);
  }
  for (const auto& [token, count] : by_count) {
    if (options.vocab > 0 ? std::ssize(tokens) == options.vocab : covered >= all * options.coverage / 100.0)
      break;
    if (std::ranges::binary_search(ends, token)) continue;
    tokens.push_back(token);
    covered += static_cast<double>(count);
  }
  std::ranges::sort(tokens);
  return DraftVocab{.tokens = std::move(tokens), .coverage = all > 0.0 ? 100.0 * covered / all : 0.0};
}

// Some layers of a language model, or a smaller head.
int ConvertPart(const GgufFile& model, const ConvertOptions& options, std::optional<DType> type) {
  LmPart part = {.layers = {}, .vocab = {}, .type = type};
  std::string what;
  if (!options.layers.empty()) {
    auto layers = ParseLayers(options.layers);
    if (!layers.ok()) return Fail(layers.status(), Stage::kLoad);
    part.layers = std::move(*layers);
    what += " of " + std::to_string(part.layers.size()) + " layers";
  }
  what += " that drafts";
  if (options.reduced()) {
    auto vocab = FrequentTokens(model, options);
    if (!vocab.ok()) return Fail(vocab.status(), Stage::kLoad);
    part.vocab = std::move(vocab->tokens);
    char coverage[64];
    std::snprintf(coverage, sizeof(coverage), " tokens, %.2f %% of what the prior has counted",
                  vocab->coverage);
    what += ", with a head of " + std::to_string(part.vocab.size()) + coverage;
  }
  if (const Status written = WriteLmPart(model, part, options.output); !written.ok())
    return Fail(written, Stage::kWrite);
  return WriteOutput(options.output + ": a language model" + what + "\n");
}

// A language model that drafts, of which there are GGUF files alone.
int ConvertLm(const GgufFile& lm, const ConvertOptions& options, std::optional<DType> type) {
  if (options.of_lm() && options.output.ends_with(".gguf")) return ConvertPart(lm, options, type);
  if (!type || !options.output.ends_with(".gguf")) {
    return Fail(
        InvalidArgument(options.input + ": a language model; it becomes a .gguf file of another --type"),
        Stage::kLoad);
  }
  if (const Status written = WriteLmGguf(lm, *type, options.output); !written.ok())
    return Fail(written, Stage::kWrite);
  return WriteOutput(options.output + ": GGUF file of " + std::to_string(lm.tensors().size()) +
                     " tensors, a language model\n");
}

int RunConvert(const ConvertOptions& options) {
  if (!options.prior.empty() && !options.reduced()) {
    return Fail(InvalidArgument("--prior: for --draft-vocab or --draft-coverage, and there is none"),
                Stage::kLoad);
  }
  const auto type = ParseType(options.type);
  if (!type.ok()) return Fail(type.status(), Stage::kLoad);
  if (BeginsAsGguf(options.input)) {
    const auto file = GgufFile::Open(options.input);
    if (!file.ok()) return Fail(file.status(), Stage::kLoad);
    const auto architecture = (*file)->GetString("general.architecture");
    if (architecture.ok() && FindDraftKind(*architecture) == nullptr)
      return ConvertLm(**file, options, *type);
  }
  if (options.of_lm()) {
    const std::string given = options.vocab > 0   ? "--draft-vocab"
                              : options.reduced() ? "--draft-coverage"
                                                  : "--layers";
    return Fail(InvalidArgument(given + ": of a language model alone, which " + options.input + " is not"),
                Stage::kLoad);
  }
  const auto checkpoint = OpenDraftCheckpoint(options.input);
  if (!checkpoint.ok()) return Fail(checkpoint.status(), Stage::kLoad);
  const bool gguf = options.output.ends_with(".gguf");
  const Status written = gguf ? WriteDraftGguf(*checkpoint, *type, options.output)
                              : WriteDraftFolder(*checkpoint, *type, options.output);
  if (!written.ok()) return Fail(written, Stage::kWrite);
  int64_t n_parameters = 0;
  for (const TensorView& tensor : checkpoint->tensors) n_parameters += tensor.n_elements();
  return WriteOutput(options.output + ": " + (gguf ? "GGUF file" : "folder") + " of " +
                     std::to_string(checkpoint->tensors.size()) + " tensors, " +
                     std::to_string(n_parameters) + " values, kind " + std::string(checkpoint->kind->name) +
                     "\n");
}

}  // namespace

Runner SetUpConvert(CLI::App& app) {
  auto options = std::make_shared<ConvertOptions>();
  app.add_option("draft", options->input,
                 "Draft model: a folder with config.json and *.safetensors, a .safetensors or a .gguf file")
      ->required();
  app.add_option("output", options->output,
                 "A .gguf file, or a folder to hold config.json and model.safetensors")
      ->required();
  app.add_option("--type", options->type,
                 "Type of the matrices, such as q8_0 or bf16 (default: as they are)");
  CLI::Option* const prior =
      app.add_option("--prior", options->prior,
                     "Table of n-grams of the model's tokenizer, for --draft-vocab and --draft-coverage");
  CLI::Option* const vocab =
      app.add_option("--draft-vocab", options->vocab,
                     "Of a language model: keep so many rows of its head, those of the tokens that the prior "
                     "has most often")
          ->check(NumberFrom(64, kMaxInt))
          ->needs(prior);
  app.add_option(
         "--draft-coverage", options->coverage,
         "In place of --draft-vocab: as many rows as cover so many percent of what the prior has counted")
      ->check(NumberFrom(1, 100))
      ->needs(prior)
      ->excludes(vocab);
  app.add_option("--layers", options->layers,
                 "Of a language model: keep these layers alone, as in 0-11,20-23; 0 is the first")
      ->delimiter(',')
      ->check(CheckNotEmpty);
  return [options] { return RunConvert(*options); };
}

}  // namespace longspec::cli
