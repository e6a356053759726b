// SPDX-License-Identifier: Apache-2.0
#include "cli/exit_code.h"

#include <cstdio>

namespace longspec::cli {

const char kExitCodeHelp[] =
    "Exit status: 0 success; 1 generation failed; 2 usage (unknown option, bad value, empty prompt);\n"
    "3 model or input file unreadable, corrupt or not supported; 4 out of memory or prompt longer than the\n"
    "context; 5 output cannot be written; 130 interrupted.";

int ExitCodeOf(const Status& status, Stage stage) {
  switch (status.code()) {
    case StatusCode::kOk:
      return kExitOk;
    case StatusCode::kInvalidArgument:
      return kExitUsage;
    case StatusCode::kResourceExhausted:  // writing: the disk is full
      return stage == Stage::kWrite ? kExitOutput : kExitResources;
    case StatusCode::kCancelled:
      return kExitInterrupted;
    case StatusCode::kIo:
      if (stage == Stage::kWrite) return kExitOutput;
      return stage == Stage::kLoad ? kExitModel : kExitFailure;
    case StatusCode::kNotFound:
      return stage == Stage::kWrite ? kExitOutput : kExitModel;
    case StatusCode::kCorrupt:
    case StatusCode::kUnsupported:
      return kExitModel;
  }
  return kExitFailure;
}

std::string OneLine(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n' || c == '\r' || c == '\t') {
      line += ' ';
    } else if (byte < 0x20 || byte == 0x7F) {
      line += '?';  // an escape sequence in a file name must not reach the terminal
    } else {
      line += c;
    }
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

int Fail(int code, std::string_view message) {
  std::fprintf(stderr, "longspec: error: %s\n", OneLine(message).c_str());
  return code;
}

int Fail(const Status& status, Stage stage) { return Fail(ExitCodeOf(status, stage), status.message()); }

void Warn(std::string_view message) {
  std::fprintf(stderr, "longspec: warning: %s\n", OneLine(message).c_str());
}

}  // namespace longspec::cli
