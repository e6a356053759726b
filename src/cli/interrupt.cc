// SPDX-License-Identifier: Apache-2.0
#include "cli/interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

#include "cli/exit_code.h"

namespace longspec::cli {
namespace {

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "used in a signal handler");
int g_pipe[2] = {-1, -1};

void HandleInterrupt(int /*signal*/) {
  const int saved_errno = errno;
  if (g_interrupted.exchange(true)) _exit(kExitInterrupted);
  const char byte = 0;
  // The flag is what counts: a full or missing pipe loses nothing.
  [[maybe_unused]] const ssize_t written = write(g_pipe[1], &byte, 1);
  errno = saved_errno;
}

}  // namespace

void IgnoreWriteSignals() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

void CatchInterrupt() {
  if (g_pipe[0] < 0 && pipe2(g_pipe, O_CLOEXEC | O_NONBLOCK) != 0) g_pipe[0] = g_pipe[1] = -1;
  struct sigaction action {};
  action.sa_handler = HandleInterrupt;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

void CatchTermination() {
  struct sigaction action {};
  action.sa_handler = HandleInterrupt;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
}

bool Interrupted() { return g_interrupted.load(); }

void ClearInterrupt() {
  char byte = 0;
  while (read(g_pipe[0], &byte, 1) == 1) {
  }
  g_interrupted.store(false);
}

int InterruptFd() { return g_pipe[0]; }

}  // namespace longspec::cli
