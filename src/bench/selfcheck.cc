// SPDX-License-Identifier: Apache-2.0
#include "bench/selfcheck.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "base/status_macros.h"
#include "bench/forced_trees.h"
#include "bench/loaded_model.h"
#include "bench/trace.h"
#include "draft/drafter.h"

namespace longspec {
namespace {

constexpr int kMaxRows = 512;
constexpr int kLargestTree = 41;  // nodes, the root included
// The reference loops take about a second a token on a small model.
constexpr size_t kReferencePrompt = 16;
constexpr int kReferencePredict = 4;

SamplingOptions AtTemperature(float temperature) {
  SamplingOptions sampling;
  sampling.temperature = temperature;
  sampling.seed = 20240229;
  return sampling;
}

std::string Temperature(float t) {
  char text[32];
  std::snprintf(text, sizeof(text), "temp %.1f", t);
  return text;
}

class Selfcheck {
 public:
  Selfcheck(const SelfcheckOptions& options, const std::function<void(const CheckLine&)>& on_line)
      : options_(options), on_line_(on_line) {}

  Result<bool> Run() {
    LS_ASSIGN(LoadedModel model, Load(options_.tables.front(), options_.model.threads));
    for (const float temperature : {0.0F, 0.7F, 1.0F}) {
      TraceOptions trace = Options(temperature);
      LS_ASSIGN(const Trace plain, Plain(model, trace));
      LS_TRY(CheckDrafters(model, trace, plain));
      if (temperature == 0.0F) LS_TRY(CheckPrefillChunks(model, trace, plain));
    }
    LS_TRY(CheckThreads(model));
    LS_TRY(CheckTables(model));
    return all_identical_;
  }

 private:
  Result<LoadedModel> Load(const kernels::KernelTable* table, int threads) const {
    ModelOptions model = options_.model;
    model.threads = threads;
    return LoadForBench(model, table, kMaxRows,
                        static_cast<int>(options_.prompt.size()) + options_.n_predict + kLargestTree);
  }

  TraceOptions Options(float temperature) const {
    TraceOptions trace;
    trace.prompt = options_.prompt;
    trace.n_predict = options_.n_predict;
    trace.sampling = AtTemperature(temperature);
    return trace;
  }

  static DrafterFactory Registered(const SpeculationOptions& options) {
    return [options](const DraftContext& context) { return MakeDrafter(options, context); };
  }

  // Trees that know the answer.
  static DrafterFactory Forced(const Trace& answer, const LoadedModel& model, uint64_t seed) {
    return [answer = answer.tokens, n_vocab = model.target->vocab_size(), seed](const DraftContext&) {
      return Result<std::unique_ptr<Drafter>>(MakeForcedTreeDrafter(answer, n_vocab, seed));
    };
  }

  static Result<Trace> Plain(LoadedModel& model, const TraceOptions& options) {
    SpeculationOptions none;
    none.type = "none";
    return RecordTrace(model, Registered(none), options);
  }

  void Report(std::string name, const Trace& expected, const Trace& actual) {
    CheckLine line{.name = std::move(name),
                   .identical = expected == actual,
                   .detail = FirstDifference(expected, actual)};
    if (line.identical) {
      char text[96];
      std::snprintf(text, sizeof(text), "%zu tokens and their logits, %.2f tokens a step",
                    actual.tokens.size(), actual.mean_acceptance_length);
      line.detail = text;
    }
    all_identical_ = all_identical_ && line.identical;
    on_line_(line);
  }

  Status Check(const std::string& name, LoadedModel& model, const DrafterFactory& make_drafter,
               const TraceOptions& options, const Trace& expected) {
    LS_ASSIGN(const Trace actual, RecordTrace(model, make_drafter, options));
    Report(name, expected, actual);
    return {};
  }

  Status CheckDrafters(LoadedModel& model, const TraceOptions& options, const Trace& plain) {
    const std::string suffix = ", " + Temperature(options.sampling.temperature);
    for (const std::string& type : DrafterNames()) {
      for (const char* tree : {"", "4"}) {
        SpeculationOptions speculation;
        speculation.type = type;
        speculation.tree = tree;
        speculation.replay_tokens = plain.tokens;
        if (type == "none" && *tree != '\0') continue;
        if (!CheckDrafter(speculation).ok()) continue;  // needs a model of its own
        const std::string shape = *tree == '\0' ? " chain" : " tree of width 4";
        LS_TRY(Check(type == "none" ? "none again" + suffix : type + shape + suffix, model,
                     Registered(speculation), options, plain));
      }
    }
    TraceOptions adaptive = options;
    adaptive.adaptive = true;
    SpeculationOptions everything;
    everything.type = "auto";
    LS_TRY(Check("auto, adaptive policy" + suffix, model, Registered(everything), adaptive, plain));
    // Random trees: rounds cycle through every accepted length from 0 to the budget.
    for (const int budget : {3, 8, 16, 40}) {
      TraceOptions forced = options;
      forced.draft_n_max = budget;
      LS_TRY(Check("random trees of " + std::to_string(budget) + " nodes, every accepted length" + suffix,
                   model, Forced(plain, model, static_cast<uint64_t>(budget)), forced, plain));
    }
    return {};
  }

  Status CheckPrefillChunks(LoadedModel& model, const TraceOptions& options, const Trace& plain) {
    for (const int chunk : {1, 7, 64, 512}) {
      TraceOptions chunked = options;
      chunked.prefill_chunk = chunk;
      LS_ASSIGN(const Trace actual, Plain(model, chunked));
      Report("prefill in chunks of " + std::to_string(chunk), plain, actual);
    }
    return {};
  }

  // The same plain and speculative generation on another model object.
  Status CompareModels(const std::string& name, LoadedModel& reference, LoadedModel& other,
                       const TraceOptions& options) {
    LS_ASSIGN(const Trace expected, Plain(reference, options));
    LS_ASSIGN(const Trace plain, Plain(other, options));
    Report(name + ", plain", expected, plain);
    return Check(name + ", random trees", other, Forced(expected, other, 7), options, expected);
  }

  Status CheckThreads(LoadedModel& model) {
    for (const int threads : {1, 2, 3}) {
      if (threads == model.team->size()) continue;
      LS_ASSIGN(LoadedModel other, Load(options_.tables.front(), threads));
      LS_TRY(CompareModels(
          "threads " + std::to_string(threads) + " against " + std::to_string(model.team->size()), model,
          other, Options(0.7F)));
    }
    return {};
  }

  Status CheckTables(LoadedModel& model) {
    for (const kernels::KernelTable* table : options_.tables) {
      if (table == options_.tables.front()) continue;
      LS_ASSIGN(LoadedModel other, Load(table, options_.model.threads));
      TraceOptions options = Options(0.0F);
      if (std::string_view(table->name) == "reference") {
        options.prompt.resize(std::min(options.prompt.size(), kReferencePrompt));
        options.n_predict = std::min(options.n_predict, kReferencePredict);
      }
      LS_TRY(
          CompareModels("kernels " + std::string(table->name) + " against " + options_.tables.front()->name,
                        model, other, options));
    }
    return {};
  }

  const SelfcheckOptions& options_;
  const std::function<void(const CheckLine&)>& on_line_;
  bool all_identical_ = true;
};

}  // namespace

Result<bool> RunSelfcheck(const SelfcheckOptions& options,
                          const std::function<void(const CheckLine&)>& on_line) {
  if (options.tables.empty()) return InvalidArgument("selfcheck needs at least one kernel table");
  if (options.prompt.empty()) return InvalidArgument("selfcheck needs a prompt");
  return Selfcheck(options, on_line).Run();
}

}  // namespace longspec
