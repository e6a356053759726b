// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe_alphabet.h"

#include <array>

#include "base/utf8.h"

namespace longspec {
namespace {

constexpr uint32_t kAlphabetEnd = 0x144;  // one past the alphabet's last code point

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
  std::string character;
  AppendUtf8(static_cast<uint32_t>(kAlphabet.code_point[byte]), &character);
  return character;
}

std::string BytesFromAlphabet(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  while (!text.empty()) {
    const Utf8CodePoint c = DecodeUtf8(text);
    const bool known = c.well_formed && c.value < kAlphabetEnd && kAlphabet.byte[c.value] >= 0;
    bytes += known ? static_cast<char>(kAlphabet.byte[c.value]) : text[0];
    text.remove_prefix(known ? c.length : 1);
  }
  return bytes;
}

}  // namespace longspec
