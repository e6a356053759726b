// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/status_macros.h"
#include "tokenizer/control_tokens.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/text_model.h"

namespace longspec {
namespace {

struct Kind {
  std::string_view model;  // tokenizer.ggml.model
  std::string_view what;
  Result<std::unique_ptr<const TextModel>> (*make)(const TokenizerSpec& spec);
  Status (*check)(std::string_view pre);
  bool (*adds_bos)(std::string_view pre);
};
constexpr Kind kKinds[] = {
    {"gpt2", "byte-level BPE", MakeByteLevelModel, Pretokenizer::CheckName, Pretokenizer::AddsBos},
    {"llama", "SentencePiece", MakeSentencePieceModel, [](std::string_view) { return Status(); },
     [](std::string_view) { return true; }},
};

std::string BytesOfToken(const TokenizerSpec& spec, const TextModel& model, size_t id) {
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
  return model.BytesOf(text);
}

Status CheckId(const TokenizerSpec& spec, const char* name, int32_t id) {
  if (id >= -1 && id < static_cast<int64_t>(spec.tokens.size())) return {};
  return Corrupt(std::string("tokenizer: the ") + name + " token's id is " + std::to_string(id) +
                 ", but the vocabulary has ids 0 to " + std::to_string(spec.tokens.size() - 1));
}

// What is behind a name that says something else.
std::string_view MeaningOf(std::string_view model) {
  if (model == "bert") return " (WordPiece)";
  if (model == "t5") return " (Unigram)";
  return "";
}

Result<const Kind*> FindKind(std::string_view model) {
  const auto* const kind = std::ranges::find(kKinds, model, &Kind::model);
  if (kind != std::end(kKinds)) return kind;
  std::string known;
  for (const Kind& one : kKinds) {
    known += (known.empty() ? "" : ", ") + std::string(one.model) + " (" + std::string(one.what) + ")";
  }
  return Unsupported("tokenizer model '" + std::string(model) + "'" + std::string(MeaningOf(model)) +
                     " is not offered; known are: " + known);
}

Status CheckSpec(const TokenizerSpec& spec) {
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

class VocabularyTokenizer final : public Tokenizer {
 public:
  VocabularyTokenizer(TokenizerSpec spec, std::unique_ptr<const TextModel> model)
      : spec_(std::move(spec)),
        model_(std::move(model)),
        all_special_(CollectSpecial(spec_, true)),
        user_defined_(CollectSpecial(spec_, false)),
        ends_generation_(spec_.tokens.size(), false),
        is_control_(spec_.tokens.size(), false) {
    bytes_.reserve(spec_.tokens.size());
    for (size_t id = 0; id < spec_.tokens.size(); ++id) {
      bytes_.push_back(BytesOfToken(spec_, *model_, id));
      is_control_[id] = StandsForNoText(TypeOfToken(spec_, id));
    }
    for (const int32_t id : MarksOfAnswers(spec_)) is_control_[static_cast<size_t>(id)] = false;
    for (const int32_t id : EndsOfGeneration(spec_)) ends_generation_[static_cast<size_t>(id)] = true;
  }

  std::vector<int32_t> Encode(std::string_view text, EncodeOptions options) const override {
    const SpecialTokens& special = options.parse_special ? all_special_ : user_defined_;
    std::vector<int32_t> tokens;
    if (options.add_special && spec_.add_bos) tokens.push_back(spec_.bos);
    size_t done = 0;
    bool begins = true;  // nothing or a special token is before what comes
    while (done < text.size()) {
      const SpecialTokens::Match match = special.Find(text, done);
      const size_t end = match.length > 0 ? match.begin : text.size();
      if (end > done) model_->Encode(text.substr(done, end - done), begins, &tokens);
      begins = match.length > 0;
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
    if (id < 0 || id >= vocab_size()) return false;
    return is_control_[static_cast<size_t>(id)];
  }

  bool IsEndOfGeneration(int32_t id) const override {
    return id >= 0 && id < vocab_size() && ends_generation_[static_cast<size_t>(id)];
  }

  const TokenizerSpec& spec() const override { return spec_; }

 private:
  TokenizerSpec spec_;
  std::unique_ptr<const TextModel> model_;
  SpecialTokens all_special_;
  SpecialTokens user_defined_;
  std::vector<bool> ends_generation_, is_control_;
  std::vector<std::string> bytes_;
};

}  // namespace

std::vector<std::string> Tokenizer::KnownPretokenizers() { return Pretokenizer::Names(); }

bool Tokenizer::AddsBosByDefault(std::string_view model, std::string_view pre) {
  const auto kind = FindKind(model);
  return kind.ok() && (*kind)->adds_bos(pre);
}

Status Tokenizer::CheckKind(std::string_view model, std::string_view pre) {
  LS_ASSIGN(const Kind* const kind, FindKind(model));
  return kind->check(pre);
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::Create(TokenizerSpec spec) {
  LS_ASSIGN(const Kind* const kind, FindKind(spec.model));
  LS_TRY(CheckSpec(spec));
  SettleControlTokens(&spec);
  LS_ASSIGN(auto model, kind->make(spec));
  return std::shared_ptr<const Tokenizer>(
      std::make_shared<VocabularyTokenizer>(std::move(spec), std::move(model)));
}

}  // namespace longspec
