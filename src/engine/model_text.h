// SPDX-License-Identifier: Apache-2.0
//
// A model's way with text: its tokenizer, its chat template, and the grammars of its vocabulary. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf.h"
#include "grammar/grammar.h"
#include "jinja/chat_template.h"
#include "longspec/generation.h"
#include "longspec/status.h"
#include "tokenizer/tokenizer.h"

namespace longspec {

class ModelText {
 public:
  // `chat_template`: ModelOptions::chat_template. One of the file's that cannot be used is an error only for
  // those who use it.
  static Result<std::unique_ptr<ModelText>> Load(const GgufFile& file, std::string_view chat_template);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const Status& chat_template_status() const { return chat_template_status_; }

  // The tokens of a request's prompt, its last ones where it is to be shortened; `ctx_size` holds them and
  // the answer.
  Result<std::vector<int32_t>> PromptTokens(const GenerationRequest& request, int ctx_size) const;
  // The text that the messages of a request become, with the end that it wants.
  Result<std::string> ChatPrompt(const GenerationRequest& request) const;
  // template_variables: as in GenerationRequest.
  Result<std::string> ApplyChatTemplate(const std::vector<Message>& messages, bool add_generation_prompt,
                                        std::string_view template_variables) const;

  // `n_logits`: of the model, which may have more than its tokenizer has tokens.
  Result<std::shared_ptr<const Grammar>> Compile(const GrammarText& text, int n_logits);

 private:
  explicit ModelText(std::string path) : path_(std::move(path)) {}
  std::vector<int32_t> EncodePrompt(std::string_view text) const;
  std::string TokenText(int32_t id) const;
  GrammarVocabulary Vocabulary(int n_logits) const;

  const std::string path_;  // for messages
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const ChatTemplate> chat_template_;  // null: the status says why
  std::string chat_template_source_;
  Status chat_template_status_;
  std::mutex grammars_mutex_;
  std::unique_ptr<GrammarCompiler> grammars_;  // null until a request asks for one
};

}  // namespace longspec
