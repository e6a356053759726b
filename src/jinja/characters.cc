// SPDX-License-Identifier: Apache-2.0
#include "jinja/characters.h"

#include <string.h>

#include <array>

#include "base/utf8.h"

namespace longspec::jinja {
namespace {

constexpr char32_t kLoneByte = 0xDC00;
constexpr char32_t kSharpS = 0xDF;

// Capital letters `first`..`last`; a `pair` range alternates capital, small, capital, small.
struct CaseRange {
  char32_t first, last;
  char32_t offset;  // small letter minus capital letter
  bool pair;
};

constexpr std::array kCaseRanges = {
    CaseRange{'A', 'Z', 32, false},     CaseRange{0xC0, 0xD6, 32, false},
    CaseRange{0xD8, 0xDE, 32, false},   CaseRange{0x100, 0x12F, 1, true},
    CaseRange{0x132, 0x137, 1, true},   CaseRange{0x139, 0x148, 1, true},
    CaseRange{0x14A, 0x177, 1, true},   CaseRange{0x178, 0x178, -0x79U, false},
    CaseRange{0x179, 0x17E, 1, true},   CaseRange{0x386, 0x386, 38, false},
    CaseRange{0x388, 0x38A, 37, false}, CaseRange{0x38C, 0x38C, 64, false},
    CaseRange{0x38E, 0x38F, 63, false}, CaseRange{0x391, 0x3A1, 32, false},
    CaseRange{0x3A3, 0x3AB, 32, false}, CaseRange{0x400, 0x40F, 80, false},
    CaseRange{0x410, 0x42F, 32, false}, CaseRange{0x460, 0x481, 1, true},
    CaseRange{0x48A, 0x4BF, 1, true},   CaseRange{0x4D0, 0x52F, 1, true},
    CaseRange{0x531, 0x556, 48, false}, CaseRange{0x1E00, 0x1E95, 1, true},
    CaseRange{0x1EA0, 0x1EFF, 1, true},
};

char32_t LowerOf(char32_t c) {
  for (const CaseRange& range : kCaseRanges) {
    if (c < range.first || c > range.last) continue;
    if (range.pair && (c - range.first) % 2 != 0) return c;
    return c + range.offset;
  }
  return c;
}

char32_t UpperOf(char32_t c) {
  if (c == 0xB5) return 0x39C;   // micro sign
  if (c == 0x3C2) return 0x3A3;  // final sigma
  for (const CaseRange& range : kCaseRanges) {
    const char32_t capital = c - range.offset;
    if (capital < range.first || capital > range.last) continue;
    if (range.pair && (capital - range.first) % 2 != 0) continue;
    return capital;
  }
  return c;
}

bool IsCased(char32_t c) { return c == kSharpS || LowerOf(c) != c || UpperOf(c) != c; }

void AppendUpper(char32_t c, bool title, std::string* out) {
  if (c == kSharpS) {
    out->append(title ? "Ss" : "SS");
  } else {
    AppendCodePoint(UpperOf(c), out);
  }
}

template <typename Append>
std::string MapCodePoints(std::string_view text, Append append) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeAt(text, at);
    append(c.value, &out);
    at += c.size;
  }
  return out;
}

// The start of the last character of a non-empty text.
size_t LastCharacter(std::string_view text) {
  size_t at = text.size() - 1;
  for (size_t back = 1; back <= 4 && back <= text.size(); ++back) {
    if (DecodeAt(text, text.size() - back).size == back) at = text.size() - back;
  }
  return at;
}

template <typename Drop>
std::string_view StripIf(std::string_view text, Side side, Drop drop) {
  while (side != Side::kRight && !text.empty()) {
    const CodePoint c = DecodeAt(text, 0);
    if (!drop(c.value)) break;
    text.remove_prefix(c.size);
  }
  while (side != Side::kLeft && !text.empty()) {
    const size_t at = LastCharacter(text);
    if (!drop(DecodeAt(text, at).value)) break;
    text = text.substr(0, at);
  }
  return text;
}

bool IsLineBreak(char32_t c) {
  return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

CodePoint DecodeAt(std::string_view text, size_t at) {
  const Utf8CodePoint c = DecodeUtf8(text.substr(at));
  if (!c.well_formed) return {kLoneByte + static_cast<unsigned char>(text[at]), 1};
  return {c.value, c.length};
}

void AppendCodePoint(char32_t value, std::string* out) {
  if (value >= kLoneByte + 0x80 && value <= kLoneByte + 0xFF) {
    out->push_back(static_cast<char>(value - kLoneByte));
  } else {
    AppendUtf8(value, out);
  }
}

size_t CountCodePoints(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += DecodeAt(text, at).size) ++count;
  return count;
}

std::vector<std::string_view> SplitCodePoints(std::string_view text) {
  std::vector<std::string_view> characters;
  for (size_t at = 0; at < text.size();) {
    const size_t size = DecodeAt(text, at).size;
    characters.push_back(text.substr(at, size));
    at += size;
  }
  return characters;
}

size_t ByteOffset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += DecodeAt(text, at).size;
  return at;
}

bool IsSpace(char32_t c) {
  return (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= ' ') || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsWordCharacter(char32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  if (c < 0xC0)
    return c == 0xAA || c == 0xB2 || c == 0xB3 || c == 0xB5 || (c >= 0xB9 && c <= 0xBE && c != 0xBB);
  const bool punctuation = (c >= 0x2000 && c <= 0x206F) || (c >= 0x2190 && c <= 0x245F) ||
                           (c >= 0x2500 && c <= 0x2BFF) || (c >= 0x3000 && c <= 0x3004) ||
                           (c >= 0x3008 && c <= 0x3020) || (c >= 0xD800 && c <= 0xF8FF) ||
                           (c >= 0xFF00 && c <= 0xFF0F) || (c >= 0x1F000 && c <= 0x1FAFF);
  return !punctuation && c != 0xD7 && c != 0xF7;
}

bool IsPrintable(char32_t c) {
  if (c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD) return false;
  if (c != ' ' && IsSpace(c)) return false;
  return !((c >= 0x200B && c <= 0x200F) || (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) ||
           (c >= 0xD800 && c <= 0xF8FF) || c == 0xFEFF || (c >= 0xFFF0 && c <= 0xFFFB) || c >= 0xE0000);
}

std::string Lower(std::string_view text) {
  return MapCodePoints(text, [](char32_t c, std::string* out) { AppendCodePoint(LowerOf(c), out); });
}

std::string Upper(std::string_view text) {
  return MapCodePoints(text, [](char32_t c, std::string* out) { AppendUpper(c, false, out); });
}

std::string Capitalize(std::string_view text) {
  return MapCodePoints(text, [first = true](char32_t c, std::string* out) mutable {
    if (first) {
      AppendUpper(c, true, out);
    } else {
      AppendCodePoint(LowerOf(c), out);
    }
    first = false;
  });
}

std::string Title(std::string_view text) {
  return MapCodePoints(text, [inside = false](char32_t c, std::string* out) mutable {
    if (inside) {
      AppendCodePoint(LowerOf(c), out);
    } else {
      AppendUpper(c, true, out);
    }
    inside = IsCased(c);
  });
}

std::string_view StripSpace(std::string_view text, Side side) { return StripIf(text, side, IsSpace); }

std::string_view StripCharacters(std::string_view text, std::string_view characters, Side side) {
  std::u32string set;
  for (size_t at = 0; at < characters.size();) {
    const CodePoint c = DecodeAt(characters, at);
    set.push_back(c.value);
    at += c.size;
  }
  return StripIf(text, side, [&set](char32_t c) { return set.find(c) != std::u32string::npos; });
}

size_t FindText(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  // std::string_view::find is quadratic on repetitive text, and templates come from strangers.
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t CountText(std::string_view text, std::string_view needle) {
  if (needle.empty()) return CountCodePoints(text) + 1;
  size_t count = 0;
  for (size_t at = 0; (at = FindText(text, needle, at)) != std::string_view::npos; at += needle.size())
    ++count;
  return count;
}

std::vector<std::string_view> SplitLines(std::string_view text) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeAt(text, at);
    const size_t end = at;
    at += c.size;
    if (!IsLineBreak(c.value)) continue;
    if (c.value == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(start, end - start));
    start = at;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

}  // namespace longspec::jinja
