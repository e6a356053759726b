// SPDX-License-Identifier: Apache-2.0
//
// longspec batch: a file of requests in the form of OpenAI's batch API, answered several at a time.
#include <CLI/App.hpp>
#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "api/request.h"
#include "api/shared_fields.h"
#include "api/statistics.h"
#include "base/clock.h"
#include "base/print.h"
#include "cli/batch.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/grammar_flags.h"
#include "cli/interrupt.h"
#include "cli/loading.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/template_options.h"
#include "cli/terminal.h"
#include "longspec/engine.h"
#include "longspec/scheduler.h"

namespace longspec::cli {
namespace {

// Nobody reads along, so answers may wait for prompts: then more of them are written in each pass.
constexpr double kPrefillMs = 1e4;

struct BatchFlags {
  ModelOptions model;
  BatchOptions batch;
  GrammarFlags grammar;
  TemplateChoice chat_template;
  SchedulerOptions scheduler = {.prefill_ms = kPrefillMs};
  OutputFlags output;
};

// As `serve` calls it.
std::string ModelName(const ModelInfo& info) { return std::filesystem::path(info.path).filename().string(); }

OnBatchProgress ShowProgress(Progress* progress) {
  return [progress, begun_ms = NowMs()](const BatchProgress& at) {
    const auto share_of = [&](int64_t n) {
      return at.total > 0 ? static_cast<double>(n) / static_cast<double>(at.total) : 1.0;
    };
    const double elapsed_ms = NowMs() - begun_ms;
    const double rate = api::PerSecond(at.tokens, elapsed_ms);
    progress->Update(share_of(at.done),
                     Print("%lld/%lld requests, %.1f tokens/s", static_cast<long long>(at.done),
                           static_cast<long long>(at.total), rate) +
                         FormatTimeLeft(share_of(at.done), share_of(at.skipped), elapsed_ms));
    return !Interrupted();
  };
}

int ExitCodeOf(const Status& ran, const Batch& batch) {
  if (ran.ok()) return kExitOk;
  if (batch.output_failed()) return FailOutput(ran);
  return Fail(ran, Stage::kGenerate);
}

int RunBatchCommand(const BatchFlags& flags) {
  const Status speculation = CheckSpeculation(flags.batch.defaults.generation.speculation);
  if (!speculation.ok()) return Fail(speculation, Stage::kLoad);
  Progress progress("batch", Progress::StandardError(!flags.output.no_progress));
  BatchOptions options = flags.batch;
  const auto grammar = ReadGrammar(flags.grammar);
  if (!grammar.ok()) return Fail(grammar.status(), Stage::kLoad);
  options.defaults.generation.grammar = *grammar;
  const auto chat_template = ReadTemplateChoice(flags.chat_template);
  if (!chat_template.ok()) return Fail(chat_template.status(), Stage::kLoad);
  options.most_in_flight = MostInFlight(flags.scheduler.parallel);
  options.on_warning = [&progress](const std::string& warning) {
    progress.Finish();
    Warn(warning);
  };
  const auto batch = Batch::Open(options);
  if (!batch.ok()) return Fail(batch.status(), Stage::kLoad);
  if (const Status opened = (*batch)->OpenAnswers(); !opened.ok()) return FailOutput(opened);
  CatchInterrupt();
  ModelOptions model = flags.model;
  model.chat_template = *chat_template;
  model.speculation = options.defaults.generation.speculation;
  model.partial_verification = options.defaults.generation.partial_verification;
  const auto engine = LoadEngine(model, flags.output);
  if (!engine.ok()) return Fail(engine.status(), Stage::kLoad);
  WarnOfMissingTemplate((*engine)->info());
  (*engine)->MeasureCosts([] { return !Interrupted(); });  // nobody waits for the first answer
  const auto scheduler = (*engine)->NewScheduler(flags.scheduler);
  if (!scheduler.ok()) return Fail(scheduler.status(), Stage::kLoad);
  const Status ran = (*batch)->Run(**scheduler,
                                   {.name = ModelName((*engine)->info()),
                                    .dialect = chat::DialectOf((*engine)->info().chat_template),
                                    .prompt =
                                        [&](const GenerationRequest& request) {
                                          auto prompt = (*engine)->ChatPrompt(request);
                                          return prompt.ok() ? *std::move(prompt) : std::string();
                                        }},
                                   ShowProgress(&progress));
  progress.Finish();
  const BatchSummary& summary = (*batch)->summary();
  std::fputs(FormatBatch(summary).c_str(), stderr);
  if (summary.errors > 0) {
    Warn(std::to_string(summary.errors) + " of " + std::to_string(summary.total) +
         " requests failed: lines of " + options.output + " whose error is not null say why");
  }
  return ExitCodeOf(ran, **batch);
}

}  // namespace

Runner SetUpBatch(CLI::App& app) {
  auto flags = std::make_shared<BatchFlags>();
  flags->batch.defaults = api::OpenAiDefaults();
  GenerationRequest& defaults = flags->batch.defaults.generation;
  AddModelOptions(app, &flags->model);
  const std::string group = "Batch";
  app.add_option("-f,--file", flags->batch.input,
                 "Requests, plain or gzip: lines of JSON with custom_id, method, url and body")
      ->required()
      ->group(group);
  app.add_option("-o,--output", flags->batch.output,
                 "Answers, appended as they come; requests answered in it are not run again")
      ->required()
      ->group(group);
  app.add_option(
         "--parallel", flags->scheduler.parallel,
         "Answers written at once (-np); 0: as many as memory holds, 64 at most; never changes output")
      ->capture_default_str()
      ->check(NumberFrom(0, 1024))
      ->transform(MinusOneIs("0"))
      ->group(group);
  // What a request does not say.
  AddTemplateChoice(app, &flags->chat_template, group);
  AddTemplateOptions(app, &defaults, group);
  AddThoughtsOption(app, &flags->batch.defaults.thoughts, group);
  AddLimitOptions(app, &defaults);
  AddGrammarOptions(app, &flags->grammar);
  AddSamplingOptions(app, &defaults.sampling);
  AddSpeculationOptions(app, &defaults.speculation);
  AddOutputOptions(app, &flags->output);
  return [flags] { return RunBatchCommand(*flags); };
}

}  // namespace longspec::cli
