// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/special_tokens.h"

#include <algorithm>
#include <charconv>

#include "tokenizer/tokenizer.h"

namespace longspec {

TokenType TypeOfToken(const TokenizerSpec& spec, size_t id) {
  return spec.token_types.empty() ? TokenType::kNormal : static_cast<TokenType>(spec.token_types[id]);
}

int ParseByteToken(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  int byte = -1;
  const auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, byte, 16);
  return error == std::errc() && end == text.data() + 5 && byte >= 0 ? byte : -1;
}

SpecialTokens::SpecialTokens(std::vector<std::pair<std::string, int32_t>> tokens)
    : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const auto& token) { return token.first.empty(); });
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto equal_text = [](const auto& a, const auto& b) { return a.first == b.first; };
  tokens_.erase(std::unique(tokens_.begin(), tokens_.end(), equal_text), tokens_.end());
  for (const auto& [text, id] : tokens_) starts_[static_cast<uint8_t>(text[0])] = true;
}

SpecialTokens::Match SpecialTokens::Find(std::string_view text, size_t from) const {
  for (size_t i = from; i < text.size(); ++i) {
    if (!starts_[static_cast<uint8_t>(text[i])]) continue;
    if (const Match match = LongestAt(text, i); match.length > 0) return match;
  }
  return {};
}

SpecialTokens::Match SpecialTokens::LongestAt(std::string_view text, size_t begin) const {
  Match match;
  // The tokens that agree with the text so far stand side by side; each byte narrows them down.
  auto first = tokens_.begin();
  auto last = tokens_.end();
  for (size_t depth = 0; begin + depth < text.size(); ++depth) {
    const auto byte = static_cast<uint8_t>(text[begin + depth]);
    // A token that ends here sorts before those that go on.
    const auto next_byte = [depth](const auto& token) {
      return token.first.size() == depth ? -1 : static_cast<int>(static_cast<uint8_t>(token.first[depth]));
    };
    first = std::partition_point(first, last, [&](const auto& token) { return next_byte(token) < byte; });
    last = std::partition_point(first, last, [&](const auto& token) { return next_byte(token) == byte; });
    if (first == last) break;
    if (first->first.size() == depth + 1) match = {begin, depth + 1, first->second};
  }
  return match;
}

}  // namespace longspec
