// SPDX-License-Identifier: Apache-2.0
//
// longspec-write: the target writes on after the beginnings of `longspec features --write N --write-later`,
// hundreds at once, on a GPU.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "base/clock.h"
#include "train/program.h"
#include "train/text_writing.h"

namespace longspec::train {
namespace {

constexpr char kProgram[] = "longspec-write";
constexpr char kExitCodeHelp[] =
    "Exit status: 0 done, 2 bad options, 3 beginnings or model unreadable, 4 out of memory or disk,\n"
    "5 output cannot be written, 130 interrupted (Ctrl-C keeps what is complete; the same command goes on).";

void AddOptions(CLI::App& app, TextOptions* o) {
  app.add_option("-f,--features", o->beginnings,
                 "Folders of beginnings, from `longspec features --write N --keep none --write-later`")
      ->required()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("-m,--model", o->model, "GGUF file they were made with")->required();
  app.add_option("-o,--output", o->output, "Folder for the shards; a run that was stopped goes on there")
      ->required();
  app.add_option("--write", o->max_tokens, "Tokens after each beginning at most")->capture_default_str();
  app.add_option("--write-temps", o->temperatures, "Temperatures it writes at, in turn")
      ->capture_default_str()
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--write-seed", o->seed, "Decides what is written, on one kind of device")
      ->capture_default_str();
  app.add_option("--at-once", o->at_once, "Texts that are written together; memory grows with them")
      ->capture_default_str();
  app.add_option("--first", o->first, "Leave out so many of the beginnings")->capture_default_str();
  app.add_option("--most", o->most, "Take so many of them; 0: all")->capture_default_str();
  app.add_option("--device", o->device, "cuda, cuda:N or cpu")->capture_default_str();
}

// A line for each shard.
class Display {
 public:
  void Show(const TextProgress& p) {
    if (p.tokens == shown_) return;
    shown_ = p.tokens;
    const double seconds = (NowMs() - begun_ms_) / 1000.0;
    std::fprintf(stderr, "%lld of %lld texts, %lld tokens written, %.0f tokens/s\n",
                 static_cast<long long>(p.texts), static_cast<long long>(p.all),
                 static_cast<long long>(p.tokens), static_cast<double>(p.tokens) / seconds);
  }

 private:
  const double begun_ms_ = NowMs();
  int64_t shown_ = 0;
};

int RunWriting(const TextOptions& options) {
  Display display;
  const auto made = WriteTexts(options, [&](const TextProgress& progress) {
    display.Show(progress);
    return !Interrupted();
  });
  if (!made.ok() && made.status().code() == StatusCode::kCancelled) {
    return Fail(kProgram, kExitInterrupted,
                "interrupted; what is complete is kept in " + options.output +
                    ", and the same command goes on from there");
  }
  if (!made.ok()) return Fail(kProgram, ExitCodeOf(made.status()), made.status().message());
  if (made->left_out > 0) {
    std::fprintf(
        stderr,
        "%s: warning: %lld beginnings leave no room for --write %d in the model's context; they were "
        "left out\n",
        kProgram, static_cast<long long>(made->left_out), options.max_tokens);
  }
  std::printf("%s: %lld tokens in %lld texts, %lld shards\n", options.output.c_str(),
              static_cast<long long>(made->tokens), static_cast<long long>(made->texts),
              static_cast<long long>(made->shards));
  return FlushOutput(kProgram);
}

int Main(int argc, char** argv) {
  CatchSignals();
  CommandLine app("Lets the target write on after beginnings, many at once.", kProgram, kExitCodeHelp);
  TextOptions options;
  AddOptions(app, &options);
  if (const auto status = app.Parse(argc, argv)) return *status;
  return RunWriting(options);
}

}  // namespace
}  // namespace longspec::train

int main(int argc, char** argv) { return longspec::train::Main(argc, argv); }
