// SPDX-License-Identifier: Apache-2.0
//
// Options as users of other engines write them, llama.cpp above all, and what becomes of each here: it is
// called otherwise, it sets something else, it has no effect, or it is refused, since the answer would be
// another one than they expect. A script that starts llama-server starts `longspec serve` too, or is told why
// not.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

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

}  // namespace longspec::cli
