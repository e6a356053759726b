// SPDX-License-Identifier: Apache-2.0
//
// Input, output and progress: terminal, output, prompt, exit_code, interrupt.
#include "cli/terminal.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/testing/files.h"
#include "base/testing/opens.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/loading.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "formats/tiny_model.h"

namespace longspec::cli {
namespace {

using longspec::testing::Folder;
using longspec::testing::Opens;
using longspec::testing::ReadText;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe(fds_), 0); }
  ~Pipe() {
    CloseWriter();
    close(fds_[0]);
  }
  void Write(const std::string& text) {
    EXPECT_EQ(write(fds_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void CloseWriter() {
    if (fds_[1] >= 0) close(fds_[1]);
    fds_[1] = -1;
  }
  int reader() const { return fds_[0]; }

 private:
  int fds_[2] = {-1, -1};
};

TEST(LineReader, LinesEndsAndALastLineWithoutEnd) {
  Pipe pipe;
  pipe.Write("one\n\ntwo\r\nthree");
  pipe.CloseWriter();
  LineReader reader(pipe.reader(), -1);
  std::string line;
  std::vector<std::string> lines;
  while (reader.Read(&line) == LineReader::Outcome::kLine) lines.push_back(line);
  EXPECT_THAT(lines, ElementsAre("one", "", "two", "three"));
  EXPECT_EQ(reader.Read(&line), LineReader::Outcome::kEnd);
}

TEST(LineReader, ALineLongerThanOneRead) {
  Pipe pipe;
  const std::string text(10000, 'x');
  pipe.Write(text + "\n");
  LineReader reader(pipe.reader(), -1);
  std::string line;
  EXPECT_EQ(reader.Read(&line), LineReader::Outcome::kLine);
  EXPECT_EQ(line, text);
}

TEST(LineReader, WhatItWouldFindIsKnownBefore) {
  Pipe pipe;
  LineReader reader(pipe.reader(), -1);
  EXPECT_FALSE(reader.HasInput());
  pipe.Write("one\ntwo\n");
  EXPECT_TRUE(reader.HasInput());
  std::string line;
  EXPECT_EQ(reader.Read(&line), LineReader::Outcome::kLine);
  EXPECT_TRUE(reader.HasInput());  // the second
  EXPECT_EQ(reader.Read(&line), LineReader::Outcome::kLine);
  EXPECT_FALSE(reader.HasInput());
  pipe.CloseWriter();
  EXPECT_TRUE(reader.HasInput());  // its end
}

TEST(LineReader, InterruptEndsTheWait) {
  CatchInterrupt();
  ClearInterrupt();
  Pipe pipe;
  LineReader reader(pipe.reader(), InterruptFd());
  std::thread later([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    raise(SIGINT);
  });
  std::string line;
  EXPECT_EQ(reader.Read(&line), LineReader::Outcome::kInterrupted);
  later.join();
  EXPECT_TRUE(Interrupted());
  ClearInterrupt();
  EXPECT_FALSE(Interrupted());
  pipe.Write("next\n");
  EXPECT_EQ(reader.Read(&line), LineReader::Outcome::kLine);
}

TEST(InterruptDeathTest, TheSecondOneEndsTheProcess) {
  EXPECT_EXIT(
      {
        CatchInterrupt();
        raise(SIGINT);
        raise(SIGINT);
      },
      ::testing::ExitedWithCode(kExitInterrupted), "");
}

TEST(Output, FilesAreReplacedNotTruncatedBefore) {
  const Folder folder;
  const std::string path = folder.Write("stats", "a longer old text");
  {
    auto output = Output::Open(path);
    ASSERT_TRUE(output.ok());
    EXPECT_TRUE(output->Check().ok());
    EXPECT_EQ(ReadText(path), "a longer old text");
    EXPECT_TRUE(output->Replace("short").ok());
    EXPECT_TRUE(output->Replace("new").ok());
  }
  EXPECT_EQ(ReadText(path), "new");
}

TEST(Output, WhatCannotBeWrittenSaysWhy) {
  const auto missing = Output::Open("/nonexistent/file");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.status().message(), HasSubstr("/nonexistent/file"));
  auto full = Output::Open("/dev/full");
  ASSERT_TRUE(full.ok());
  const Status written = full->Write("x");
  EXPECT_EQ(written.code(), StatusCode::kIo);
  EXPECT_THAT(written.message(), HasSubstr("No space"));
  EXPECT_EQ(FailOutput(written), kExitOutput);
}

// A megabyte through pipes that do not block as standard input and output; ends the process.
[[noreturn]] void CopyWithoutBlocking() {
  int in[2], out[2];
  if (pipe2(in, O_NONBLOCK) != 0 || pipe2(out, O_NONBLOCK) != 0) std::_Exit(2);
  dup2(in[0], STDIN_FILENO);
  dup2(out[1], STDOUT_FILENO);
  close(out[1]);
  const std::string text(1 << 20, 'x');
  std::thread feeder([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    fcntl(in[1], F_SETFL, 0);
    for (size_t at = 0; at < text.size(); at += 4096) (void)!write(in[1], text.data() + at, 4096);
    close(in[1]);
  });
  const auto read_back = ReadInput("-");
  feeder.join();
  size_t arrived = 0;
  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    fcntl(out[0], F_SETFL, 0);
    std::vector<char> block(1 << 16);
    for (ssize_t n; (n = read(out[0], block.data(), block.size())) > 0;) arrived += static_cast<size_t>(n);
  });
  const bool written = Output::Standard().Write(text).ok();
  close(STDOUT_FILENO);
  reader.join();
  std::_Exit(read_back.ok() && *read_back == text && written && arrived == text.size() ? 0 : 1);
}

TEST(NonBlockingDeathTest, PipesAreWaitedFor) {
  EXPECT_EXIT(CopyWithoutBlocking(), ::testing::ExitedWithCode(0), "");
}

TEST(LoadEngine, TheMemoryPlanIsShownFirst) {
  ModelOptions options;
  const Folder own;
  options.path = own.File("tiny.gguf");
  options.ctx_size = 128;
  ASSERT_TRUE(WriteTinyModel({}, options.path).ok());
  const auto shown = [&](const OutputFlags& flags) {
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(LoadEngine(options, flags).ok());
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string line = shown({});
  EXPECT_THAT(line, ::testing::StartsWith("memory: "));
  for (const char* part : {"weights ", "KV cache ", " at a context of 128", "scratch "}) {
    EXPECT_THAT(line, HasSubstr(part));
  }
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(shown({.no_progress = true}), "");
  options.speculation.type = "lm";
  options.speculation.draft_model = options.path;
  EXPECT_THAT(shown({}), HasSubstr(", draft model "));
  options.speculation = {};
  options.partial_verification.enabled = true;
  EXPECT_THAT(shown({}), HasSubstr(", working set "));
  options.partial_verification = {};
  const std::string verbose = shown({.verbose = true, .no_progress = true});
  EXPECT_THAT(verbose, HasSubstr("at a context of 128"));
  EXPECT_THAT(verbose, Not(HasSubstr("memory: ")));  // a row of the facts
  EXPECT_THAT(verbose, ::testing::ContainsRegex("\nloaded +in [0-9.]+ s, weights packed now\n$"));
}

TEST(LoadEngine, AModelIsOpenedOnce) {
  ModelOptions options;
  const Folder own;
  options.path = own.File("tiny.gguf");
  options.ctx_size = 128;
  ASSERT_TRUE(WriteTinyModel({}, options.path).ok());
  const Opens of_model(options.path);
  ::testing::internal::CaptureStderr();
  const auto engine = LoadEngine(options, {.verbose = true});
  const std::string shown = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_THAT(shown, HasSubstr("at a context of 128"));
  EXPECT_EQ(of_model.Count(), 1);
}

// What looks at a model before it loads it has it open by then.
TEST(Commands, AModelIsOpenedOnce) {
  const Folder own;
  const std::string model = own.File("tiny.gguf"), text = own.File("text"), svg = own.File("sweep.svg");
  ASSERT_TRUE(WriteTinyModel({}, model).ok());
  std::string words;
  for (int i = 0; i < 40; ++i) words += "some words ";
  std::ofstream(text) << words;
  const std::vector<std::pair<Runner (*)(CLI::App&), std::string>> commands = {
      {SetUpPerplexity, "-f " + text + " --no-progress"},
      {SetUpBench, "--sweep --depth 16 --rows 1 --repetitions 1 --svg " + svg},
      {SetUpBench,
       "--answers 1 --text " + text + " --depth 40 --parallel 1 --repetitions 1 --spec-type none"},
      {SetUpCorpus, "-f " + text + " -o " + own.File("corpus")},
      {SetUpCorpus, "--ngrams --no-progress -f " + text + " -o " + own.File("ngrams")}};
  for (const auto& [set_up, arguments] : commands) {
    SCOPED_TRACE(arguments);
    CLI::App app;
    const Runner run = set_up(app);
    app.parse("-m " + model + " " + arguments);
    const Opens of_model(model);
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(run(), kExitOk);
    ::testing::internal::GetCapturedStdout();
    EXPECT_EQ(of_model.Count(), 1);
  }
}

TEST(LoadEngine, WeightsAreKeptAndWhatCannotBeIsAWarning) {
  ModelOptions options;
  const Folder own;
  options.path = own.File("tiny.gguf");
  options.ctx_size = 128;
  options.on_warning = Warn;
  ASSERT_TRUE(WriteTinyModel({}, options.path).ok());
  const auto shown = [&](const std::string& folder, bool verbose) {
    options.weights_cache = folder;
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(LoadEngine(options, {.verbose = verbose, .no_progress = true}).ok());
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string folder = own.File("kept");
  EXPECT_THAT(shown(folder, true), HasSubstr("weights packed now, kept in " + folder));
  EXPECT_THAT(shown(folder, true), HasSubstr("weights read from " + folder));
  EXPECT_EQ(shown(folder, false), "");
  EXPECT_THAT(shown(options.path + "/below", false),
              ::testing::MatchesRegex(
                  "longspec: warning: .*/below: cannot be created: .*; the packed weights are not kept\n"));
}

TEST(Progress, TimeLeftGoesByWhatThisRunDid) {
  EXPECT_EQ(FormatTimeLeft(3'723'000), ", 1:02:03 left");
  EXPECT_EQ(FormatTimeLeft(-1), "");
  EXPECT_EQ(FormatTimeLeft(0.5, 0.0, 60'000), ", 0:01:00 left");
  EXPECT_EQ(FormatTimeLeft(0.6, 0.5, 3'600'000), ", 4:00:00 left");
  EXPECT_EQ(FormatTimeLeft(1.0, 0.5, 1000), ", 0:00:00 left");
  EXPECT_EQ(FormatTimeLeft(0.5, 0.5, 1000), "");
  EXPECT_EQ(FormatTimeLeft(1e-12, 0.0, 1e9), ", 999:00:00 left");
}

TEST(Progress, TerminalUpdatesOneLineAndClearsIt) {
  std::string out;
  double now = 0;
  Progress progress("loading",
                    {true, true, [&](std::string_view text) { out += text; }, [&] { return now; }});
  progress.Update(0.1);  // too early
  EXPECT_EQ(out, "");
  now = 100;
  progress.Update(0.5, "2/4 tokens");
  EXPECT_EQ(out, "\r\033[Kloading 50 % (2/4 tokens)");
  progress.Finish();
  progress.Finish();
  EXPECT_EQ(out, "\r\033[Kloading 50 % (2/4 tokens)\r\033[K");
}

TEST(Progress, LogsAreSparse) {
  std::vector<std::string> lines;
  double now = 0;
  Progress progress("prefill", {true, false, [&](std::string_view text) { lines.emplace_back(text); },
                                [&] { return now; }});
  progress.Update(0.9);  // quick work says nothing
  EXPECT_THAT(lines, IsEmpty());
  now = 2500;
  progress.Update(0.1);  // no quarter yet
  progress.Update(0.3);
  progress.Update(0.6);  // too soon after the last
  EXPECT_THAT(lines, ElementsAre("prefill 30 %\n"));
  now = 18000;
  progress.Update(0.31);  // a long time without a word
  progress.Finish();
  EXPECT_THAT(lines, ElementsAre("prefill 30 %\n", "prefill 31 %\n"));
}

TEST(Progress, DisabledSaysNothing) {
  double now = 0;
  Progress progress("x", {false, true, [](std::string_view) { FAIL(); }, [&] { return now += 10000; }});
  progress.Update(0.5);
  progress.Finish();
}

TEST(Progress, PrefillReportsTokensAndStopsOnInterrupt) {
  CatchInterrupt();
  ClearInterrupt();
  std::string out;
  double now = 0;
  Progress progress("prefill",
                    {true, true, [&](std::string_view text) { out += text; }, [&] { return now += 100; }});
  const auto report = ReportPrefill(&progress);
  now = 4900;
  EXPECT_TRUE(report(512, 2048));
  EXPECT_THAT(out, HasSubstr("prefill 25 % (512/2048 tokens, 104.5 tokens/s, 0:00:14 left)"));
  EXPECT_TRUE(report(0, 0));
  raise(SIGINT);
  EXPECT_FALSE(report(1024, 2048));
  ClearInterrupt();
}

// Also of a pipe that nobody writes: it is not opened.
TEST(ReadInput, WhatIsNotThereIsSaidBefore) {
  EXPECT_TRUE(CheckInput("-").ok());
  const Folder folder;
  EXPECT_EQ(CheckInput(folder.File("nothing")).code(), StatusCode::kNotFound);
  for (const std::string& path : {folder.File("nothing"), folder.path()}) {
    EXPECT_EQ(CheckInput(path).message(), ReadInput(path).status().message());
  }
  const std::string fifo = folder.File("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_TRUE(CheckInput(fifo).ok());
}

// A device that never ends is an error, not all of the memory.
TEST(ReadInput, EndsAtTheMostThatIsRead) {
  const auto endless = ReadInput("/dev/zero", size_t{2} << 20);
  EXPECT_EQ(endless.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(endless.status().message(), HasSubstr("/dev/zero: more than 2 MiB"));
  const Folder folder;
  const std::string path = folder.Write("text", "abc");
  EXPECT_EQ(*ReadInput(path, 3), "abc");
  EXPECT_FALSE(ReadInput(path, 2).ok());
}

TEST(ComposePrompt, InstructionThenDocument) {
  const Folder folder;
  const std::string path = folder.Write("document", "Line one.\nLine two.\n");
  EXPECT_EQ(*ComposePrompt({.prompt = "Summarise:", .file = path}), "Summarise:\n\nLine one.\nLine two.");
  EXPECT_EQ(*ComposePrompt({.prompt = "", .file = path}), "Line one.\nLine two.");
  EXPECT_EQ(*ComposePrompt({.prompt = "Hi"}), "Hi");
}

TEST(ComposePrompt, AnyBytesAreAccepted) {
  const std::string bytes("\xFF\xFE\0\x80 x", 6);
  const Folder folder;
  const std::string path = folder.Write("bytes", bytes);
  EXPECT_EQ(*ComposePrompt({.file = path}), bytes);
}

TEST(ComposePrompt, WhatIsWrongIsNamed) {
  EXPECT_EQ(ComposePrompt({}).status().code(), StatusCode::kInvalidArgument);
  const Folder folder;
  const std::string path = folder.Write("empty", "\n");
  EXPECT_EQ(ComposePrompt({.file = path}).status().code(), StatusCode::kInvalidArgument);
  const auto missing = ComposePrompt({.prompt = "x", .file = "/nonexistent"});
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr("/nonexistent"));
  EXPECT_EQ(ReadInput("/tmp").status().code(), StatusCode::kIo);
}

TEST(FillPrompt, ChatByDefaultIfThereIsATemplate) {
  GenerationRequest request;
  ASSERT_TRUE(FillPrompt({.system_prompt = "Be brief."}, "Hi", true, &request).ok());
  ASSERT_EQ(request.messages.size(), 2U);
  EXPECT_EQ(request.messages[0].role, "system");
  EXPECT_EQ(request.messages[1].role, "user");
  EXPECT_EQ(request.messages[1].content, "Hi");
  EXPECT_EQ(request.prompt, "");
}

TEST(FillPrompt, RawTextWithoutOneOrOnDemand) {
  for (const bool has_template : {false, true}) {
    GenerationRequest request;
    PromptFlags flags;
    if (has_template) flags.chat = false;
    ASSERT_TRUE(FillPrompt(flags, "Hi", has_template, &request).ok());
    EXPECT_EQ(request.prompt, "Hi");
    EXPECT_THAT(request.messages, IsEmpty());
    flags.system_prompt = "x";
    EXPECT_EQ(FillPrompt(flags, "Hi", has_template, &request).code(), StatusCode::kInvalidArgument);
  }
  GenerationRequest request;
  ASSERT_TRUE(FillPrompt({.chat = true}, "Hi", false, &request).ok());
  EXPECT_EQ(request.messages.size(), 1U);  // the engine then says that there is no template
}

TEST(ExitCode, ByCodeAndStage) {
  EXPECT_EQ(ExitCodeOf(Status(), Stage::kLoad), kExitOk);
  EXPECT_EQ(ExitCodeOf(InvalidArgument(""), Stage::kLoad), kExitUsage);
  EXPECT_EQ(ExitCodeOf(NotFound(""), Stage::kLoad), kExitModel);
  EXPECT_EQ(ExitCodeOf(Corrupt(""), Stage::kLoad), kExitModel);
  EXPECT_EQ(ExitCodeOf(Unsupported(""), Stage::kGenerate), kExitModel);
  EXPECT_EQ(ExitCodeOf(IoError(""), Stage::kLoad), kExitModel);
  EXPECT_EQ(ExitCodeOf(IoError(""), Stage::kGenerate), kExitFailure);
  EXPECT_EQ(ExitCodeOf(ResourceExhausted(""), Stage::kGenerate), kExitResources);
  EXPECT_EQ(ExitCodeOf(Cancelled(""), Stage::kLoad), kExitInterrupted);
  for (const Status& status : {IoError(""), NotFound(""), ResourceExhausted("")}) {
    EXPECT_EQ(ExitCodeOf(status, Stage::kWrite), kExitOutput);
  }
  EXPECT_EQ(ExitCodeOf(InvalidArgument(""), Stage::kWrite), kExitUsage);
}

TEST(OneLine, MessagesStayOneLineAndHarmless) {
  EXPECT_EQ(OneLine("a\nb\tc\x1b[31m\n"), "a b c?[31m");
  EXPECT_EQ(OneLine("é"), "é");
}

}  // namespace
}  // namespace longspec::cli
