// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "base/status_macros.h"
#include "base/utf8.h"
#include "tokenizer/bpe_alphabet.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/text_model.h"
#include "tokenizer/tokenizer.h"

namespace longspec {
namespace {

// Bytes of text that are split at once: positions inside a piece must fit in 31 bits.
constexpr size_t kLongestRun = size_t{1} << 30;

class ByteLevelModel final : public TextModel {
 public:
  ByteLevelModel(Pretokenizer pretokenizer, BpeModel model)
      : pretokenizer_(std::move(pretokenizer)), model_(std::move(model)) {}

  // Valid runs of UTF-8 go through the pre-tokeniser, whatever lies between them byte by byte.
  void Encode(std::string_view text, bool, std::vector<int32_t>* tokens) const override {
    std::vector<std::string_view> pieces;
    BpeModel::Scratch scratch;
    while (!text.empty()) {
      const size_t valid = ValidUtf8Prefix(text.substr(0, kLongestRun));
      pieces.clear();
      pretokenizer_.Split(text.substr(0, valid), &pieces);
      for (const std::string_view piece : pieces) model_.EncodePiece(piece, &scratch, tokens);
      text.remove_prefix(valid);
      if (text.empty() || valid > 0) continue;
      model_.EncodePiece(text.substr(0, 1), &scratch, tokens);
      text.remove_prefix(1);
    }
  }

  std::string BytesOf(const std::string& token) const override { return BytesFromAlphabet(token); }

 private:
  Pretokenizer pretokenizer_;
  BpeModel model_;
};

}  // namespace

Result<std::unique_ptr<const TextModel>> MakeByteLevelModel(const TokenizerSpec& spec) {
  LS_ASSIGN(Pretokenizer pretokenizer, Pretokenizer::Create(spec.pre));
  LS_ASSIGN(BpeModel model, BpeModel::Create(spec, pretokenizer.ignores_merges()));
  return std::unique_ptr<const TextModel>(
      std::make_unique<ByteLevelModel>(std::move(pretokenizer), std::move(model)));
}

}  // namespace longspec
