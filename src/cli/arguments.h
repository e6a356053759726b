// SPDX-License-Identifier: Apache-2.0
//
// Arguments as users of other engines write them, rewritten to the options longspec has: multi-letter options
// with one dash (-sys, -ctk), and old or foreign spellings, which are accepted with a warning. Pure
// functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longspec/status.h"

namespace longspec::cli {

struct NormalizedArguments {
  std::vector<std::string> args;
  std::vector<std::string> warnings;
};

// `takes_value` tells whether an option ("-p", "--prompt") of the command is followed by a value; values are
// never rewritten. An empty value that is attached ("--prompt=") becomes an argument of its own. A
// multi-letter option with one dash that is not known is an error: it would otherwise be read as a short
// option and its value ("-md x" as "-m d").
Result<NormalizedArguments> NormalizeArguments(std::vector<std::string> args,
                                               const std::function<bool(const std::string&)>& takes_value);

}  // namespace longspec::cli
