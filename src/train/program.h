// SPDX-License-Identifier: Apache-2.0
//
// What longspec-train and longspec-write have in common as programs: their command lines, exit statuses,
// errors in one line, Ctrl-C.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "longspec/status.h"

namespace longspec::train {

inline constexpr int kExitUsage = 2, kExitInput = 3, kExitResources = 4, kExitOutput = 5,
                     kExitInterrupted = 130;
int ExitCodeOf(const Status& status);

// "NAME: error: MESSAGE" in one line on stderr. Returns `code`.
int Fail(const char* program, int code, const std::string& message);
// What was printed is written: the exit status.
int FlushOutput(const char* program);

// Of an option that is given twice the last one counts.
class CommandLine : public CLI::App {
 public:
  CommandLine(const char* description, const char* program, const char* footer);
  // The exit status where nothing is left to do: help was asked for, or the options are bad.
  std::optional<int> Parse(int argc, char** argv);
};

// SIGINT raises a flag; a second one ends the process with kExitInterrupted. A file that may not grow and a
// closed pipe become errors of writing like any other.
void CatchSignals();
bool Interrupted();

}  // namespace longspec::train
