// SPDX-License-Identifier: Apache-2.0
#include "draft/tree_shape.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

namespace longspec {

namespace {

constexpr int kMaxWidth = 255;  // the most nodes a round may verify
constexpr int kMaxDepth = 255;
constexpr int kMaxTopK = 64;  // of EAGLE-2's tree, which holds a square of candidates for each level

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

std::optional<TreeShape> ParseEagle2(const std::vector<std::string_view>& parts) {
  TreeShape shape;
  shape.kind = TreeShape::Kind::kEagle2;
  const struct {
    int* to;
    int most;
  } numbers[] = {{&shape.top_k, kMaxTopK}, {&shape.n_loops, kMaxDepth - 1}, {&shape.total, kMaxWidth}};
  if (parts.size() > 1 + std::size(numbers)) return std::nullopt;
  for (size_t i = 1; i < parts.size(); ++i) {
    const auto number = NumberFrom1(parts[i], numbers[i - 1].most);
    if (!number) return std::nullopt;
    *numbers[i - 1].to = *number;
  }
  return shape;
}

// The numbers of "0,1" or "0,"; nothing if it is no such list.
std::optional<std::vector<int>> ParsePath(std::string_view text) {
  std::vector<int> ranks;
  for (std::string_view part : Split(text, ',')) {
    if (part.empty() && !ranks.empty()) continue;  // Python's tuples of one may end in a comma
    const auto rank = Number<int>(part);
    if (!rank || *rank < 0 || *rank >= kMaxWidth || ranks.size() == kMaxDepth) return std::nullopt;
    ranks.push_back(*rank);
  }
  return ranks;
}

// "[[0],[1]]" with brackets of either kind and without spaces. A path needs its parent, and none may come
// twice.
std::optional<TreeShape> ParsePaths(std::string_view text) {
  TreeShape shape;
  shape.kind = TreeShape::Kind::kStatic;
  text = text.substr(1, text.size() - 2);
  while (!text.empty()) {
    const size_t end = text.find_first_of(")]");
    if (end == std::string_view::npos || (text[0] != '(' && text[0] != '[')) return std::nullopt;
    const auto path = ParsePath(text.substr(1, end - 1));
    if (!path || path->empty()) return std::nullopt;
    shape.paths.push_back(*path);
    text.remove_prefix(end + 1);
    if (!text.empty() && text[0] == ',') text.remove_prefix(1);
  }
  std::ranges::sort(shape.paths, [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  if (std::ranges::adjacent_find(shape.paths) != shape.paths.end()) return std::nullopt;
  for (std::vector<int> path : shape.paths) {
    path.pop_back();
    if (!path.empty() && std::ranges::find(shape.paths, path) == shape.paths.end()) return std::nullopt;
  }
  return shape.paths.empty() || shape.paths.size() > kMaxWidth ? std::nullopt : std::optional(shape);
}

// Medusa's tree of 63 nodes (arXiv 2401.10774; mc_sim_7b_63 of the released code): children of each node,
// level by level. They are always the likeliest ones.
TreeShape MedusaTree() {
  const std::vector<std::vector<int>> children = {
      {10}, {10, 7, 3, 2, 1, 1, 1, 1, 1, 1}, {10, 3, 2, 1, 1, 1, 1, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 1}, {2}};
  TreeShape shape;
  shape.kind = TreeShape::Kind::kStatic;
  std::vector<std::vector<int>> parents = {{}};
  for (const std::vector<int>& counts : children) {
    std::vector<std::vector<int>> level;
    for (size_t i = 0; i < counts.size(); ++i) {
      for (int rank = 0; rank < counts[i]; ++rank) {
        level.push_back(parents[i]);
        level.back().push_back(rank);
      }
    }
    shape.paths.insert(shape.paths.end(), level.begin(), level.end());
    parents = std::move(level);
  }
  return shape;
}

// TokenSwift's 39 nodes below what its pass chose (arXiv 2502.18890): three children of each, three levels.
TreeShape TokenswiftTree() {
  TreeShape shape;
  shape.kind = TreeShape::Kind::kStatic;
  std::vector<std::vector<int>> level = {{}};
  for (int depth = 0; depth < 3; ++depth) {
    std::vector<std::vector<int>> children;
    for (const std::vector<int>& parent : level) {
      for (int rank = 0; rank < 3; ++rank) {
        children.push_back(parent);
        children.back().push_back(rank);
      }
    }
    shape.paths.insert(shape.paths.end(), children.begin(), children.end());
    level = std::move(children);
  }
  return shape;
}

bool IsBracketed(std::string_view text) {
  return text.size() > 2 && (text.front() == '[' || text.front() == '(') &&
         (text.back() == ']' || text.back() == ')');
}

std::optional<TreeShape> Parse(const std::string& text) {
  if (IsBracketed(text)) {
    std::string dense = text;
    std::erase(dense, ' ');
    return ParsePaths(dense);
  }
  if (text.empty() || text == "beam") return TreeShape();
  if (text == "chain") {
    TreeShape shape;
    shape.widths.assign(kMaxDepth, 1);
    return shape;
  }
  if (text == "medusa") return MedusaTree();
  if (text == "tokenswift") return TokenswiftTree();
  const std::vector<std::string_view> parts = Split(text, ':');
  if (parts[0] == "best" || parts[0] == "opt" || parts[0] == "opt-last") return ParseNamed(parts);
  if (parts[0] == "eagle2") return ParseEagle2(parts);
  return ParseWidths(text);
}

}  // namespace

Result<TreeShape> ParseTreeShape(const std::string& text) {
  const auto shape = Parse(text);
  if (shape) return *shape;
  return InvalidArgument(
      "--spec-tree " + text +
      ": must be chain, beam, medusa, tokenswift, widths from 1 to 255 such as 4,16,16, "
      "best[:DEPTH], opt[:THRESHOLD[:DEPTH]], eagle2[:K[:DEPTH[:TOTAL]]] or paths of ranks, each with "
      "its parent, such as [[0],[1],[0,0]]");
}

Result<int> ParseTreeWidth(const std::string& tree) {
  constexpr int kMost = 64;
  if (tree.empty() || tree == "chain") return 1;
  int width = 0;
  const char* end = tree.data() + tree.size();
  const auto [stop, error] = std::from_chars(tree.data(), end, width);
  if (error != std::errc() || stop != end || width < 1 || width > kMost) {
    return InvalidArgument("--spec-tree " + tree + ": must be chain or a number of continuations from 1 to " +
                           std::to_string(kMost));
  }
  return width;
}

}  // namespace longspec
