// SPDX-License-Identifier: Apache-2.0
//
// A small vocabulary for tests: every byte, some longer tokens as JSON likes them, a control token and two
// end tokens. Text is written greedily, the longest token first.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"

namespace longspec::testing {

struct ByteVocabulary {
  static constexpr int32_t kControl = 256, kEnd = 257, kOtherEnd = 258, kFirstLong = 259;

  static const std::vector<std::string>& Long() {
    static const std::vector<std::string> texts = {
        "{\"", "\":", "\": \"", "\", \"",      "\"}", "name", "tr",  "true", "false",       "null",
        " \"", "  ",  "\n",     "<tool_call>", "é",   "été",  "123", "}}",   "</tool_call>"};
    return texts;
  }
  static int32_t LongToken(std::string_view text) {
    for (size_t i = 0; i < Long().size(); ++i) {
      if (Long()[i] == text) return kFirstLong + static_cast<int32_t>(i);
    }
    return -1;
  }
  static int n_logits() {
    return kFirstLong + static_cast<int>(Long().size()) + 5;
  }  // and five that are padding

  static std::vector<int32_t> Encode(std::string_view text) {
    std::vector<int32_t> tokens;
    while (!text.empty()) {
      int32_t best = static_cast<unsigned char>(text[0]);
      size_t length = 1;
      for (const std::string& candidate : Long()) {
        if (candidate.size() <= length || !text.starts_with(candidate)) continue;
        best = LongToken(candidate);
        length = candidate.size();
      }
      tokens.push_back(best);
      text.remove_prefix(length);
    }
    return tokens;
  }

  // Whether the text is one that the grammar asks for, from its beginning to its end.
  static bool IsTaken(std::string_view text, const Grammar& grammar) {
    const auto constraint = *grammar.NewConstraint();
    for (const int32_t token : Encode(text)) {
      if (!constraint->Accept(token)) return false;
    }
    return constraint->complete();
  }

  static GrammarVocabulary Make() {
    GrammarVocabulary vocabulary;
    for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
    vocabulary.tokens.resize(kFirstLong);
    vocabulary.tokens.insert(vocabulary.tokens.end(), Long().begin(), Long().end());
    vocabulary.n_logits = n_logits();
    vocabulary.end_tokens = {kEnd, kOtherEnd};
    vocabulary.tokenize = Encode;
    return vocabulary;
  }
};

}  // namespace longspec::testing
