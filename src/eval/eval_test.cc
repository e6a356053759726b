// SPDX-License-Identifier: Apache-2.0
//
// Whole evaluations of a tiny model; cells on disk; reports and charts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "eval/cell.h"
#include "eval/paper_tables.h"
#include "eval/prompts.h"
#include "eval/report.h"
#include "eval/runner.h"
#include "formats/tiny_model.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

int Count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

class EvalTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new std::string(std::filesystem::temp_directory_path() /
                              ("longspec_eval_" + std::to_string(getpid())));
    std::filesystem::create_directories(*folder_);
    setenv("XDG_CACHE_HOME", folder_->c_str(), 1);
    TinyModelOptions tiny;
    tiny.context_length = 1024;
    ASSERT_TRUE(WriteTinyModel(tiny, *folder_ + "/tiny.gguf").ok());
    auto engine = Engine::Load({.path = *folder_ + "/tiny.gguf", .threads = 1});
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engine_ = engine->release();
  }
  static void TearDownTestSuite() {
    delete engine_;
    std::filesystem::remove_all(*folder_);
    unsetenv("XDG_CACHE_HOME");
    delete folder_;
  }

  void SetUp() override {
    options_.data = LONGSPEC_SOURCE_DIR "/src/eval/testdata";
    options_.out = *folder_ + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
    options_.families = {"report", "needle"};
    options_.methods = {"ngram:3", "auto", "ngram@adaptive:5"};
    options_.lengths = {256, 512};
    options_.temperatures = {0.0, 0.7};
    options_.n_predict = 16;
    options_.ignore_eos = true;
    options_.speculation.ngram_min = 1;
  }

  Status Run() { return RunEvaluation(*engine_, options_, nullptr); }

  static std::string* folder_;
  static Engine* engine_;
  EvalOptions options_;
};
std::string* EvalTest::folder_ = nullptr;
Engine* EvalTest::engine_ = nullptr;

TEST_F(EvalTest, RunsEveryCellOnceAndAllTextsAreIdentical) {
  std::vector<EvalProgress> seen;
  const Status status = RunEvaluation(*engine_, options_, [&](const EvalProgress& at) {
    seen.push_back(at);
    return true;
  });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(seen.back().done, 24);
  EXPECT_EQ(seen.back().total, 24);
  const auto cells = ReadCells(options_.out);
  ASSERT_EQ(cells->size(), 24U);
  int items = 0, with_quality = 0;
  for (const Cell& cell : *cells) {
    for (const EvalItem& item : cell.items) {
      ++items;
      EXPECT_TRUE(item.identical) << cell.key.family << " " << cell.key.method;
      EXPECT_EQ(item.tokens, 16);
      EXPECT_GT(item.ms, 0);
      EXPECT_GT(item.plain_ms, 0);
      EXPECT_GT(item.steps, 0);
      EXPECT_LE(item.prompt_tokens + 16, cell.key.length);
      EXPECT_EQ(item.steps + item.accepted, 16);
      with_quality += item.quality.empty() ? 0 : 1;
    }
  }
  EXPECT_GE(items, 18);
  const std::string prompts = ReadFile(options_.out + "/prompts.jsonl");
  EXPECT_EQ(Count(prompts, "\n"), items / 6);  // one for all methods and temperatures
  const auto prompt = nlohmann::json::parse(prompts.substr(0, prompts.find('\n')));
  EXPECT_EQ(prompt["family"], "report");
  EXPECT_EQ(prompt["tokens"].size(), static_cast<size_t>((*cells)[0].items[0].prompt_tokens));
  EXPECT_EQ(with_quality, items);
  const std::string answers = ReadFile(options_.out + "/answers.jsonl");
  EXPECT_EQ(Count(answers, "\n"), items / 3);  // one for all methods
  const auto answer = nlohmann::json::parse(answers.substr(0, answers.find('\n')));
  EXPECT_EQ(answer["id"], prompt["id"]);
  EXPECT_EQ(answer["temperature"], 0.0);
  EXPECT_EQ(answer["tokens"].size(), 16U);
  EXPECT_FALSE(answer["text"].get<std::string>().empty());

  // A second run has nothing to do; a third does what is new.
  seen.clear();
  const std::string before = ReadFile(options_.out + "/cells.jsonl");
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(ReadFile(options_.out + "/cells.jsonl"), before);
  options_.families.push_back("code_completion");
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(ReadCells(options_.out)->size(), 36U);
  // A line cut short is a cell that was not finished.
  std::ofstream(options_.out + "/cells.jsonl", std::ios::binary) << before.substr(0, before.size() - 9);
  EXPECT_EQ(ReadCells(options_.out)->size(), 23U);

  ASSERT_TRUE(WriteReport(*cells, {.title = "Tiny"}, options_.out).ok());
  const std::string report = ReadFile(options_.out + "/report.md");
  EXPECT_THAT(report, HasSubstr("# Tiny"));
  EXPECT_THAT(report, HasSubstr("Identical to plain decoding: " + std::to_string(items) + " of " +
                                std::to_string(items)));
  EXPECT_THAT(report, HasSubstr("| needle | answer |"));
  EXPECT_THAT(report, HasSubstr("| report | rougeL |"));
  EXPECT_THAT(report, Not(HasSubstr("nan")));
  for (const char* name : {"speedup", "accepted_length", "time_split"}) {
    EXPECT_THAT(ReadFile(options_.out + "/" + name + ".svg"), ::testing::StartsWith("<svg")) << name;
  }
  EXPECT_FALSE(WriteReport(*cells, {.title = "Tiny"}, options_.out + "/nowhere").ok());
}

TEST_F(EvalTest, OtherSettingsNeedAnotherFolder) {
  options_.families = {"needle"};
  options_.lengths = {256};
  ASSERT_TRUE(Run().ok());
  options_.n_predict = 17;
  const Status other = Run();
  EXPECT_EQ(other.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(other.message(), HasSubstr("holds cells with n_predict 16, not 17"));
  std::ofstream(options_.out + "/settings.json") << "[]";
  EXPECT_EQ(Run().code(), StatusCode::kCorrupt);
}

TEST_F(EvalTest, CountsTheCachesThatLieSideBySide) {
  constexpr uint64_t kMiB = 1 << 20;
  // A MiB a position: five caches of 512 positions.
  MemoryPlan plan{
      .weights = 100 * kMiB, .kv_at_context = 1024 * kMiB, .scratch = 10 * kMiB, .ctx_size = 1024};
  plan.available = (110 + 5 * 512) * kMiB;
  EXPECT_TRUE(CheckEvaluationMemory(options_, plan).ok());
  --plan.available;
  const Status refused = CheckEvaluationMemory(options_, plan);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("5 caches of 512 positions side by side take 2560 MiB"));
  plan.available = 0;  // unknown
  EXPECT_TRUE(CheckEvaluationMemory(options_, plan).ok());
}

TEST_F(EvalTest, PromptsAndAnswersAreWrittenOnceHoweverOftenItGoesOn) {
  options_.families = {"report"};
  ASSERT_TRUE(Run().ok());
  const std::string prompts = ReadFile(options_.out + "/prompts.jsonl");
  const std::string answers = ReadFile(options_.out + "/answers.jsonl");
  options_.methods.emplace_back("suffix");
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(ReadFile(options_.out + "/prompts.jsonl"), prompts);
  EXPECT_EQ(ReadFile(options_.out + "/answers.jsonl"), answers);
}

TEST_F(EvalTest, CancellingKeepsWhatIsFinished) {
  options_.families = {"report"};
  const auto until = [&](int cells) {
    return RunEvaluation(*engine_, options_, [cells](const EvalProgress& at) { return at.done < cells; });
  };
  EXPECT_EQ(until(1).code(), StatusCode::kCancelled);
  EXPECT_EQ(ReadCells(options_.out)->size(), 6U);  // one length
  EXPECT_EQ(until(0).code(), StatusCode::kCancelled);
  EXPECT_TRUE(Run().ok());
  EXPECT_EQ(ReadCells(options_.out)->size(), 12U);
}

TEST_F(EvalTest, RefusesNonsenseBeforeAnythingRuns) {
  const auto fails = [&](const std::string& part, auto&& change) {
    EvalOptions changed = options_;
    change(changed);
    const Status status = CheckEvaluation(changed);
    EXPECT_FALSE(status.ok()) << part;
    EXPECT_THAT(status.message(), HasSubstr(part));
  };
  fails("--lengths 40: must be at least", [](auto& o) { o.lengths = {40}; });
  fails("at least one value", [](auto& o) { o.methods.clear(); });
  fails("must be at least 1", [](auto& o) { o.n_prompts = 0; });
  fails("--temps", [](auto& o) { o.temperatures = {-1}; });
  fails("--spec-type magic", [](auto& o) { o.methods = {"magic"}; });
  fails("--spec-policy wild", [](auto& o) { o.methods = {"ngram@wild"}; });
  fails("--spec-type ngram:x", [](auto& o) { o.methods = {"ngram:x"}; });
  fails("--spec-policy fixed:0", [](auto& o) { o.methods = {"ngram@fixed:0"}; });
  fails("--spec-draft-n-max 9999", [](auto& o) { o.methods = {"ngram:9999"}; });
  fails("ngram is named twice", [](auto& o) { o.methods = {"ngram", "ngram"}; });
  fails("--families nope: not in", [](auto& o) { o.families = {"nope"}; });
  fails("--data /nonexistent", [](auto& o) { o.data = "/nonexistent"; });
  fails("--out /proc/x", [](auto& o) { o.out = "/proc/x"; });
  EXPECT_TRUE(CheckEvaluation(options_).ok());
  options_.methods = {"ngram+replay"};
  EXPECT_TRUE(CheckEvaluation(options_).ok());
  options_.lengths = {2048};
  EXPECT_THAT(Run().message(), HasSubstr("the context holds 1024"));
}

TEST_F(EvalTest, PromptsFitTheirLength) {
  const auto reports = *ReadFamily(options_.data, "report");
  for (const int n_tokens : {60, 100, 300}) {
    const auto prompts = ChoosePrompts(*engine_, reports, n_tokens, 2, false);
    ASSERT_FALSE(prompts.empty());
    for (const EvalPrompt& prompt : prompts) {
      EXPECT_LE(prompt.n_tokens, n_tokens);
      EXPECT_GE(prompt.n_tokens, n_tokens / 2);
    }
  }
  // Continuations keep their end, whole tasks are not cut.
  const auto code = *ReadFamily(options_.data, "code_completion");
  const auto cut = ChoosePrompts(*engine_, code, 100, 1, false);
  ASSERT_EQ(cut.size(), 1U);
  EXPECT_TRUE(code[0].text.ends_with(cut[0].prompt));
  EXPECT_LT(cut[0].prompt.size(), code[0].text.size());
  const auto needles = *ReadFamily(options_.data, "needle");
  for (const int n_tokens : {20, 60, 300, 1000}) {
    for (const EvalPrompt& prompt : ChoosePrompts(*engine_, needles, n_tokens, 2, true)) {
      const std::string text = prompt.messages.empty() ? prompt.prompt : prompt.messages[0].content;
      EXPECT_THAT(text, HasSubstr("4711"));
      EXPECT_LE(prompt.n_tokens, n_tokens);
    }
  }
  EXPECT_TRUE(ChoosePrompts(*engine_, needles, 20, 2, true).empty());
  EXPECT_FALSE(ChoosePrompts(*engine_, needles, 2000, 2, true).empty());
  EXPECT_TRUE(ChoosePrompts(*engine_, needles, 4000, 2, false).empty());
  EXPECT_TRUE(ChoosePrompts(*engine_, {}, 100, 2, true).empty());
  // Characters of several bytes are never cut apart.
  std::string umlauts;
  for (int i = 0; i < 600; ++i) umlauts += "\xC3\xA4";
  for (const char* family : {"a_summary", "a_continuation"}) {
    const std::vector<Sample> samples = {{.family = family, .id = "u", .instruction = "", .text = umlauts}};
    for (const int n_tokens : {50, 51, 77}) {
      const auto prompts = ChoosePrompts(*engine_, samples, n_tokens, 1, true);
      ASSERT_EQ(prompts.size(), 1U);
      const std::string text =
          prompts[0].messages.empty() ? prompts[0].prompt : prompts[0].messages[0].content;
      EXPECT_EQ(text.size() % 2, 0U);
      EXPECT_EQ(text.substr(0, 2), "\xC3\xA4");
    }
  }
}

Cell SampleCell() {
  EvalItem straight{
      .id = "a", .prompt_tokens = 100, .tokens = 50, .steps = 20, .drafted = 60, .accepted = 30};
  straight.ms = 100;
  straight.plain_ms = 200;
  straight.target_ms = 80;
  straight.draft_bytes = 3 << 19;
  straight.identical = true;
  straight.distinct_4gram = 0.9;
  straight.acceptance_per_position = {0.8, 0.5};
  straight.quality = {{"rouge1", 0.25}};
  straight.decisions = {{"off", 3}};
  straight.last_decision = "off: 8 rows cost 3.1x at 7.4K keys, expected 1.9 tokens";
  EvalItem looping = straight;
  looping.id = "b";
  looping.distinct_4gram = 0.2;
  looping.ms = 50;
  looping.identical = false;
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
  const auto back = ParseCell(json.dump());
  ASSERT_TRUE(back.ok()) << back.status().message();
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

TEST(Report, TellsLoopingTextsApart) {
  const std::string report = ReportMarkdown({SampleCell()}, {.title = "T"});
  EXPECT_THAT(report, HasSubstr(" | 1.50 |\n"));  // memory for drafting: the most of any item
  EXPECT_THAT(report, HasSubstr("Identical to plain decoding: 1 of 2"));
  // Speedup of all 400/150, of the straight one 2.
  EXPECT_THAT(
      report,
      HasSubstr("| 0.7 | m | 512 | 2 | 2.67x | 2.50 | 666.7 | 250.0 | 1 | 2.00x | 2.50 | 0.55 | 50 % |"));
  EXPECT_THAT(report, HasSubstr("| f | rouge1 | 0.7 | 512 | 0.250 |"));
  EXPECT_THAT(report, HasSubstr("| 0.7 | m | 0.80 | 0.50 | - |"));
  const std::string empty = ReportMarkdown({}, {.title = "T"});
  EXPECT_THAT(empty, HasSubstr("0 of 0"));
}

TEST(Report, SetsWhatAdaptsBesideTheBestFixedSetting) {
  const auto cell = [](const std::string& method, double ms) {
    EvalItem item{.id = "a", .tokens = 50, .steps = 20, .ms = ms, .plain_ms = 200, .distinct_4gram = 0.9};
    return Cell{.key = {.family = "f", .method = method, .length = 512}, .runs = 1, .items = {item}};
  };
  const std::vector<Cell> cells = {cell("auto", 125),         cell("suffix:4", 100),
                                   cell("ngram", 250),        cell("ngram+suffix", 160),
                                   cell("auto@fixed:4", 110), cell("suffix@adaptive", 90)};
  const std::string report = ReportMarkdown(cells, {.title = "T"});
  EXPECT_THAT(report, HasSubstr("| f | 0 | 512 | auto | 1.60x | suffix:4 | 2.00x | 80 % | 0.90 |"));
  EXPECT_THAT(report, HasSubstr("| f | 0 | 512 | ngram+suffix | 1.25x | suffix:4 | 2.00x | 62 % | 0.90 |"));
  EXPECT_THAT(report,
              HasSubstr("| f | 0 | 512 | suffix@adaptive | 2.22x | suffix:4 | 2.00x | 111 % | 0.90 |"));
  EXPECT_THAT(report, HasSubstr("| auto | 1 | 1.60x | 1.60x | 1.60x | 0 | 80 % | 80 % | 0 |"));
  EXPECT_THAT(report, HasSubstr("| ngram | 1 | 0.80x | 0.80x | 0.80x | 1 | 40 % | 40 % | 0 |"));
  EXPECT_THAT(report, Not(HasSubstr("| f | 0 | 512 | auto@fixed:4")));
  // Where nothing pays, plain decoding is the best fixed setting.
  EXPECT_THAT(ReportMarkdown({cell("auto", 200), cell("ngram", 250)}, {.title = "T"}),
              HasSubstr("| f | 0 | 512 | auto | 1.00x | plain | 1.00x | 100 % | 0.90 |"));
}

TEST(PaperTables, LayResultsOutBesideThePapers) {
  const auto cell = [](const char* family, int length, double temperature) {
    EvalItem item{.id = "a", .tokens = 60, .steps = 20, .accepted = 40, .ms = 500, .plain_ms = 1000};
    return Cell{.key = {.family = family, .method = "auto", .length = length, .temperature = temperature},
                .items = {item}};
  };
  const std::vector<Cell> cells = {cell("gov_report", 2048, 0), cell("gov_report", 4096, 0),
                                   cell("mt_bench", 512, 0.7), cell("mt_bench", 512, 0)};
  const std::string longspec = PaperTableMarkdown("longspec-table1", cells, "Tiny");
  EXPECT_THAT(longspec, HasSubstr("| Vicuna-7B | LongSpec | 3.57 / 102.23 / 2.23x | 3.14 / 88.87 / 2.04x |"));
  EXPECT_THAT(longspec, HasSubstr("| 3.73 / 107.30 / 1.99x, 3.86 / 110.76 / 2.38x |"));
  EXPECT_THAT(longspec, HasSubstr("| Tiny | plain, T = 0 | 1.00 / 60.00 / 1.00x | - | - | - |"));
  EXPECT_THAT(longspec, HasSubstr("| Tiny | auto, T = 0 | 3.00 / 120.00 / 2.00x | - | - | - |"));
  // Accepted lengths without the target's own token, by length.
  const std::string specextend = PaperTableMarkdown("specextend-table2", cells, "Tiny");
  EXPECT_THAT(specextend,
              HasSubstr("| Tiny | auto, T = 0 | - | 2.00 / 120.00 / 2.00x | 2.00 / 120.00 / 2.00x | - |"));
  const std::string beagle = PaperTableMarkdown("beagle-table1", cells, "Tiny");
  EXPECT_THAT(beagle, HasSubstr("| Vicuna-7B | Beagle | 104.6 / 3.0x / 4.1 |"));
  EXPECT_THAT(beagle, HasSubstr("| Tiny | auto, T = 0.7 | 120.0 / 2.0x / 3.0 | - | - |"));
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
  EXPECT_THAT(CheckPaperTable("longspec-table9").message(), HasSubstr("known are longspec-table1, "));
  EXPECT_THAT(ReportMarkdown(cells, {.title = "T", .model = "Tiny", .papers = {"beagle-table1"}}),
              HasSubstr("## In the form of Beagle, table 1"));
}

}  // namespace
}  // namespace longspec
