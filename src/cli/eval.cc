// SPDX-License-Identifier: Apache-2.0
//
// longspec eval: speed, accepted lengths and quality on task files, by context length, method and
// temperature.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/loading.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "eval/paper_tables.h"
#include "eval/report.h"
#include "eval/runner.h"

namespace longspec::cli {
namespace {

struct EvalFlags {
  ModelOptions model;
  EvalOptions eval;
  OutputFlags output;
  std::vector<std::string> papers;
  std::function<std::vector<std::string>()> given;  // options of speculation
  bool default_lengths = true;
};

// Lengths nobody asked for are left out where the context is too short.
Status FitLengths(const ModelInfo& info, EvalFlags& flags) {
  auto& lengths = flags.eval.lengths;
  if (!flags.default_lengths) return {};
  const int shortest = *std::min_element(lengths.begin(), lengths.end());
  lengths.erase(std::remove_if(lengths.begin(), lengths.end(), [&](int n) { return n > info.n_ctx; }),
                lengths.end());
  if (!lengths.empty()) return {};
  return InvalidArgument("--lengths: the shortest that is measured unless others are named has " +
                         std::to_string(shortest) + " positions, and the context holds " +
                         std::to_string(info.n_ctx) + " (-c)");
}

int FailEval(const Status& status, bool output_failed) {
  if (status.code() == StatusCode::kCancelled) return kExitInterrupted;
  return Fail(status, output_failed ? Stage::kWrite : Stage::kGenerate);
}

// What a method says itself.
Status CheckEvalGiven(const EvalFlags& flags) {
  for (const std::string& name : flags.given()) {
    if (name == "--spec-type" || name == "--spec-policy")
      return InvalidArgument(name + ": has no effect here: --methods names drafters and their policies");
  }
  return {};
}

int RunEvalCommand(EvalFlags flags) {
  CatchInterrupt();
  if (const Status read = CheckEvalGiven(flags); !read.ok()) return Fail(read, Stage::kLoad);
  for (const std::string& paper : flags.papers) {
    if (const Status known = CheckPaperTable(paper); !known.ok()) return Fail(known, Stage::kLoad);
  }
  if (const Status checked = CheckEvaluation(flags.eval); !checked.ok()) return Fail(checked, Stage::kLoad);
  if (const Status created = CreateFolder(flags.eval); !created.ok()) return FailOutput(created);
  // The time of a prompt is that of all of it, also where a shorter one begins alike.
  flags.model.cache_prompt = false;
  auto planned = PlannedSpeculation(flags.eval);
  if (!planned.ok()) return Fail(planned.status(), Stage::kLoad);
  flags.model.speculation = *std::move(planned);
  auto part = PlannedPart(flags.eval);
  if (!part.ok()) return Fail(part.status(), Stage::kLoad);
  flags.model.partial_verification = *std::move(part);
  auto engine = LoadEngine(flags.model, flags.output);
  if (!engine.ok()) return Fail(engine.status(), Stage::kLoad);
  if (const Status fits = FitLengths((*engine)->info(), flags); !fits.ok()) return Fail(fits, Stage::kLoad);
  Progress progress("evaluating", Progress::StandardError(!flags.output.no_progress));
  const auto on_progress = [&](const EvalProgress& at) {
    const double share = at.total > 0 ? static_cast<double>(at.done) / at.total : 1.0;
    progress.Update(share, at.doing + ", " + std::to_string(at.done) + "/" + std::to_string(at.total) +
                               " cells" + FormatTimeLeft(at.eta_ms));
    return !Interrupted();
  };
  bool output_failed = false;
  const Status ran = RunEvaluation(**engine, flags.eval, on_progress, &output_failed);
  progress.Finish();
  if (!ran.ok()) return FailEval(ran, output_failed);
  const auto cells = ReadCells(flags.eval.out);
  if (!cells.ok()) return Fail(cells.status(), Stage::kGenerate);
  const ModelInfo& info = (*engine)->info();
  ReportOptions report;
  report.model = info.name;
  report.papers = flags.papers;
  report.title = info.name + " " + info.file_type + ", " + info.cpu + ", kernels " + info.kernels + ", " +
                 std::to_string(info.threads) + " threads";
  if (const Status written = WriteReport(*cells, report, flags.eval.out); !written.ok())
    return FailOutput(written);
  const int shown = WriteOutput(ReportMarkdown(*cells, report));
  if (shown != kExitOk) return shown;
  const bool identical = std::all_of(cells->begin(), cells->end(), [](const Cell& cell) {
    return std::all_of(cell.items.begin(), cell.items.end(),
                       [](const EvalItem& item) { return item.identical || item.approximate; });
  });
  return identical ? static_cast<int>(kExitOk)
                   : Fail(kExitFailure, "a method changed the text; cells.jsonl says where");
}

}  // namespace

Runner SetUpEval(CLI::App& app) {
  auto flags = std::make_shared<EvalFlags>();
  EvalOptions& eval = flags->eval;
  AddModelOptions(app, &flags->model);
  const std::string group = "Evaluation";
  const auto list = [&](const char* name, auto& values, const std::string& text) {
    return app.add_option(name, values, text)->delimiter(',')->capture_default_str()->group(group);
  };
  app.add_option("--data", eval.data, "Folder of FAMILY.jsonl or FAMILY.jsonl.gz files")
      ->required()
      ->group(group);
  app.add_option("--out", eval.out, "Folder for results; finished cells in it are not run again")
      ->required()
      ->group(group);
  list("--families", eval.families, "Families, separated by commas (default: all)");
  list("--methods", eval.methods,
       "--spec-type values, separated by commas; TYPE@POLICY for another --spec-policy, TYPE:8 for another "
       "most drafts per step, TYPE/no-dice and TYPE/no-prior without these, TYPE/extend and "
       "TYPE/extend=CHUNKS with SpecExtend, TYPE/extend-from=TOKENS for another --spec-extend-from, "
       "TYPE/budget=POSITIONS for another --spec-partial-budget; + joins drafters; "
       "TYPE/partial=BUDGET: APPROXIMATE, --partial-verification, with /refresh=POSITIONS for another "
       "--partial-refresh, /refresh=paper for SpecPV's modes and /reduce=mean|max|last; "
       "replay/accept=0.5/cost=0.05, alone or in a "
       "list: a draft that is not there, right with that chance at that part of a plain step");
  CLI::Option* lengths = list("--lengths", eval.lengths, "Context lengths, answer and drafts included");
  list("--paper", flags->papers,
       "Also lay the results out as papers' tables, with their figures beside them: " +
           CLI::detail::join(PaperTableNames(), ", ") +
           "; or all tables of a paper: " + CLI::detail::join(PaperNames(), ", "));
  list("--temps", eval.temperatures, "Temperatures");
  app.add_option("--prompts", eval.n_prompts, "Prompts per family and length")
      ->capture_default_str()
      ->group(group);
  app.add_option("-n,--predict", eval.n_predict, "Most tokens to generate")
      ->capture_default_str()
      ->group(group);
  app.add_option("--runs", eval.runs,
                 "Generations of each prompt with each method; the median time of each 16 tokens counts")
      ->capture_default_str()
      ->group(group);
  app.add_option("-s,--seed", eval.seed, "Seed")->capture_default_str()->group(group);
  app.add_flag("--ignore-eos", eval.ignore_eos, "Never choose an end token")->group(group);
  AddFilterOptions(app, &eval.sampling, group);
  flags->given = AddSpeculationOptions(app, &eval.speculation, SpeculationIs::kOfOthers);
  AddOutputOptions(app, &flags->output);
  return [flags, lengths] {
    flags->default_lengths = lengths->count() == 0;
    return RunEvalCommand(*flags);
  };
}

}  // namespace longspec::cli
