// SPDX-License-Identifier: Apache-2.0
#include "formats/tiny_vocabulary.h"

#include <deque>
#include <iterator>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"

namespace longspec {
namespace {

constexpr int32_t kNormal = 1, kControl = 3;
constexpr std::string_view kSpace = "\xC4\xA0";  // U+0120, how GPT-2's alphabet writes byte 0x20

constexpr const char* kHoleTokens[] = {"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
                                       "<|fim_pad|>",    "<|repo_name|>",  "<|file_sep|>"};

// Frequent pairs, so that short English words become few tokens.
constexpr std::pair<std::string_view, std::string_view> kPairs[] = {
    {kSpace, "t"}, {kSpace, "a"}, {"i", "n"}, {"h", "e"}, {"r", "e"},          {"o", "n"},
    {"e", "r"},    {"e", "n"},    {"a", "t"}, {"e", "s"}, {"\xC4\xA0t", "he"}, {"in", "g"},
};

std::string Utf8(int code_point) {
  std::string character;
  AppendUtf8(static_cast<uint32_t>(code_point), &character);
  return character;
}

// Printable Latin-1 bytes stand for themselves, the others for U+0100 and on, in order.
std::vector<std::string> ByteAlphabet() {
  std::vector<std::string> alphabet;
  int n_moved = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    alphabet.push_back(Utf8(printable ? byte : 0x100 + n_moved++));
  }
  return alphabet;
}

class VocabularyBuilder {
 public:
  explicit VocabularyBuilder(size_t n_tokens) : n_tokens_(n_tokens) {}

  TinyVocabulary Build() {
    for (const char* control : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) Add(control, kControl);
    for (const std::string& byte : ByteAlphabet()) Add(byte, kNormal);
    for (const auto& [left, right] : kPairs) Merge(std::string(left), std::string(right));
    // Then every string of letters, shortest first, each as its prefix and its last letter.
    std::deque<std::string> prefixes = {std::string(kSpace)};
    for (char c = 'a'; c <= 'z'; ++c) prefixes.emplace_back(1, c);
    for (; vocabulary_.tokens.size() < n_tokens_; prefixes.pop_front()) {
      for (char c = 'a'; c <= 'z'; ++c) {
        Merge(prefixes.front(), std::string(1, c));
        prefixes.push_back(prefixes.front() + c);
      }
    }
    return std::move(vocabulary_);
  }

 private:
  void Add(std::string token, int32_t type) {
    seen_.insert(token);
    vocabulary_.tokens.push_back(std::move(token));
    vocabulary_.types.push_back(type);
  }

  void Merge(const std::string& left, const std::string& right) {
    if (vocabulary_.tokens.size() == n_tokens_ || seen_.contains(left + right)) return;
    vocabulary_.merges.push_back(left + " " + right);
    Add(left + right, kNormal);
  }

  size_t n_tokens_;
  TinyVocabulary vocabulary_;
  std::unordered_set<std::string> seen_;
};

}  // namespace

TinyVocabulary MakeTinyVocabulary(int n_tokens, bool fills_holes) {
  const int n_holes = fills_holes ? static_cast<int>(std::size(kHoleTokens)) : 0;
  LS_CHECK(n_tokens >= 259 + n_holes);
  TinyVocabulary vocabulary = VocabularyBuilder(static_cast<size_t>(n_tokens - n_holes)).Build();
  if (!fills_holes) return vocabulary;
  for (const char* token : kHoleTokens) {
    vocabulary.tokens.emplace_back(token);
    vocabulary.types.push_back(kControl);
  }
  return vocabulary;
}

void SetTinyVocabulary(int n_tokens, GgufWriter* writer, bool fills_holes) {
  TinyVocabulary vocabulary = MakeTinyVocabulary(n_tokens, fills_holes);
  writer->SetString("tokenizer.ggml.model", "gpt2");
  writer->SetString("tokenizer.ggml.pre", "smollm");
  writer->SetStrings("tokenizer.ggml.tokens", std::move(vocabulary.tokens));
  writer->SetInt32s("tokenizer.ggml.token_type", std::move(vocabulary.types));
  writer->SetStrings("tokenizer.ggml.merges", std::move(vocabulary.merges));
}

}  // namespace longspec
