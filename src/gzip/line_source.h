// SPDX-License-Identifier: Apache-2.0
//
// Lines of a file, decompressed if it is gzip, as they are asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "longspec/status.h"

namespace longspec {

class LineSource {
 public:
  virtual ~LineSource() = default;
  // Without its end. False at the end of the file. Lines that are empty are skipped. kCorrupt: broken gzip
  // data, or a line of more than 256 MiB.
  virtual Result<bool> Next(std::string* line) = 0;
  virtual int64_t line_number() const = 0;  // of the last one, from 1
  virtual double share_read() const = 0;    // of the file's bytes, 0 to 1
};

// kIo: what cannot be opened, and folders.
Result<std::unique_ptr<LineSource>> OpenLines(const std::string& path);

}  // namespace longspec
