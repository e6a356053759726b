// SPDX-License-Identifier: Apache-2.0
//
// Strings of any bytes, one behind the other: u32 how many, then of each u32 bytes and the bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "longspec/status.h"

namespace longspec {

// REQUIRES: fewer than 2^32 strings, each of fewer than 2^32 bytes.
std::vector<std::byte> PackStrings(std::span<const std::string> strings);

// kCorrupt, of one line that begins with `name`.
Result<std::vector<std::string>> UnpackStrings(std::span<const std::byte> bytes, const std::string& name);

}  // namespace longspec
