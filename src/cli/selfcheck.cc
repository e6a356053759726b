// SPDX-License-Identifier: Apache-2.0
//
// longspec selfcheck: the promise, checked on this machine and this model.
#include "bench/selfcheck.h"

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "engine/opened_model.h"
#include "kernels/dispatch.h"
#include "longspec/engine.h"

namespace longspec::cli {
namespace {

// Repeats itself, so that prompt lookup finds something; long enough to cross a chunk of 256 positions.
constexpr char kDefaultText[] =
    "The committee met in March and again in June. In March the committee heard the agency's report on the "
    "bridge and "
    "asked for a second survey. The survey of the bridge found cracks in four of the nine piers, and the "
    "agency told the "
    "committee that repair of the four piers would take two summers. In June the committee heard the "
    "agency's report on "
    "the survey and asked what repair would cost. The agency told the committee that repair of the four "
    "piers would cost "
    "eleven million dollars, and that repair of all nine piers would cost nineteen million dollars. The "
    "committee asked "
    "whether the bridge could stay open during repair. The agency told the committee that the bridge could "
    "stay open to "
    "cars during repair of the four piers, and that it would have to close during repair of all nine "
    "piers.\n\n"
    "The committee met again in September. In September the committee heard the agency's report on the bids "
    "and asked for "
    "a third survey. The third survey of the bridge found cracks in five of the nine piers, and the agency "
    "told the "
    "committee that repair of the five piers would take three summers.\n\nIn short, the committee";

struct SelfcheckFlags {
  ModelOptions model;
  std::string file;
  int n_predict = 48;
  std::vector<float> temperatures = SelfcheckOptions().temperatures;
  std::vector<std::string> draft_models;
};

Result<SelfcheckOptions> Prepare(const SelfcheckFlags& flags) {
  SelfcheckOptions options;
  options.model = flags.model;
  options.n_predict = flags.n_predict;
  options.temperatures = flags.temperatures;
  options.draft_models = flags.draft_models;
  if (flags.n_predict < 1)
    return InvalidArgument("--predict " + std::to_string(flags.n_predict) + ": must be at least 1");
  std::string text = kDefaultText;
  if (!flags.file.empty()) {
    LS_ASSIGN(text, ReadInput(flags.file));
  }
  ModelOptions vocabulary = flags.model;
  vocabulary.vocab_only = true;
  ModelFiles files;
  LS_ASSIGN(const auto engine, LoadModelOf(vocabulary, files));
  options.file = files.target;
  options.prompt = engine->Tokenize(text);
  if (options.prompt.empty()) return InvalidArgument("the prompt is empty: there is nothing to continue");
  // The table that would run comes first; the others are compared with it.
  LS_ASSIGN(const kernels::KernelTable* chosen, kernels::Choose(flags.model.kernels));
  options.tables = {chosen};
  for (const kernels::KernelTable* table : kernels::Available()) {
    if (table != chosen) options.tables.push_back(table);
  }
  return options;
}

const char* Verdict(const CheckLine& line) {
  if (line.skipped) return "skipped    ";
  return line.identical ? "identical  " : "DIFFERENT  ";
}

int RunSelfcheckCommand(const SelfcheckFlags& flags) {
  const auto options = Prepare(flags);
  if (!options.ok()) return Fail(options.status(), Stage::kLoad);
  int n = 0, different = 0;
  Status written;
  const auto result = RunSelfcheck(*options, [&](const CheckLine& line) {
    n += line.skipped ? 0 : 1;
    different += line.skipped || line.identical ? 0 : 1;
    const Status status = Output::Standard().Write(Verdict(line) + line.name + ": " + line.detail + "\n");
    if (written.ok()) written = status;
  });
  if (!result.ok()) return Fail(result.status(), Stage::kLoad);
  if (!written.ok()) return FailOutput(written);
  const int code =
      WriteOutput(std::to_string(n) + " comparisons, " + std::to_string(different) + " different\n");
  if (code != kExitOk) return code;
  return *result ? kExitOk : kExitFailure;
}

}  // namespace

Runner SetUpSelfcheck(CLI::App& app) {
  auto flags = std::make_shared<SelfcheckFlags>();
  AddModelOptions(app, &flags->model);
  RefuseContextSize(app, "the text of -f and --predict say how many positions there are");
  app.add_option("-f,--file", flags->file, "Text to continue instead of the built-in one; -: standard input")
      ->check(CheckNotEmpty);
  app.add_option("-n,--predict", flags->n_predict, "Tokens to generate in each comparison")
      ->capture_default_str();
  app.add_option("--temps", flags->temperatures,
                 "Temperatures to check at, separated by commas; fewer are quicker")
      ->delimiter(',')
      ->check(NumberFrom(0))
      ->capture_default_str();
  app.add_option("--spec-draft-model", flags->draft_models,
                 "Draft model to check with the drafter it is for: file or folder (-md); may be repeated")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  return [flags] { return RunSelfcheckCommand(*flags); };
}

}  // namespace longspec::cli
