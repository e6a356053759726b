// SPDX-License-Identifier: Apache-2.0
#include "formats/gguf_format.h"

#include <algorithm>
#include <iterator>

namespace longspec {
namespace {

struct NumberedType {
  uint32_t number;
  std::string_view name;
};
constexpr NumberedType kOthers[] = {
    {9, "Q8_1"},   {10, "Q2_K"},  {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
    {19, "IQ1_S"}, {21, "IQ3_S"}, {22, "IQ2_S"}, {29, "IQ1_M"},   {34, "TQ1_0"},  {35, "TQ2_0"},
};

}  // namespace

std::string_view OtherGgufType(uint32_t number) {
  const auto* const it = std::ranges::find(kOthers, number, &NumberedType::number);
  return it == std::end(kOthers) ? std::string_view() : it->name;
}

std::string Quote(std::string_view text) {
  constexpr size_t kMaxShown = 80;
  constexpr char kHex[] = "0123456789abcdef";
  std::string quoted = "'";
  for (const char c : text.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      quoted += c;
    } else {
      quoted += {'\\', 'x', kHex[byte >> 4], kHex[byte & 0xF]};
    }
  }
  if (text.size() > kMaxShown) quoted += "...";
  return quoted + "'";
}

}  // namespace longspec
