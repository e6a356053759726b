// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/infill_anchor.h"

#include <cctype>
#include <utility>

namespace longspec {
namespace {

// FNV-1a: the same on every machine, so that a request means the same everywhere.
uint64_t HashOf(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

// A line and the one behind it. Alone, many lines are the same: a bracket, nothing.
std::string_view TwoLines(std::string_view text, size_t at) {
  size_t end = text.find('\n', at);
  if (end != text.npos) end = text.find('\n', end + 1);
  return text.substr(at, end == text.npos ? end : end - at);
}

// A declaration begins like this, and neither what stands inside it nor its end.
bool BeginsAtTheMargin(std::string_view line) {
  return !line.empty() && (std::isalpha(static_cast<unsigned char>(line[0])) != 0 || line[0] == '_' ||
                           line[0] == '#' || line[0] == '@' || line[0] == '/');
}

}  // namespace

std::optional<size_t> InfillAnchor(const Tokenizer& tokenizer, std::string_view prefix,
                                   const std::vector<int32_t>& tokens, int64_t most) {
  const auto n = static_cast<int64_t>(tokens.size());
  if (n <= most) return 0;
  std::optional<size_t> best;
  std::pair<bool, uint64_t> least;
  size_t begin = prefix.size();  // of the tokens looked at
  for (int64_t behind = 1; behind <= most; ++behind) {
    const size_t bytes = tokenizer.TokenBytes(tokens[static_cast<size_t>(n - behind)]).size();
    if (bytes > begin) return std::nullopt;  // tokens that are not the text's bytes
    for (size_t at = begin; 2 * behind >= most && at-- > begin - bytes;) {
      if (at == 0 || prefix[at - 1] != '\n') continue;
      const std::string_view lines = TwoLines(prefix, at);
      const std::pair<bool, uint64_t> order = {!BeginsAtTheMargin(lines), HashOf(lines)};
      if (!best || order <= least) {
        best = at;
        least = order;
      }
    }
    begin -= bytes;
  }
  return best;
}

}  // namespace longspec
