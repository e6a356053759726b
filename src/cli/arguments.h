// SPDX-License-Identifier: Apache-2.0
//
// Arguments as users of other engines write them, llama.cpp above all, rewritten to the options that longspec
// has: one is called otherwise here, sets something else, has no effect, or is refused, since the answer
// would be another one than they expect. A script that starts llama-server starts `longspec serve` too, or is
// told why not. Pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longspec/status.h"

namespace longspec::cli {

struct ForeignOption {
  // What follows it. kSwitch: on, off or auto, which may be left out.
  enum class Values : uint8_t { kNone, kOne, kTwo, kSwitch };
  enum class Treatment : uint8_t {
    kSpelling,  // another way to write options[0]
    kRenamed,   // the same, with a warning
    kSets,      // `options` are given instead, each with the value, if they have none of their own
    kNoEffect,
    kRefused,
  };

  std::array<std::string_view, 6> spellings;
  Values values;
  Treatment treatment;
  std::string_view needs;  // it is known to commands that have this option; empty: to all
  std::array<std::string_view, 2> options = {};
  std::string_view text = {};      // kSets: what it does; kRefused: why, and what would be right
  std::string_view harmless = {};  // kRefused: values, by commas, that have no effect

  bool Has(std::string_view spelling) const;
  bool IsHarmless(std::string_view value) const;
};

// Several may have the same spelling, for different commands: of those that a command knows the first counts.
std::span<const ForeignOption> ForeignOptions();

// Whether it can be the value of a kSwitch.
bool IsSwitch(std::string_view value);

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
