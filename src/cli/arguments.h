// SPDX-License-Identifier: Apache-2.0
//
// Arguments as users of other engines write them, rewritten to the options longspec has
// (cli/foreign_options.h). Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longspec/status.h"

namespace longspec::cli {

struct NormalizedArguments {
  std::vector<std::string> args;
  std::vector<std::string> warnings;  // one for all options that have no effect
};

enum class OptionKind : uint8_t { kUnknown, kFlag, kValued };

// `kind_of` tells what an option ("-p", "--prompt") is to the command; values are never rewritten. An empty
// value that is attached ("--prompt=") becomes an argument of its own. A multi-letter option with one dash
// that nobody knows is an error: it would otherwise be read as a short option and its value ("-xy z" as "-x
// y"). So is an option that is refused by name.
Result<NormalizedArguments> NormalizeArguments(std::vector<std::string> args,
                                               const std::function<OptionKind(const std::string&)>& kind_of);

}  // namespace longspec::cli
