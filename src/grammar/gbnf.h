// SPDX-License-Identifier: Apache-2.0
//
// llama.cpp's grammars (GBNF), read with limits and written again in the notation that xgrammar has, which is
// close but not equal: rules are named otherwise, there "." is no character, and names such as Token have a
// meaning. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "longspec/status.h"

namespace longspec {

inline constexpr int kMostGbnfNesting = 64;             // of groups
inline constexpr int kMostGbnfRepetitions = 1'000'000;  // of {m,n}

// The grammar's rules, the first of them "root". kInvalidArgument names the line: a mistake in the text, a
// rule that is not defined or defined twice, no root. kUnsupported: tokens (<[7]>, <text>). Bytes must be
// UTF-8.
Result<std::string> TranslateGbnf(std::string_view text);

}  // namespace longspec
