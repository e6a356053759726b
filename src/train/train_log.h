// SPDX-License-Identifier: Apache-2.0
//
// The log of a training run: a JSON line for each step and each validation, for plots. Not thread-safe.
#pragma once

#include <string>

#include "longspec/status.h"
#include "train/trainer.h"

namespace longspec::train {

class TrainLog {
 public:
  TrainLog() = default;
  ~TrainLog();
  TrainLog(const TrainLog&) = delete;
  TrainLog& operator=(const TrainLog&) = delete;

  // Goes on in a file that is there, behind a line that was cut off too. Without a path nothing is logged.
  Status Open(const std::string& path);
  // A line is handed to the system at once. kResourceExhausted on a full disk; what could be written of the
  // line is then in the file.
  Status Add(const TrainProgress& progress);

 private:
  Status Write(const std::string& text);

  std::string path_;
  int fd_ = -1;
};

}  // namespace longspec::train
