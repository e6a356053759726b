// SPDX-License-Identifier: Apache-2.0
//
// Texts are cut before merging as each kind of model expects it.
#include "tokenizer/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "base/utf8.h"
#include "tokenizer/tokenizer_test_util.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;

using Pieces = std::vector<std::string>;

Pieces Split(std::string_view name, std::string_view text) {
  const auto pretokenizer = Pretokenizer::Create(name);
  EXPECT_TRUE(pretokenizer.ok()) << pretokenizer.status().message();
  std::vector<std::string_view> pieces;
  pretokenizer->Split(text, &pieces);
  return {pieces.begin(), pieces.end()};
}

TEST(Pretokenizer, UnknownNamesAreNamedAndTheKnownListed) {
  const auto result = Pretokenizer::Create("gpt-9");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(result.status().message(), HasSubstr("'gpt-9'"));
  for (const std::string& name : Pretokenizer::Names()) {
    EXPECT_THAT(result.status().message(), HasSubstr(name));
  }
}

TEST(Pretokenizer, WhatModelsExpect) {
  EXPECT_TRUE(Pretokenizer::AddsBos("llama-bpe"));
  EXPECT_TRUE(Pretokenizer::AddsBos("tekken"));
  EXPECT_FALSE(Pretokenizer::AddsBos("smollm"));
  EXPECT_FALSE(Pretokenizer::AddsBos("gpt-9"));
  EXPECT_TRUE(Pretokenizer::Create("llama3")->ignores_merges());
  EXPECT_FALSE(Pretokenizer::Create("dbrx")->ignores_merges());
}

// How GPT-2's pattern parts words, contractions, digits and runs of spaces.
TEST(Pretokenizer, Gpt2) {
  EXPECT_EQ(Split("gpt-2", ""), Pieces());
  EXPECT_EQ(Split("gpt-2", "Hello world"), (Pieces{"Hello", " world"}));
  EXPECT_EQ(Split("gpt-2", "it's I'LL"), (Pieces{"it", "'s", " I", "'", "LL"}));
  EXPECT_EQ(Split("gpt-2", "a   b"), (Pieces{"a", "  ", " b"}));
  EXPECT_EQ(Split("gpt-2", "a  \n b  "), (Pieces{"a", "  \n", " b", "  "}));
  EXPECT_EQ(Split("gpt-2", "a \n\tb"), (Pieces{"a", " \n", "\t", "b"}));
  EXPECT_EQ(Split("gpt-2", "x1234!?y"), (Pieces{"x", "1234", "!?", "y"}));
  EXPECT_EQ(Split("gpt-2", "né à la"), (Pieces{"né", " à", " la"}));
}

TEST(Pretokenizer, WhiteSpaceIsUnicodes) {
  EXPECT_EQ(Split("gpt-2", "a\u00A0b"), (Pieces{"a", "\u00A0", "b"}));
  EXPECT_EQ(Split("gpt-2", "a\u3000\u2003b"), (Pieces{"a", "\u3000", "\u2003", "b"}));
  EXPECT_EQ(Split("gpt-2", "a\u0085"), (Pieces{"a", "\u0085"}));
  // These two are not: they go with punctuation.
  EXPECT_EQ(Split("gpt-2", "a\u180E!b"), (Pieces{"a", "\u180E!", "b"}));
  EXPECT_EQ(Split("gpt-2", "a\u200B!b"), (Pieces{"a", "\u200B!", "b"}));
}

TEST(Pretokenizer, SmolLmCutsDigitsFirst) {
  EXPECT_EQ(Split("smollm", "a 12"), (Pieces{"a", " ", "1", "2"}));
  // White space before a digit ends its piece, so all of it stays together.
  EXPECT_EQ(Split("smollm", "a  1 b"), (Pieces{"a", "  ", "1", " b"}));
  EXPECT_EQ(Split("smollm", "٣Ⅷ"), (Pieces{"٣", "Ⅷ"}));
}

// Llama 3's takes three digits at most, and line breaks with the punctuation before them.
TEST(Pretokenizer, Llama3) {
  EXPECT_EQ(Split("llama-bpe", "12345 don'T"), (Pieces{"123", "45", " don", "'T"}));
  EXPECT_EQ(Split("llama-bpe", "x(y).\n\n z"), (Pieces{"x", "(y", ").\n\n", " z"}));
  EXPECT_EQ(Split("llama-bpe", "a \n\n  b"), (Pieces{"a", " \n\n", " ", " b"}));
  EXPECT_EQ(Split("llama-bpe", "a\tb"), (Pieces{"a", "\tb"}));
  // Only ASCII letters make contractions: the long s stays with its word.
  EXPECT_EQ(Split("llama-bpe", "a'ſ"), (Pieces{"a", "'ſ"}));
}

TEST(Pretokenizer, Qwen2CutsSingleDigits) {
  EXPECT_EQ(Split("qwen2", "12 ab's"), (Pieces{"1", "2", " ab", "'s"}));
}

TEST(Pretokenizer, MiniCpm5CutsThreeDigitsFirst) {
  EXPECT_EQ(Split("minicpm5", "a 12345 don'T"), (Pieces{"a", " ", "123", "45", " don", "'T"}));
  EXPECT_TRUE(Pretokenizer::Create("minicpm5")->ignores_merges());
}

// A vowel sign of Devanagari is a mark.
TEST(Pretokenizer, Qwen35CountsMarksAsLetters) {
  EXPECT_EQ(Split("qwen35", "कि 12"), (Pieces{"कि", " ", "1", "2"}));
  EXPECT_EQ(Split("qwen2", "कि"), (Pieces{"क", "ि"}));
  EXPECT_EQ(Split("qwen35", "x(y).\n\n it's"), (Pieces{"x", "(y", ").\n\n", " it", "'s"}));
}

// Other names of the same.
TEST(Pretokenizer, NamesOfOnePattern) {
  const std::string text = "It's  camelCase's 12345.\n\n né कि中文 //\n\t";
  const std::pair<const char*, std::vector<const char*>> kinds[] = {
      {"qwen2", {"kormo", "f2llmv2", "solar-open", "grok-2"}},
      {"llama-bpe", {"falcon-h1", "pixtral", "midm-2.0"}},
      {"gpt-2", {"gigachat", "a.x-4.0", "mellum"}},
      {"smollm", {"mellum2"}},
      {"gpt-4o", {"minimax-m2", "kanana2", "talkie"}},
      {"deepseek-v3", {"joyai-llm", "hunyuan-dense", "hy_v4"}},
      {"glm4", {"glm5"}},
  };
  for (const auto& [name, others] : kinds) {
    for (const char* other : others) {
      EXPECT_EQ(Split(other, text), Split(name, text)) << other;
      EXPECT_EQ(Pretokenizer::AddsBos(other), Pretokenizer::AddsBos(name)) << other;
      const bool ignores = std::string(other) == "glm5" || Pretokenizer::Create(name)->ignores_merges();
      EXPECT_EQ(Pretokenizer::Create(other)->ignores_merges(), ignores) << other;
    }
  }
}

// Patterns that part a word where a capital follows a small letter.
TEST(Pretokenizer, CasedOnes) {
  EXPECT_EQ(Split("gpt-4o", "camelCaseHTTPServer's 1234"),
            (Pieces{"camel", "Case", "HTTPServer's", " ", "123", "4"}));
  EXPECT_EQ(Split("tekken", "camelCase's 12"), (Pieces{"camel", "Case", "'s", " ", "1", "2"}));
  EXPECT_EQ(Split("gpt-4o", "a//\n/b"), (Pieces{"a", "//\n/", "b"}));
}

TEST(Pretokenizer, DeepseekV3) {
  EXPECT_EQ(Split("deepseek-v3", "x1234中文a"), (Pieces{"x", "123", "4", "中文", "a"}));
  EXPECT_EQ(Split("deepseek-v3", ".foo $$ bar"), (Pieces{".foo", " $$", " bar"}));
}

TEST(Pretokenizer, OnesThatCutPunctuationFirst) {
  EXPECT_EQ(Split("default", "a,b 12345"), (Pieces{"a", ",", "b", " ", "123", "45"}));
  EXPECT_EQ(Split("falcon", "a`b 12345"), (Pieces{"a", "`", "b", " ", "123", "45"}));
}

// Whatever the text, the pieces in order are the text, and none is empty.
TEST(Pretokenizer, NothingIsLost) {
  std::mt19937 random(11);
  for (const std::string& name : Pretokenizer::Names()) {
    const auto pretokenizer = Pretokenizer::Create(name);
    ASSERT_TRUE(pretokenizer.ok());
    for (int round = 0; round < 100; ++round) {
      std::string text = RandomBytes(&random, 40);
      text.resize(ValidUtf8Prefix(text));
      std::vector<std::string_view> pieces;
      pretokenizer->Split(text, &pieces);
      std::string joined;
      for (const std::string_view piece : pieces) {
        EXPECT_FALSE(piece.empty());
        joined += piece;
      }
      ASSERT_EQ(joined, text) << name;
    }
  }
}

// Long runs must neither overflow the matcher's stack nor be cut by its limits.
TEST(Pretokenizer, LongRunsStayWhole) {
  for (const char* name : {"gpt-2", "llama-bpe", "qwen2", "gpt-4o", "tekken", "deepseek-v3"}) {
    for (const char c : {'a', 'A', ' ', '\n', '.'}) {
      const std::string run(300000, c);
      EXPECT_EQ(Split(name, run), Pieces{run}) << name << " " << static_cast<int>(c);
    }
  }
}

}  // namespace
}  // namespace longspec
