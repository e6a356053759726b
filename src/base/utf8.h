// SPDX-License-Identifier: Apache-2.0
//
// UTF-8: walking through bytes that may or may not be it, and writing it. Well-formed means Unicode's table
// 3-7: no surrogates, no overlong forms, nothing above U+10FFFF. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace longspec {

enum class Utf8Kind : uint8_t {
  kCharacter,  // a whole, well-formed character
  kIllFormed,  // a maximal ill-formed subsequence: one U+FFFD by Unicode's recommended practice
  kTruncated,  // the bytes end inside what may still become a character
};

struct Utf8Step {
  Utf8Kind kind;
  size_t length;  // bytes; at least 1
};

// What stands at the start of `bytes`. REQUIRES: !bytes.empty()
Utf8Step ScanUtf8(std::string_view bytes);

struct Utf8CodePoint {
  uint32_t value;  // U+FFFD where it is not well-formed
  size_t length;   // bytes; 1 where it is not well-formed
  bool well_formed;
};

// The character at the start of `bytes`. REQUIRES: !bytes.empty()
Utf8CodePoint DecodeUtf8(std::string_view bytes);

// REQUIRES: at most U+10FFFF
void AppendUtf8(uint32_t code_point, std::string* out);

// Length of the longest well-formed prefix.
size_t ValidUtf8Prefix(std::string_view bytes);
inline bool IsUtf8(std::string_view bytes) { return ValidUtf8Prefix(bytes) == bytes.size(); }

// The text with U+FFFD for each maximal ill-formed subsequence, which names of files may have, for instance.
std::string ValidUtf8(std::string_view bytes);

// Characters of a well-formed text.
size_t CountCharacters(std::string_view text);

}  // namespace longspec
