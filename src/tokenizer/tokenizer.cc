// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.h"

#include <utility>

#include "base/status_macros.h"
#include "tokenizer/bpe_alphabet.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/control_tokens.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/utf8.h"

namespace longspec {
namespace {

// Bytes of text that are split at once: positions inside a piece must fit in 31 bits.
constexpr size_t kLongestRun = size_t{1} << 30;

std::string BytesOfToken(const TokenizerSpec& spec, size_t id) {
  const std::string& text = spec.tokens[id];
  switch (TypeOfToken(spec, id)) {
    case TokenType::kUnknown:
    case TokenType::kControl:
    case TokenType::kUserDefined:
      return text;  // written as they are, outside the alphabet
    case TokenType::kByte:
      if (const int byte = ParseByteToken(text); byte >= 0) return {static_cast<char>(byte)};
      break;
    case TokenType::kNormal:
    case TokenType::kUnused:
      break;
  }
  return BytesFromAlphabet(text);
}

Status CheckId(const TokenizerSpec& spec, const char* name, int32_t id) {
  if (id >= -1 && id < static_cast<int64_t>(spec.tokens.size())) return {};
  return Corrupt(std::string("tokenizer: the ") + name + " token's id is " + std::to_string(id) +
                 ", but the vocabulary has ids 0 to " + std::to_string(spec.tokens.size() - 1));
}

// What is behind a name that says something else.
std::string_view KindOf(std::string_view model) {
  if (model == "llama") return " (SentencePiece)";
  if (model == "bert") return " (WordPiece)";
  if (model == "t5") return " (Unigram)";
  return "";
}

Status CheckModel(std::string_view model) {
  if (model == "gpt2") return {};
  return Unsupported("tokenizer model '" + std::string(model) + "'" + std::string(KindOf(model)) +
                     " is not offered; known are: gpt2 (byte-level BPE)");
}

Status CheckSpec(const TokenizerSpec& spec) {
  LS_TRY(CheckModel(spec.model));
  if (spec.tokens.empty()) return Corrupt("tokenizer: the vocabulary is empty; it needs at least one token");
  if (!spec.token_types.empty() && spec.token_types.size() != spec.tokens.size()) {
    return Corrupt("tokenizer: " + std::to_string(spec.token_types.size()) + " token types for " +
                   std::to_string(spec.tokens.size()) + " tokens; each token needs one");
  }
  for (const TokenIdKey& key : TokenIdKeys()) LS_TRY(CheckId(spec, key.name, spec.*key.id));
  if (spec.add_bos && spec.bos < 0) return Corrupt("tokenizer: add_bos is set, but no BOS token is named");
  if (spec.add_eos && spec.eos < 0) return Corrupt("tokenizer: add_eos is set, but no EOS token is named");
  return {};
}

// Tokens of the given types, as they are found in text.
SpecialTokens CollectSpecial(const TokenizerSpec& spec, bool with_control) {
  std::vector<std::pair<std::string, int32_t>> tokens;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const TokenType type = TypeOfToken(spec, id);
    if (type == TokenType::kUserDefined || (with_control && StandsForNoText(type))) {
      tokens.emplace_back(spec.tokens[id], static_cast<int32_t>(id));
    }
  }
  return SpecialTokens(std::move(tokens));
}

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(TokenizerSpec spec, Pretokenizer pretokenizer, BpeModel model)
      : spec_(std::move(spec)),
        pretokenizer_(std::move(pretokenizer)),
        model_(std::move(model)),
        all_special_(CollectSpecial(spec_, true)),
        user_defined_(CollectSpecial(spec_, false)),
        ends_generation_(spec_.tokens.size(), false) {
    bytes_.reserve(spec_.tokens.size());
    for (size_t id = 0; id < spec_.tokens.size(); ++id) {
      bytes_.push_back(BytesOfToken(spec_, id));
    }
    for (const int32_t id : EndsOfGeneration(spec_)) ends_generation_[static_cast<size_t>(id)] = true;
  }

  std::vector<int32_t> Encode(std::string_view text, EncodeOptions options) const override {
    const SpecialTokens& special = options.parse_special ? all_special_ : user_defined_;
    std::vector<int32_t> tokens;
    Buffers buffers;
    if (options.add_special && spec_.add_bos) tokens.push_back(spec_.bos);
    size_t done = 0;
    while (done < text.size()) {
      const SpecialTokens::Match match = special.Find(text, done);
      const size_t end = match.length > 0 ? match.begin : text.size();
      EncodeText(text.substr(done, end - done), &buffers, &tokens);
      if (match.length > 0) tokens.push_back(match.id);
      done = end + match.length;
    }
    if (options.add_special && spec_.add_eos) tokens.push_back(spec_.eos);
    return tokens;
  }

  std::string Decode(const std::vector<int32_t>& ids, bool keep_special) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id < 0 || id >= vocab_size() || (!keep_special && IsControl(id))) continue;
      text += TokenBytes(id);
    }
    return text;
  }

  const std::string& TokenBytes(int32_t id) const override { return bytes_[static_cast<size_t>(id)]; }
  int vocab_size() const override { return static_cast<int>(bytes_.size()); }

  bool IsControl(int32_t id) const override {
    return id >= 0 && id < vocab_size() && StandsForNoText(TypeOfToken(spec_, static_cast<size_t>(id)));
  }

  bool IsEndOfGeneration(int32_t id) const override {
    return id >= 0 && id < vocab_size() && ends_generation_[static_cast<size_t>(id)];
  }

  const TokenizerSpec& spec() const override { return spec_; }

 private:
  struct Buffers {
    std::vector<std::string_view> pieces;
    BpeModel::Scratch scratch;
  };

  // Valid runs of UTF-8 go through the pre-tokeniser, whatever lies between them byte by byte.
  void EncodeText(std::string_view text, Buffers* buffers, std::vector<int32_t>* tokens) const {
    while (!text.empty()) {
      const size_t valid = ValidUtf8Prefix(text.substr(0, kLongestRun));
      buffers->pieces.clear();
      pretokenizer_.Split(text.substr(0, valid), &buffers->pieces);
      for (const std::string_view piece : buffers->pieces) {
        model_.EncodePiece(piece, &buffers->scratch, tokens);
      }
      text.remove_prefix(valid);
      if (text.empty() || valid > 0) continue;
      model_.EncodePiece(text.substr(0, 1), &buffers->scratch, tokens);
      text.remove_prefix(1);
    }
  }

  TokenizerSpec spec_;
  Pretokenizer pretokenizer_;
  BpeModel model_;
  SpecialTokens all_special_;
  SpecialTokens user_defined_;
  std::vector<bool> ends_generation_;
  std::vector<std::string> bytes_;
};

}  // namespace

std::vector<std::string> Tokenizer::KnownPretokenizers() { return Pretokenizer::Names(); }

bool Tokenizer::AddsBosByDefault(std::string_view pre) { return Pretokenizer::AddsBos(pre); }

Status Tokenizer::CheckKind(std::string_view model, std::string_view pre) {
  LS_TRY(CheckModel(model));
  return Pretokenizer::CheckName(pre);
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::Create(TokenizerSpec spec) {
  LS_TRY(CheckSpec(spec));
  SettleControlTokens(&spec);
  LS_ASSIGN(Pretokenizer pretokenizer, Pretokenizer::Create(spec.pre));
  LS_ASSIGN(BpeModel model, BpeModel::Create(spec, pretokenizer.ignores_merges()));
  return std::shared_ptr<const Tokenizer>(
      std::make_shared<BpeTokenizer>(std::move(spec), std::move(pretokenizer), std::move(model)));
}

}  // namespace longspec
