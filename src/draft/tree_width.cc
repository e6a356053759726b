// SPDX-License-Identifier: Apache-2.0
#include "draft/tree_width.h"

#include <charconv>

namespace longspec {

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
