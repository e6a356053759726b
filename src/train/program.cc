// SPDX-License-Identifier: Apache-2.0
#include "train/program.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>

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

void CatchSignals() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGINT, HandleInterrupt);
}

bool Interrupted() { return g_interrupted.load(); }

}  // namespace longspec::train
