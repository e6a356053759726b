// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer_hash.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longspec {
namespace {

void AppendSize(size_t size, std::string* bytes) {
  const uint64_t n = size;
  for (int shift = 0; shift < 64; shift += 8) bytes->push_back(static_cast<char>(n >> shift & 0xFFU));
}

// The size first, so that no two lists of strings look alike.
void AppendString(std::string_view text, std::string* bytes) {
  AppendSize(text.size(), bytes);
  bytes->append(text);
}

void AppendList(const std::vector<std::string>& list, std::string* bytes) {
  AppendSize(list.size(), bytes);
  for (const std::string& text : list) AppendString(text, bytes);
}

}  // namespace

Hash128 TokenizerHash(const TokenizerSpec& spec) {
  std::string bytes;
  AppendString(spec.pre, &bytes);
  AppendList(spec.tokens, &bytes);
  AppendList(spec.merges, &bytes);
  const auto scores = std::as_bytes(std::span(spec.scores));  // none, of a byte-level BPE
  bytes.append(reinterpret_cast<const char*>(scores.data()), scores.size());
  return HashOf(std::as_bytes(std::span(bytes)));
}

}  // namespace longspec
