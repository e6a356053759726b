// SPDX-License-Identifier: Apache-2.0
#include "eval/paper_tables.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <span>

#include "eval/paper_figures.h"
#include "longspec/status.h"

namespace longspec {
namespace {

enum class Form : uint8_t { kLengthRateSpeedup, kLengthRate, kSpeedupLength, kRateSpeedupLength };

// What of our results stands under a heading: a family, at one context length or at all (0); no family: all.
struct Column {
  const char* heading;
  const char* family;
  int length;
};

struct PaperTable {
  const char* name;
  const char* title;
  const char* note;
  Form form;
  bool counts_target_token;  // in the accepted length
  std::span<const Column> columns;
  std::span<const PaperRow> rows;
};

constexpr Column kLongspecColumns[] = {{"GovReport", "gov_report", 0},
                                       {"QMSum", "meeting_qmsum", 0},
                                       {"Multi-News", "multi_doc", 0},
                                       {"LCC, RepoBench-P", "code_completion", 0}};
constexpr Column kSpecExtendColumns[] = {
    {"GovReport 1K", "gov_report", 1024}, {"2K", "gov_report", 2048},
    {"4K", "gov_report", 4096},           {"8K", "gov_report", 8192},
    {"16K", "gov_report", 16384},         {"PG-19 1K", "book_continuation", 1024},
    {"2K", "book_continuation", 2048},    {"4K", "book_continuation", 4096},
    {"8K", "book_continuation", 8192},    {"16K", "book_continuation", 16384},
    {"BookSum 1K", "book_summary", 1024}, {"2K", "book_summary", 2048},
    {"4K", "book_summary", 4096},         {"8K", "book_summary", 8192},
    {"16K", "book_summary", 16384},
};
constexpr Column kSpecPvColumns[] = {{"10K", "", 10240}, {"20K", "", 20480}, {"30K", "", 30720},
                                     {"40K", "", 40960}, {"50K", "", 51200}, {"60K", "", 61440}};
constexpr Column kBeagleColumns[] = {
    {"MT-Bench", "mt_bench", 0}, {"GSM-8K", "gsm8k", 0}, {"CNN-Daily", "cnn_dm", 0}};

constexpr PaperTable kTables[] = {
    {"longspec-table1", "LongSpec, table 1",
     "Accepted length / tokens per second / speedup over plain decoding with flash attention.",
     Form::kLengthRateSpeedup, true, kLongspecColumns, kLongspecTable1},
    {"longspec-table4", "LongSpec, table 4", "Accepted length / tokens per second.", Form::kLengthRate, true,
     kLongspecColumns, kLongspecTable4},
    {"specextend-table2", "SpecExtend, table 2",
     "Accepted length, not counting the target's own token / tokens per second / speedup.",
     Form::kLengthRateSpeedup, false, kSpecExtendColumns, kSpecExtendTable2},
    {"specpv-table1", "SpecPV, table 1",
     "Speedup / accepted length, not counting the target's own token. SpecPV's own rows verify partially: "
     "their texts "
     "differ from plain decoding's.",
     Form::kSpeedupLength, false, kSpecPvColumns, kSpecPvTable1},
    {"beagle-table1", "Beagle, table 1", "Tokens per second / speedup / accepted length.",
     Form::kRateSpeedupLength, true, kBeagleColumns, kBeagleTable1},
};

const PaperTable* Find(std::string_view name) {
  const auto table = std::find_if(std::begin(kTables), std::end(kTables),
                                  [&](const PaperTable& t) { return name == t.name; });
  return table == std::end(kTables) ? nullptr : table;
}

std::string Format(Form form, double length, double rate, double speedup) {
  char text[64];
  switch (form) {
    case Form::kLengthRateSpeedup:
      std::snprintf(text, sizeof(text), "%.2f / %.2f / %.2fx", length, rate, speedup);
      break;
    case Form::kLengthRate:
      std::snprintf(text, sizeof(text), "%.2f / %.2f", length, rate);
      break;
    case Form::kSpeedupLength:
      std::snprintf(text, sizeof(text), "%.2fx / %.2f", speedup, length);
      break;
    case Form::kRateSpeedupLength:
      std::snprintf(text, sizeof(text), "%.1f / %.1fx / %.1f", rate, speedup, length);
      break;
  }
  return text;
}

CellSums SumOf(const std::vector<Cell>& cells, const std::string& method, double temperature,
               const Column& column) {
  CellSums sums;
  for (const Cell& cell : cells) {
    const CellKey& key = cell.key;
    const bool counts = key.method == method && key.temperature == temperature &&
                        (*column.family == '\0' || key.family == column.family) &&
                        (column.length == 0 || key.length == column.length);
    if (!counts) continue;
    for (const EvalItem& item : cell.items) sums.Add(item, cell.runs);
  }
  return sums;
}

// `plain`: the plain decoding that the method was measured beside.
std::string OurRow(const PaperTable& table, const std::vector<Cell>& cells, const std::string& method,
                   double temperature, bool plain) {
  std::string row;
  const double own = table.counts_target_token ? 0 : 1;
  for (const Column& column : table.columns) {
    const CellSums s = SumOf(cells, method, temperature, column);
    row += " | ";
    if (s.prompts == 0) {
      row += "-";
    } else if (plain) {
      row += Format(table.form, 1 - own, s.plain_tokens_per_second(), 1);
    } else {
      row += Format(table.form, s.mean_acceptance_length() - own, s.tokens_per_second(), s.speedup());
    }
  }
  return row;
}

// The papers have two columns of code tasks where we have one family: it stands for both.
std::string PaperCells(const PaperTable& table, const PaperRow& row) {
  std::string cells = row.cells;
  const auto n = static_cast<size_t>(std::count(cells.begin(), cells.end(), '|')) + 1;
  if (n == table.columns.size()) return " | " + cells;
  const size_t last = cells.rfind(" | ");
  return " | " + cells.substr(0, last) + ", " + cells.substr(last + 3);
}

}  // namespace

std::vector<std::string> PaperTableNames() {
  std::vector<std::string> names;
  for (const PaperTable& table : kTables) names.emplace_back(table.name);
  return names;
}

Status CheckPaperTable(std::string_view name) {
  if (Find(name) != nullptr) return {};
  std::string known;
  for (const std::string& table : PaperTableNames()) known += (known.empty() ? "" : ", ") + table;
  return InvalidArgument("--paper " + std::string(name) + ": unknown; known are " + known);
}

std::string PaperTableMarkdown(std::string_view name, const std::vector<Cell>& cells,
                               const std::string& model) {
  const PaperTable& table = *Find(name);
  std::string text = std::string("## In the form of ") + table.title + "\n\n" + table.note +
                     " The paper's models ran on GPUs; lines of this model are last.\n\n| model | method";
  std::string rule = "|---|---";
  for (const Column& column : table.columns) {
    text += std::string(" | ") + column.heading;
    rule += "|---:";
  }
  text += " |\n" + rule + "|\n";
  for (const PaperRow& row : table.rows) {
    text += std::string("| ") + row.model + " | " + row.method + PaperCells(table, row) + " |\n";
  }
  std::vector<std::pair<double, std::string>> methods;  // in the order they were run
  for (const Cell& cell : cells) {
    const std::pair method(cell.key.temperature, cell.key.method);
    if (std::find(methods.begin(), methods.end(), method) == methods.end()) methods.push_back(method);
  }
  std::stable_sort(methods.begin(), methods.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  double plain_at = -1;
  for (const auto& [temperature, method] : methods) {
    char at[32];
    std::snprintf(at, sizeof(at), ", T = %g", temperature);
    if (temperature != plain_at) {
      text += "| " + model + " | plain" + at + OurRow(table, cells, method, temperature, true) + " |\n";
      plain_at = temperature;
    }
    text += "| " + model + " | " + method + at + OurRow(table, cells, method, temperature, false) + " |\n";
  }
  return text + "\n";
}

}  // namespace longspec
