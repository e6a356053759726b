// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

namespace longspec {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool keep_special)
    : tokenizer_(tokenizer), keep_special_(keep_special) {}

std::string StreamDecoder::Push(int32_t id) {
  if (id < 0 || id >= tokenizer_.vocab_size()) return {};
  if (!keep_special_ && tokenizer_.IsControl(id)) return {};
  pending_ += tokenizer_.TokenBytes(id);

  std::string text;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const size_t valid = ValidUtf8Prefix(rest);
    text += rest.substr(0, valid);
    rest.remove_prefix(valid);
    if (rest.empty()) break;
    const Utf8Step step = ScanUtf8(rest);
    if (step.kind == Utf8Kind::kTruncated) break;
    text += kReplacement;
    rest.remove_prefix(step.length);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return text;
}

std::string StreamDecoder::Finish() {
  // What is held back is always one truncated character, which is one ill-formed subsequence.
  const bool incomplete = !pending_.empty();
  pending_.clear();
  return std::string(incomplete ? kReplacement : "");
}

}  // namespace longspec
