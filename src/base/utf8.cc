// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

#include <algorithm>
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

Utf8CodePoint DecodeUtf8(std::string_view bytes) {
  const Utf8Step step = ScanUtf8(bytes);
  if (step.kind != Utf8Kind::kCharacter) return {.value = 0xFFFD, .length = 1, .well_formed = false};
  const auto lead = static_cast<uint8_t>(bytes[0]);
  uint32_t value = step.length == 1 ? lead : lead & (0xFFU >> (step.length + 1));
  for (size_t i = 1; i < step.length; ++i) value = value << 6 | (static_cast<uint8_t>(bytes[i]) & 0x3FU);
  return {.value = value, .length = step.length, .well_formed = true};
}

void AppendUtf8(uint32_t code_point, std::string* out) {
  const auto lead = [&](uint32_t mark, int shift) { *out += static_cast<char>(mark | code_point >> shift); };
  const auto next = [&](int shift) { *out += static_cast<char>(0x80 | (code_point >> shift & 0x3F)); };
  if (code_point < 0x80) return lead(0, 0);
  if (code_point < 0x800) {
    lead(0xC0, 6);
  } else {
    if (code_point < 0x10000) {
      lead(0xE0, 12);
    } else {
      lead(0xF0, 18);
      next(12);
    }
    next(6);
  }
  next(0);
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

std::string ValidUtf8(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const size_t valid = ValidUtf8Prefix(bytes);
    text += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    AppendUtf8(0xFFFD, &text);
    bytes.remove_prefix(ScanUtf8(bytes).length);
  }
  return text;
}

size_t CountCharacters(std::string_view text) {
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80; };
  return static_cast<size_t>(std::ranges::count_if(text, begins));
}

}  // namespace longspec
