// SPDX-License-Identifier: Apache-2.0
//
// Sets of characters: Unicode's code points but for surrogates, which are no characters. Values.
#pragma once

#include <cstdint>
#include <vector>

namespace longspec {

inline constexpr uint32_t kMostCodePoint = 0x10FFFF;
inline constexpr uint32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

struct CodePointRange {
  uint32_t first, last;
  bool operator==(const CodePointRange& other) const { return first == other.first && last == other.last; }
};

class CodePoints {
 public:
  CodePoints() = default;
  // Ranges in any order; they may overlap. Surrogates and what is beyond Unicode are left out.
  explicit CodePoints(std::vector<CodePointRange> ranges);
  static CodePoints All() { return CodePoints({{0, kMostCodePoint}}); }

  CodePoints Complement() const;
  CodePoints Union(const CodePoints& other) const;
  CodePoints Intersection(const CodePoints& other) const;
  bool Contains(uint32_t code_point) const;
  bool empty() const { return ranges_.empty(); }
  // Ordered, disjoint, never adjacent.
  const std::vector<CodePointRange>& ranges() const { return ranges_; }
  bool operator==(const CodePoints& other) const { return ranges_ == other.ranges_; }

 private:
  std::vector<CodePointRange> ranges_;
};

}  // namespace longspec
