// SPDX-License-Identifier: Apache-2.0
//
// What the program's exit status says (docs/cli.md has the same table), and how errors are shown: one line on
// stderr.
#pragma once

#include <string>
#include <string_view>

#include "longspec/status.h"

namespace longspec::cli {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,       // generation failed
  kExitUsage = 2,         // an unknown option, a bad value, an empty prompt
  kExitModel = 3,         // the model or an input file cannot be read, is corrupt or is not supported
  kExitResources = 4,     // out of memory, or the prompt does not fit into the context
  kExitOutput = 5,        // output cannot be written
  kExitInterrupted = 130  // Ctrl-C
};

extern const char kExitCodeHelp[];  // the table for --help

// Where a Status came from: the same code means different things.
enum class Stage { kLoad, kGenerate, kWrite };

int ExitCodeOf(const Status& status, Stage stage);

// "longspec: error: ..." on stderr, always one line. Returns `code`.
int Fail(int code, std::string_view message);
int Fail(const Status& status, Stage stage);

void Warn(std::string_view message);

// The text with line breaks and other control characters made visible, so that a message stays one line.
std::string OneLine(std::string_view text);

}  // namespace longspec::cli
