// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe_alphabet.h"

#include <array>

namespace longspec {
namespace {

constexpr int kAlphabetEnd = 0x144;  // one past the alphabet's last code point

constexpr bool Prints(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<uint16_t, 256> code_point{};
  std::array<int16_t, kAlphabetEnd> byte{};  // -1: not of the alphabet
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (int16_t& byte : alphabet.byte) byte = -1;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const int code_point = Prints(byte) ? byte : next++;
    alphabet.code_point[static_cast<size_t>(byte)] = static_cast<uint16_t>(code_point);
    alphabet.byte[static_cast<size_t>(code_point)] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

std::string AlphabetCharacter(uint8_t byte) {
  const unsigned code_point = kAlphabet.code_point[byte];
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xC0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 0x3F))};
}

std::string BytesFromAlphabet(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    // The alphabet needs at most two bytes of UTF-8, led by C2 to C5.
    const auto lead = static_cast<uint8_t>(text[i]);
    const bool pair = lead >= 0xC2 && lead <= 0xC5 && i + 1 < text.size() &&
                      (static_cast<uint8_t>(text[i + 1]) & 0xC0) == 0x80;
    const unsigned code_point =
        pair ? (lead & 0x1Fu) << 6 | (static_cast<uint8_t>(text[i + 1]) & 0x3Fu) : lead;
    const bool known = (pair || lead < 0x80) && code_point < kAlphabetEnd && kAlphabet.byte[code_point] >= 0;
    bytes += known ? static_cast<char>(kAlphabet.byte[code_point]) : text[i];
    if (known && pair) ++i;
  }
  return bytes;
}

}  // namespace longspec
