// SPDX-License-Identifier: Apache-2.0
//
// Any bytes through every pre-tokeniser and back; the input's first byte picks the pre-tokeniser, its second
// the split between merges (one a line) and text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "tokenizer/tokenizer_test_util.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using longspec::Tokenizer;
  if (size < 2) return 0;
  static const std::vector<std::string> kNames = Tokenizer::KnownPretokenizers();
  longspec::TokenizerSpec spec = longspec::ByteLevelSpec({"a b", "Ġ a", "Ġ Ġ"});
  spec.pre = kNames[data[0] % kNames.size()];
  longspec::AddToken(&spec, "<|x|>", 3);
  longspec::AddToken(&spec, "ab\n", 4);

  const std::string_view input(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t cut = std::min<size_t>(data[1], input.size());
  for (std::string_view merges = input.substr(0, cut); !merges.empty();) {
    const size_t end = std::min(merges.find('\n'), merges.size());
    spec.merges.emplace_back(merges.substr(0, end));
    merges.remove_prefix(std::min(end + 1, merges.size()));
  }

  const auto tokenizer = Tokenizer::Create(std::move(spec));
  if (!tokenizer.ok()) return 0;
  const std::string text(input.substr(cut));
  for (const bool parse_special : {false, true}) {
    const std::vector<int32_t> ids = (*tokenizer)->Encode(text, {false, parse_special});
    if ((*tokenizer)->Decode(ids, true) != text) std::abort();
    longspec::StreamDecoder decoder(**tokenizer);
    for (const int32_t id : ids) decoder.Push(id);
    decoder.Finish();
  }
  return 0;
}
