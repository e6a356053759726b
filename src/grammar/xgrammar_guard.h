// SPDX-License-Identifier: Apache-2.0
//
// What holds xgrammar within bounds. It would print warnings: here they are collected, since a warning means
// that some rule of the grammar would not be kept. And it would take as long as it takes: its inner loops are
// made to ask here whether there is time left (cmake/xgrammar_edits.cmake).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace longspec {

class StringAutomaton;

struct XgrammarTimeout : std::runtime_error {
  XgrammarTimeout() : std::runtime_error("out of time") {}
};

// Of this thread and its time on a processor, for as long as it lives; the last one made counts, and has no
// more time than those around it. What xgrammar was doing when it threw XgrammarTimeout is left in an unknown
// state.
class XgrammarGuard {
 public:
  explicit XgrammarGuard(double most_ms);
  ~XgrammarGuard();
  XgrammarGuard(const XgrammarGuard&) = delete;
  XgrammarGuard& operator=(const XgrammarGuard&) = delete;

  const std::vector<std::string>& warnings() const { return warnings_; }
  void Add(const std::string& warning) { warnings_.push_back(warning); }
  void CheckTime() const;
  // Those that were made meanwhile, by their line (grammar/xgrammar_strings.h).
  std::map<std::string, std::shared_ptr<const StringAutomaton>>& strings() { return strings_; }

  static XgrammarGuard* OfThread();  // null: there is none

 private:
  XgrammarGuard* const outer_;
  double deadline_ms_;
  std::vector<std::string> warnings_;
  std::map<std::string, std::shared_ptr<const StringAutomaton>> strings_;
};

// Called by the patched places. `work` is 1 for about 100 ns.
void XgrammarTick(uint32_t work);
void XgrammarWarn(const std::string& warning);

}  // namespace longspec
