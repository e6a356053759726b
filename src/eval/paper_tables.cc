// SPDX-License-Identifier: Apache-2.0
#include "eval/paper_tables.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "api/statistics.h"
#include "base/print.h"
#include "eval/method.h"
#include "eval/paper_data.h"
#include "longspec/status.h"

namespace longspec {
namespace {

using Json = nlohmann::json;

enum class Part : uint8_t { kLength, kRate, kSpeedup, kRougeL, kDraftMs, kTargetMs, kVerifyMs };

Part ParsePart(const std::string& name) {
  if (name == "length") return Part::kLength;
  if (name == "rate") return Part::kRate;
  if (name == "draft_ms") return Part::kDraftMs;
  if (name == "target_ms") return Part::kTargetMs;
  if (name == "verify_ms") return Part::kVerifyMs;
  return name == "speedup" ? Part::kSpeedup : Part::kRougeL;
}

// What of our results stands under a heading: a family, or a subset of it, at context lengths beyond `above`
// and up to `up_to` (0: any); no family: all.
struct Column {
  std::string heading;
  std::string family, subset;
  int above = 0, up_to = 0;
  int paper_cells = 1;
};

struct PaperRow {
  std::string model;
  std::string method;
  std::vector<std::string> cells;
};

struct PaperTable {
  std::string name;
  std::string title;
  std::string note;
  std::vector<Part> cell;
  int digits = 0;
  bool counts_target_token = false;  // in the accepted length
  bool counts_prompt = false;        // in times
  bool shows_memory = false;         // of our methods, in lines of their own
  bool shows_distance = false;       // of approximate ones from the exact text, too
  std::vector<Column> columns;
  std::vector<PaperRow> rows;
};

// The data is part of the program: what is missing in it is a bug, and get's exception ends the program.
PaperTable ReadTable(const Json& json) {
  PaperTable table;
  json.at("name").get_to(table.name);
  json.at("title").get_to(table.title);
  json.at("note").get_to(table.note);
  for (const Json& part : json.at("cell")) {
    table.cell.push_back(ParsePart(part));
  }
  json.at("digits").get_to(table.digits);
  json.at("counts_target_token").get_to(table.counts_target_token);
  table.counts_prompt = json.value("counts_prompt", false);
  table.shows_memory = json.value("shows_memory", false);
  table.shows_distance = json.value("shows_distance", false);
  for (const Json& column : json.at("columns")) {
    const int length = column.value("length", 0);
    table.columns.push_back({.heading = column.at("heading"),
                             .family = column.value("family", ""),
                             .subset = column.value("subset", ""),
                             .above = column.value("above", std::max(0, length - 1)),
                             .up_to = column.value("up_to", length),
                             .paper_cells = column.value("paper_cells", 1)});
  }
  for (const Json& row : json.at("rows")) {
    table.rows.push_back({.model = row.at("model"), .method = row.at("method"), .cells = row.at("cells")});
  }
  return table;
}

const std::vector<PaperTable>& Tables() {
  static const std::vector<PaperTable> tables = [] {
    std::vector<PaperTable> read;
    for (const Json& json : Json::parse(PapersJson())) read.push_back(ReadTable(json));
    return read;
  }();
  return tables;
}

std::string PaperOf(const PaperTable& table) { return table.name.substr(0, table.name.find('-')); }

// Those that a name stands for: one table, or all of a paper.
std::vector<const PaperTable*> Find(std::string_view name) {
  std::vector<const PaperTable*> found;
  for (const PaperTable& table : Tables()) {
    if (name == table.name || name == PaperOf(table)) found.push_back(&table);
  }
  return found;
}

struct Figures {
  double length = 0, rate = 0, speedup = 0, rouge_l = 0;
  double draft_ms = 0, target_ms = 0, verify_ms = 0;  // of a round

  double Of(Part part) const {
    switch (part) {
      case Part::kLength:
        return length;
      case Part::kRate:
        return rate;
      case Part::kSpeedup:
        return speedup;
      case Part::kRougeL:
        return 100 * rouge_l;
      case Part::kDraftMs:
        return draft_ms;
      case Part::kTargetMs:
        return target_ms;
      case Part::kVerifyMs:
        return verify_ms;
    }
    return 0;
  }
};

std::string Format(const PaperTable& table, const Figures& f) {
  std::string text;
  for (const Part part : table.cell) {
    text += Print("%s%.*f%s", text.empty() ? "" : " / ", table.digits, f.Of(part),
                  part == Part::kSpeedup ? "x" : "");
  }
  return text;
}

CellSums SumOf(const std::vector<Cell>& cells, const std::string& method, double temperature,
               const Column& column) {
  CellSums sums;
  for (const Cell& cell : cells) {
    const CellKey& key = cell.key;
    const bool counts = key.method == method && key.temperature == temperature &&
                        (column.family.empty() || key.family == column.family) &&
                        (column.up_to == 0 || (key.length > column.above && key.length <= column.up_to));
    if (!counts) continue;
    for (const EvalItem& item : cell.items) {
      if (column.subset.empty() || item.subset == column.subset) sums.Add(item, cell.runs);
    }
  }
  return sums;
}

// "(3, 1 loops)": prompts, and those whose texts loop.
std::string CountOf(const CellSums& s) {
  std::string text = Print(" (%lld", static_cast<long long>(s.prompts));
  if (s.looping > 0) text += Print(", %lld loop", static_cast<long long>(s.looping));
  return text + ")";
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
      continue;
    }
    const double plain_ms = s.plain_ms + (table.counts_prompt ? s.plain_prompt_ms : 0);
    const double ms = plain ? plain_ms : s.ms + (table.counts_prompt ? s.prompt_ms : 0);
    const auto n = static_cast<double>(s.prompts);
    const bool exact = plain || s.approximate == 0;  // then the text is that of plain decoding
    const auto rounds = static_cast<double>(std::max<int64_t>(plain ? s.tokens : s.steps, 1));
    row += Format(table, {.length = (plain ? 1 : s.mean_acceptance_length()) - own,
                          .rate = api::PerSecond(s.tokens, ms),
                          .speedup = ms > 0 ? plain_ms / ms : 0,
                          .rouge_l = exact ? 1 : s.rouge_l_to_exact / n,
                          .draft_ms = plain ? 0 : s.draft_ms / rounds,
                          .target_ms = (plain ? s.plain_ms : s.target_ms) / rounds,
                          .verify_ms = plain ? 0 : s.verify_ms / rounds}) +
           CountOf(s);
  }
  return row;
}

// "0.5 / 180.0": MiB held to draft, and of the sequence's own keys and values in memory, the most of any
// prompt. Results of earlier versions do not say the latter.
std::string MemoryRow(const PaperTable& table, const std::vector<Cell>& cells, const std::string& method,
                      double temperature) {
  const auto mib = [](uint64_t bytes) { return Print("%.1f", static_cast<double>(bytes) / (1 << 20)); };
  std::string row;
  for (const Column& column : table.columns) {
    const CellSums s = SumOf(cells, method, temperature, column);
    row += " | ";
    row += s.prompts == 0 ? "-" : mib(s.draft_bytes) + " / " + (s.kv_bytes == 0 ? "-" : mib(s.kv_bytes));
  }
  return row;
}

// "55.0 / 8.8 %": ROUGE-L to the exact text, times 100, and the share of the tokens that a refresh looked at
// again which the whole cache would have chosen otherwise. Empty: the method is exact.
std::string DistanceRow(const PaperTable& table, const std::vector<Cell>& cells, const std::string& method,
                        double temperature) {
  std::string row;
  bool approximate = false;
  for (const Column& column : table.columns) {
    const CellSums s = SumOf(cells, method, temperature, column);
    row += " | ";
    if (s.approximate == 0) {
      row += "-";
      continue;
    }
    approximate = true;
    row += Print("%.1f / ", 100 * s.rouge_l_to_exact / static_cast<double>(s.prompts)) +
           (s.checked > 0
                ? Print("%.1f %%", 100 * static_cast<double>(s.differing) / static_cast<double>(s.checked))
                : "-");
  }
  return approximate ? row : "";
}

// The papers have two columns of code tasks where we have one family: it stands for both.
std::string PaperCells(const PaperTable& table, const PaperRow& row) {
  std::string text;
  size_t next = 0;
  for (const Column& column : table.columns) {
    for (int i = 0; i < column.paper_cells; ++i) text += (i == 0 ? " | " : ", ") + row.cells.at(next++);
  }
  return text;
}

}  // namespace

std::vector<std::string> PaperTableNames() {
  std::vector<std::string> names;
  for (const PaperTable& table : Tables()) names.push_back(table.name);
  return names;
}

std::vector<std::string> PaperNames() {
  std::vector<std::string> names;
  for (const PaperTable& table : Tables()) {
    if (std::ranges::find(names, PaperOf(table)) == names.end()) names.push_back(PaperOf(table));
  }
  return names;
}

Status CheckPaperTable(std::string_view name) {
  if (!Find(name).empty()) return {};
  std::string known;
  for (const std::string& table : PaperTableNames()) known += (known.empty() ? "" : ", ") + table;
  for (const std::string& paper : PaperNames()) known += ", " + paper;
  return InvalidArgument("--paper " + std::string(name) + ": unknown; known are " + known);
}

namespace {

std::string Markdown(const PaperTable& table, const std::vector<Cell>& cells, const std::string& model) {
  std::string text =
      "## In the form of " + table.title + "\n\n" + table.note +
      " The paper's models ran on GPUs; lines of this model are last, with the prompts of each "
      "cell in brackets, and of them those whose text loops." +
      (table.shows_memory ? " Memory: held to draft / keys and values of the sequence itself." : "") +
      (table.shows_distance
           ? " Distance of approximate methods from the exact text: ROUGE-L, times 100 / share of the "
             "tokens looked at again that the whole cache would have chosen otherwise."
           : "") +
      "\n\n| model | method";
  std::string rule = "|---|---";
  for (const Column& column : table.columns) {
    text += " | " + column.heading;
    rule += "|---:";
  }
  text += " |\n" + rule + "|\n";
  for (const PaperRow& row : table.rows) {
    text += "| " + row.model + " | " + row.method + PaperCells(table, row) + " |\n";
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
    const std::string by = RuleOf(method), row = method + (by.empty() ? "" : " (" + by + ")") + at;
    text += "| " + model + " | " + row + OurRow(table, cells, method, temperature, false) + " |\n";
    if (table.shows_memory) {
      text += "| " + model + " | " + row + ": memory, MiB" + MemoryRow(table, cells, method, temperature) +
              " |\n";
    }
    const std::string distance =
        table.shows_distance ? DistanceRow(table, cells, method, temperature) : std::string();
    if (!distance.empty()) text += "| " + model + " | " + row + ": distance" + distance + " |\n";
  }
  return text + "\n";
}

}  // namespace

std::string PaperTableMarkdown(std::string_view name, const std::vector<Cell>& cells,
                               const std::string& model) {
  std::string text;
  for (const PaperTable* table : Find(name))
    text += (text.empty() ? "" : "\n") + Markdown(*table, cells, model);
  return text;
}

}  // namespace longspec
