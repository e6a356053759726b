// SPDX-License-Identifier: Apache-2.0
//
// The file of a batch's answers: it grows line by line, and a run that was killed goes on where it ends. A
// line is in the file once Append has returned, so a kill loses no answer that was written; a line that it
// tore is cut off. One process at a time; not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "api/batch_lines.h"
#include "cli/output.h"
#include "longspec/status.h"

namespace longspec::cli {

class AnswerFile {
 public:
  // Opens or makes the file. `on_answer` hears of every line that is there. kCorrupt, with nothing changed,
  // if one of them is no answer; kIo if another process is writing the file. A pipe or a device is only
  // written.
  static Result<AnswerFile> Open(const std::string& path,
                                 const std::function<void(const api::AnsweredRequest&)>& on_answer);

  // `line` ends in a line break. After an error the file holds what it held before.
  Status Append(std::string_view line);
  Status Sync();

 private:
  AnswerFile(Output output, uint64_t size) : output_(std::move(output)), size_(size) {}

  Output output_;
  uint64_t size_;
};

}  // namespace longspec::cli
