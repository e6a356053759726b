// SPDX-License-Identifier: Apache-2.0
//
// What an evaluation is made of besides running: cells as lines, lines in files, the time left, and reports.
#include "eval/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/testing/files.h"
#include "eval/cell.h"
#include "eval/eta.h"
#include "eval/html.h"
#include "eval/lines.h"
#include "eval/paper_data.h"
#include "eval/paper_tables.h"
#include "eval/testing/text.h"

namespace longspec {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Lines, WhatIsCutShortStaysALineOfItsOwn) {
  const testing::Folder folder;
  const std::string path = folder.File("lines");
  ASSERT_TRUE(AppendLines(path, "a\nb\n").ok());  // made
  ASSERT_TRUE(AppendLines(path, "c\n").ok());
  EXPECT_EQ(testing::ReadText(path), "a\nb\nc\n");
  std::filesystem::resize_file(path, 3);
  ASSERT_TRUE(AppendLines(path, "d\n").ok());
  EXPECT_EQ(testing::ReadText(path), "a\nb\nd\n");
  std::filesystem::resize_file(path, 0);
  ASSERT_TRUE(AppendLines(path, "e\n").ok());
  EXPECT_EQ(testing::ReadText(path), "e\n");
  const Status refused = AppendLines("/nonexistent/lines", "f\n");
  EXPECT_EQ(refused.code(), StatusCode::kIo);
  EXPECT_THAT(refused.message(), HasSubstr("/nonexistent/lines"));
}

TEST(Eta, IsWhatIsLeftAtTheSpeedSoFar) {
  EXPECT_LT(EtaMs(1000, 0, 10), 0);  // unknown
  EXPECT_DOUBLE_EQ(EtaMs(1000, 4, 10), 1500);
  EXPECT_DOUBLE_EQ(EtaMs(1000, 10, 10), 0);
  EXPECT_DOUBLE_EQ(EtaMs(1000, 11, 10), 0);  // by rounding: never negative
  // A prompt of 16K is prefilled at half the speed of a short one; each cell counts as 400 tokens.
  EXPECT_DOUBLE_EQ(GroupWeight(16384, 0), 2 * 16384);
  EXPECT_DOUBLE_EQ(GroupWeight(0, 3), 1200);
  EXPECT_DOUBLE_EQ(GroupWeight(8192, 2), 8192 * 1.5 + 800);
  // Two of three equal groups done after two minutes: one minute is left.
  const double group = GroupWeight(4096, 4);
  EXPECT_DOUBLE_EQ(EtaMs(120e3, 2 * group, 3 * group), 60e3);
}

Cell SampleCell() {
  EvalItem straight{
      .id = "a", .prompt_tokens = 100, .tokens = 50, .steps = 20, .drafted = 60, .accepted = 30};
  straight.ms = 100;
  straight.plain_ms = 200;
  straight.target_ms = 80;
  straight.draft_bytes = 3 << 19;
  straight.kv_bytes = 5 << 20;
  straight.identical = true;
  straight.distinct_4gram = 0.9;
  straight.draft_ms = 10;
  straight.drafted_at = {20, 10};
  straight.accepted_at = {16, 5};
  straight.acceptance_per_position = {0.8, 0.5};
  straight.quality = {{"rouge1", 0.25}};
  straight.decisions = {{"off", 3}};
  straight.last_decision = "off: 8 rows cost 3.1x at 7.4K keys, expected 1.9 tokens";
  straight.dice = true;
  straight.uses = {{"prior", "priors/x.ngrams, 2000 pairs"}};
  EvalItem looping = straight;
  looping.id = "b";
  looping.distinct_4gram = 0.2;
  looping.ms = 50;
  looping.drafted_at = {20, 10, 5};
  looping.accepted_at = {10, 5, 4};
  looping.acceptance_per_position = {0.5, 0.5, 0.8};
  looping.identical = false;
  looping.dice = false;
  return {.key = {.family = "f", .method = "m", .length = 512, .temperature = 0.7},
          .runs = 1,
          .items = {straight, looping}};
}

TEST(Cell, SurvivesTheDisk) {
  const auto json = CellJson(SampleCell());
  EXPECT_DOUBLE_EQ(json["speedup"].get<double>(), 400.0 / 150);
  EXPECT_DOUBLE_EQ(json["mean_acceptance_length"].get<double>(), 2.5);
  EXPECT_DOUBLE_EQ(json["identical_share"].get<double>(), 0.5);
  EXPECT_EQ(json["looping"], 1);
  EXPECT_EQ(json["tokens"], 100);
  EXPECT_EQ(json["steps"], 40);
  EXPECT_EQ(json["drafted"], 120);
  EXPECT_EQ(json["accepted"], 60);
  EXPECT_EQ(json["ms"], 150);
  EXPECT_EQ(json["plain_ms"], 400);
  EXPECT_EQ(json["draft_ms"], 20);
  EXPECT_EQ(json["target_ms"], 160);
  EXPECT_EQ(json["verify_ms"], 0);
  EXPECT_EQ(json["commit_ms"], 0);
  EXPECT_EQ(json["draft_bytes"], 3 << 19);
  EXPECT_EQ(json["kv_bytes"], 5 << 20);
  EXPECT_THAT(json["drafted_at"], ElementsAre(40, 20, 5));
  EXPECT_THAT(json["accepted_at"], ElementsAre(26, 10, 4));
  EXPECT_THAT(json["acceptance_per_position"], ElementsAre(0.65, 0.5, 0.8));
  EXPECT_EQ(json["items"][0]["dice"], true);
  EXPECT_EQ(json["items"][1]["dice"], false);
  EXPECT_EQ(json["items"][0]["uses"]["prior"], "priors/x.ngrams, 2000 pairs");
  const auto back = ParseCell(json.dump());
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_TRUE(back->items[0].dice);
  EXPECT_EQ(back->items[0].uses, SampleCell().items[0].uses);
  EXPECT_EQ(CellJson(*back), json);
  EXPECT_EQ(back->key, SampleCell().key);
  const auto nothing = CellJson({.key = SampleCell().key, .runs = 1, .items = {}});
  EXPECT_TRUE(nothing["identical_share"].is_null());
  EXPECT_EQ(nothing["prompts"], 0);
  EXPECT_TRUE(ParseCell(nothing.dump()).ok());
  for (const char* bad : {"", "{", "[]", "{}", "5", "{\"family\":1}"}) {
    EXPECT_EQ(ParseCell(bad).status().code(), StatusCode::kCorrupt) << bad;
  }
}

// Folders of versions that had no counts by position and no sums of cells.
TEST(Cell, ReadsOlderLines) {
  auto json = CellJson(SampleCell());
  for (const char* name :
       {"tokens", "steps", "drafted", "accepted", "ms", "plain_ms", "draft_ms", "target_ms", "verify_ms",
        "commit_ms", "draft_bytes", "drafted_at", "accepted_at", "acceptance_per_position"}) {
    ASSERT_EQ(json.erase(name), 1U) << name;
  }
  for (auto& item : json["items"]) {
    for (const char* name : {"subset", "kv_bytes", "drafted_at", "accepted_at", "dice", "uses"}) {
      ASSERT_EQ(item.erase(name), 1U);
    }
  }
  const auto cell = ParseCell(json.dump());
  ASSERT_TRUE(cell.ok()) << cell.status().message();
  EXPECT_THAT(cell->items[0].acceptance_per_position, ElementsAre(0.8, 0.5));
  EXPECT_THAT(cell->items[0].drafted_at, ::testing::IsEmpty());
  EXPECT_FALSE(cell->items[0].dice);
  EXPECT_THAT(cell->items[0].uses, ::testing::IsEmpty());
  const std::string report = ReportMarkdown({*cell}, {.title = "T"});
  EXPECT_THAT(report, Not(HasSubstr("Drafted with")));
  EXPECT_THAT(report, HasSubstr("| 0.7 | m | 0.65 | 0.50 | 0.80 | - |"));  // means of rates
  EXPECT_THAT(report, HasSubstr("| 4.00 | - | - | - | - |\n"));
}

TEST(Report, TellsLoopingTextsApart) {
  const std::string report = ReportMarkdown({SampleCell()}, {.title = "T"});
  EXPECT_THAT(report, HasSubstr(" | 1.50 |\n"));  // memory for drafting: the most of any item
  EXPECT_THAT(report, HasSubstr("Identical to plain decoding: 1 of 2"));
  // Speedup of all 400/150, of the straight one 2.
  EXPECT_THAT(report, HasSubstr("| 0.7 | m | 512 | all | 2 | 100 | 2.67x | 3.00x | 2.50 | 2.50 | 666.7 | "
                                "250.0 | 0.55 | 50 % |\n"
                                "| 0.7 | m | 512 | from 0.5 | 1 | 50 | 2.00x | 2.00x | 2.50 | 2.50 | 500.0 | "
                                "250.0 | 0.90 | 100 % |\n"
                                "| 0.7 | m | 512 | from 0.8 | 1 | 50 | 2.00x |"));
  EXPECT_THAT(report,
              HasSubstr("| f | 0.7 | m | from 0.8 | 1 | 50 | 2.00x | 2.00x | 2.50 | 2.50 | 2.67x at 512 |"));
  EXPECT_THAT(report, HasSubstr("| f | rouge1 | 0.7 | 512 | 0.250 |"));
  EXPECT_THAT(report, HasSubstr("| 0.7 | m | 0.65 | 0.50 | 0.80 | - |"));
  EXPECT_THAT(report,
              HasSubstr("| f | m | 0.7 | 512 | 100 | 40 | 2.67x | 2.50 | 0.500 | 4.00 | 0.000 | 0.000 "
                        "| 4.00 | 0.65 | 0.50 | 0.80 | - |\n"));
  const std::string empty = ReportMarkdown({}, {.title = "T"});
  EXPECT_THAT(empty, HasSubstr("0 of 0"));
}

// Sums weigh long answers, macro means each prompt the same; each with its prompts, at both bounds.
TEST(Report, HasMicroAndMacroMeansOfAllTextsAndOfThoseThatRepeatLittle) {
  const auto item = [](double distinct, int64_t tokens, int64_t steps, double ms, double plain_ms) {
    EvalItem made{.id = "a", .tokens = tokens, .steps = steps, .accepted = tokens - steps};
    made.ms = ms;
    made.plain_ms = plain_ms;
    made.distinct_4gram = distinct;
    return made;
  };
  const auto at = [](int length) { return CellKey{.family = "f", .method = "m", .length = length}; };
  const std::vector<Cell> cells = {{.key = at(1), .items = {item(0.4, 100, 10, 100, 1000)}},
                                   {.key = at(2), .items = {item(0.5, 20, 10, 100, 300)}},
                                   {.key = at(3), .items = {item(0.79, 20, 20, 100, 100)}},
                                   {.key = at(4), .items = {item(0.8, 90, 30, 200, 400)}},
                                   {.key = at(5), .items = {item(1.0, 10, 10, 100, 110)}}};
  const std::string report = ReportMarkdown(cells, {.title = "T"});
  EXPECT_THAT(report, HasSubstr("| 0 | m | all | 5 | 240 | 3.18x | 3.42x | 3.00 | 3.40 |\n"
                                "| 0 | m | from 0.5 | 4 | 140 | 1.82x | 1.77x | 2.00 | 1.75 |\n"
                                "| 0 | m | from 0.8 | 2 | 100 | 1.70x | 1.55x | 2.50 | 2.00 |\n"));
  // Where no text is left, the count says so. By method the cells count once, answers of 16 tokens or more.
  const std::string looping = ReportMarkdown({cells[0]}, {.title = "T"});
  EXPECT_THAT(looping, HasSubstr("| 0 | m | from 0.8 | 0 | 0 | - | - | - | - |\n"));
  EXPECT_THAT(report, HasSubstr("| m | 4 | 4.00x | 3 | 2.00x | 1 | 2.00x | 1.00x |"));
  const auto json = CellJson({.key = at(1), .items = {cells[0].items[0], cells[3].items[0]}});
  EXPECT_DOUBLE_EQ(json["speedup"].get<double>(), 1400.0 / 300);
  EXPECT_DOUBLE_EQ(json["macro_speedup"].get<double>(), 6.0);
  EXPECT_DOUBLE_EQ(json["mean_acceptance_length"].get<double>(), 4.75);
  EXPECT_DOUBLE_EQ(json["macro_acceptance_length"].get<double>(), 6.5);
}

TEST(Report, SetsWhatAdaptsBesideTheBestFixedSetting) {
  const auto cell = [](const std::string& method, double ms) {
    EvalItem item{.id = "a", .tokens = 50, .steps = 20, .ms = ms, .plain_ms = 200, .distinct_4gram = 0.9};
    return Cell{.key = {.family = "f", .method = method, .length = 512}, .runs = 1, .items = {item}};
  };
  const std::vector<Cell> cells = {cell("auto", 125),         cell("suffix:4", 100),
                                   cell("ngram", 250),        cell("ngram+suffix", 160),
                                   cell("auto@fixed:4", 110), cell("suffix@adaptive", 90),
                                   cell("auto/no-dice", 80),  cell("auto:8/no-prior", 80)};
  const std::string report = ReportMarkdown(cells, {.title = "T"});
  EXPECT_THAT(report, HasSubstr("| f | 0 | 512 | auto | 1.60x | suffix:4 | 2.00x | 80 % | 0.90 |"));
  EXPECT_THAT(report, HasSubstr("| f | 0 | 512 | ngram+suffix | 1.25x | suffix:4 | 2.00x | 62 % | 0.90 |"));
  EXPECT_THAT(report,
              HasSubstr("| f | 0 | 512 | suffix@adaptive | 2.22x | suffix:4 | 2.00x | 111 % | 0.90 |"));
  for (const char* adaptive : {"auto/no-dice", "auto:8/no-prior"}) {
    EXPECT_THAT(report, HasSubstr("| f | 0 | 512 | " + std::string(adaptive) +
                                  " | 2.50x | suffix:4 | 2.00x | 125 % | 0.90 |"));
  }
  EXPECT_THAT(report,
              HasSubstr("| auto | 1 | 1.60x | 1 | 1.60x | 1 | 1.60x | 1.60x | 0 | 80 % | 80 % | 0 |"));
  EXPECT_THAT(report,
              HasSubstr("| ngram | 1 | 0.80x | 1 | 0.80x | 1 | 0.80x | 0.80x | 1 | 40 % | 40 % | 0 |"));
  EXPECT_THAT(report, Not(HasSubstr("| f | 0 | 512 | auto@fixed:4")));
  // Where nothing pays, plain decoding is the best fixed setting.
  EXPECT_THAT(ReportMarkdown({cell("auto", 200), cell("ngram", 250)}, {.title = "T"}),
              HasSubstr("| f | 0 | 512 | auto | 1.00x | plain | 1.00x | 100 % | 0.90 |"));
}

TEST(Report, SaysWhatMethodsDraftedWith) {
  const auto cell = [](const std::string& method, double temperature, const std::string& prior) {
    EvalItem item{.id = "a", .tokens = 50, .steps = 20, .ms = 100, .plain_ms = 200};
    item.dice = temperature > 0 && !method.ends_with("/no-dice");
    if (!prior.empty()) item.uses = {{"prior", prior}};
    return Cell{.key = {.family = "f", .method = method, .length = 512, .temperature = temperature},
                .runs = 1,
                .items = {item, item}};
  };
  const std::string report =
      ReportMarkdown({cell("auto", 0, "x.ngrams, 20 pairs"), cell("auto", 0.7, "x.ngrams, 20 pairs"),
                      cell("auto/no-dice", 0.7, "x.ngrams, 20 pairs"), cell("ppm/no-prior", 0, "none"),
                      cell("ppm/no-prior", 1, "none"), cell("suffix", 0, ""), cell("suffix", 1, "")},
                     {.title = "T"});
  EXPECT_THAT(report,
              HasSubstr("\n\nDrafted with (dice are for temperatures above 0): "
                        "auto: dice, prior x.ngrams, 20 pairs; auto/no-dice: prior x.ngrams, 20 pairs; "
                        "ppm/no-prior: dice, prior none; suffix: dice.\n\n"));
  EXPECT_THAT(ReportMarkdown({cell("suffix", 0, "")}, {.title = "T"}), Not(HasSubstr("Drafted with")));
}

// Every tag of a well-formed page is closed by its own.
std::string FirstUnbalancedTag(const std::string& html) {
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const size_t end = html.find('>', at);
    if (end == std::string::npos) return html.substr(at, 40);
    const std::string tag = html.substr(at + 1, end - at - 1);
    if (tag.starts_with("!") || tag.ends_with("/")) continue;
    if (!tag.starts_with("/")) {
      open.push_back(tag.substr(0, tag.find(' ')));
    } else if (open.empty() || open.back() != tag.substr(1)) {
      return tag;
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : open.back();
}

TEST(Html, IsOnePageWithTablesAndCharts) {
  Cell cell = SampleCell();
  cell.key.family = "a<b & \"c\"";
  const std::string html =
      ReportHtml({cell}, {.title = "T<1>", .model = "Tiny", .papers = {"beagle-table1"}});
  EXPECT_EQ(FirstUnbalancedTag(html), "");
  EXPECT_THAT(html, ::testing::StartsWith("<!DOCTYPE html>\n"));
  EXPECT_THAT(html, HasSubstr("<meta charset=\"utf-8\"/>"));
  EXPECT_THAT(html, HasSubstr("<title>T&lt;1&gt;</title>"));
  EXPECT_THAT(html, HasSubstr("<h1>T&lt;1&gt;</h1>"));
  EXPECT_THAT(html, HasSubstr("<h2>By context length</h2>"));
  EXPECT_THAT(html, HasSubstr("<p>Identical to plain decoding: 1 of 2 generations.</p>"));
  EXPECT_THAT(html, HasSubstr("<td>a&lt;b &amp; &quot;c&quot;</td>"));
  EXPECT_THAT(html, HasSubstr("<th class=\"number\">temp</th><th>method</th>"));
  EXPECT_THAT(html, HasSubstr("<td>m</td><td class=\"number\">512</td>"));
  EXPECT_THAT(html, HasSubstr("<h2>In the form of Beagle, table 1</h2>"));
  EXPECT_EQ(Count(html, "<figure><svg"), 3);
  for (const char* other : {"<script", "<link", "<img", "src=", "href=", "![", "|---"}) {
    EXPECT_THAT(html, Not(HasSubstr(other)));
  }
  // As many tables and rows as the Markdown has.
  const std::string markdown =
      ReportMarkdown({cell}, {.title = "T<1>", .model = "Tiny", .papers = {"beagle-table1"}});
  EXPECT_EQ(Count(html, "<table>"), Count(markdown, "\n|---"));
  EXPECT_EQ(Count(html, "<tr>"), Count(markdown, "\n| "));
}

TEST(Html, OddPiecesOfMarkdown) {
  const auto page = [](const char* markdown) { return MarkdownToHtml(markdown, {{"a.svg", "<svg/>"}}); };
  EXPECT_THAT(page("one\ntwo\n\nthree"), HasSubstr("<p>one\ntwo</p>\n<p>three</p>\n"));
  EXPECT_THAT(page("x\n![a](a.svg)"), HasSubstr("<p>x</p>\n<figure><svg/></figure>"));
  EXPECT_THAT(page("![b](b.svg)"), HasSubstr("<p>b.svg</p>"));
  EXPECT_THAT(page("| a |\n|---:|"),
              HasSubstr("<th class=\"number\">a</th></tr>\n</thead>\n<tbody>\n</tbody>"));
  EXPECT_THAT(page("bell \x07."), HasSubstr("<p>bell  .</p>"));
  for (const char* odd : {"", "#", "|", "| a", "![", "![a](", "## ", "| a |\n| b"}) {
    EXPECT_EQ(FirstUnbalancedTag(page(odd)), "") << odd;
  }
}

TEST(PaperTables, HaveThePapersCellsAndKnownParts) {
  for (const nlohmann::json& table : nlohmann::json::parse(PapersJson())) {
    const std::string name = table.at("name");
    size_t n = 0;
    for (const nlohmann::json& column : table.at("columns")) n += column.value("paper_cells", size_t{1});
    for (const nlohmann::json& part : table.at("cell")) {
      EXPECT_THAT(part.get<std::string>(),
                  AnyOf("length", "rate", "speedup", "rougeL", "draft_ms", "target_ms", "verify_ms"))
          << name;
    }
    EXPECT_FALSE(table.at("source").get<std::string>().empty());
    const std::string markdown = PaperTableMarkdown(name, {}, "Tiny");
    for (const nlohmann::json& row : table.at("rows")) {
      EXPECT_EQ(row.at("cells").size(), n) << name << " " << row;
      for (const nlohmann::json& cell : row.at("cells")) {
        EXPECT_THAT(markdown, HasSubstr(cell.get<std::string>())) << name;
        const std::string text = cell;
        // SpecPV's has BLEURT, too, Beagle's the GPU's memory.
        const size_t more = name == "specpv-table2" || name.starts_with("beagle") ? 1 : 0;
        EXPECT_EQ(static_cast<size_t>(Count(text, " / ")) + 1, table.at("cell").size() + more)
            << name << " " << text;
      }
    }
  }
}

TEST(PaperTables, LayResultsOutBesideThePapers) {
  const auto cell = [](const char* family, int length, double temperature) {
    EvalItem item{.id = "a", .tokens = 60, .steps = 20, .accepted = 40, .ms = 500, .plain_ms = 1000};
    item.draft_bytes = 1 << 19;
    item.kv_bytes = 45 << 20;
    return Cell{.key = {.family = family, .method = "auto", .length = length, .temperature = temperature},
                .items = {item}};
  };
  const std::vector<Cell> cells = {cell("gov_report", 2048, 0), cell("gov_report", 4096, 0),
                                   cell("mt_bench", 512, 0.7), cell("mt_bench", 512, 0)};
  const std::string longspec = PaperTableMarkdown("longspec-table1", cells, "Tiny");
  EXPECT_THAT(longspec, HasSubstr("| Vicuna-7B | LongSpec | 3.57 / 102.23 / 2.23x | 3.14 / 88.87 / 2.04x |"));
  EXPECT_THAT(longspec, HasSubstr("| 3.73 / 107.30 / 1.99x, 3.86 / 110.76 / 2.38x |"));
  EXPECT_THAT(longspec, HasSubstr("| Tiny | plain, T = 0 | 1.00 / 60.00 / 1.00x (2) | - | - | - |"));
  EXPECT_THAT(longspec, HasSubstr("| Tiny | auto, T = 0 | 3.00 / 120.00 / 2.00x (2) | - | - | - |"));
  // Accepted lengths without the target's own token, by length.
  const std::string specextend = PaperTableMarkdown("specextend-table2", cells, "Tiny");
  EXPECT_THAT(
      specextend,
      HasSubstr("| Tiny | auto, T = 0 | - | 2.00 / 120.00 / 2.00x (1) | 2.00 / 120.00 / 2.00x (1) | - |"));
  EXPECT_THAT(specextend, HasSubstr("| Tiny | auto, T = 0: memory, MiB | - | 0.5 / 45.0 | 0.5 / 45.0 | - |"));
  std::vector<Cell> older = cells;
  older[0].items[0].kv_bytes = 0;
  EXPECT_THAT(PaperTableMarkdown("specextend-table3", older, "Tiny"), HasSubstr(" | 0.5 / - | 0.5 / 45.0 |"));
  EXPECT_THAT(longspec, Not(HasSubstr("memory, MiB")));
  const std::string beagle = PaperTableMarkdown("beagle-table1", cells, "Tiny");
  EXPECT_THAT(beagle, HasSubstr("| Vicuna-7B | Beagle | 104.6 / 3.0x / 4.1 / 13.5 |"));
  EXPECT_THAT(beagle, HasSubstr("| Tiny | auto, T = 0.7 | 120.0 / 2.0x / 3.0 (1) | - | - |"));
  EXPECT_THAT(beagle, HasSubstr("| Tiny | auto, T = 0.7: memory, MiB |"));
  // Every row has a cell for every column.
  for (const std::string& name : PaperTableNames()) {
    EXPECT_TRUE(CheckPaperTable(name).ok());
    const std::string table = PaperTableMarkdown(name, cells, "Tiny");
    const std::string rule = table.substr(table.find("|---"));
    const int n = Count(rule.substr(0, rule.find('\n')), "|");
    for (size_t at = table.find("\n| "); at != std::string::npos; at = table.find("\n| ", at + 1)) {
      const std::string line = table.substr(at + 1, table.find('\n', at + 1) - at - 1);
      EXPECT_EQ(Count(line, "|"), n) << name << ": " << line;
    }
  }
  EXPECT_THAT(PaperTableNames(),
              ElementsAre("longspec-table1", "longspec-table2", "longspec-table3", "longspec-table4",
                          "longspec-table5", "specextend-table2", "specextend-table3", "specpv-table1",
                          "specpv-table2", "specpv-table3", "beagle-table1", "beagle-table2"));
  EXPECT_THAT(PaperNames(), ElementsAre("longspec", "specextend", "specpv", "beagle"));
  EXPECT_THAT(CheckPaperTable("longspec-table9").message(), HasSubstr("known are longspec-table1, "));
  EXPECT_THAT(ReportMarkdown(cells, {.title = "T", .model = "Tiny", .papers = {"beagle-table1"}}),
              HasSubstr("## In the form of Beagle, table 1"));
}

// Times of a round, by ranges of context lengths.
TEST(PaperTables, SplitTimeByContext) {
  const auto cell = [](int length, double draft_ms) {
    return Cell{.key = {.family = "gov_report", .method = "auto", .length = length},
                .items = {{.tokens = 60,
                           .steps = 20,
                           .accepted = 40,
                           .ms = 500,
                           .plain_ms = 1200,
                           .draft_ms = draft_ms,
                           .target_ms = 380,
                           .verify_ms = 10}}};
  };
  const std::string table =
      PaperTableMarkdown("longspec-table5", {cell(512, 90), cell(5000, 110), cell(5001, 100)}, "Tiny");
  EXPECT_THAT(table, HasSubstr("| Tiny | plain, T = 0 | 50.00 / 1.00 / 0.00 / 20.00 / 0.00 (2) | 50.00 / "));
  EXPECT_THAT(table, HasSubstr("| Tiny | auto, T = 0 | 120.00 / 3.00 / 5.00 / 19.00 / 0.50 (2) | "
                               "120.00 / 3.00 / 5.00 / 19.00 / 0.50 (1) | - | - | - | - |"));
}

TEST(PaperTables, OfAPaperAreAllOfItsTables) {
  EXPECT_TRUE(CheckPaperTable("specextend").ok());
  EXPECT_FALSE(CheckPaperTable("spec").ok());
  const std::string tables = PaperTableMarkdown("specextend", {}, "Tiny");
  EXPECT_EQ(tables, PaperTableMarkdown("specextend-table2", {}, "Tiny") + "\n" +
                        PaperTableMarkdown("specextend-table3", {}, "Tiny"));
  EXPECT_THAT(tables, HasSubstr("| Vicuna-7B, 68M draft | Standard + SpecExtend | 2.28x | 2.29x |"));
  EXPECT_THAT(PaperTableMarkdown("specpv", {}, "Tiny"),
              HasSubstr("| Qwen3-14B | SpecPV-2K | 2.74x / 2.79 |"));
}

// SpecExtend's PG-19 and BookSum are one family here; its clock starts before the prompt, SpecPV's after it.
TEST(PaperTables, CountWhatThePapersCount) {
  const auto cell = [](const char* family, const char* subset, int length, double distinct,
                       double draft_ms = 0) {
    EvalItem item{.id = "a", .subset = subset, .tokens = 60, .steps = 20, .accepted = 40};
    item.ms = 500;
    item.plain_ms = 1000;
    item.plain_prompt_ms = 1000;
    item.prompt_ms = draft_ms + 1000;
    item.distinct_4gram = distinct;
    return Cell{.key = {.family = family, .method = "lm", .length = length}, .runs = 1, .items = {item}};
  };
  const std::vector<Cell> cells = {
      cell("book_summary", "pg19", 16384, 0.9),      cell("book_summary", "pg19", 16384, 0.3),
      cell("book_summary", "booksum", 1024, 0.9),    cell("book_summary", "", 1024, 0.9),
      cell("book_continuation", "pg19", 10240, 0.9), cell("gov_report", "", 10240, 0.9)};
  const std::string specextend = PaperTableMarkdown("specextend-table2", cells, "Tiny");
  EXPECT_THAT(specextend,
              HasSubstr("| - | 2.00 / 40.00 / 1.33x (2, 1 loop) | 2.00 / 40.00 / 1.33x (1) | - |"));
  EXPECT_THAT(specextend,
              HasSubstr("| - | 0.00 / 30.00 / 1.00x (2, 1 loop) | 0.00 / 30.00 / 1.00x (1) | - |"));
  EXPECT_THAT(PaperTableMarkdown("specextend-table3", cells, "Tiny"), HasSubstr("| 1.33x (2, 1 loop) |"));
  // What a draft took to read the prompt counts against it, and not for plain decoding.
  const std::string reads =
      PaperTableMarkdown("specextend-table2", {cell("gov_report", "", 1024, 0.9, 500)}, "Tiny");
  EXPECT_THAT(reads, HasSubstr("| Tiny | lm, T = 0 | 2.00 / 30.00 / 1.00x (1) | - |"));
  EXPECT_THAT(reads, HasSubstr("| Tiny | plain, T = 0 | 0.00 / 30.00 / 1.00x (1) | - |"));
  EXPECT_THAT(PaperTableMarkdown("specpv-table1", cells, "Tiny"),
              HasSubstr("| Tiny | lm, T = 0 | 2.00x / 2.00 (1) | - |"));
}

TEST(Report, SetsApproximationsApart) {
  EvalItem item{.id = "a", .tokens = 60, .steps = 20, .accepted = 40, .ms = 500, .plain_ms = 1000};
  item.identical = true;
  const Cell exact = {.key = {.family = "gov_report", .method = "lm", .length = 512}, .items = {item}};
  Cell partial = exact;
  partial.key.method = "lm/partial=2048";
  partial.items[0].identical = false;
  partial.items[0].approximate = true;
  partial.items[0].rouge_l_to_exact = 0.6;
  partial.items[0].quality = {{"rouge1", 0.9}};
  partial.items[0].checked = 40;
  partial.items[0].differing = 5;
  partial.items.push_back(partial.items[0]);
  partial.items[1].rouge_l_to_exact = 0.5;
  partial.items[1].differing = 2;
  const std::string report = ReportMarkdown({exact, partial}, {.title = "T"});
  EXPECT_THAT(report, HasSubstr("Identical to plain decoding: 1 of 1 generations."));
  EXPECT_THAT(report, Not(HasSubstr("| rouge1 |")));
  EXPECT_THAT(
      report,
      HasSubstr("| gov_report | 0 | lm/partial=2048 | not SpecPV's rule: chosen by one query, every 64 "
                "positions | 512 | 2 | 2.00x | 0.550 | 80 | 8.8 % |\n"));
  EXPECT_THAT(report,
              HasSubstr("| 0 | lm | 512 | all | 1 | 60 | 2.00x | 2.00x | 3.00 | 3.00 | 120.0 | 60.0 | "
                        "1.00 | 100 % |"));
  EXPECT_THAT(report, HasSubstr("| 120.0 | 60.0 | 1.00 | - |"));
  EXPECT_THAT(ReportMarkdown({exact}, {.title = "T"}), Not(HasSubstr("Approximations")));
  const std::string table = PaperTableMarkdown("specpv-table2", {exact, partial}, "Tiny");
  EXPECT_THAT(table, HasSubstr("| Tiny | lm, T = 0 | 100.0 (1) | - |"));
  const std::string ours = "lm/partial=2048 (not SpecPV's rule: chosen by one query, every 64 positions)";
  EXPECT_THAT(table, HasSubstr("| Tiny | " + ours + ", T = 0 | 55.0 (2) | - |"));
  EXPECT_THAT(table, HasSubstr("| Tiny | " + ours + ", T = 0: distance | 55.0 / 8.8 % | - |\n"));
  Cell paper = partial;
  paper.key.method = "lm/partial=2048/refresh=paper";
  EXPECT_THAT(PaperTableMarkdown("specpv-table2", {paper}, "Tiny"),
              HasSubstr("| Tiny | lm/partial=2048/refresh=paper (SpecPV's modes: chosen by a tree's queries, "
                        "mean), T = 0 | 55.0 (2) | - |"));
  EXPECT_THAT(table, Not(HasSubstr("lm, T = 0: distance")));
  Cell unchecked = partial;
  for (EvalItem& other : unchecked.items) other.checked = other.differing = 0;
  EXPECT_THAT(PaperTableMarkdown("specpv-table2", {unchecked}, "Tiny"),
              HasSubstr(": distance | 55.0 / - | - |\n"));
  EXPECT_THAT(PaperTableMarkdown("specextend-table2", {partial}, "Tiny"), Not(HasSubstr(": distance")));
  const auto back = ParseCell(CellJson(partial).dump());
  ASSERT_TRUE(back.ok());
  EXPECT_TRUE(back->items[0].approximate);
  EXPECT_EQ(back->items[1].differing, 2);
  EXPECT_EQ(back->items[0].rouge_l_to_exact, 0.6);
}

}  // namespace
}  // namespace longspec
