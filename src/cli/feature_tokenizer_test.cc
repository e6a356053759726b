// SPDX-License-Identifier: Apache-2.0
//
// Documents for training become the tokens that a prompt would have.
#include "cli/feature_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/files.h"
#include "formats/gguf_writer.h"
#include "formats/tiny_model.h"
#include "formats/tiny_vocabulary.h"

namespace longspec::cli {
namespace {

// A vocabulary whose prompts begin with a token and whose texts end with one, if they are asked to.
struct Vocabulary {
  explicit Vocabulary(const std::string& chat_template) {
    GgufWriter writer;
    writer.SetString("general.architecture", "unheard-of");
    SetTinyVocabulary(300, &writer);
    writer.SetUint32("tokenizer.ggml.bos_token_id", kTinyModelBos);
    writer.SetUint32("tokenizer.ggml.eos_token_id", kTinyModelEndOfText);
    writer.SetUint32("tokenizer.ggml.eot_token_id", kTinyModelEos);
    writer.SetBool("tokenizer.ggml.add_bos_token", true);
    writer.SetBool("tokenizer.ggml.add_eos_token", true);
    writer.SetString("tokenizer.chat_template", chat_template);
    const longspec::testing::Folder folder;
    const std::string path = folder.File("vocabulary.gguf");
    EXPECT_TRUE(writer.Write(path).ok());
    engine = std::move(*Engine::Load({.path = path, .vocab_only = true}));
    tokenizer = FeatureTokenizerOf(*engine, **GgufFile::Open(path));
  }

  std::unique_ptr<Engine> engine;
  FeatureTokenizer tokenizer;
};

constexpr char kPlain[] = "{% for m in messages %}{{ m.content }}\n{% endfor %}";
constexpr char kWithBeginning[] = "{{ bos_token }}{% for m in messages %}{{ m.content }}\n{% endfor %}";

// Features are of the prompts that decoding has.
TEST(FeatureTokenizer, BeginsAsPromptsDo) {
  const TrainingDocument question = {.text = {}, .messages = {{"user", "to be"}}};
  for (const char* chat_template : {kPlain, kWithBeginning}) {
    const Vocabulary vocabulary(chat_template);
    const auto tokens = TokenizeBeginning(question, vocabulary.tokenizer);
    ASSERT_TRUE(tokens.ok());
    EXPECT_EQ(*tokens, *vocabulary.engine->PromptTokens({.messages = {{"user", "to be"}}})) << chat_template;
    EXPECT_EQ(std::ranges::count(*tokens, int32_t{kTinyModelBos}), 1) << chat_template;
  }
}

TEST(FeatureTokenizer, TextsEndOnceAndAnswersFollowPromptsAtOnce) {
  const Vocabulary vocabulary(kWithBeginning);
  const auto text =
      TokenizeDocument({.text = "to be", .messages = {}}, LearnFrom::kEverything, vocabulary.tokenizer);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->tokens.front(), kTinyModelBos);
  EXPECT_EQ(text->tokens.back(), kTinyModelEndOfText);
  EXPECT_EQ(std::ranges::count(text->tokens, int32_t{kTinyModelEndOfText}), 1);
  const auto beginning = TokenizeBeginning({.text = "to be", .messages = {}}, vocabulary.tokenizer);
  EXPECT_EQ(*beginning, *vocabulary.engine->PromptTokens({.prompt = "to be"}));
}

TEST(FeatureTokenizer, AnAnswerEndsWithATurnToo) {
  const Vocabulary vocabulary(kPlain);
  EXPECT_TRUE(vocabulary.engine->EndsAnswer(kTinyModelEndOfText));
  EXPECT_TRUE(vocabulary.engine->EndsAnswer(kTinyModelEos));
  EXPECT_FALSE(vocabulary.engine->EndsAnswer(100));
  EXPECT_FALSE(vocabulary.engine->EndsAnswer(-1));
}

}  // namespace
}  // namespace longspec::cli
