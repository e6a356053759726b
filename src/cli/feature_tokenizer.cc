// SPDX-License-Identifier: Apache-2.0
#include "cli/feature_tokenizer.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cli/options.h"

namespace longspec::cli {
namespace {

// What the engine puts before a prompt that does not begin with it: one token at most.
std::vector<int32_t> BeginningOf(const Engine& engine) {
  const std::string any = "a";
  auto prompt = engine.PromptTokens({.prompt = any});
  if (!prompt.ok()) return {};
  prompt->resize(prompt->size() - std::min(prompt->size(), engine.Tokenize(any).size()));
  return std::move(*prompt);
}

}  // namespace

FeatureTokenizer FeatureTokenizerOf(const Engine& engine, const GgufFile& file) {
  FeatureTokenizer tokenizer;
  // As prompts are made of texts: a template that writes the beginning itself gets no second one.
  tokenizer.encode = [&engine, first = BeginningOf(engine)](const std::string& text, bool beginning,
                                                            bool parse_special) {
    std::vector<int32_t> tokens = engine.Tokenize(text, /*add_special=*/false, parse_special);
    if (!beginning || first.empty() || (!tokens.empty() && tokens.front() == first.front())) return tokens;
    tokens.insert(tokens.begin(), first.begin(), first.end());
    return tokens;
  };
  tokenizer.apply_template = [&engine](const std::vector<TrainingMessage>& from, bool prompt) {
    std::vector<Message> messages;
    for (const TrainingMessage& message : from) messages.push_back({message.role, message.content});
    return engine.ApplyChatTemplate(messages, prompt);
  };
  const auto end = file.GetUintOr("tokenizer.ggml.eos_token_id", uint64_t{kMaxInt});
  if (end.ok() && *end < uint64_t{kMaxInt}) tokenizer.end_of_text = static_cast<int32_t>(*end);
  return tokenizer;
}

}  // namespace longspec::cli
