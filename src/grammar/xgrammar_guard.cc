// SPDX-License-Identifier: Apache-2.0
//
// Compiled into longspec_xgrammar (cmake/xgrammar.cmake), which calls it: as its log, by
// XGRAMMAR_LOG_CUSTOMIZE, and from its loops.
#include "grammar/xgrammar_guard.h"

#include <algorithm>
#include <ctime>

namespace longspec {
namespace {

constexpr uint32_t kWorkBetweenLooks = 4096;

thread_local XgrammarGuard* guard = nullptr;
thread_local uint32_t work_done = 0;

// Of this thread on a processor: on a busy machine nobody runs out of time for what others do.
double ThreadMs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

}  // namespace

XgrammarGuard::XgrammarGuard(double most_ms) : outer_(guard), deadline_ms_(ThreadMs() + most_ms) {
  if (outer_ != nullptr) deadline_ms_ = std::min(deadline_ms_, outer_->deadline_ms_);
  guard = this;
}
XgrammarGuard::~XgrammarGuard() { guard = outer_; }
XgrammarGuard* XgrammarGuard::OfThread() { return guard; }

void XgrammarGuard::CheckTime() const {
  if (ThreadMs() > deadline_ms_) throw XgrammarTimeout();
}

void XgrammarTick(uint32_t work) {
  work_done += work;
  if (work_done < kWorkBetweenLooks) return;
  work_done = 0;
  if (guard != nullptr) guard->CheckTime();
}

void XgrammarWarn(const std::string& warning) {
  if (guard != nullptr) guard->Add(warning);
}

}  // namespace longspec

namespace xgrammar {

constexpr int kWarning = 2;  // XGRAMMAR_LOG_LEVEL_WARNING

[[noreturn]] void LogFatalImpl(const std::string& /*file*/, int /*lineno*/, const std::string& message) {
  throw std::runtime_error(message);
}

void LogMessageImpl(const std::string& /*file*/, int /*lineno*/, int level, const std::string& message) {
  if (level >= kWarning) longspec::XgrammarWarn(message);
}

}  // namespace xgrammar
