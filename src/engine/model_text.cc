// SPDX-License-Identifier: Apache-2.0
#include "engine/model_text.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "base/status_macros.h"
#include "chat/dialect.h"
#include "engine/continued_prompt.h"
#include "engine/gguf_tokenizer.h"
#include "engine/model_template.h"
#include "engine/template_variables.h"

namespace longspec {
namespace {

size_t MostPromptTokens(const GenerationRequest& request, int ctx_size) {
  const int wanted = request.truncate_prompt_tokens;
  if (wanted >= 0) return wanted == 0 ? std::numeric_limits<size_t>::max() : static_cast<size_t>(wanted);
  return static_cast<size_t>(std::max(1, ctx_size - std::max(1, request.n_predict)));
}

}  // namespace

Result<std::unique_ptr<ModelText>> ModelText::Load(const GgufFile& file, std::string_view chat_template) {
  std::unique_ptr<ModelText> text(new ModelText(file.path()));
  LS_ASSIGN(TokenizerSpec spec, TokenizerSpecFromGguf(file));
  auto tokenizer = Tokenizer::Create(std::move(spec));
  if (!tokenizer.ok()) {
    return Status(tokenizer.status().code(), file.path() + ": " + tokenizer.status().message());
  }
  text->tokenizer_ = *tokenizer;
  LS_ASSIGN(const ModelTemplate used, TemplateOf(file, chat_template));
  auto parsed = ChatTemplate::Parse(used.source);
  if (parsed.ok()) {
    text->chat_template_ = *parsed;
    text->chat_template_source_ = used.source;
  } else if (!chat_template.empty()) {
    return parsed.status();
  } else {
    text->chat_template_status_ =
        Status(parsed.status().code(), file.path() + ": " + parsed.status().message());
  }
  return text;
}

Result<std::vector<int32_t>> ModelText::PromptTokens(const GenerationRequest& request, int ctx_size) const {
  const int given = static_cast<int>(!request.prompt.empty()) + static_cast<int>(!request.messages.empty()) +
                    static_cast<int>(!request.tokens.empty());
  if (given == 0) return InvalidArgument("the prompt is empty: there is nothing to continue");
  if (given > 1) return InvalidArgument("give one of prompt, messages and tokens, not several");
  std::vector<int32_t> tokens = request.tokens;
  if (!request.prompt.empty()) tokens = EncodePrompt(request.prompt);
  if (!request.messages.empty()) {
    LS_ASSIGN(const std::string text, ChatPrompt(request));
    tokens = EncodePrompt(text);
  }
  if (const auto most = MostPromptTokens(request, ctx_size); tokens.size() > most)
    tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(most));
  return tokens;
}

Result<std::string> ModelText::ChatPrompt(const GenerationRequest& request) const {
  const auto render = [&](const std::vector<Message>& messages) {
    return ApplyChatTemplate(messages, request.prompt_end == PromptEnd::kNewTurn, request.template_variables);
  };
  if (request.prompt_end != PromptEnd::kContinued || request.messages.empty())
    return render(request.messages);
  return ContinuedPrompt(request.messages, render);
}

// What follows is the answer, so no end token is added; a template that writes the begin token itself gets no
// second.
std::vector<int32_t> ModelText::EncodePrompt(std::string_view text) const {
  std::vector<int32_t> tokens = tokenizer_->Encode(text, {.add_special = false, .parse_special = true});
  const TokenizerSpec& spec = tokenizer_->spec();
  if (spec.add_bos && spec.bos >= 0 && (tokens.empty() || tokens.front() != spec.bos)) {
    tokens.insert(tokens.begin(), spec.bos);
  }
  return tokens;
}

std::string ModelText::TokenText(int32_t id) const {
  return id >= 0 && id < tokenizer_->vocab_size() ? tokenizer_->TokenBytes(id) : std::string();
}

Result<std::shared_ptr<const Grammar>> ModelText::Compile(const GrammarText& text, int n_logits) {
  {
    const std::lock_guard lock(grammars_mutex_);
    if (grammars_ == nullptr) {
      LS_ASSIGN(grammars_, GrammarCompiler::Create(Vocabulary(n_logits)));
    }
  }
  return grammars_->Compile(text);
}

// What stands for no text, control tokens above all, is in no constrained answer but for its end.
GrammarVocabulary ModelText::Vocabulary(int n_logits) const {
  constexpr int32_t kUnused = 5;  // TokenizerSpec::token_types
  const Tokenizer& tokenizer = *tokenizer_;
  const std::vector<int32_t>& types = tokenizer.spec().token_types;
  GrammarVocabulary vocabulary;
  vocabulary.n_logits = n_logits;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const bool is_end = tokenizer.IsEndOfGeneration(id);
    const auto i = static_cast<size_t>(id);
    const bool is_text = !is_end && !tokenizer.IsControl(id) && (i >= types.size() || types[i] != kUnused);
    vocabulary.tokens.push_back(is_text ? tokenizer.TokenBytes(id) : std::string());
    if (is_end) vocabulary.end_tokens.push_back(id);
  }
  vocabulary.tokenize = [held = tokenizer_](std::string_view text) {
    return held->Encode(text, {.add_special = false, .parse_special = false});
  };
  return vocabulary;
}

Result<std::string> ModelText::ApplyChatTemplate(const std::vector<Message>& messages,
                                                 bool add_generation_prompt,
                                                 std::string_view template_variables) const {
  if (chat_template_ == nullptr) return chat_template_status_;
  ChatTemplateInput input;
  for (const Message& message : messages) input.messages.push_back({message.role, message.content});
  input.add_generation_prompt = add_generation_prompt;
  LS_ASSIGN(input.extra_json, TemplateVariables(messages, template_variables));
  input.bos_token = TokenText(tokenizer_->spec().bos);
  input.eos_token = TokenText(tokenizer_->spec().eos);
  auto rendered = chat_template_->Render(input);
  if (!rendered.ok()) {
    return Status(rendered.status().code(), path_ + ": chat template: " + rendered.status().message());
  }
  if (add_generation_prompt && chat::ForbidThinking(template_variables))
    return chat::WithoutThought(chat_template_source_, *std::move(rendered));
  return rendered;
}

}  // namespace longspec
