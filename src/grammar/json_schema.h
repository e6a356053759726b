// SPDX-License-Identifier: Apache-2.0
//
// JSON Schemas from strangers, made into ones whose every rule can be kept: what is read is checked, and
// written again in the part of the language that xgrammar follows exactly. A rule that would be left out is
// refused by name and place, since an answer that the schema does not describe is worse than none. Pure
// functions.
#pragma once

#include <string>
#include <string_view>

#include "longspec/status.h"

namespace longspec {

inline constexpr int kMostSchemaNesting = 64;           // containers within each other
inline constexpr int kMostSchemaParts = 10'000;         // schemas within the schema, and values of enum
inline constexpr size_t kMostSchemaCopies = 1'000'000;  // values in them that are written in several places
inline constexpr int kMostSchemaBound = 1'000'000;      // of lengths and counts
inline constexpr size_t kMostPatternBytes = 4096;

// Answers are those of the schema, with properties in the order in which it lists them, and none that it does
// not list unless additionalProperties or patternProperties allow them. kInvalidArgument: it is no schema, or
// none could satisfy it; kUnsupported: a rule that cannot be kept; kResourceExhausted: a limit above.
// Messages name the place as a JSON pointer, such as #/properties/a.
Result<std::string> NormaliseSchema(std::string_view text);

}  // namespace longspec
