// SPDX-License-Identifier: Apache-2.0
//
// How fast a folder's disk is read, and memory beside it: measured with a file of our own. Any thread.
#pragma once

#include <cstddef>
#include <string>

#include "longspec/status.h"

namespace longspec {

struct ReadSpeeds {
  double disk = 0.0;    // bytes a second
  double memory = 0.0;  // bytes a second
};

// Writes a file without a name of so many bytes into the folder, asks the system to drop it from its page
// cache, and reads it from the beginning to the end twice, by one thread in pieces of 1 MiB: the first time
// the disk is read, the second time the page cache. It is what this device gives while nothing else uses it
// (or does, if something does); where there is no disk behind the folder (tmpfs), or one with a memory of its
// own, it is the speed of that. kIo: the file cannot be made, written or read.
Result<ReadSpeeds> MeasureReadSpeeds(const std::string& folder, size_t bytes);

}  // namespace longspec
