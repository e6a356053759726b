// SPDX-License-Identifier: Apache-2.0
//
// One rendering's memory and its limits. A template is a program by a stranger: every step, every byte it
// builds and every level of nesting is counted here, and once a limit is passed the rendering ends with an
// error. Not thread-safe; each rendering has its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace longspec::jinja {

struct Limits {
  int64_t max_steps = 0;
  size_t max_bytes = 0;  // of the output and of any one string
};

class Runtime {
 public:
  // Nested evaluations, calls of macros and walks into nested values together; sized for a stack of 8 MiB
  // under a sanitizer.
  static constexpr int kMaxDepth = 400;

  Runtime(const Limits& limits, std::optional<std::tm> now) : limits_(limits), now_(now) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // False once a limit has been passed; status() says which. Whoever loops must charge.
  bool Charge(size_t steps);
  bool ChargeBytes(size_t bytes) { return Charge(1 + bytes / kBytesPerStep); }
  // For work that takes the product of two lengths at worst, and something even if one of them is zero.
  bool ChargeProduct(size_t bytes, size_t times);
  // Says that a text of `bytes` is about to be built.
  bool CheckSize(size_t bytes);
  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  // Objects made without charge: for the caller's input, whose size is not the template's doing.
  void Unmetered(bool unmetered) { unmetered_ = unmetered; }

  // Allocation never fails at once: what exceeds a limit is noticed at the next step.
  Value String(std::string text);
  Value NewList(std::vector<Value> items, ListKind kind = ListKind::kList);
  Value NewPair(Value first, Value second);
  Dict* NewDict();
  Namespace* NewNamespace();
  Loop* NewLoop(std::vector<Value> items);
  Macro* NewMacro(const MacroStatement* definition, std::shared_ptr<Scope> closure);

  // What strftime_now shows: the local time, unless the caller gave another.
  std::tm Now() const;

  // One level of recursion; false operator bool means that it is one too many.
  class Level {
   public:
    explicit Level(Runtime& runtime) : runtime_(runtime), ok_(runtime.Descend()) {}
    ~Level() { --runtime_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    explicit operator bool() const { return ok_; }

   private:
    Runtime& runtime_;
    bool ok_;
  };

 private:
  static constexpr size_t kBytesPerStep = 32;
  static constexpr size_t kObjectSteps = 8;

  bool Descend();
  bool Exhausted(std::string message);

  Limits limits_;
  std::optional<std::tm> now_;
  int64_t steps_ = 0;
  int depth_ = 0;
  bool unmetered_ = false;
  Status status_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Namespace> namespaces_;
  std::deque<Loop> loops_;
  std::deque<Macro> macros_;
};

// Builds a text within the limits; what exceeds them is dropped and the runtime no longer ok.
class TextBuilder {
 public:
  explicit TextBuilder(Runtime& runtime) : runtime_(runtime) {}
  void Append(std::string_view text) {
    if (runtime_.ChargeBytes(text.size()) && runtime_.CheckSize(text_.size() + text.size()))
      text_.append(text);
  }
  const std::string& text() const { return text_; }
  std::string Take() { return std::move(text_); }

 private:
  Runtime& runtime_;
  std::string text_;
};

}  // namespace longspec::jinja
