// SPDX-License-Identifier: Apache-2.0
#include "eval/report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <tuple>

#include "base/print.h"
#include "base/status_macros.h"
#include "chart/chart.h"
#include "eval/html.h"
#include "eval/method.h"
#include "eval/paper_tables.h"

namespace longspec {
namespace {

struct Sums {
  CellSums all, straight, fresh;  // of all texts; of those that do not loop; of those that hardly repeat
};

// What a row of figures is of.
struct Texts {
  const char* name;
  const CellSums& sums;
};
std::array<Texts, 3> TextsOf(const Sums& sums) {
  return {{{"all", sums.all}, {"from 0.5", sums.straight}, {"from 0.8", sums.fresh}}};
}
static_assert(kLoops == 0.5 && kHardlyRepeats == 0.8);

// Cells in groups, by what `key_of` says of them; cells without items count for nothing.
template <typename Key>
std::map<Key, Sums> SumBy(const std::vector<Cell>& cells, const std::function<Key(const CellKey&)>& key_of) {
  std::map<Key, Sums> sums;
  for (const Cell& cell : cells) {
    for (const EvalItem& item : cell.items) {
      Sums& group = sums[key_of(cell.key)];
      group.all.Add(item, cell.runs);
      if (!item.loops()) group.straight.Add(item, cell.runs);
      if (item.distinct_4gram >= kHardlyRepeats) group.fresh.Add(item, cell.runs);
    }
  }
  return sums;
}

// Temperature, method, length.
using Row = std::tuple<double, std::string, int>;

std::map<Row, Sums> SumByRow(const std::vector<Cell>& cells) {
  return SumBy<Row>(cells, [](const CellKey& key) { return Row(key.temperature, key.method, key.length); });
}

std::string Number(const char* format, double value, bool known) {
  return known ? Print(format, value) : "-";
}

// Micro and macro means, with what they are of.
constexpr char kMeansHeading[] =
    "texts | prompts | tokens | speedup | its macro mean | accepted length | its macro mean |";
constexpr char kMeansRule[] = "---|---:|---:|---:|---:|---:|---:|";
std::string MeansCells(const Texts& texts) {
  const CellSums& s = texts.sums;
  const bool known = s.prompts > 0;
  return Print(" %s | %lld | %lld |", texts.name, static_cast<long long>(s.prompts),
               static_cast<long long>(s.tokens)) +
         " " + Number("%.2fx", s.speedup(), known) + " | " + Number("%.2fx", s.macro_speedup(), known) +
         " | " + Number("%.2f", s.mean_acceptance_length(), known) + " | " +
         Number("%.2f", s.macro_acceptance_length(), known) + " |";
}

std::string MeansTable(const std::vector<Cell>& cells) {
  using Key = std::pair<double, std::string>;
  std::string text = std::string("| temp | method | ") + kMeansHeading + "\n|---:|---|" + kMeansRule + "\n";
  const auto groups = SumBy<Key>(cells, [](const CellKey& key) { return Key(key.temperature, key.method); });
  for (const auto& [key, sums] : groups) {
    for (const Texts& texts : TextsOf(sums)) {
      text += Print("| %g | %s |", key.first, key.second.c_str()) + MeansCells(texts) + "\n";
    }
  }
  return text;
}

// How far methods that may write another text are from plain decoding.
std::string ApproximationTable(const std::vector<Cell>& cells) {
  using Key = std::tuple<std::string, double, std::string, int>;
  std::string text =
      "| family | temp | method | rule | length | prompts | speedup | ROUGE-L | tokens checked | chosen "
      "otherwise |\n"
      "|---|---:|---|---|---:|---:|---:|---:|---:|---:|\n";
  const auto groups = SumBy<Key>(
      cells, [](const CellKey& key) { return Key(key.family, key.temperature, key.method, key.length); });
  for (const auto& [key, sums] : groups) {
    const CellSums& s = sums.all;
    if (s.approximate == 0) continue;
    const auto& [family, temperature, method, length] = key;
    text +=
        Print("| %s | %g | %s | %s | %d | %lld | %.2fx | %.3f | %lld | ", family.c_str(), temperature,
              method.c_str(), RuleOf(method).c_str(), length, static_cast<long long>(s.prompts), s.speedup(),
              s.rouge_l_to_exact / static_cast<double>(s.prompts), static_cast<long long>(s.checked)) +
        Number(
            "%.1f %%",
            100.0 * static_cast<double>(s.differing) / static_cast<double>(std::max<int64_t>(1, s.checked)),
            s.checked > 0) +
        " |\n";
  }
  return text;
}

std::string LengthTable(const std::vector<Cell>& cells) {
  std::string text = std::string("| temp | method | length | ") + kMeansHeading +
                     " tokens/s | plain tokens/s | distinct 4-grams | identical |\n|---:|---|---:|" +
                     kMeansRule + "---:|---:|---:|---:|\n";
  for (const auto& [row, sums] : SumByRow(cells)) {
    const auto& [temperature, method, length] = row;
    for (const Texts& texts : TextsOf(sums)) {
      const CellSums& s = texts.sums;
      const bool known = s.prompts > 0;
      const double n = static_cast<double>(std::max<int64_t>(1, s.prompts));
      text += Print("| %g | %s | %d |", temperature, method.c_str(), length) + MeansCells(texts) + " " +
              Number("%.1f", s.tokens_per_second(), known) + " | " +
              Number("%.1f", s.plain_tokens_per_second(), known) + " | " +
              Number("%.2f", s.distinct_4gram / n, known) + " | " +
              Number("%.0f %%", 100.0 * static_cast<double>(s.identical) / n, known && s.approximate == 0) +
              " |\n";
    }
  }
  return text;
}

std::string FamilyTable(const std::vector<Cell>& cells) {
  using Key = std::tuple<std::string, double, std::string>;
  std::string text = std::string("| family | temp | method | ") + kMeansHeading +
                     " slowest length |\n|---|---:|---|" + kMeansRule + "---|\n";
  std::map<Key, std::pair<double, int>> slowest;
  for (const Cell& cell : cells) {
    CellSums sums;
    for (const EvalItem& item : cell.items) sums.Add(item, cell.runs);
    if (cell.items.empty()) continue;
    const auto [entry, added] = slowest.try_emplace(
        Key(cell.key.family, cell.key.temperature, cell.key.method), sums.speedup(), cell.key.length);
    if (!added && sums.speedup() < entry->second.first) entry->second = {sums.speedup(), cell.key.length};
  }
  const auto groups =
      SumBy<Key>(cells, [](const CellKey& key) { return Key(key.family, key.temperature, key.method); });
  for (const auto& [key, sums] : groups) {
    const auto& [family, temperature, method] = key;
    const auto& [speedup, length] = slowest.at(key);
    for (const Texts& texts : TextsOf(sums)) {
      text += Print("| %s | %g | %s |", family.c_str(), temperature, method.c_str()) + MeansCells(texts) +
              Print(" %.2fx at %d |\n", speedup, length);
    }
  }
  return text;
}

std::string TimeTable(const std::vector<Cell>& cells) {
  std::string text =
      "| temp | method | length | draft | target | sample and match | commit | plain step | memory for "
      "drafting, "
      "MiB |\n"
      "|---:|---|---:|---:|---:|---:|---:|---:|---:|\n";
  for (const auto& [row, sums] : SumByRow(cells)) {
    const auto& [temperature, method, length] = row;
    const CellSums& s = sums.all;
    const auto steps = static_cast<double>(std::max<int64_t>(1, s.steps));
    text += Print("| %g | %s | %d | %.3f | %.2f | %.3f | %.3f | %.2f | %.2f |\n", temperature, method.c_str(),
                  length, s.draft_ms / steps, s.target_ms / steps, s.verify_ms / steps, s.commit_ms / steps,
                  s.plain_ms / static_cast<double>(std::max<int64_t>(1, s.tokens)),
                  static_cast<double>(s.draft_bytes) / (1 << 20));
  }
  return text;
}

// Each cell by itself. Files of earlier versions do not say how often a position was drafted.
std::string CellTable(const std::vector<Cell>& cells) {
  constexpr size_t kPositions = 4;
  std::string text =
      "| family | method | temp | length | tokens | steps | speedup | accepted length | draft | target | "
      "sample and match | commit | plain step | 1 | 2 | 3 | 4 |\n"
      "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  for (const Cell& cell : cells) {
    CellSums s;
    for (const EvalItem& item : cell.items) s.Add(item, cell.runs);
    if (s.prompts == 0) continue;
    const auto steps = static_cast<double>(std::max<int64_t>(1, s.steps));
    text += Print("| %s | %s | %g | %d | %lld | %lld | %.2fx | %.2f | %.3f | %.2f | %.3f | %.3f | %.2f |",
                  cell.key.family.c_str(), cell.key.method.c_str(), cell.key.temperature, cell.key.length,
                  static_cast<long long>(s.tokens), static_cast<long long>(s.steps), s.speedup(),
                  s.mean_acceptance_length(), s.draft_ms / steps, s.target_ms / steps, s.verify_ms / steps,
                  s.commit_ms / steps, s.plain_ms / static_cast<double>(std::max<int64_t>(1, s.tokens)));
    const std::vector<double> rates = s.acceptance_per_position();
    for (size_t i = 0; i < kPositions; ++i) {
      text += i < rates.size() ? Print(" %.2f |", rates[i]) : " - |";
    }
    text += "\n";
  }
  return text;
}

// Means of the rates of items, over those that reached the position.
std::string PositionTable(const std::vector<Cell>& cells) {
  constexpr size_t kPositions = 8;
  struct Rates {
    std::array<double, kPositions> sum{};
    std::array<int, kPositions> n{};
  };
  std::map<std::pair<double, std::string>, Rates> groups;
  for (const Cell& cell : cells) {
    for (const EvalItem& item : cell.items) {
      Rates& rates = groups[{cell.key.temperature, cell.key.method}];
      for (size_t i = 0; i < std::min(kPositions, item.acceptance_per_position.size()); ++i) {
        rates.sum[i] += item.acceptance_per_position[i];
        ++rates.n[i];
      }
    }
  }
  std::string text =
      "| temp | method | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 "
      "|\n|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  for (const auto& [key, rates] : groups) {
    text += Print("| %g | %s |", key.first, key.second.c_str());
    for (size_t i = 0; i < kPositions; ++i) {
      text += " " + Number("%.2f", rates.sum[i] / std::max(1, rates.n[i]), rates.n[i] > 0) + " |";
    }
    text += "\n";
  }
  return text;
}

std::string QualityTable(const std::vector<Cell>& cells) {
  using Key = std::tuple<std::string, std::string, double, int>;  // family, measure, temperature, length
  std::map<Key, std::pair<double, int>> groups;
  for (const Cell& cell : cells) {
    for (const EvalItem& item : cell.items) {
      if (item.approximate) continue;  // of another text
      for (const auto& [measure, value] : item.quality) {
        auto& [sum, n] = groups[{cell.key.family, measure, cell.key.temperature, cell.key.length}];
        sum += value;
        ++n;
      }
    }
  }
  std::string text = "| family | measure | temp | length | mean |\n|---|---|---:|---:|---:|\n";
  for (const auto& [key, value] : groups) {
    const auto& [family, measure, temperature, length] = key;
    text += Print("| %s | %s | %g | %d | %.3f |\n", family.c_str(), measure.c_str(), temperature, length,
                  value.first / value.second);
  }
  return text;
}

// The fastest fixed setting of a cell, plain decoding being one, and what adapts beside it.
struct Contest {
  std::string best = "plain";
  double best_speedup = 1;
  std::vector<std::pair<std::string, double>> adaptive = {};  // method, speedup
  double distinct_4gram = 1;
};

// Shorter answers say nothing about speed: one forward pass, and setting up.
constexpr int64_t kLeastTokens = 16;

CellSums SumsOfAnswers(const Cell& cell) {
  CellSums sums;
  for (const EvalItem& item : cell.items) {
    if (item.tokens >= kLeastTokens) sums.Add(item, cell.runs);
  }
  return sums;
}

// Family, temperature, length.
using Place = std::tuple<std::string, double, int>;

std::map<Place, Contest> Contests(const std::vector<Cell>& cells) {
  std::map<Place, Contest> contests;
  for (const Cell& cell : cells) {
    const CellSums sums = SumsOfAnswers(cell);
    if (sums.prompts == 0) continue;
    if (sums.approximate > 0) continue;  // of another text
    Contest& contest = contests[{cell.key.family, cell.key.temperature, cell.key.length}];
    contest.distinct_4gram = sums.distinct_4gram / static_cast<double>(sums.prompts);
    if (!cell.key.is_fixed()) {
      contest.adaptive.emplace_back(cell.key.method, sums.speedup());
    } else if (sums.speedup() > contest.best_speedup) {
      contest.best_speedup = sums.speedup();
      contest.best = cell.key.method;
    }
  }
  return contests;
}

std::string ContestTable(const std::vector<Cell>& cells) {
  std::string text =
      "| family | temp | length | method | speedup | best fixed setting | its speedup | share of it | "
      "distinct 4-grams "
      "|\n|---|---:|---:|---|---:|---|---:|---:|---:|\n";
  for (const auto& [place, contest] : Contests(cells)) {
    const auto& [family, temperature, length] = place;
    for (const auto& [method, speedup] : contest.adaptive) {
      text += Print("| %s | %g | %d | %s | %.2fx | %s | %.2fx | %.0f %% | %.2f |\n", family.c_str(),
                    temperature, length, method.c_str(), speedup, contest.best.c_str(), contest.best_speedup,
                    100 * speedup / contest.best_speedup, contest.distinct_4gram);
    }
  }
  return text;
}

// Means over cells, each counting once, of every method; of adaptive ones also how they stand to the best.
std::string MethodTable(const std::vector<Cell>& cells) {
  struct Means {
    int n = 0, n_straight = 0, n_fresh = 0, slower = 0, within = 0;
    double sum = 0, sum_straight = 0, sum_fresh = 0, least = 0, shares = 0, least_share = 0;
  };
  std::map<std::string, Means> methods;
  const auto contests = Contests(cells);
  for (const Cell& cell : cells) {
    const CellSums sums = SumsOfAnswers(cell);
    if (sums.prompts == 0) continue;
    const Contest& contest = contests.at({cell.key.family, cell.key.temperature, cell.key.length});
    const double speedup = sums.speedup(), share = speedup / contest.best_speedup;
    Means& means = methods[cell.key.method];
    means.least = means.n == 0 ? speedup : std::min(means.least, speedup);
    means.least_share = means.n == 0 ? share : std::min(means.least_share, share);
    ++means.n;
    means.sum += speedup;
    means.shares += share;
    means.slower += speedup < 0.98 ? 1 : 0;
    means.within += share >= 0.95 ? 1 : 0;
    if (contest.distinct_4gram >= kLoops) {
      ++means.n_straight;
      means.sum_straight += speedup;
    }
    if (contest.distinct_4gram >= kHardlyRepeats) {
      ++means.n_fresh;
      means.sum_fresh += speedup;
    }
  }
  std::string text =
      "| method | cells | mean speedup | distinct 4-grams from 0.5: cells | mean speedup | from 0.8: cells | "
      "mean speedup | least | over 2 % slower than plain | mean share of the best fixed setting | least | "
      "cells within 5 % of it |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  for (const auto& [method, m] : methods) {
    text += Print("| %s | %d | %.2fx | %d | %s | %d | %s | %.2fx | %d | %.0f %% | %.0f %% | %d |\n",
                  method.c_str(), m.n, m.sum / m.n, m.n_straight,
                  Number("%.2fx", m.sum_straight / std::max(1, m.n_straight), m.n_straight > 0).c_str(),
                  m.n_fresh, Number("%.2fx", m.sum_fresh / std::max(1, m.n_fresh), m.n_fresh > 0).c_str(),
                  m.least, m.slower, 100 * m.shares / m.n, 100 * m.least_share, m.within);
  }
  return text;
}

// What each method drafted with, beside the text: "auto: dice, prior x.ngrams, 2000 pairs; ngram: dice".
// Empty if nothing is known.
std::string DraftedWith(const std::vector<Cell>& cells) {
  std::map<std::string, std::vector<std::string>> methods;
  const auto add = [&](const std::string& method, const std::string& what) {
    std::vector<std::string>& known = methods[method];
    if (std::ranges::find(known, what) == known.end()) known.push_back(what);
  };
  for (const bool dice : {true, false}) {  // dice first
    for (const Cell& cell : cells) {
      for (const EvalItem& item : cell.items) {
        if (dice && item.dice) add(cell.key.method, "dice");
        for (const auto& [name, value] : item.uses) {
          if (!dice) add(cell.key.method, name + " " + value);
        }
      }
    }
  }
  std::string text;
  for (const auto& [method, all] : methods) {
    text += (text.empty() ? "" : "; ") + method + ": ";
    for (size_t i = 0; i < all.size(); ++i) text += (i == 0 ? "" : ", ") + all[i];
  }
  return text;
}

// One line for each temperature and method; `value_of` is the ordinate of a length.
std::vector<LineSeries> SeriesByLength(const std::vector<Cell>& cells,
                                       const std::function<double(const CellSums&)>& value_of) {
  std::map<std::pair<double, std::string>, LineSeries> series;
  for (const auto& [row, sums] : SumByRow(cells)) {
    const auto& [temperature, method, length] = row;
    LineSeries& line = series[{temperature, method}];
    line.name = method + Print(", temp %g", temperature);
    line.dashed = temperature > 0;
    line.points.emplace_back(length, value_of(sums.all));
  }
  std::vector<LineSeries> lines;
  for (auto& [key, line] : series) lines.push_back(std::move(line));
  return lines;
}

Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.flush();
  return out.good() ? Status() : IoError(path + ": cannot be written");
}

}  // namespace

std::string ReportMarkdown(const std::vector<Cell>& cells, const ReportOptions& options) {
  int64_t prompts = 0, identical = 0;
  for (const Cell& cell : cells) {
    for (const EvalItem& item : cell.items) {
      if (item.approximate) continue;
      ++prompts;
      identical += item.identical ? 1 : 0;
    }
  }
  std::string text = "# " + options.title + "\n\n";
  text += Print("Identical to plain decoding: %lld of %lld generations.\n\n",
                static_cast<long long>(identical), static_cast<long long>(prompts));
  text +=
      "Speedups are over plain decoding of the same prompts in the same process, in turn with it; prompt "
      "evaluation is not counted. The accepted length is 1 + accepted / steps. Means are quotients of sums; "
      "in "
      "macro means each prompt counts once. A text loops if fewer than half of its 4-grams are distinct, "
      "which "
      "flatters every drafter: rows \"from 0.5\" leave such texts out, rows \"from 0.8\" all of which a "
      "fifth "
      "or more is said again.\n\n";
  if (const std::string with = DraftedWith(cells); !with.empty()) {
    text += "Drafted with (dice are for temperatures above 0): " + with + ".\n\n";
  }
  text += Print("## By method\n\nAnswers of fewer than %lld tokens are left out here.\n\n",
                static_cast<long long>(kLeastTokens)) +
          MethodTable(cells);
  if (const std::string table = ContestTable(cells); std::count(table.begin(), table.end(), '\n') > 2) {
    text +=
        "\n## Against the best fixed setting\n\nOf the fixed settings that were run, plain decoding "
        "included; the best "
        "is known only afterwards.\n\n" +
        table;
  }
  if (const std::string table = ApproximationTable(cells); std::ranges::count(table, '\n') > 2) {
    text +=
        "\n## Approximations\n\nThese methods may write another text than plain decoding. ROUGE-L is its F1 "
        "against plain decoding's text; the last column is the share of the checked tokens that the whole "
        "cache "
        "would have chosen otherwise.\n\n" +
        table;
  }
  text += "\n## Of all prompts\n\n" + MeansTable(cells);
  text += "\n## By context length\n\n" + LengthTable(cells) + "\n![speedup](speedup.svg)\n\n";
  text += "![accepted length](accepted_length.svg)\n\n## By family\n\n" + FamilyTable(cells);
  text +=
      "\n## Time of a step, ms, and memory\n\n" + TimeTable(cells) + "\n![time split](time_split.svg)\n\n";
  text += "## Acceptance by position\n\n" + PositionTable(cells);
  text += "\n## Quality\n\nThe same for every exact method, as the texts are.\n\n" + QualityTable(cells);
  text += "\n## By cell\n\nTimes are ms a step; the last columns are the acceptance by position.\n\n" +
          CellTable(cells);
  for (const std::string& paper : options.papers)
    text += "\n" + PaperTableMarkdown(paper, cells, options.model);
  return text;
}

std::string SpeedupChart(const std::vector<Cell>& cells) {
  return RenderLines({.title = "Speedup over plain decoding",
                      .x_label = "context length, tokens",
                      .y_label = "speedup",
                      .series = SeriesByLength(cells, [](const CellSums& s) { return s.speedup(); }),
                      .baseline = 1});
}

std::string AcceptedLengthChart(const std::vector<Cell>& cells) {
  return RenderLines(
      {.title = "Mean accepted length",
       .x_label = "context length, tokens",
       .y_label = "tokens per step",
       .series = SeriesByLength(cells, [](const CellSums& s) { return s.mean_acceptance_length(); }),
       .baseline = 1});
}

std::string TimeSplitChart(const std::vector<Cell>& cells) {
  BarChart chart{.title = "Time per token",
                 .y_label = "ms per token",
                 .parts = {"target", "draft", "sample and match", "commit"},
                 .bars = {}};
  std::map<int, CellSums> plain;  // by length
  const auto groups = SumBy<std::pair<int, std::string>>(
      cells, [](const CellKey& key) { return std::pair(key.length, key.method); });
  for (const auto& [key, sums] : groups) {
    const CellSums& s = sums.all;
    const auto tokens = static_cast<double>(std::max<int64_t>(1, s.tokens));
    if (plain.try_emplace(key.first).second) {
      chart.bars.push_back({Print("plain %d", key.first), {s.plain_ms / tokens, 0, 0, 0}});
    }
    chart.bars.push_back(
        {key.second + Print(" %d", key.first),
         {s.target_ms / tokens, s.draft_ms / tokens, s.verify_ms / tokens, s.commit_ms / tokens}});
  }
  return RenderBars(chart);
}

namespace {

std::map<std::string, std::string> Charts(const std::vector<Cell>& cells) {
  return {{"speedup.svg", SpeedupChart(cells)},
          {"accepted_length.svg", AcceptedLengthChart(cells)},
          {"time_split.svg", TimeSplitChart(cells)}};
}

}  // namespace

std::string ReportHtml(const std::vector<Cell>& cells, const ReportOptions& options) {
  return MarkdownToHtml(ReportMarkdown(cells, options), Charts(cells));
}

Status WriteReport(const std::vector<Cell>& cells, const ReportOptions& options, const std::string& out) {
  LS_TRY(WriteText(out + "/report.md", ReportMarkdown(cells, options)));
  LS_TRY(WriteText(out + "/report.html", ReportHtml(cells, options)));
  for (const auto& [name, svg] : Charts(cells)) LS_TRY(WriteText(out + "/" + name, svg));
  return {};
}

}  // namespace longspec
