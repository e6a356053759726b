// SPDX-License-Identifier: Apache-2.0
#include "pattern/code_points.h"

#include <algorithm>

namespace longspec {

CodePoints::CodePoints(std::vector<CodePointRange> ranges) {
  std::vector<CodePointRange> parts;
  for (const CodePointRange& range : ranges) {
    const uint32_t last = std::min(range.last, kMostCodePoint);
    if (range.first > last) continue;
    if (range.first < kFirstSurrogate) parts.push_back({range.first, std::min(last, kFirstSurrogate - 1)});
    if (last > kLastSurrogate) parts.push_back({std::max(range.first, kLastSurrogate + 1), last});
  }
  std::ranges::sort(parts, {}, &CodePointRange::first);
  for (const CodePointRange& part : parts) {
    if (!ranges_.empty() && part.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, part.last);
    } else {
      ranges_.push_back(part);
    }
  }
}

CodePoints CodePoints::Complement() const {
  std::vector<CodePointRange> others;
  uint32_t next = 0;
  for (const CodePointRange& range : ranges_) {
    if (range.first > next) others.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kMostCodePoint) others.push_back({next, kMostCodePoint});
  return CodePoints(std::move(others));
}

CodePoints CodePoints::Union(const CodePoints& other) const {
  std::vector<CodePointRange> both = ranges_;
  both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
  return CodePoints(std::move(both));
}

CodePoints CodePoints::Intersection(const CodePoints& other) const {
  std::vector<CodePointRange> common;
  auto a = ranges_.begin(), b = other.ranges_.begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    const uint32_t first = std::max(a->first, b->first), last = std::min(a->last, b->last);
    if (first <= last) common.push_back({first, last});
    if (a->last < b->last) {
      ++a;
    } else {
      ++b;
    }
  }
  return CodePoints(std::move(common));
}

bool CodePoints::Contains(uint32_t code_point) const {
  const auto after = std::ranges::upper_bound(ranges_, code_point, {}, &CodePointRange::first);
  return after != ranges_.begin() && std::prev(after)->last >= code_point;
}

}  // namespace longspec
