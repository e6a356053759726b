// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/control_tokens.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

#include "tokenizer/special_tokens.h"
#include "tokenizer/tokenizer.h"

namespace longspec {
namespace {

constexpr TokenIdKey kTokenIdKeys[] = {
    {"tokenizer.ggml.bos_token_id", "BOS", &TokenizerSpec::bos},
    {"tokenizer.ggml.eos_token_id", "EOS", &TokenizerSpec::eos},
    {"tokenizer.ggml.eot_token_id", "EOT", &TokenizerSpec::eot},
    {"tokenizer.ggml.eom_token_id", "EOM", &TokenizerSpec::eom},
    {"tokenizer.ggml.unknown_token_id", "unknown", &TokenizerSpec::unk},
    {"tokenizer.ggml.padding_token_id", "padding", &TokenizerSpec::pad},
    // Older files.
    {"tokenizer.ggml.prefix_token_id", "prefix", &TokenizerSpec::fim_prefix},
    {"tokenizer.ggml.suffix_token_id", "suffix", &TokenizerSpec::fim_suffix},
    {"tokenizer.ggml.middle_token_id", "middle", &TokenizerSpec::fim_middle},
    {"tokenizer.ggml.fim_pre_token_id", "prefix", &TokenizerSpec::fim_prefix},
    {"tokenizer.ggml.fim_suf_token_id", "suffix", &TokenizerSpec::fim_suffix},
    {"tokenizer.ggml.fim_mid_token_id", "middle", &TokenizerSpec::fim_middle},
    {"tokenizer.ggml.fim_pad_token_id", "FIM padding", &TokenizerSpec::fim_pad},
    {"tokenizer.ggml.fim_rep_token_id", "repository", &TokenizerSpec::fim_repository},
    {"tokenizer.ggml.fim_sep_token_id", "file separator", &TokenizerSpec::fim_separator},
};

// What a place's token is called in one model or another; the first that a vocabulary has is it.
struct NamesOfPlace {
  int32_t TokenizerSpec::*id;
  std::array<std::string_view, 8> names;
};

constexpr NamesOfPlace kNamesOfPlaces[] = {
    {&TokenizerSpec::eom, {"<|eom_id|>"}},
    {&TokenizerSpec::fim_prefix,
     {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
      "<|code_prefix|>", "<|prefix|>"}},
    {&TokenizerSpec::fim_suffix,
     {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
      "<|code_suffix|>", "<|suffix|>"}},
    {&TokenizerSpec::fim_middle,
     {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>",
      "<|middle|>"}},
    {&TokenizerSpec::fim_pad, {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
    {&TokenizerSpec::fim_repository, {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    {&TokenizerSpec::fim_separator, {"<|file_sep|>"}},
};

constexpr std::string_view kReturn = "<|return|>", kCall = "<|call|>", kCalls = "<|calls|>",
                           kFlush = "<|flush|>", kEnd = "<|end|>", kToolResponse = "<|tool_response>",
                           kSlashS = "</s>";

constexpr std::string_view kEndOfTurnNames[] = {
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<end_of_turn>",
    "<turn|>",
    kToolResponse,
    "<eos>",
    kSlashS,
    kEnd,
    kReturn,
    kCall,
    kCalls,
    kFlush,
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "[e~[",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
};

constexpr std::string_view kMistralMarks[] = {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "[THINK]", "[/THINK]"};
constexpr std::string_view kChannelMarks[] = {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>",
                                              kEnd};

// Where the names above are in a vocabulary.
class Named {
 public:
  explicit Named(const TokenizerSpec& spec) {
    for (const NamesOfPlace& place : kNamesOfPlaces) {
      for (const std::string_view name : place.names) ids_.emplace(name, -1);
    }
    for (const std::string_view name : kEndOfTurnNames) ids_.emplace(name, -1);
    for (const std::string_view name : kMistralMarks) ids_.emplace(name, -1);
    for (const std::string_view name : kChannelMarks) ids_.emplace(name, -1);
    for (size_t id = 0; id < spec.tokens.size(); ++id) {
      const auto found = ids_.find(spec.tokens[id]);
      if (found != ids_.end() && found->second < 0) found->second = static_cast<int32_t>(id);
    }
    ids_.erase(std::string_view());  // the places' names that are none
  }

  // -1: the vocabulary has no such token.
  int32_t Of(std::string_view name) const {
    const auto found = ids_.find(name);
    return found == ids_.end() ? -1 : found->second;
  }
  bool Has(std::string_view name) const { return Of(name) >= 0; }

  std::vector<std::string_view> EndsOfTurns() const {
    std::vector<std::string_view> ends;
    // Models that call tools by a token of its own end their turns with that or a return; an <|end|> is one
    // of a part of the turn.
    const bool has_call = Has(kCall) || Has(kCalls);
    const bool end_of_part = has_call && (Has(kReturn) || Has(kFlush));
    for (const std::string_view name : kEndOfTurnNames) {
      if (!Has(name) || (name == kEnd && end_of_part)) continue;
      // The tag of HTML, in vocabularies that have ends of their own.
      if (name == kSlashS && Has(kToolResponse)) continue;
      ends.push_back(name);
    }
    return ends;
  }

 private:
  std::unordered_map<std::string_view, int32_t> ids_;
};

void MakeControl(int32_t id, TokenizerSpec* spec) {
  constexpr auto kNormal = static_cast<int32_t>(TokenType::kNormal);
  if (spec->token_types.empty()) spec->token_types.assign(spec->tokens.size(), kNormal);
  int32_t& type = spec->token_types[static_cast<size_t>(id)];
  if (!StandsForNoText(static_cast<TokenType>(type))) type = static_cast<int32_t>(TokenType::kControl);
}

}  // namespace

std::vector<int32_t> MarksOfAnswers(const TokenizerSpec& spec) {
  std::vector<std::string_view> names(std::begin(kMistralMarks), std::end(kMistralMarks));
  // Other models have some of these names for something else.
  const Named named(spec);
  const bool has_all =
      std::ranges::all_of(kChannelMarks, [&](std::string_view name) { return named.Has(name); });
  if (has_all && named.Has(kReturn) && named.Has(kCall))
    names.insert(names.end(), std::begin(kChannelMarks), std::end(kChannelMarks));
  std::vector<int32_t> marks;
  for (const std::string_view name : names) {
    if (named.Has(name)) marks.push_back(named.Of(name));
  }
  return marks;
}

std::span<const TokenIdKey> TokenIdKeys() { return kTokenIdKeys; }

void SettleControlTokens(TokenizerSpec* spec) {
  const Named named(*spec);
  for (const NamesOfPlace& place : kNamesOfPlaces) {
    int32_t& id = spec->*place.id;
    for (const std::string_view name : place.names) {
      if (id < 0) id = named.Of(name);
      if (id >= 0 && id == named.Of(name)) MakeControl(id, spec);
    }
  }
  for (const std::string_view name : named.EndsOfTurns()) MakeControl(named.Of(name), spec);
}

std::vector<int32_t> EndsOfGeneration(const TokenizerSpec& spec) {
  std::vector<int32_t> ends;
  for (const int32_t id :
       {spec.eos, spec.eot, spec.eom, spec.fim_pad, spec.fim_repository, spec.fim_separator}) {
    if (id >= 0) ends.push_back(id);
  }
  const Named named(spec);
  for (const std::string_view name : named.EndsOfTurns()) ends.push_back(named.Of(name));
  return ends;
}

}  // namespace longspec
