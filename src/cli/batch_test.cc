// SPDX-License-Identifier: Apache-2.0
//
// Batches over a scheduler without a model: what is answered, what a kill, a full disk and Ctrl-C leave, and
// that nothing is lost or done twice.
#include "cli/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "api/shared_fields.h"
#include "base/testing/files.h"
#include "cli/testing/fake_scheduler.h"

namespace longspec::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;
using Json = nlohmann::json;

std::string Line(const std::string& custom_id, const std::string& prompt, const std::string& more = "") {
  return R"({"custom_id": ")" + custom_id +
         R"(", "method": "POST", "url": "/v1/completions", "body": {"prompt": ")" + prompt + "\"" +
         (more.empty() ? "" : ", " + more) + "}}\n";
}

std::string Requests(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) {
    const std::string number = std::to_string(i);
    text += Line("r" + number, "prompt " + number, "\"max_tokens\": " + std::to_string(1 + i % 5));
  }
  return text;
}

class BatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.input = folder_.File("requests.jsonl");
    options_.output = folder_.File("answers.jsonl");
    options_.on_warning = [this](const std::string& warning) { warnings_.push_back(warning); };
    options_.defaults = api::OpenAiDefaults();
  }

  void WriteRequests(const std::string& text) { std::ofstream(options_.input, std::ios::binary) << text; }
  void WriteAnswers(const std::string& text) { std::ofstream(options_.output, std::ios::binary) << text; }
  std::string AnswersText() const { return longspec::testing::ReadText(options_.output); }

  // Every line of the answers by custom_id, or by "line N".
  std::map<std::string, Json> Answers() const {
    std::map<std::string, Json> answers;
    std::istringstream in(AnswersText());
    for (std::string line; std::getline(in, line);) {
      const Json json = Json::parse(line, nullptr, false);
      EXPECT_TRUE(json.is_object()) << line;
      if (!json.is_object()) continue;
      const std::string key = json["custom_id"].is_string() ? json["custom_id"].get<std::string>()
                                                            : "line " + json["error"]["line"].dump();
      EXPECT_TRUE(answers.emplace(key, json).second) << key << " was answered twice";
    }
    return answers;
  }

  Status Run(FakeScheduler& scheduler, const OnBatchProgress& on_progress = {}) {
    const auto batch = Batch::Open(options_);
    if (!batch.ok()) return batch.status();
    if (const Status opened = (*batch)->OpenAnswers(); !opened.ok()) return opened;
    const Status ran = (*batch)->Run(scheduler, {.name = "model"}, [&](const BatchProgress& at) {
      progress_.push_back(at);
      return !on_progress || on_progress(at);
    });
    summary_ = (*batch)->summary();
    output_failed_ = (*batch)->output_failed();
    return ran;
  }

  void ExpectAllAnswered(int n) {
    const auto answers = Answers();
    EXPECT_EQ(answers.size(), static_cast<size_t>(n));
    for (int i = 0; i < n; ++i) {
      const auto it = answers.find("r" + std::to_string(i));
      ASSERT_NE(it, answers.end()) << i;
      EXPECT_EQ(it->second["response"]["body"]["choices"][0]["text"], "prompt " + std::to_string(i) + " 0!");
    }
  }

  const longspec::testing::Folder folder_;
  BatchOptions options_;
  BatchSummary summary_;
  bool output_failed_ = false;
  std::vector<std::string> warnings_;
  std::vector<BatchProgress> progress_;
};

TEST_F(BatchTest, EveryRequestIsAnsweredOnce) {
  WriteRequests(Requests(100));
  FakeScheduler scheduler(7);
  const Status ran = Run(scheduler);
  ASSERT_TRUE(ran.ok()) << ran.message();
  ExpectAllAnswered(100);
  EXPECT_EQ(summary_.total, 100);
  EXPECT_EQ(summary_.answered, 100);
  EXPECT_EQ(summary_.errors, 0);
  EXPECT_EQ(summary_.skipped, 0);
  EXPECT_EQ(summary_.tokens, 20 * (1 + 2 + 3 + 4 + 5));
  EXPECT_EQ(summary_.prompt_tokens, 1000);
  EXPECT_EQ(summary_.distinct_4gram, 0.5);
  ASSERT_FALSE(progress_.empty());
  EXPECT_EQ(progress_.back().done, 100);
  EXPECT_EQ(progress_.back().tokens, summary_.tokens);
}

TEST(MostInFlight, IsEnoughForAllThatAreWrittenAtOnce) {
  EXPECT_EQ(MostInFlight(0), 256U);
  EXPECT_EQ(MostInFlight(128), 256U);
  EXPECT_EQ(MostInFlight(1024), 2048U);
}

// They are read twice, and opening a pipe that nobody writes would wait for ever.
TEST_F(BatchTest, RequestsMustBeAFile) {
  ASSERT_EQ(mkfifo(options_.input.c_str(), 0600), 0);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  for (const std::string& pipe :
       {options_.input, "/dev/fd/" + std::to_string(ends[0]), std::string("/dev/null")}) {
    options_.input = pipe;
    const auto batch = Batch::Open(options_);
    EXPECT_EQ(batch.status().code(), StatusCode::kUnsupported) << pipe;
    EXPECT_THAT(batch.status().message(), AllOf(HasSubstr(pipe), HasSubstr("write them to a file first")));
  }
  close(ends[0]);
  close(ends[1]);
  options_.input = folder_.path();
  EXPECT_THAT(Batch::Open(options_).status().message(), HasSubstr("is a folder"));
}

TEST_F(BatchTest, RequestsThatChangeMeanwhileAreAnError) {
  for (const int n : {2, 6}) {
    std::filesystem::remove(options_.output);
    WriteRequests(Requests(4));
    const auto batch = Batch::Open(options_);
    ASSERT_TRUE(batch.ok() && (*batch)->OpenAnswers().ok());
    WriteRequests(Requests(n));
    FakeScheduler scheduler(3);
    const Status ran = (*batch)->Run(scheduler, {.name = "model"}, [](const BatchProgress&) { return true; });
    EXPECT_EQ(ran.code(), StatusCode::kCorrupt);
    EXPECT_THAT(ran.message(), HasSubstr("it had 4 requests at first, and " + std::to_string(n) + " later"));
    ExpectAllAnswered(n);
  }
}

TEST_F(BatchTest, AnAnswerHasTheFormOfItsRequest) {
  WriteRequests(
      R"({"custom_id": "c", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [)"
      R"({"role": "user", "content": "hello"}], "n": 2, "seed": 5}})"
      "\r\n\n  \n" +
      Line("t", "once"));
  FakeScheduler scheduler(2);
  ASSERT_TRUE(Run(scheduler).ok());
  const auto answers = Answers();
  ASSERT_THAT(answers, SizeIs(2));
  const Json& chat = answers.at("c");
  EXPECT_EQ(chat["error"], nullptr);
  EXPECT_EQ(chat["response"]["status_code"], 200);
  EXPECT_EQ(chat["response"]["body"]["object"], "chat.completion");
  EXPECT_EQ(chat["response"]["body"]["model"], "model");
  EXPECT_EQ(chat["response"]["body"]["choices"][0]["message"]["content"], "hello 0!");
  EXPECT_EQ(chat["response"]["body"]["choices"][1]["message"]["content"], "hello 1!");
  EXPECT_EQ(chat["response"]["body"]["usage"]["completion_tokens"], 6);
  EXPECT_EQ(chat["response"]["body"]["seed"], 5);
  EXPECT_EQ(answers.at("t")["response"]["body"]["object"], "text_completion");
  EXPECT_NE(chat["id"], answers.at("t")["id"]);
  EXPECT_EQ(summary_.total, 2);  // blank lines are none
}

TEST_F(BatchTest, WhatTheRequestDoesNotSayIsTheCallersWish) {
  options_.defaults.generation.sampling.seed = 9;
  options_.defaults.generation.speculation.type = "ngram";
  WriteRequests(Line("a", "x") + Line("b", "y", R"("seed": 3)"));
  FakeScheduler scheduler(1);
  ASSERT_TRUE(Run(scheduler).ok());
  ASSERT_THAT(scheduler.requests, SizeIs(2));
  EXPECT_EQ(scheduler.requests[0].sampling.seed, 9);
  EXPECT_EQ(scheduler.requests[1].sampling.seed, 3);
  EXPECT_EQ(scheduler.requests[1].speculation.type, "ngram");
}

TEST_F(BatchTest, ABadLineIsThatLinesErrorAndTheRunGoesOn) {
  WriteRequests("this is no JSON\n" + Line("a", "fine") + Line("b", "x", R"("temperature": 9)") +
                Line("c", "please refuse") + Line("d", "please fail") +
                Line("d2", "please fail", R"("n": 3)") + Line("a", "again") + "{\"custom_id\": \"\xff\"}\n" +
                Line("e", "fine too"));
  FakeScheduler scheduler(2);
  ASSERT_TRUE(Run(scheduler).ok());
  const auto answers = Answers();
  EXPECT_THAT(answers, SizeIs(9));
  EXPECT_EQ(summary_.answered, 2);
  EXPECT_EQ(summary_.errors, 7);
  EXPECT_EQ(answers.at("a")["response"]["body"]["choices"][0]["text"], "fine 0!");
  EXPECT_EQ(answers.at("e")["error"], nullptr);
  EXPECT_EQ(answers.at("line 1")["response"], nullptr);
  EXPECT_THAT(answers.at("line 1")["error"]["message"], HasSubstr("not JSON"));
  EXPECT_EQ(answers.at("b")["response"]["status_code"], 400);
  EXPECT_EQ(answers.at("b")["response"]["body"]["error"]["param"], "temperature");
  EXPECT_EQ(answers.at("b")["error"]["line"], 3);
  EXPECT_EQ(answers.at("c")["error"]["code"], "context_length_exceeded");
  EXPECT_THAT(answers.at("c")["error"]["message"], HasSubstr("9 tokens"));
  EXPECT_EQ(answers.at("d")["response"]["status_code"], 500);
  EXPECT_EQ(answers.at("d")["error"]["type"], "server_error");
  EXPECT_EQ(answers.at("d2")["response"]["status_code"], 500);
  EXPECT_EQ(answers.at("line 7")["error"]["code"], "duplicate_custom_id");
  EXPECT_THAT(answers.at("line 8")["error"]["message"], HasSubstr("not JSON"));
}

TEST_F(BatchTest, WhatIsDoneIsNotDoneAgain) {
  const std::string requests = "no JSON\n" + Requests(5) + Line("r2", "again") + Line("bad", "", "");
  WriteRequests(requests);
  FakeScheduler first(2);
  ASSERT_TRUE(Run(first).ok());
  const std::string before = AnswersText();
  FakeScheduler second(2);
  ASSERT_TRUE(Run(second).ok());
  EXPECT_EQ(AnswersText(), before);
  EXPECT_EQ(second.submitted, 0);
  EXPECT_EQ(summary_.skipped, 8);
  EXPECT_EQ(summary_.answered + summary_.errors, 0);
  WriteRequests(requests + Line("new", "more"));
  ASSERT_TRUE(Run(second).ok());
  EXPECT_EQ(second.submitted, 1);
  EXPECT_THAT(AnswersText(), AllOf(::testing::StartsWith(before), HasSubstr("more 0!")));
}

// An answer of another line's error must not hide a request that has moved there.
TEST_F(BatchTest, ALineThatWasUnreadableAndIsMendedIsAnswered) {
  WriteRequests("no JSON\n" + Requests(1));
  FakeScheduler scheduler(1);
  ASSERT_TRUE(Run(scheduler).ok());
  WriteRequests(Line("mended", "better") + Requests(1));
  ASSERT_TRUE(Run(scheduler).ok());
  EXPECT_EQ(Answers().at("mended")["error"], nullptr);
}

TEST_F(BatchTest, FewRequestsAreHeldOfAnyNumber) {
  WriteRequests(Requests(2000));
  FakeScheduler scheduler(64);
  ASSERT_TRUE(Run(scheduler).ok());
  ExpectAllAnswered(2000);
  EXPECT_LE(scheduler.most_held, options_.most_in_flight);
  EXPECT_GT(scheduler.most_held, size_t{64});
}

TEST_F(BatchTest, LongRequestsAreHeldByTheirSize) {
  options_.most_bytes_in_flight = 5000;
  std::string text;
  for (int i = 0; i < 12; ++i) text += Line("r" + std::to_string(i), std::string(i == 7 ? 9000 : 1000, 'x'));
  WriteRequests(text);
  FakeScheduler scheduler(64);
  ASSERT_TRUE(Run(scheduler).ok());
  EXPECT_EQ(summary_.answered, 12);
  EXPECT_EQ(scheduler.most_held, size_t{5});
}

TEST_F(BatchTest, UnknownFieldsAreSaidOnce) {
  WriteRequests(Line("a", "x", R"("temprature": 0)") + Line("b", "x", R"("temprature": 0)"));
  FakeScheduler scheduler(1);
  ASSERT_TRUE(Run(scheduler).ok());
  EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("requests.jsonl:1:"), HasSubstr("\"temprature\""))));
  EXPECT_EQ(summary_.answered, 2);
}

TEST_F(BatchTest, ATornLineIsCutOffWhereverItIsTorn) {
  WriteRequests("no JSON\n" + Requests(3));
  FakeScheduler scheduler(2);
  ASSERT_TRUE(Run(scheduler).ok());
  const std::string whole = AnswersText();
  ASSERT_THAT(Answers(), SizeIs(4));
  for (size_t n = 0; n < whole.size(); n += 13) {
    const std::string torn = whole.substr(0, n);
    WriteAnswers(torn + (n % 2 == 0 ? "" : std::string(3, '\0')));  // zeros: a file system's own way
    FakeScheduler again(2);
    const Status ran = Run(again);
    ASSERT_TRUE(ran.ok()) << n << ": " << ran.message();
    EXPECT_THAT(Answers(), SizeIs(4)) << n;
    const size_t kept = torn.rfind('\n') + 1;  // npos + 1 is 0
    EXPECT_EQ(AnswersText().substr(0, kept), whole.substr(0, kept)) << n;
  }
}

TEST_F(BatchTest, AKillLosesTheRunningAnswersOnly) {
  WriteRequests("no JSON\n" + Requests(60));
  size_t kept_before = 0;
  for (const int round : {0, 3, 9, 20}) {
    const pid_t child = fork();
    if (child == 0) {
      FakeScheduler scheduler(4);
      scheduler.on_round = [round](int at) {
        if (at == round) std::raise(SIGKILL);
      };
      (void)Run(scheduler);
      _exit(1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "round " << round;
    const size_t kept = Answers().size();
    EXPECT_GE(kept, kept_before) << "round " << round;
    kept_before = kept;
  }
  EXPECT_GT(kept_before, 20U);
  EXPECT_LT(kept_before, 61U);
  FakeScheduler scheduler(4);
  ASSERT_TRUE(Run(scheduler).ok());
  EXPECT_EQ(static_cast<size_t>(summary_.skipped), kept_before);
  EXPECT_EQ(scheduler.submitted, static_cast<int64_t>(61 - kept_before));
  EXPECT_THAT(Answers(), SizeIs(61));
}

TEST_F(BatchTest, CtrlCKeepsWhatIsDoneAndSaysHowToGoOn) {
  WriteRequests(Requests(30));
  FakeScheduler scheduler(3);
  const Status stopped = Run(scheduler, [](const BatchProgress& at) { return at.done < 5; });
  EXPECT_EQ(stopped.code(), StatusCode::kCancelled);
  const size_t done = Answers().size();
  EXPECT_GE(done, 5U);
  EXPECT_LT(done, 30U);
  EXPECT_THAT(stopped.message(),
              HasSubstr("answers.jsonl: interrupted; " + std::to_string(done) +
                        " of 30 requests are done, and the same command goes on from there"));
  EXPECT_EQ(scheduler.held(), 0);  // all that ran was cancelled, and none of it became an answer
  EXPECT_GT(scheduler.cancelled, 0);
  FakeScheduler again(3);
  ASSERT_TRUE(Run(again).ok());
  ExpectAllAnswered(30);
}

TEST_F(BatchTest, ASchedulerThatFailsEndsTheRun) {
  WriteRequests(Requests(30));
  FakeScheduler scheduler(3);
  scheduler.fail_in_round = 4;
  const Status failed = Run(scheduler);
  EXPECT_EQ(failed.code(), StatusCode::kIo);
  EXPECT_THAT(failed.message(), AllOf(HasSubstr("on fire"), HasSubstr("of 30 requests are done")));
  EXPECT_FALSE(output_failed_);
  EXPECT_EQ(scheduler.held(), 0);
  ASSERT_TRUE(Run(scheduler).ok());
  ExpectAllAnswered(30);
}

// A limit on the size of files stands for a disk that is full: a write takes what fits, the next one fails.
TEST_F(BatchTest, AFullDiskIsAnErrorThatLosesNothing) {
  WriteRequests(Requests(30));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{2000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  FakeScheduler scheduler(3);
  const Status failed = Run(scheduler);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(output_failed_);
  EXPECT_THAT(failed.message(),
              AllOf(HasSubstr("cannot write " + options_.output), HasSubstr("of 30 requests")));
  EXPECT_TRUE(AnswersText().ends_with("\n"));
  const size_t done = Answers().size();
  EXPECT_GT(done, 0U);
  EXPECT_EQ(static_cast<int64_t>(done), summary_.answered);
  FakeScheduler again(3);
  ASSERT_TRUE(Run(again).ok());
  EXPECT_EQ(again.submitted, static_cast<int64_t>(30 - done));
  ExpectAllAnswered(30);
}

TEST_F(BatchTest, ADeviceThatTakesNothingIsAnOutputError) {
  WriteRequests("no JSON\n" + Requests(3));
  options_.output = "/dev/full";
  FakeScheduler scheduler(3);
  EXPECT_THAT(Run(scheduler).message(), HasSubstr("No space left on device"));
  EXPECT_TRUE(output_failed_);
}

TEST_F(BatchTest, FilesOfAnotherKindAreLeftAlone) {
  WriteRequests(Requests(3));
  FakeScheduler scheduler(1);
  for (const std::string text : {"Dear diary\n", "Dear diary", "{\"a\": 1}\n", "{\"custom_id\": \"a\"}\n"}) {
    WriteAnswers(text);
    const Status refused = Run(scheduler);
    EXPECT_EQ(refused.code(), StatusCode::kCorrupt) << text;
    EXPECT_THAT(refused.message(), HasSubstr("answers.jsonl:1: no answer of a batch")) << text;
    EXPECT_EQ(AnswersText(), text);
  }
  const std::string requests = options_.input;
  options_.output = options_.input;
  EXPECT_THAT(Run(scheduler).message(), HasSubstr("is the file of requests itself"));
  EXPECT_EQ(AnswersText(), Requests(3));
  options_.output = folder_.File("nowhere/answers.jsonl");
  EXPECT_THAT(Run(scheduler).message(), HasSubstr("nowhere/answers.jsonl: No such file"));
  options_.input = folder_.File("nothing.jsonl");
  EXPECT_THAT(Run(scheduler).message(), HasSubstr("nothing.jsonl"));
  EXPECT_EQ(scheduler.submitted, 0);
}

TEST_F(BatchTest, TwoRunsDoNotWriteOneFile) {
  WriteRequests(Requests(3));
  const auto first = Batch::Open(options_);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE((*first)->OpenAnswers().ok());
  FakeScheduler scheduler(1);
  EXPECT_THAT(Run(scheduler).message(), HasSubstr("another process is writing it"));
}

TEST_F(BatchTest, NoRequestsAreNoError) {
  WriteRequests("\n");
  FakeScheduler scheduler(1);
  EXPECT_TRUE(Run(scheduler).ok());
  EXPECT_THAT(Answers(), IsEmpty());
  EXPECT_EQ(summary_.total, 0);
}

TEST(FormatBatch, SaysWhatWasDone) {
  BatchSummary summary{.total = 100, .answered = 97, .errors = 3, .prompt_tokens = 5000, .tokens = 1000};
  summary.seconds = 4;
  summary.distinct_4gram = 0.75;
  EXPECT_EQ(FormatBatch(summary),
            "requests = 100: 97 answered, 3 errors\n"
            "prompt tokens = 5000 evaluated\n"
            "generated tokens = 1000 in 4.00 s (250.00 tokens per second)\n"
            "distinct 4-gram share = 0.75\n");
  summary.skipped = 7;
  summary.cached_tokens = 90;
  summary.drafted = 10;
  summary.accepted = 5;
  EXPECT_THAT(FormatBatch(summary),
              AllOf(HasSubstr("3 errors, 7 done before\n"), HasSubstr("90 from the cache\n"),
                    HasSubstr("draft acceptance = 0.50000 (    5 accepted /    10 generated)\n")));
  EXPECT_THAT(FormatBatch({}), HasSubstr("generated tokens = 0 in 0.00 s (0.00 tokens per second)\n"));
}

}  // namespace
}  // namespace longspec::cli
