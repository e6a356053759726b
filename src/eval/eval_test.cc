// SPDX-License-Identifier: Apache-2.0
//
// Whole evaluations of a tiny model, and what they leave on disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>

#include "base/testing/files.h"
#include "base/testing/source_path.h"
#include "draft_model/testing/block_drafts.h"
#include "draft_text/testing/priors.h"
#include "engine/gguf_tokenizer.h"
#include "eval/cell.h"
#include "eval/prompts.h"
#include "eval/report.h"
#include "eval/runner.h"
#include "eval/testing/text.h"
#include "formats/gguf.h"
#include "formats/tiny_model.h"
#include "lab/testing/with_lab.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class EvalTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new testing::Folder;
    setenv("XDG_CACHE_HOME", folder_->path().c_str(), 1);
    TinyModelOptions tiny;
    tiny.context_length = 1024;
    ASSERT_TRUE(WriteTinyModel(tiny, folder_->File("tiny.gguf")).ok());
    auto engine = Engine::Load({.path = folder_->File("tiny.gguf"), .threads = 1});
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engine_ = engine->release();
  }
  static void TearDownTestSuite() {
    delete engine_;
    unsetenv("XDG_CACHE_HOME");
    delete folder_;
  }

  void SetUp() override {
    options_.data = testing::SourcePath("src/eval/testdata");
    options_.out = folder_->File(::testing::UnitTest::GetInstance()->current_test_info()->name());
    options_.families = {"report", "needle"};
    options_.methods = {"ngram:3", "auto", "ngram@adaptive:5"};
    options_.lengths = {256, 512};
    options_.temperatures = {0.0, 0.7};
    options_.n_predict = 16;
    options_.ignore_eos = true;
    options_.speculation.ngram.min = 1;
  }

  Status Run() { return RunEvaluation(*engine_, options_, nullptr); }

  static testing::Folder* folder_;
  static Engine* engine_;
  EvalOptions options_;
};
testing::Folder* EvalTest::folder_ = nullptr;
Engine* EvalTest::engine_ = nullptr;

TEST_F(EvalTest, SaysWhetherTheOutputFailed) {
  std::filesystem::create_directories(options_.out + "/settings.json.tmp");  // in the way
  bool output_failed = false;
  const Status unwritten = RunEvaluation(*engine_, options_, nullptr, &output_failed);
  EXPECT_EQ(unwritten.code(), StatusCode::kIo);
  EXPECT_TRUE(output_failed);
  options_.lengths = {4096};
  std::filesystem::remove(options_.out + "/settings.json.tmp");
  EXPECT_EQ(RunEvaluation(*engine_, options_, nullptr, &output_failed).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(output_failed);
}

TEST_F(EvalTest, RunsEveryCellOnceAndAllTextsAreIdentical) {
  std::vector<EvalProgress> seen;
  const Status status = RunEvaluation(*engine_, options_, [&](const EvalProgress& at) {
    seen.push_back(at);
    return true;
  });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(seen.back().done, 24);
  EXPECT_EQ(seen.back().total, 24);
  EXPECT_LT(seen.front().eta_ms, 0);  // unknown
  EXPECT_EQ(seen.back().eta_ms, 0);
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
  const std::string prompts = testing::ReadText(options_.out + "/prompts.jsonl");
  EXPECT_EQ(Count(prompts, "\n"), items / 6);  // one for all methods and temperatures
  const auto prompt = nlohmann::json::parse(prompts.substr(0, prompts.find('\n')));
  EXPECT_EQ(prompt["family"], "report");
  EXPECT_EQ(prompt["tokens"].size(), static_cast<size_t>((*cells)[0].items[0].prompt_tokens));
  EXPECT_EQ(with_quality, items);
  const std::string answers = testing::ReadText(options_.out + "/answers.jsonl");
  EXPECT_EQ(Count(answers, "\n"), items / 3);  // one for all methods
  const auto answer = nlohmann::json::parse(answers.substr(0, answers.find('\n')));
  EXPECT_EQ(answer["id"], prompt["id"]);
  EXPECT_EQ(answer["temperature"], 0.0);
  EXPECT_EQ(answer["tokens"].size(), 16U);
  EXPECT_FALSE(answer["text"].get<std::string>().empty());

  // A second run has nothing to do; a third does what is new.
  seen.clear();
  const std::string before = testing::ReadText(options_.out + "/cells.jsonl");
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(testing::ReadText(options_.out + "/cells.jsonl"), before);
  options_.families.push_back("code_completion");
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(ReadCells(options_.out)->size(), 36U);
  // A line cut short is a cell that was not finished.
  std::ofstream(options_.out + "/cells.jsonl", std::ios::binary) << before.substr(0, before.size() - 9);
  EXPECT_EQ(ReadCells(options_.out)->size(), 23U);

  ASSERT_TRUE(WriteReport(*cells, {.title = "Tiny"}, options_.out).ok());
  const std::string report = testing::ReadText(options_.out + "/report.md");
  EXPECT_THAT(report, HasSubstr("# Tiny"));
  EXPECT_THAT(report, HasSubstr("Identical to plain decoding: " + std::to_string(items) + " of " +
                                std::to_string(items)));
  EXPECT_THAT(report, HasSubstr("| needle | answer |"));
  EXPECT_THAT(report, HasSubstr("| report | rougeL |"));
  EXPECT_THAT(report, Not(HasSubstr("nan")));
  EXPECT_EQ(testing::ReadText(options_.out + "/report.html"), ReportHtml(*cells, {.title = "Tiny"}));
  for (const char* name : {"speedup", "accepted_length", "time_split"}) {
    EXPECT_THAT(testing::ReadText(options_.out + "/" + name + ".svg"), ::testing::StartsWith("<svg")) << name;
  }
  EXPECT_FALSE(WriteReport(*cells, {.title = "Tiny"}, options_.out + "/nowhere").ok());
}

// A method that may write another text stands beside exact ones, and says how far off it was.
TEST_F(EvalTest, ApproximationsAreNoErrors) {
  options_.families = {"report"};
  options_.methods = {"ngram:3", "ngram:3/partial=16"};
  options_.lengths = {512};
  options_.temperatures = {0.0};
  options_.n_predict = 100;
  const Status status = Run();
  ASSERT_TRUE(status.ok()) << status.message();
  int64_t checked = 0, differing = 0;
  const auto cells = ReadCells(options_.out);
  for (const Cell& cell : *cells) {
    ASSERT_FALSE(cell.items.empty());
    for (const EvalItem& item : cell.items) {
      const bool partial = cell.key.method == "ngram:3/partial=16";
      EXPECT_EQ(item.approximate, partial);
      EXPECT_EQ(item.tokens, 100);
      checked += item.checked;
      differing += item.differing;
      if (!partial) {
        EXPECT_TRUE(item.identical);
        EXPECT_EQ(item.checked, 0);
      }
    }
  }
  EXPECT_GT(checked, 0);
  EXPECT_GT(differing, 0);
  options_.methods = {"ngram/partial=no"};
  EXPECT_THAT(Run().message(), HasSubstr("ngram/partial=no"));
}

// SpecPV's own modes are those of a request that asks for them, and another rule than ours.
TEST_F(EvalTest, RunsSpecPvsModes) {
  options_.families = {"report"};
  options_.lengths = {512};
  options_.temperatures = {0.0};
  options_.n_predict = 100;
  const std::map<std::string, std::string> modes = {{"ngram:3/partial=16/refresh=paper", "mean"},
                                                    {"ngram:3/partial=16/refresh=paper/reduce=last", "last"},
                                                    {"ngram:3/partial=16", ""},
                                                    {"ngram:3/partial=16/refresh=20", ""}};
  options_.methods.clear();
  for (const auto& [method, reduce] : modes) options_.methods.push_back(method);
  const Status status = Run();
  ASSERT_TRUE(status.ok()) << status.message();
  const std::string prompts = testing::ReadText(options_.out + "/prompts.jsonl");
  GenerationRequest request;
  const auto prompt = nlohmann::json::parse(prompts.substr(0, prompts.find('\n')));
  request.tokens = prompt["tokens"].get<std::vector<int32_t>>();
  request.n_predict = options_.n_predict;
  request.ignore_eos = true;
  request.sampling = options_.sampling;
  request.sampling.temperature = 0;
  request.speculation = {.type = "ngram", .draft_n_max = 3, .ngram = {.min = 1}};
  std::set<std::pair<int64_t, int64_t>> different;
  const auto cells = ReadCells(options_.out);
  for (const Cell& cell : *cells) {
    const std::string& method = cell.key.method;
    const bool paper = method.find("paper") != std::string::npos;
    request.partial_verification = {.enabled = true, .budget = 16};
    if (paper) {
      request.partial_verification.refresh = 0;
      request.partial_verification.reduce = modes.at(method);
    } else if (method.ends_with("20")) {
      request.partial_verification.refresh = 20;
    }
    const auto direct = engine_->Generate(**engine_->NewSession(), request);
    ASSERT_TRUE(direct.ok()) << direct.status().message();
    const EvalItem& item = cell.items.at(0);
    EXPECT_TRUE(item.approximate);
    EXPECT_GT(item.checked, 0) << method;
    EXPECT_EQ(item.checked, direct->partial_verification.checked) << method;
    EXPECT_EQ(item.differing, direct->partial_verification.differing) << method;
    different.emplace(item.checked, item.differing);
  }
  EXPECT_GE(different.size(), 3U);
}

// What a draft sees is said method by method, so that one table has several.
TEST_F(EvalTest, MethodsSayWhatADraftSees) {
  options_.speculation.ngram.min = SpeculationOptions().ngram.min;  // no method reads it
  options_.families = {"report"};
  options_.lengths = {512};
  options_.temperatures = {0.7};
  options_.speculation.draft_model = engine_->info().path;
  options_.methods = {"lm",
                      "lm/extend",
                      "lm/extend=2",
                      "lm/extend-from=100/extend=4/no-dice",
                      "partial:4/budget=16",
                      "partial:4/budget=128"};
  const Status status = Run();
  ASSERT_TRUE(status.ok()) << status.message();
  std::map<std::string, uint64_t> held;
  const auto cells = ReadCells(options_.out);
  for (const Cell& cell : *cells) {
    ASSERT_FALSE(cell.items.empty());
    for (const EvalItem& item : cell.items) {
      EXPECT_TRUE(item.identical) << cell.key.method;
      EXPECT_FALSE(item.approximate);
      held[cell.key.method] = std::max(held[cell.key.method], item.draft_bytes);
    }
  }
  EXPECT_EQ(held.size(), 6U);
  EXPECT_GT(held["lm/extend=2"], held["lm"]);  // a set beside the store
  EXPECT_GT(held["lm/extend"], held["lm"]);
  EXPECT_GT(held["partial:4/budget=128"], held["partial:4/budget=16"]);
  for (const char* wrong :
       {"lm/extend=0", "lm/extend=x", "lm/extend-from=x", "partial/budget=-1", "partial/budget="}) {
    options_.methods = {wrong};
    EXPECT_THAT(Run().message(), HasSubstr(wrong));
  }
}

// TokenSwift's heads have to be named.
TEST_F(EvalTest, TakesADraftThatAutoDoesNot) {
  options_.speculation.ngram.min = SpeculationOptions().ngram.min;  // no method reads it
  const testing::Folder folder;
  const auto file = *GgufFile::Open(engine_->info().path);
  const ModelSpec config = *ReadModelSpec(*file, {});
  options_.speculation.draft_model =
      testing::WriteBlockDraft(folder, "tokenswift", config, testing::RandomTokenswift(config, 3, 9));
  options_.families = {"report"};
  options_.lengths = {256};
  options_.methods = {"tokenswift:4/budget=16"};
  const Status status = Run();
  ASSERT_TRUE(status.ok()) << status.message();
  const auto cells = ReadCells(options_.out);
  ASSERT_EQ(cells->size(), 2U);
  for (const Cell& cell : *cells) {
    for (const EvalItem& item : cell.items) {
      EXPECT_TRUE(item.identical);
      EXPECT_GT(item.drafted, 0);
    }
  }
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
  // A MiB a position: 512 positions, of four answers two chunks of 256 each, and one of what each method
  // read.
  MemoryPlan plan{
      .weights = 100 * kMiB, .kv_at_context = 1024 * kMiB, .scratch = 10 * kMiB, .ctx_size = 1024};
  plan.available = (110 + 512 + 4 * 512 + 3 * 256) * kMiB;
  EXPECT_TRUE(CheckEvaluationMemory(options_, plan).ok());
  --plan.available;
  const Status refused = CheckEvaluationMemory(options_, plan);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("512 positions and of 4 answers side by side take 3328 MiB"));
  plan.available += 1000;
  EXPECT_TRUE(CheckEvaluationMemory(options_, plan).ok());
  plan.draft = 1001;
  EXPECT_FALSE(CheckEvaluationMemory(options_, plan).ok());
  plan.available = 0;  // unknown
  EXPECT_TRUE(CheckEvaluationMemory(options_, plan).ok());
  // A method may draft more than the options say of all.
  options_.methods = {"ngram", "ngram:250", "pld"};
  plan.draft = 0;
  plan.available = (110 + 512 + 4 * 3 * 256 + 3 * 256) * kMiB;
  EXPECT_TRUE(CheckEvaluationMemory(options_, plan).ok());
  --plan.available;
  EXPECT_FALSE(CheckEvaluationMemory(options_, plan).ok());
  EXPECT_EQ(PlannedSpeculation(options_)->adaptive_n_max, 250);
}

TEST_F(EvalTest, SettingsThatCellsDependOnAreNotMixed) {
  options_.families = {"report"};
  options_.methods = {"ngram", "lm"};
  options_.speculation.draft_model = engine_->info().path;
  ASSERT_TRUE(Run().ok());
  const EvalOptions same = options_;
  const auto refused = [&](const std::string& name) {
    const Status status = Run();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("holds cells with " + name));
    options_ = same;
  };
  options_.speculation.lm.window = 64;
  refused("draft_window 0, not 64");
  options_.speculation.spec_extend.enabled = true;
  refused("spec_extend false, not true");
  options_.lengths = {200, 256, 512};
  refused("shortest_length 256, not 200");
  options_.methods.emplace_back("suffix");
  options_.lengths.push_back(600);
  EXPECT_TRUE(Run().ok());
}

TEST_F(EvalTest, PromptsAndAnswersAreWrittenOnceHoweverOftenItGoesOn) {
  options_.families = {"report"};
  ASSERT_TRUE(Run().ok());
  const std::string prompts = testing::ReadText(options_.out + "/prompts.jsonl");
  const std::string answers = testing::ReadText(options_.out + "/answers.jsonl");
  options_.methods.emplace_back("suffix");
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(testing::ReadText(options_.out + "/prompts.jsonl"), prompts);
  EXPECT_EQ(testing::ReadText(options_.out + "/answers.jsonl"), answers);
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

// Killed while it wrote: the last line of each file is cut short. Going on, nothing is glued to it or lost.
TEST_F(EvalTest, GoesOnAfterLinesCutShort) {
  options_.families = {"report"};
  ASSERT_TRUE(Run().ok());
  const auto names = {"cells.jsonl", "prompts.jsonl", "answers.jsonl"};
  std::map<std::string, std::vector<nlohmann::json>> before;
  const auto read = [&](const std::string& name) {
    std::vector<nlohmann::json> lines;
    std::ifstream in(options_.out + "/" + name);
    for (std::string text; std::getline(in, text);) {
      const auto line = nlohmann::json::parse(text, nullptr, false);
      if (!line.is_discarded()) lines.push_back(line);
    }
    return lines;
  };
  for (const std::string name : names) {
    before[name] = read(name);
    const std::string path = options_.out + "/" + name;
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 9);
    EXPECT_EQ(read(name).size() + 1, before[name].size()) << name;
  }
  // More to do than the cell that was lost, so that lines follow the one that comes first.
  options_.methods.emplace_back("suffix");
  ASSERT_TRUE(Run().ok());
  const auto cells = ReadCells(options_.out);
  EXPECT_EQ(cells->size(), 16U);
  for (const double temperature : options_.temperatures) {
    for (const int length : options_.lengths) {
      for (const std::string& method : options_.methods) {
        const CellKey key{.family = "report", .method = method, .length = length, .temperature = temperature};
        EXPECT_EQ(std::count_if(cells->begin(), cells->end(), [&](const Cell& c) { return c.key == key; }), 1)
            << method << " at " << length;
      }
    }
  }
  EXPECT_EQ(read("prompts.jsonl"), before["prompts.jsonl"]);
  EXPECT_EQ(read("answers.jsonl"), before["answers.jsonl"]);
}

// Counts of an item and of a cell are those of all runs, not of the last one.
TEST_F(EvalTest, RunsAddUp) {
  options_.families = {"report"};
  options_.lengths = {256};
  options_.methods = {"ngram:3", "auto"};
  const auto run = [&](int runs) {
    options_.runs = runs;
    options_.out = folder_->File("runs" + std::to_string(runs));
    EXPECT_TRUE(Run().ok());
    return *ReadCells(options_.out);
  };
  const std::vector<Cell> once = run(1), thrice = run(3);
  ASSERT_EQ(once.size(), thrice.size());
  int with_drafts = 0;
  for (size_t i = 0; i < once.size(); ++i) {
    const EvalItem &one = once[i].items.at(0), &all = thrice[i].items.at(0);
    EXPECT_EQ(all.drafted_at.size(), all.acceptance_per_position.size());
    const auto sum = [](const auto& counts) { return std::accumulate(counts.begin(), counts.end(), 0); };
    // Of a chain, every drafted token has a round that drafted its depth; of a tree, some.
    EXPECT_LE(sum(all.drafted_at), all.drafted);
    EXPECT_EQ(sum(all.accepted_at), all.accepted);
    int rounds = 0;
    for (const auto& [decision, n] : all.decisions) rounds += static_cast<int>(n);
    EXPECT_LE(rounds, all.steps);
    if (!once[i].key.is_fixed()) continue;  // what adapts may draft otherwise in another run
    EXPECT_EQ(all.steps, 3 * one.steps);
    ASSERT_EQ(all.drafted_at.size(), one.drafted_at.size());
    for (size_t at = 0; at < one.drafted_at.size(); ++at) {
      EXPECT_EQ(all.drafted_at[at], 3 * one.drafted_at[at]);
      EXPECT_EQ(all.accepted_at[at], 3 * one.accepted_at[at]);
    }
    EXPECT_EQ(all.acceptance_per_position, one.acceptance_per_position);
    with_drafts += one.drafted_at.empty() ? 0 : 1;
  }
  EXPECT_GT(with_drafts, 0);
}

// Methods of which some leave out the dice, the prior or both: one text, and each cell says what it used.
TEST_F(EvalTest, CellsSayWhatWasDraftedWith) {
  const std::string prior = folder_->File("x.ngrams");
  const auto file = *GgufFile::Open(folder_->File("tiny.gguf"));
  std::vector<int32_t> text;
  for (int32_t i = 0; i < 400; ++i) text.push_back(3 + i * i % 97);
  testing::WritePrior(prior, text, 384, PriorsOf(*file, *TokenizerSpecFromGguf(*file), 384).tokenizer);
  options_.families = {"report"};
  options_.lengths = {256};
  options_.methods = {"ppm", "ppm/no-dice", "auto/no-prior", "ppm:3/no-prior/no-dice", "ngram"};
  options_.speculation.ppm.prior = prior;
  ASSERT_TRUE(Run().ok());
  const auto cells = ReadCells(options_.out);
  ASSERT_EQ(cells->size(), 10U);
  for (const Cell& cell : *cells) {
    const std::string& method = cell.key.method;
    const auto says = [&](const char* part) { return method.find(part) != std::string::npos; };
    SCOPED_TRACE(method);
    ASSERT_EQ(cell.items.size(), 1U);
    const EvalItem& item = cell.items[0];
    EXPECT_TRUE(item.identical);
    EXPECT_EQ(item.dice, cell.key.temperature > 0 && !says("/no-dice") && !says("ngram"));
    ASSERT_EQ(item.uses.size(), says("ngram") ? 0U : 1U);
    if (says("ngram")) continue;
    EXPECT_EQ(item.uses[0].first, "prior");
    EXPECT_THAT(item.uses[0].second, ::testing::StartsWith(says("/no-prior") ? "none" : prior + ", "));
  }
  const std::string report = ReportMarkdown(*cells, {.title = "T"});
  EXPECT_THAT(report, HasSubstr("auto/no-prior: dice, prior none; ppm: dice, prior " + prior));
}

// A draft that is not there, at a chosen rate and price, alone and beside ppm: the text is plain decoding's.
TEST_F(EvalTest, PlaysDraftsOfChosenAcceptance) {
  options_.speculation.ngram.min = SpeculationOptions().ngram.min;  // no method reads it
  options_.families = {"report"};
  options_.lengths = {256};
  options_.temperatures = {0, 0.7};
  options_.methods = {"replay@fixed:1/accept=0.5/cost=0.5", "replay@fixed:1/accept=0.9/cost=0",
                      "ppm+replay@fixed:2/accept=0.7"};
  ASSERT_TRUE(Run().ok());
  const auto cells = ReadCells(options_.out);
  ASSERT_EQ(cells->size(), 6U);
  for (size_t i = 0; i < cells->size(); ++i) {
    const EvalItem& item = (*cells)[i].items.at(0);
    EXPECT_TRUE(item.identical) << (*cells)[i].key.method;
    EXPECT_GT(item.drafted, 0) << (*cells)[i].key.method;
  }
  // A draft at half a plain step takes more of a round than one that is free.
  const auto share = [&](size_t i) {
    const EvalItem& item = (*cells)[i].items[0];
    return item.draft_ms / (item.draft_ms + item.target_ms);
  };
  EXPECT_GT(share(0), share(1));
  EXPECT_LT((*cells)[0].items[0].accepted * (*cells)[1].items[0].drafted,
            (*cells)[1].items[0].accepted * (*cells)[0].items[0].drafted);
  EXPECT_FALSE(CheckEvaluation([&] {
                 EvalOptions changed = options_;
                 changed.methods = {"replay/accept=1.5"};
                 return changed;
               }())
                   .ok());
}

TEST_F(EvalTest, RefusesNonsenseBeforeAnythingRuns) {
  const auto fails = [&](const std::string& part, auto&& change) {
    EvalOptions changed = options_;
    change(changed);
    Status status = CheckEvaluation(changed);
    if (status.ok()) status = CreateFolder(changed);
    EXPECT_FALSE(status.ok()) << part;
    EXPECT_THAT(status.message(), HasSubstr(part));
  };
  fails("--lengths 40: must be at least", [](auto& o) { o.lengths = {40}; });
  fails("at least one value", [](auto& o) { o.methods.clear(); });
  fails("must be at least 1", [](auto& o) { o.n_prompts = 0; });
  fails("--temps", [](auto& o) { o.temperatures = {-1}; });
  fails("--spec-type magic", [](auto& o) { o.methods = {"magic"}; });
  fails("--methods ngram/extend: extend: is nothing to ngram", [](auto& o) { o.methods = {"ngram/extend"}; });
  fails("longspec/extend: extend: is nothing to longspec", [](auto& o) { o.methods = {"longspec/extend"}; });
  fails("extend=4: is nothing to ppm+suffix", [](auto& o) { o.methods = {"ppm+suffix/extend=4"}; });
  fails("budget=512: is nothing to lm", [](auto& o) { o.methods = {"lm/budget=512"}; });
  fails("no-prior: is nothing to suffix", [](auto& o) { o.methods = {"suffix/no-prior"}; });
  fails("accept=0.5: is of replay", [](auto& o) { o.methods = {"ngram/accept=0.5"}; });
  fails("are of /partial=BUDGET", [](auto& o) { o.methods = {"ngram/refresh=paper"}; });
  fails("reduce=max: is of /refresh=paper", [](auto& o) { o.methods = {"ngram/partial=64/reduce=max"}; });
  fails("reduce=min: must be mean, max or last",
        [](auto& o) { o.methods = {"ngram/partial=64/refresh=paper/reduce=min"}; });
  fails("refresh=0: must be a whole number from 1 on, or paper",
        [](auto& o) { o.methods = {"ngram/partial=64/refresh=0"}; });
  fails("ngram/wild: wild: unknown", [](auto& o) { o.methods = {"ngram/wild"}; });
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

}  // namespace
}  // namespace longspec
