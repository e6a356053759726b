// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/utf8.h"

#include <cstring>

namespace longspec {
namespace {

// What a lead byte asks for: the number of bytes, and the range of the second one, which is where overlong
// forms, surrogates and code points above U+10FFFF are told apart. Later bytes are always 80..BF.
struct Lead {
  size_t length;  // 0: never starts a character
  uint8_t second_min = 0x80;
  uint8_t second_max = 0xBF;
};

Lead ClassifyLead(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

// Length of the leading run of ASCII, in whole words: the rest is left to the caller.
size_t AsciiWords(std::string_view bytes) {
  size_t n = 0;
  uint64_t word;
  while (bytes.size() - n >= sizeof(word)) {
    std::memcpy(&word, bytes.data() + n, sizeof(word));
    if ((word & 0x8080808080808080u) != 0) break;
    n += sizeof(word);
  }
  return n;
}

}  // namespace

Utf8Step ScanUtf8(std::string_view bytes) {
  const Lead lead = ClassifyLead(static_cast<uint8_t>(bytes[0]));
  if (lead.length == 0) return {Utf8Kind::kIllFormed, 1};
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == bytes.size()) return {Utf8Kind::kTruncated, i};
    const auto byte = static_cast<uint8_t>(bytes[i]);
    const uint8_t min = i == 1 ? lead.second_min : 0x80;
    const uint8_t max = i == 1 ? lead.second_max : 0xBF;
    if (byte < min || byte > max) return {Utf8Kind::kIllFormed, i};
  }
  return {Utf8Kind::kCharacter, lead.length};
}

size_t ValidUtf8Prefix(std::string_view bytes) {
  size_t n = 0;
  while (n < bytes.size()) {
    n += AsciiWords(bytes.substr(n));
    if (n == bytes.size()) break;
    const Utf8Step step = ScanUtf8(bytes.substr(n));
    if (step.kind != Utf8Kind::kCharacter) break;
    n += step.length;
  }
  return n;
}

}  // namespace longspec
