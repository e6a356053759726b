// SPDX-License-Identifier: Apache-2.0
//
// What kinds of tokens there are, and finding those that are written out in a text ("<|im_start|>").
// Immutable once made; may be shared between threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace longspec {

struct TokenizerSpec;

// As tokenizer.ggml.token_type numbers them.
enum class TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// Normal where the spec lists no types. REQUIRES: id < spec.tokens.size()
TokenType TypeOfToken(const TokenizerSpec& spec, size_t id);

inline bool StandsForNoText(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUnknown;
}

// The byte that "<0x0A>" spells; -1 if it is not written like that.
int ParseByteToken(std::string_view text);

class SpecialTokens {
 public:
  struct Match {
    size_t begin = 0, length = 0;  // bytes; length 0: none
    int32_t id = -1;
  };

  // Empty texts are left out; of equal texts the first is kept.
  explicit SpecialTokens(std::vector<std::pair<std::string, int32_t>> tokens);

  // The leftmost token at or after `from`; of those that start there, the longest.
  Match Find(std::string_view text, size_t from) const;

 private:
  Match LongestAt(std::string_view text, size_t begin) const;

  std::vector<std::pair<std::string, int32_t>> tokens_;  // by text
  std::array<bool, 256> starts_{};                       // the bytes with which a token starts
};

}  // namespace longspec
