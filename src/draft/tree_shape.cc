// SPDX-License-Identifier: Apache-2.0
#include "draft/tree_shape.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

namespace longspec {
namespace {

constexpr int kMaxWidth = 255;  // the most nodes a round may verify
constexpr int kMaxDepth = 255;

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

template <typename T>
std::optional<T> Number(std::string_view text) {
  T value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && stop == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

std::optional<int> NumberFrom1(std::string_view text, int most) {
  const auto n = Number<int>(text);
  return n && *n >= 1 && *n <= most ? n : std::nullopt;
}

std::optional<TreeShape> ParseWidths(std::string_view text) {
  TreeShape shape;
  const size_t n_default = shape.widths.size();
  shape.widths.clear();
  for (const std::string_view part : Split(text, ',')) {
    const auto width = NumberFrom1(part, kMaxWidth);
    if (!width || shape.widths.size() == kMaxDepth) return std::nullopt;
    shape.widths.push_back(*width);
  }
  if (shape.widths.size() == 1) shape.widths.resize(n_default, shape.widths.front());
  return shape;
}

std::optional<TreeShape> ParseNamed(const std::vector<std::string_view>& parts) {
  TreeShape shape;
  const bool best = parts[0] == "best";
  shape.kind = best ? TreeShape::Kind::kBestFirst : TreeShape::Kind::kOptTree;
  shape.use_last_level = parts[0] == "opt-last";
  size_t next = 1;
  if (!best && parts.size() > next) {
    const auto threshold = Number<double>(parts[next++]);
    if (!threshold || !std::isfinite(*threshold)) return std::nullopt;
    shape.threshold = *threshold;
  }
  if (parts.size() > next) {
    const auto depth = NumberFrom1(parts[next++], kMaxDepth);
    if (!depth) return std::nullopt;
    shape.max_depth = *depth;
  }
  return next == parts.size() ? std::optional(shape) : std::nullopt;
}

std::optional<TreeShape> Parse(const std::string& text) {
  if (text.empty() || text == "beam") return TreeShape();
  if (text == "chain") {
    TreeShape shape;
    shape.widths.assign(kMaxDepth, 1);
    return shape;
  }
  const std::vector<std::string_view> parts = Split(text, ':');
  if (parts[0] == "best" || parts[0] == "opt" || parts[0] == "opt-last") return ParseNamed(parts);
  return ParseWidths(text);
}

}  // namespace

Result<TreeShape> ParseTreeShape(const std::string& text) {
  const auto shape = Parse(text);
  if (shape) return *shape;
  return InvalidArgument("--spec-tree " + text +
                         ": must be chain, beam, widths from 1 to 255 such as 4,16,16, best[:DEPTH] or "
                         "opt[:THRESHOLD[:DEPTH]]");
}

}  // namespace longspec
