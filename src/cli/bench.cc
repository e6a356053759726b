// SPDX-License-Identifier: Apache-2.0
//
// longspec bench: what prefill, a decoding step and a step with many rows cost on this machine.
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/measure.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/options.h"
#include "cli/output.h"
#include "kernels/dispatch.h"

namespace longspec::cli {
namespace {

struct BenchFlags {
  BenchOptions bench;
  bool json = false;
};

std::string JsonLine(const Measurement& m) {
  nlohmann::ordered_json json;
  json["test"] = m.test;
  json["depth"] = m.depth;
  json["rows"] = m.rows;
  json["ms"] = m.ms;
  json["tokens_per_second"] = m.tokens_per_second;
  if (m.gb_per_second > 0) json["gb_per_second"] = m.gb_per_second;
  json["gmac_per_second"] = m.gmac_per_second;
  json["roofline_share"] = m.roofline_share;
  return json.dump() + "\n";
}

std::string JsonLine(const MachineLimits& limits) {
  nlohmann::ordered_json json;
  json["test"] = "machine";
  json["cpu"] = kernels::CpuDescription();
  json["gb_per_second"] = limits.read_gb_per_second;
  json["q8_gmac_per_second"] = limits.q8_gmac_per_second;
  json["f32_gmac_per_second"] = limits.f32_gmac_per_second;
  return json.dump() + "\n";
}

std::string TableHeader(const char* kernel_table, const MachineLimits& limits) {
  char roof[160];
  std::snprintf(roof, sizeof(roof), "reads %.1f GB/s, at most %.0f GMAC/s in q8 and %.0f in f32",
                limits.read_gb_per_second, limits.q8_gmac_per_second, limits.f32_gmac_per_second);
  return kernels::CpuDescription() + ", kernels " + kernel_table + "\n" + roof +
         "\n\n| test    |  depth |  rows |         ms |   tokens/s | vs 1 row |   GB/s | GMAC/s | of the roof |\n"
         "|---------|-------:|------:|-----------:|-----------:|---------:|-------:|-------:|------------:|\n";
}

// One line of the table; `one_row_ms` is the step with one row at this depth, if it was measured.
std::string TableLine(const Measurement& m, double one_row_ms) {
  char text[160], ratio[32] = "", bandwidth[32] = "";
  if (m.test != "prefill" && one_row_ms > 0) std::snprintf(ratio, sizeof(ratio), "%.2fx", m.ms / one_row_ms);
  if (m.gb_per_second > 0) std::snprintf(bandwidth, sizeof(bandwidth), "%.1f", m.gb_per_second);
  std::snprintf(text, sizeof(text), "| %-7s | %6d | %5d | %10.2f | %10.1f | %8s | %6s | %6.0f | %9.0f %% |\n",
                m.test.c_str(), m.depth, m.rows, m.ms, m.tokens_per_second, ratio, bandwidth, m.gmac_per_second,
                100 * m.roofline_share);
  return text;
}

int RunBenchCommand(const BenchFlags& flags) {
  const auto table = kernels::Choose(flags.bench.model.kernels);
  if (!table.ok()) return Fail(table.status(), Stage::kLoad);
  Output out = Output::Standard();
  Status written = out.Check();
  if (!written.ok()) return FailOutput(written);
  std::map<int, double> one_row;
  const auto on_machine = [&](const MachineLimits& limits) {
    written = out.Write(flags.json ? JsonLine(limits) : TableHeader((*table)->name, limits));
  };
  const Status status = RunBench(flags.bench, on_machine, [&](const Measurement& m) {
    if (m.rows == 1 && m.test == "decode") one_row[m.depth] = m.ms;
    const Status line = out.Write(flags.json ? JsonLine(m) : TableLine(m, one_row[m.depth]));
    if (written.ok()) written = line;
  });
  if (!status.ok()) return Fail(status, Stage::kLoad);
  return written.ok() ? static_cast<int>(kExitOk) : FailOutput(written);
}

}  // namespace

Runner SetUpBench(CLI::App& app) {
  auto flags = std::make_shared<BenchFlags>();
  AddModelOptions(app, &flags->bench.model);
  app.add_option("--depth", flags->bench.depths, "Context lengths to measure at, separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--rows", flags->bench.rows, "Row counts to measure, separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--repetitions", flags->bench.repetitions, "Runs of each step; the median is shown")
      ->capture_default_str();
  app.add_flag("--json", flags->json, "Print one JSON object a line");
  return [flags] { return RunBenchCommand(*flags); };
}

}  // namespace longspec::cli
