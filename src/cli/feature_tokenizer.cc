// SPDX-License-Identifier: Apache-2.0
#include "cli/feature_tokenizer.h"

#include <string>
#include <vector>

#include "cli/options.h"

namespace longspec::cli {

FeatureTokenizer FeatureTokenizerOf(const Engine& engine, const GgufFile& file) {
  FeatureTokenizer tokenizer;
  tokenizer.encode = [&engine](const std::string& text, bool beginning, bool parse_special) {
    return engine.Tokenize(text, beginning, parse_special);
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
