// SPDX-License-Identifier: Apache-2.0
//
// longspec bench: what prefill, a decoding step and a step with many rows cost on this machine; with --sweep,
// a table of steps by rows and keys; with -md, the steps of a draft model; with --answers, whole answers of
// several sequences.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>

#include "api/statistics.h"
#include "base/print.h"
#include "base/status_macros.h"
#include "bench/measure.h"
#include "bench/measure_answers.h"
#include "bench/measure_batch.h"
#include "bench/measure_draft.h"
#include "chart/chart.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "draft_model/option_use.h"
#include "engine/opened_model.h"
#include "kernels/dispatch.h"
#include "longspec/engine.h"

namespace longspec::cli {
namespace {

struct BenchFlags {
  BenchOptions bench;
  bool json = false;
  bool sweep = false;
  bool rows_given = false;
  bool context_given = false;
  std::string svg;
  std::vector<int> parallel;  // empty: steps of one sequence
  int answer = 0;             // tokens; 0: steps, and no answers
  std::string text_file;
  std::string prompts = "both";
  SpeculationOptions speculation;
  std::vector<std::string> speculation_given;  // names of what was given of it
};

const std::vector<int> kSweepDepths = {512, 2048, 4096, 8192, 16384, 32768, 65536};
const std::vector<int> kSweepRows = {1, 2, 4, 8, 16, 32, 64, 128};

std::string MeasuredJson(const Measurement& m) {
  nlohmann::ordered_json json;
  json["test"] = m.test;
  json["depth"] = m.depth;
  json["rows"] = m.rows;
  json["ms"] = m.ms;
  if (m.least_ms > 0) json["least_ms"] = m.least_ms;
  if (m.times_one_row > 0) json["times_one_row"] = m.times_one_row;
  json["tokens_per_second"] = m.tokens_per_second;
  if (m.gb_per_second > 0) json["gb_per_second"] = m.gb_per_second;
  json["gmac_per_second"] = m.gmac_per_second;
  json["roofline_share"] = m.roofline_share;
  return JsonLine(json);
}

std::string MeasuredJson(const MachineLimits& limits) {
  nlohmann::ordered_json json;
  json["test"] = "machine";
  json["cpu"] = kernels::CpuDescription();
  json["gb_per_second"] = limits.read_gb_per_second;
  json["q8_gmac_per_second"] = limits.q8_gmac_per_second;
  json["f32_gmac_per_second"] = limits.f32_gmac_per_second;
  json["bf16_gmac_per_second"] = limits.bf16_gmac_per_second;
  json["bf16_amx_gmac_per_second"] = limits.bf16_amx_gmac_per_second;
  json["barrier_us"] = limits.barrier_us;
  return JsonLine(json);
}

std::string MeasuredJson(const SamplingCost& cost) {
  nlohmann::ordered_json json;
  json["test"] = "sampling";
  json["depth"] = cost.depth;
  json["filters"] = cost.filters;
  json["vocab"] = cost.vocab;
  json["us"] = cost.us;
  if (cost.share_of_step > 0) json["share_of_step"] = cost.share_of_step;
  return JsonLine(json);
}

// The first line has a heading.
std::string SamplingLine(const SamplingCost& cost, bool first) {
  std::string text;
  if (first) {
    text =
        Print("\nChoosing one of %d tokens at temperature 1, after %d keys:\n\n", cost.vocab, cost.depth) +
        "| filters |         us | of a step of one row |\n|---------|-----------:|---------------------:|\n";
  }
  const std::string share = cost.share_of_step > 0 ? Print("%.2f %%", 100 * cost.share_of_step) : "";
  return text + Print("| %-7s | %10.1f | %20s |\n", cost.filters.c_str(), cost.us, share.c_str());
}

std::string MeasuredJson(const BatchMeasurement& m) {
  nlohmann::ordered_json json;
  json["test"] = "batch";
  json["sequences"] = m.sequences;
  json["depth"] = m.depth;
  json["ms"] = m.ms;
  json["tokens_per_second"] = api::PerSecond(m.sequences, m.ms);
  json["products_ms"] = m.products_ms;
  json["attention_ms"] = m.attention_ms;
  json["times_parts"] = m.times_parts;
  json["one_document_ms"] = m.one_document_ms;
  json["times_one"] = m.times_one;
  return JsonLine(json);
}

constexpr const char* kBatchHeader =
    "| sequences | keys each |       ms | tokens/s | of one | products | attention | of parts | one document "
    "|\n"
    "|----------:|----------:|---------:|---------:|-------:|---------:|----------:|---------:|-------------:"
    "|\n";

std::string BatchLine(const BatchMeasurement& m) {
  return Print("| %9d | %9d | %8.2f | %8.1f | %5.2fx | %8.2f | %9.2f | %7.2fx | %9.2f ms |\n", m.sequences,
               m.depth, m.ms, api::PerSecond(m.sequences, m.ms), m.times_one, m.products_ms, m.attention_ms,
               m.times_parts, m.one_document_ms);
}

std::string MeasuredJson(const AnswersMeasurement& m) {
  nlohmann::ordered_json json;
  json["test"] = "answers";
  json["sequences"] = m.sequences;
  json["depth"] = m.depth;
  json["prompts"] = m.one_document ? "one document" : "unrelated";
  json["speculation"] = m.speculation;
  json["tokens"] = m.tokens;
  json["ms"] = m.ms;
  json["tokens_per_second"] = m.tokens_per_second();
  json["prompt_tokens"] = m.prompt_tokens;
  json["prompt_tokens_read"] = m.prompt_tokens_read;
  json["prompt_ms"] = m.prompt_ms;
  json["tokens_per_second_with_prompts"] = m.with_prompts();
  json["mean_acceptance_length"] = m.mean_acceptance_length;
  return JsonLine(json);
}

// Answers as they are measured, each beside those it is compared with.
class AnswersTable {
 public:
  static constexpr const char* kHeader =
      "| sequences | keys each | prompts      | speculation | prompts ms | tokens/s | of plain | of "
      "unrelated "
      "| tokens/s with prompts | of unrelated | accepted |\n"
      "|----------:|----------:|--------------|-------------|-----------:|---------:|---------:|-------------"
      ":"
      "|----------------------:|-------------:|---------:|\n";

  // Of the same sequences plain, unless it is; of as many unrelated ones, if it is of one document.
  std::string Line(const AnswersMeasurement& m) {
    done_[{m.sequences, m.depth, m.one_document, m.speculation}] = m;
    const auto plain = done_.find({m.sequences, m.depth, m.one_document, "none"});
    const auto unrelated = done_.find({m.sequences, m.depth, false, m.speculation});
    std::string of_plain, of_unrelated, of_unrelated_with_prompts;
    if (m.speculation != "none" && plain != done_.end()) {
      of_plain = Print("%.2fx", m.tokens_per_second() / plain->second.tokens_per_second());
    }
    if (m.one_document && unrelated != done_.end()) {
      of_unrelated = Print("%.2fx", m.tokens_per_second() / unrelated->second.tokens_per_second());
      of_unrelated_with_prompts = Print("%.2fx", m.with_prompts() / unrelated->second.with_prompts());
    }
    return Print("| %9d | %9d | %-12s | %-11s | %10.0f | %8.1f | %8s | %12s | %21.1f | %12s | %8.2f |\n",
                 m.sequences, m.depth, m.one_document ? "one document" : "unrelated", m.speculation.c_str(),
                 m.prompt_ms, m.tokens_per_second(), of_plain.c_str(), of_unrelated.c_str(), m.with_prompts(),
                 of_unrelated_with_prompts.c_str(), m.mean_acceptance_length);
  }

 private:
  std::map<std::tuple<int, int, bool, std::string>, AnswersMeasurement> done_;
};

std::string MachineText(const char* kernel_table, const MachineLimits& limits) {
  char roof[200];
  std::snprintf(roof, sizeof(roof),
                "reads %.1f GB/s, at most %.0f GMAC/s in q8, %.0f in f32, %.0f in bf16 and %.0f in bf16-amx, "
                "a barrier takes "
                "%.2f us",
                limits.read_gb_per_second, limits.q8_gmac_per_second, limits.f32_gmac_per_second,
                limits.bf16_gmac_per_second, limits.bf16_amx_gmac_per_second, limits.barrier_us);
  return kernels::CpuDescription() + ", kernels " + kernel_table + "\n" + roof + "\n";
}

std::string TableHeader(const char* kernel_table, const MachineLimits& limits) {
  return MachineText(kernel_table, limits) +
         "\n| test      |  depth |  rows |         ms |   tokens/s | vs 1 row |   GB/s | GMAC/s | of the "
         "roof |\n"
         "|-----------|-------:|------:|-----------:|-----------:|---------:|-------:|-------:|------------:|"
         "\n";
}

std::string TableLine(const Measurement& m) {
  char text[160], ratio[32] = "", bandwidth[32] = "";
  if (m.times_one_row > 0) std::snprintf(ratio, sizeof(ratio), "%.2fx", m.times_one_row);
  if (m.gb_per_second > 0) std::snprintf(bandwidth, sizeof(bandwidth), "%.1f", m.gb_per_second);
  std::snprintf(text, sizeof(text), "| %-9s | %6d | %5d | %10.2f | %10.1f | %8s | %6s | %6.0f | %9.0f %% |\n",
                m.test.c_str(), m.depth, m.rows, m.ms, m.tokens_per_second, ratio, bandwidth,
                m.gmac_per_second, 100 * m.roofline_share);
  return text;
}

// Steps by rows and keys.
class Sweep {
 public:
  void Add(const Measurement& m) { steps_[m.rows][m.depth] = m; }

  // Each cell: ms, times the step of one row, share of the roof. Depths beyond `n_ctx_train` get a star.
  std::string Table(int n_ctx_train) const {
    std::string head = "\n| rows |", rule = "|-----:|";
    bool beyond = false;
    for (const auto& [depth, one] : steps_.begin()->second) {
      const bool star = depth > n_ctx_train;
      beyond = beyond || star;
      head += " " + std::to_string(depth) + (star ? "*" : "") + " keys |";
      rule += "---:|";
    }
    std::string text = head + "\n" + rule + "\n";
    for (const auto& [rows, by_depth] : steps_) {
      text += "| " + std::to_string(rows) + " |";
      for (const auto& [depth, m] : by_depth) {
        char cell[64];
        std::snprintf(cell, sizeof(cell), " %.2f ms, %.2fx, %.0f %% |", m.ms, m.times_one_row,
                      100 * m.roofline_share);
        text += cell;
      }
      text += "\n";
    }
    if (beyond)
      text += "\n* beyond the " + std::to_string(n_ctx_train) +
              " positions the model was trained for: speed only\n";
    return text;
  }

  // The same of costs in steps of one row.
  std::string Svg(int n_ctx_train) const {
    std::map<int, LineSeries> by_depth;
    for (const auto& [rows, steps] : steps_) {
      for (const auto& [depth, m] : steps) {
        by_depth[depth].name = std::to_string(depth) + " keys";
        if (depth > n_ctx_train) {
          by_depth[depth].name += ", speed only";
          by_depth[depth].dashed = true;
        }
        by_depth[depth].points.emplace_back(rows, m.times_one_row);
      }
    }
    LineChart chart{.title = "Cost of a step, in steps of one row",
                    .x_label = "rows",
                    .y_label = "times one row",
                    .series = {},
                    .baseline = 1,
                    .doubling_y = true};
    for (auto& [depth, series] : by_depth) chart.series.push_back(std::move(series));
    return RenderLines(chart);
  }

 private:
  std::map<int, std::map<int, Measurement>> steps_;  // [rows][depth]
};

// Of a draft model's own steps, chains and trees of given widths are measured; of all else nothing drafts.
Status CheckBenchGiven(const BenchFlags& flags) {
  if (flags.answer > 0) return {};
  const std::string needs = flags.speculation.draft_model.empty() ? "" : " with -md";
  for (const std::string& name : flags.speculation_given) {
    const auto shared = SharedOptions();
    const bool of_drafting = name == "--spec-type" || std::ranges::any_of(shared, [&](const SharedOption& s) {
                               return s.option.name() == name;
                             });
    if (of_drafting || needs.empty())
      return InvalidArgument(name + ": has no effect without --answers" + needs);
  }
  return {};
}

Status CheckSweep(const BenchFlags& flags) {
  LS_TRY(CheckBenchGiven(flags));
  if (!flags.sweep && !flags.svg.empty()) return InvalidArgument("--svg " + flags.svg + ": needs --sweep");
  if (flags.answer > 0 && (flags.sweep || flags.bench.attention_only))
    return InvalidArgument("--answers: measures no steps, which --sweep and --attention ask for");
  if (flags.sweep && flags.bench.attention_only)
    return InvalidArgument("--attention: measures no whole steps, which --sweep asks for");
  const bool of_others = !flags.parallel.empty() || !flags.speculation.draft_model.empty();
  if (flags.answer == 0 && of_others && (flags.sweep || flags.bench.attention_only)) {
    return InvalidArgument(std::string(flags.sweep ? "--sweep" : "--attention") +
                           ": is of one sequence without a draft; leave out --parallel and -md");
  }
  if (flags.rows_given && (flags.answer > 0 || of_others))
    return InvalidArgument("--rows: is for steps of one sequence; leave out --answers, --parallel and -md");
  if (flags.answer == 0 && flags.context_given)
    return InvalidArgument(
        "--ctx-size: has no effect without --answers: --depth says how many positions there are");
  if (flags.answer == 0 && !flags.text_file.empty())
    return InvalidArgument("--text " + flags.text_file + ": needs --answers");
  return {};
}

int RunSweep(const BenchFlags& flags, const char* kernel_table, Output& out) {
  ModelFiles files;
  const auto info = InspectModel(flags.bench.model, files);
  if (!info.ok()) return Fail(info.status(), Stage::kLoad);
  BenchOptions options = flags.bench;
  options.file = files.target;
  // Before minutes of measuring, not after.
  std::ofstream svg;
  if (!flags.svg.empty()) svg.open(flags.svg, std::ios::binary);
  if (!svg.good()) return FailOutput(IoError(flags.svg + ": cannot be written"));
  Sweep sweep;
  Status written;
  const auto write = [&](const std::string& text) {
    if (written.ok()) written = out.Write(text);
  };
  const Status status = RunBench(
      options,
      [&](const MachineLimits& limits) {
        write(flags.json ? MeasuredJson(limits) : MachineText(kernel_table, limits));
      },
      [&](const Measurement& m) {
        sweep.Add(m);
        if (flags.json) write(MeasuredJson(m));
      });
  if (!status.ok()) return Fail(status, Stage::kLoad);
  if (!flags.json) write(sweep.Table(info->n_ctx_train));
  if (!written.ok()) return FailOutput(written);
  if (flags.svg.empty()) return kExitOk;
  svg << sweep.Svg(info->n_ctx_train);
  svg.flush();
  return svg.good() ? static_cast<int>(kExitOk) : FailOutput(IoError(flags.svg + ": cannot be written"));
}

// A table of which `measure` makes one line after the other: it is called with what writes a line. What is
// wrong is said without a table: the header comes with the first line.
template <typename Measure>
int RunTable(const BenchFlags& flags, const char* kernel_table, const char* header, Output& out,
             const Measure& measure) {
  Status written;
  std::string head =
      flags.json ? "" : kernels::CpuDescription() + ", kernels " + kernel_table + "\n\n" + header;
  const Status status = measure([&](const std::string& text) {
    const Status line = out.Write(std::exchange(head, "") + text);
    if (written.ok()) written = line;
  });
  if (!status.ok()) return Fail(status, Stage::kLoad);
  return written.ok() ? static_cast<int>(kExitOk) : FailOutput(written);
}

// Steps of several sequences.
int RunBatches(const BenchFlags& flags, const char* kernel_table, Output& out) {
  const BatchBenchOptions options = {.model = flags.bench.model,
                                     .depths = flags.bench.depths,
                                     .sequences = flags.parallel,
                                     .repetitions = flags.bench.repetitions};
  return RunTable(flags, kernel_table, kBatchHeader, out, [&](const auto& write) {
    return MeasureBatches(
        options, [&](const BatchMeasurement& m) { write(flags.json ? MeasuredJson(m) : BatchLine(m)); });
  });
}

std::string MeasuredJson(const DraftMeasurement& m) {
  nlohmann::ordered_json json;
  json["test"] = "draft";
  json["draft"] = m.draft;
  json["depth"] = m.depth;
  json["sequences"] = m.sequences;
  json["width"] = m.width;
  json["levels"] = m.levels;
  json["ms"] = m.ms;
  json["of_plain_step"] = m.of_plain_step;
  json["level_of_plain_step"] = m.level_of_plain_step;
  json["level_barriers"] = m.level_barriers;
  json["plain_step_barriers"] = m.plain_step_barriers;
  return JsonLine(json);
}

constexpr const char* kDraftHeader =
    "| draft    |   keys | sequences | nodes a level | levels |       ms | of a plain step | last level | "
    "barriers |\n"
    "|----------|-------:|----------:|--------------:|-------:|---------:|----------------:|-----------:|----"
    "-----:|\n";

std::string DraftLine(const DraftMeasurement& m) {
  return Print("| %-8s | %6d | %9d | %13d | %6d | %8.3f | %15.3f | %10.3f | %8d |\n", m.draft.c_str(),
               m.depth, m.sequences, m.width, m.levels, m.ms, m.of_plain_step, m.level_of_plain_step,
               m.level_barriers);
}

// A draft model's own steps.
int RunDraft(const BenchFlags& flags, const char* kernel_table, Output& out) {
  const DraftBenchOptions options = {.model = flags.bench.model,
                                     .speculation = flags.speculation,
                                     .depths = flags.bench.depths,
                                     .sequences = flags.parallel.empty() ? std::vector{1} : flags.parallel,
                                     .repetitions = flags.bench.repetitions};
  return RunTable(flags, kernel_table, kDraftHeader, out, [&](const auto& write) {
    return MeasureDraft(
        options, [&](const DraftMeasurement& m) { write(flags.json ? MeasuredJson(m) : DraftLine(m)); });
  });
}

// Whole answers of several sequences.
int RunAnswers(const BenchFlags& flags, const char* kernel_table, Output& out) {
  if (flags.text_file.empty()) {
    return Fail(InvalidArgument("--answers: needs --text, a file that prompts are cut from"), Stage::kLoad);
  }
  if (const Status status = CheckSpeculation(flags.speculation); !status.ok()) {
    return Fail(status, Stage::kLoad);
  }
  auto text = ReadInput(flags.text_file);
  if (!text.ok()) return Fail(text.status(), Stage::kLoad);
  AnswersBenchOptions options = {.model = flags.bench.model,
                                 .text = std::move(*text),
                                 .depths = flags.bench.depths,
                                 .sequences = flags.parallel.empty() ? std::vector{8} : flags.parallel,
                                 .answer = flags.answer,
                                 .speculation = {SpeculationOptions{.type = "none"}},
                                 .unrelated = flags.prompts != "one-document",
                                 .one_document = flags.prompts != "unrelated",
                                 .repetitions = flags.bench.repetitions};
  options.model.speculation = flags.speculation;
  if (flags.speculation.type != "none") options.speculation.push_back(flags.speculation);
  AnswersTable table;
  return RunTable(flags, kernel_table, AnswersTable::kHeader, out, [&](const auto& write) {
    return MeasureAnswers(
        options, [&](const AnswersMeasurement& m) { write(flags.json ? MeasuredJson(m) : table.Line(m)); });
  });
}

int RunBenchCommand(const BenchFlags& flags) {
  if (const Status checked = CheckSweep(flags); !checked.ok()) return Fail(checked, Stage::kLoad);
  const auto table = kernels::Choose(flags.bench.model.kernels);
  if (!table.ok()) return Fail(table.status(), Stage::kLoad);
  Output out = Output::Standard();
  Status written = out.Check();
  if (!written.ok()) return FailOutput(written);
  if (flags.sweep) return RunSweep(flags, (*table)->name, out);
  if (flags.answer > 0) return RunAnswers(flags, (*table)->name, out);
  if (!flags.speculation.draft_model.empty()) return RunDraft(flags, (*table)->name, out);
  if (!flags.parallel.empty()) return RunBatches(flags, (*table)->name, out);
  const auto on_machine = [&](const MachineLimits& limits) {
    written = out.Write(flags.json ? MeasuredJson(limits) : TableHeader((*table)->name, limits));
  };
  const auto write = [&](const std::string& text) {
    const Status line = out.Write(text);
    if (written.ok()) written = line;
  };
  bool first = true;
  const Status status = RunBench(
      flags.bench, on_machine,
      [&](const Measurement& m) { write(flags.json ? MeasuredJson(m) : TableLine(m)); },
      [&](const SamplingCost& cost) {
        write(flags.json ? MeasuredJson(cost) : SamplingLine(cost, std::exchange(first, false)));
      });
  if (!status.ok()) return Fail(status, Stage::kLoad);
  return written.ok() ? static_cast<int>(kExitOk) : FailOutput(written);
}

}  // namespace

Runner SetUpBench(CLI::App& app) {
  auto flags = std::make_shared<BenchFlags>();
  AddModelOptions(app, &flags->bench.model);
  const CLI::Option* depths =
      app.add_option("--depth", flags->bench.depths, "Context lengths to measure at, separated by commas")
          ->delimiter(',')
          ->capture_default_str();
  const CLI::Option* rows =
      app.add_option("--rows", flags->bench.rows, "Row counts to measure, separated by commas")
          ->delimiter(',')
          ->capture_default_str();
  app.add_flag(
      "--sweep", flags->sweep,
      "A table of steps of 1 to 128 rows after 512 to 65536 keys, of made-up contexts (or what --rows and "
      "--depth say)");
  app.add_flag("--attention", flags->bench.attention_only,
               "Attention alone, of all layers, for chains and for trees of rows, after made-up contexts");
  app.add_option("--parallel", flags->parallel,
                 "Steps of so many sequences with one row each, beside their parts, after made-up contexts; "
                 "with -md, proposals of so many")
      ->delimiter(',');
  app.add_option("--answers", flags->answer,
                 "Whole answers of so many tokens by --parallel sequences (8), unrelated prompts of --depth "
                 "tokens and one document, plain and with --spec-type, end to end")
      ->check(NumberFrom(1, kMaxInt));
  app.add_option("--text", flags->text_file, "With --answers: a file whose text prompts are cut from")
      ->check(CheckNotEmpty);
  app.add_option("--prompts", flags->prompts,
                 "With --answers: unrelated ones, those of one document, or both")
      ->check(CLI::IsMember({"unrelated", "one-document", "both"}))
      ->capture_default_str();
  app.add_option("--svg", flags->svg, "With --sweep: a chart of it in this file")->check(CheckNotEmpty);
  app.add_option("--repetitions", flags->bench.repetitions,
                 "Runs of each step at least, more of short ones; the median is shown")
      ->capture_default_str();
  app.add_flag("--json", flags->json, "Print one JSON object a line");
  const auto given = AddSpeculationOptions(app, &flags->speculation, SpeculationIs::kOfOthers);
  const CLI::Option* context = app.get_option("--ctx-size");
  return [flags, depths, rows, context, given] {
    flags->speculation_given = given();
    flags->rows_given = rows->count() > 0;
    flags->context_given = context->count() > 0;
    if (flags->sweep) {
      flags->bench.made_up_context = true;
      if (depths->count() == 0) flags->bench.depths = kSweepDepths;
      if (rows->count() == 0) flags->bench.rows = kSweepRows;
      // Ratios need the step of one row.
      std::vector<int>& counts = flags->bench.rows;
      if (std::find(counts.begin(), counts.end(), 1) == counts.end()) counts.insert(counts.begin(), 1);
    }
    return RunBenchCommand(*flags);
  };
}

}  // namespace longspec::cli
