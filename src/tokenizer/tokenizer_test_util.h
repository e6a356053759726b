// SPDX-License-Identifier: Apache-2.0
//
// Small vocabularies for the tests of this module.
#pragma once

#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/bpe_alphabet.h"
#include "tokenizer/tokenizer.h"

namespace longspec {

// All 256 bytes (token i is byte i), then the result of every merge, in order.
inline TokenizerSpec ByteLevelSpec(std::vector<std::string> merges = {}) {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) spec.tokens.push_back(AlphabetCharacter(static_cast<uint8_t>(byte)));
  for (const std::string& merge : merges) {
    std::string merged = merge;
    merged.erase(merged.find(' '), 1);
    spec.tokens.push_back(merged);
  }
  spec.token_types.assign(spec.tokens.size(), 1);
  spec.merges = std::move(merges);
  return spec;
}

// Appends a token; returns its id.
inline int32_t AddToken(TokenizerSpec* spec, std::string text, int32_t type) {
  spec->tokens.push_back(std::move(text));
  spec->token_types.push_back(type);
  return static_cast<int32_t>(spec->tokens.size()) - 1;
}

// A mix of plain bytes, whole characters and pieces of them.
inline std::string RandomBytes(std::mt19937* random, size_t max_pieces) {
  static const char* const kPieces[] = {"a",
                                        "b",
                                        "ab",
                                        " ",
                                        "  ",
                                        "\n",
                                        "7",
                                        "'s",
                                        "<|x|>",
                                        "\xC3",
                                        "\xC3\xA9",
                                        "\xE2",
                                        "\xE2\x82",
                                        "\xE2\x82\xAC",
                                        "\xF0\x9F",
                                        "\xF0\x9F\x98\x80",
                                        "\xED\xA0\x80",
                                        "\xFF",
                                        "\x80"};
  std::string text;
  for (size_t n = (*random)() % (max_pieces + 1); n > 0; --n) {
    if ((*random)() % 8 == 0) {
      text += static_cast<char>((*random)() % 256);
    } else {
      text += kPieces[(*random)() % std::size(kPieces)];
    }
  }
  return text;
}

}  // namespace longspec
