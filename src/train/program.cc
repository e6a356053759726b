// SPDX-License-Identifier: Apache-2.0
#include "train/program.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>

#include "longspec/version.h"

namespace longspec::train {
namespace {

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "used in a signal handler");

void HandleInterrupt(int /*signal*/) {
  if (g_interrupted.exchange(true)) _exit(kExitInterrupted);
}

}  // namespace

int ExitCodeOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      return kExitUsage;
    case StatusCode::kResourceExhausted:
      return kExitResources;
    case StatusCode::kIo:
      return kExitOutput;
    default:
      return kExitInput;
  }
}

int Fail(const char* program, int code, const std::string& message) {
  std::string line = message;
  std::ranges::replace(line, '\n', ' ');
  std::fprintf(stderr, "%s: error: %s\n", program, line.c_str());
  return code;
}

int FlushOutput(const char* program) {
  return std::fflush(stdout) == 0 ? 0 : Fail(program, kExitOutput, "standard output cannot be written");
}

CommandLine::CommandLine(const char* description, const char* program, const char* footer)
    : App(description, program) {
  this->footer(footer);
  option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  set_version_flag("--version", get_name() + " " LONGSPEC_VERSION);
}

std::optional<int> CommandLine::Parse(int argc, char** argv) try {
  parse(argc, argv);
  return std::nullopt;
} catch (const CLI::Success& success) {
  return exit(success);
} catch (const CLI::ParseError& error) {
  return Fail(get_name().c_str(), kExitUsage,
              std::string(error.what()) + " (" + get_name() + " --help lists the options)");
}

void CatchSignals() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGINT, HandleInterrupt);
}

bool Interrupted() { return g_interrupted.load(); }

}  // namespace longspec::train
