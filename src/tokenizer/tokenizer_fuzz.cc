// SPDX-License-Identifier: Apache-2.0
//
// Any bytes through every pre-tokeniser, or SentencePiece (half of the inputs), and back; the input's first
// byte picks which, its second the split between merges or pieces (one a line) and text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "tokenizer/tokenizer_test_util.h"

namespace {

void RoundTrip(longspec::TokenizerSpec spec, const std::string& text) {
  const auto tokenizer = longspec::Tokenizer::Create(std::move(spec));
  if (!tokenizer.ok()) return;
  for (const bool parse_special : {false, true}) {
    const std::vector<int32_t> ids = (*tokenizer)->Encode(text, {false, parse_special});
    if ((*tokenizer)->Decode(ids, true) != text) std::abort();
    longspec::StreamDecoder decoder(**tokenizer);
    for (const int32_t id : ids) decoder.Push(id);
    decoder.Finish();
  }
}

// Tokens for all bytes; no token is written with what spaces are written with.
longspec::TokenizerSpec Pieces() {
  longspec::TokenizerSpec spec;
  spec.model = "llama";
  spec.add_space_prefix = false;
  for (int byte = 0; byte < 256; ++byte) {
    const char digits[] = "0123456789ABCDEF";
    longspec::AddToken(&spec, std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">", 6);
  }
  return spec;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using longspec::Tokenizer;
  if (size < 2) return 0;
  static const std::vector<std::string> kNames = Tokenizer::KnownPretokenizers();
  const bool pieces = data[0] >= 128;
  longspec::TokenizerSpec spec = pieces ? Pieces() : longspec::ByteLevelSpec({"a b", "Ġ a", "Ġ Ġ"});
  if (!pieces) spec.pre = kNames[data[0] % kNames.size()];
  longspec::AddToken(&spec, "<|x|>", 3);
  longspec::AddToken(&spec, "ab\n", 4);

  const std::string_view input(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t cut = std::min<size_t>(data[1], input.size());
  for (std::string_view lines = input.substr(0, cut); !lines.empty();) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    if (pieces) {
      longspec::AddToken(&spec, std::string(lines.substr(0, end)), 1);
    } else {
      spec.merges.emplace_back(lines.substr(0, end));
    }
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  if (pieces) {
    for (size_t id = 0; id < spec.tokens.size(); ++id) spec.scores.push_back(static_cast<float>(id * 7 % 5));
  }
  std::string text(input.substr(cut));
  // What spaces are written with comes back as a space.
  for (size_t at = 0; pieces && (at = text.find("\xE2\x96\x81", at)) != std::string::npos;)
    text.replace(at, 3, " ");
  RoundTrip(std::move(spec), text);
  return 0;
}
