// SPDX-License-Identifier: Apache-2.0
//
// Splits a template into tokens as Jinja does with trim_blocks and lstrip_blocks on, which is how chat
// templates are written: comments and raw blocks are resolved here, and white space around tags is already
// stripped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "longspec/status.h"

namespace longspec::jinja {

enum class TokenKind {
  kText,        // literal output
  kPrintBegin,  // {{
  kPrintEnd,    // }}
  kBlockBegin,  // {%
  kBlockEnd,    // %}
  kName,
  kString,  // text holds the unescaped content
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind;
  std::string text;
  int line;
};

// The tokens, the last one being kEnd, or the first lexical error with its line.
Result<std::vector<Token>> Tokenize(std::string_view source);

// "chat template, line N: message", the form of all errors of a template.
Status AtLine(const Status& status, int line);

}  // namespace longspec::jinja
