// SPDX-License-Identifier: Apache-2.0
//
// longspec perplexity: how well the model foretells a text, by position.
#include "bench/perplexity.h"

#include <CLI/App.hpp>
#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "bench/loaded_model.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/loading.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "engine/generation.h"
#include "engine/opened_model.h"
#include "longspec/engine.h"

namespace longspec::cli {
namespace {

struct PerplexityFlags {
  ModelOptions model;
  OutputFlags output;
  std::string file;
  int64_t chunks = -1;
  bool json = false;
};

struct Measured {
  PerplexityResult result;
  std::string rope_scaling;
  int window = 0;
};

std::string Thousands(int positions) {
  return positions % 1024 == 0 && positions > 0 ? std::to_string(positions / 1024) + "K"
                                                : std::to_string(positions);
}

std::string PerplexityText(const Measured& measured) {
  std::string text = "positions        tokens   perplexity\n";
  char line[96];
  for (const PositionBucket& bucket : measured.result.by_position) {
    const std::string name = Thousands(bucket.from) + "-" + Thousands(bucket.to);
    std::snprintf(line, sizeof(line), "%-11s %11lld %12.4f\n", name.c_str(),
                  static_cast<long long>(bucket.tokens.n), bucket.tokens.Perplexity());
    text += line;
  }
  const ForetoldTokens& all = measured.result.all;
  std::snprintf(line, sizeof(line), "Final estimate: PPL = %.4f +/- %.5f\n", all.Perplexity(),
                all.StandardError());
  return text + line;
}

nlohmann::ordered_json ForetoldJson(const ForetoldTokens& tokens) {
  return {{"tokens", tokens.n},
          {"nats", tokens.Mean()},
          {"perplexity", tokens.Perplexity()},
          {"standard_error", tokens.StandardError()}};
}

nlohmann::ordered_json PerplexityJson(const Measured& measured, const std::string& model) {
  nlohmann::ordered_json json = ForetoldJson(measured.result.all);
  json["by_position"] = nlohmann::ordered_json::array();
  for (const PositionBucket& bucket : measured.result.by_position) {
    nlohmann::ordered_json one = {{"from", bucket.from}, {"to", bucket.to}};
    one.update(ForetoldJson(bucket.tokens));
    json["by_position"].push_back(std::move(one));
  }
  json["windows"] = measured.result.windows;
  json["ctx_size"] = measured.window;
  json["rope_scaling"] = measured.rope_scaling;
  json["model"] = model;
  return json;
}

Result<Measured> Measure(const PerplexityFlags& flags) {
  LS_ASSIGN(const std::string text, ReadInput(flags.file));
  ModelFiles files;
  LS_ASSIGN(const ModelInfo info, InspectModel(flags.model, files));
  ModelOptions vocabulary = flags.model;
  vocabulary.vocab_only = true;
  LS_ASSIGN(const std::unique_ptr<Engine> engine, LoadModelOf(vocabulary, files));
  const std::vector<int32_t> tokens = engine->Tokenize(text, false, false);
  PerplexityOptions options;
  options.beginning = engine->Tokenize("", true);
  options.most_windows = flags.chunks;
  // More rows would need more memory for their logits than the plan has.
  options.rows = std::min(flags.model.batch_size, kMaxDraftNodes + 1);
  const auto most = static_cast<int64_t>(tokens.size() + options.beginning.size());
  if (most < 2) {
    return InvalidArgument(flags.file + ": a text of " + std::to_string(tokens.size()) +
                           " tokens has none to foretell");
  }
  options.window = static_cast<int>(std::min<int64_t>(info.n_ctx, most));
  if (options.window > info.n_ctx_train) WarnOfLongContext(info, flags.model.rope);

  CatchInterrupt();  // not before the text is read, which may come from a terminal
  auto loading = std::make_shared<Progress>("loading", Progress::StandardError(!flags.output.no_progress));
  LS_ASSIGN(const LoadedModel model, LoadForBench(WithProgress(flags.model, loading), nullptr, options.rows,
                                                  options.window, files.target));
  loading->Finish();
  const auto step = static_cast<int64_t>(options.window) - static_cast<int64_t>(options.beginning.size());
  int64_t total = most;
  if (flags.chunks >= 0 && flags.chunks < most / std::max<int64_t>(step, 1))
    total = flags.chunks * options.window;
  Progress progress("evaluating", Progress::StandardError(!flags.output.no_progress));
  int64_t done = 0;
  const auto show = [&](int rows) {
    done += rows;
    progress.Update(std::min(1.0, static_cast<double>(done) / static_cast<double>(total)),
                    std::to_string(done) + " tokens");
    return !Interrupted();
  };
  const auto new_cache = [&] { return model.NewCache(options.window); };
  auto result = MeasurePerplexity(*model.target, new_cache, tokens, options, show);
  progress.Finish();
  if (!result.ok()) return result.status();
  return Measured{
      .result = *std::move(result), .rope_scaling = model.spec.rope.Describe(), .window = options.window};
}

int RunPerplexity(const PerplexityFlags& flags) {
  const auto measured = Measure(flags);
  if (!measured.ok()) return Fail(measured.status(), Stage::kLoad);
  return WriteOutput(flags.json ? JsonLine(PerplexityJson(*measured, flags.model.path))
                                : PerplexityText(*measured));
}

}  // namespace

Runner SetUpPerplexity(CLI::App& app) {
  auto flags = std::make_shared<PerplexityFlags>();
  AddModelOptions(app, &flags->model);
  app.add_option("-f,--file", flags->file, "Text file; -: standard input")->required();
  app.add_option("--chunks", flags->chunks, "Windows of the context size at most; -1: the whole text")
      ->check(NumberFrom(-1, kMaxInt) & CLI::Validator(
                                            [](const std::string& n) {
                                              return n == "0" ? std::string("must be -1, or 1 or more")
                                                              : std::string();
                                            },
                                            ""))
      ->capture_default_str();
  AddOutputOptions(app, &flags->output);
  app.add_flag("--json", flags->json, "Print one JSON object")->group("Output");
  return [flags] { return RunPerplexity(*flags); };
}

}  // namespace longspec::cli
