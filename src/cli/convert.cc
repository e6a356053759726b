// SPDX-License-Identifier: Apache-2.0
//
// longspec convert: a learned draft model from one container to another.
#include <CLI/Option.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/options.h"
#include "cli/output.h"
#include "draft_model/draft_checkpoint.h"
#include "draft_model/lm_model.h"
#include "engine/gguf_tokenizer.h"
#include "formats/ngram_prior.h"
#include "tensor/dequantize.h"
#include "tokenizer/control_tokens.h"
#include "tokenizer/tokenizer_hash.h"

namespace longspec::cli {
namespace {

struct ConvertOptions {
  std::string input, output, type, prior;
  int vocab = 0;
};

Result<std::optional<DType>> ParseType(const std::string& name) {
  if (name.empty()) return std::optional<DType>();
  const std::optional<DType> type = FindDType(name);
  if (type && CanDequantize(*type)) return type;
  return InvalidArgument("--type " + name +
                         ": must be a type weights may have, such as f32, f16, bf16 or q8_0");
}

// What a model writes most often, by the counts of a prior, and what ends an answer; ascending.
Result<std::vector<int32_t>> FrequentTokens(const GgufFile& model, const ConvertOptions& options) {
  LS_ASSIGN(TokenizerSpec spec, TokenizerSpecFromGguf(model));
  const auto n_vocab = static_cast<int>(spec.tokens.size());
  LS_ASSIGN(const auto prior, NgramPrior::Open(options.prior, n_vocab, TokenizerHash(spec)));
  SettleControlTokens(&spec);
  std::vector<int32_t> tokens = EndsOfGeneration(spec);
  std::ranges::sort(tokens);
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  const std::vector<int32_t> ends = tokens;
  for (const int32_t token : prior->FrequentTokens(options.vocab)) {
    if (std::ssize(tokens) == options.vocab) break;
    if (!std::ranges::binary_search(ends, token)) tokens.push_back(token);
  }
  std::ranges::sort(tokens);
  return tokens;
}

// A language model with a smaller head.
int ConvertHead(const GgufFile& model, const ConvertOptions& options) {
  const auto vocab = FrequentTokens(model, options);
  if (!vocab.ok()) return Fail(vocab.status(), Stage::kLoad);
  if (const Status written = WriteLmWithHead(model, *vocab, options.output); !written.ok())
    return Fail(written, Stage::kWrite);
  return WriteOutput(options.output + ": a language model that drafts, with a head of " +
                     std::to_string(vocab->size()) + " tokens\n");
}

// A language model that drafts, of which there are GGUF files alone.
int ConvertLm(const GgufFile& lm, const ConvertOptions& options, std::optional<DType> type) {
  if (options.vocab > 0 && options.output.ends_with(".gguf")) return ConvertHead(lm, options);
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
  const auto type = ParseType(options.type);
  if (!type.ok()) return Fail(type.status(), Stage::kLoad);
  if (BeginsAsGguf(options.input)) {
    const auto file = GgufFile::Open(options.input);
    if (!file.ok()) return Fail(file.status(), Stage::kLoad);
    const auto architecture = (*file)->GetString("general.architecture");
    if (architecture.ok() && FindDraftKind(*architecture) == nullptr)
      return ConvertLm(**file, options, *type);
  }
  if (options.vocab > 0) {
    return Fail(
        InvalidArgument("--draft-vocab: of a language model alone, which " + options.input + " is not"),
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
  CLI::Option* const prior = app.add_option("--prior", options->prior,
                                            "Table of n-grams of the model's tokenizer, for --draft-vocab");
  CLI::Option* const vocab =
      app.add_option("--draft-vocab", options->vocab,
                     "Of a language model: keep so many rows of its head, those of the tokens that the prior "
                     "has most often")
          ->check(NumberFrom(64, kMaxInt))
          ->needs(prior)
          ->excludes("--type");
  prior->needs(vocab);
  return [options] { return RunConvert(*options); };
}

}  // namespace longspec::cli
