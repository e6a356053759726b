// SPDX-License-Identifier: Apache-2.0
//
// Text as Python sees it (code points, Unicode white space, letter case) over UTF-8 bytes. Bytes that are not
// well-formed UTF-8 count as one character each and are kept as they are. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace longspec::jinja {

struct CodePoint {
  char32_t value;  // 0xDC00 + byte for a byte that belongs to no well-formed character
  size_t size;     // bytes it takes in the text, at least 1
};

// REQUIRES: at < text.size()
CodePoint DecodeAt(std::string_view text, size_t at);
void AppendCodePoint(char32_t value, std::string* out);

size_t CountCodePoints(std::string_view text);
std::vector<std::string_view> SplitCodePoints(std::string_view text);
// The byte at which code point `index` starts; text.size() if there are not so many.
size_t ByteOffset(std::string_view text, size_t index);

// What str.isspace() and the \s of Python's regular expressions accept.
bool IsSpace(char32_t value);
// Letters, digits and the underscore: \w, with every letter-like block above ASCII taken as letters.
bool IsWordCharacter(char32_t value);
// What repr() shows as itself.
bool IsPrintable(char32_t value);

// Simple case mapping of the Latin, Greek, Cyrillic and Armenian alphabets.
std::string Lower(std::string_view text);
std::string Upper(std::string_view text);
std::string Capitalize(std::string_view text);
std::string Title(std::string_view text);  // str.title(): words are runs of cased letters

enum class Side { kBoth, kLeft, kRight };
std::string_view StripSpace(std::string_view text, Side side = Side::kBoth);
std::string_view StripCharacters(std::string_view text, std::string_view characters, Side side);

// The first occurrence at or after `from`, or npos; linear time for any needle.
size_t FindText(std::string_view text, std::string_view needle, size_t from = 0);
size_t CountText(std::string_view text, std::string_view needle);
std::vector<std::string_view> SplitLines(std::string_view text);

}  // namespace longspec::jinja
