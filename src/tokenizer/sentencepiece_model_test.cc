// SPDX-License-Identifier: Apache-2.0
//
// SentencePiece's merges are those of the definition, and texts come back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_test_util.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kSpace = "▁";

// <unk>, <s>, </s>, all bytes, and then tokens with their scores.
TokenizerSpec SpecOf(const std::vector<std::pair<std::string, float>>& tokens) {
  TokenizerSpec spec;
  spec.model = "llama";
  spec.unk = AddToken(&spec, "<unk>", 2);
  spec.bos = AddToken(&spec, "<s>", 3);
  spec.eos = AddToken(&spec, "</s>", 3);
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", static_cast<unsigned>(byte));
    AddToken(&spec, text, 6);
  }
  spec.scores.assign(spec.tokens.size(), 0.0F);
  for (const auto& [text, score] : tokens) {
    AddToken(&spec, text, 1);
    spec.scores.push_back(score);
  }
  spec.add_bos = true;
  return spec;
}

std::vector<std::string> PiecesOf(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::vector<std::string> pieces;
  for (const int32_t id : ids) pieces.push_back(tokenizer.spec().tokens[static_cast<size_t>(id)]);
  return pieces;
}

std::vector<std::string> EncodedPieces(const TokenizerSpec& spec, std::string_view text,
                                       EncodeOptions options = {}) {
  const auto tokenizer = Tokenizer::Create(spec);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return PiecesOf(**tokenizer, (*tokenizer)->Encode(text, options));
}

TEST(SentencePiece, TheHighestScoreIsMergedFirst) {
  TokenizerSpec spec = SpecOf({{"a", -9}, {"b", -9}, {"c", -9}, {"ab", -2}, {"bc", -1}, {"abc", -3}});
  spec.add_space_prefix = false;
  EXPECT_THAT(EncodedPieces(spec, "abc"), ElementsAre("abc"));  // a + bc
  EXPECT_THAT(EncodedPieces(spec, "abab"), ElementsAre("ab", "ab"));
  EXPECT_THAT(EncodedPieces(spec, "abbc"), ElementsAre("ab", "bc"));
  spec.tokens[spec.tokens.size() - 1] = "xyz";
  EXPECT_THAT(EncodedPieces(spec, "abc"), ElementsAre("a", "bc"));
}

TEST(SentencePiece, OfEqualScoresTheLeftmostIsMergedFirst) {
  TokenizerSpec spec = SpecOf({{"a", -9}, {"aa", -1}});
  spec.add_space_prefix = false;
  EXPECT_THAT(EncodedPieces(spec, "aaa"), ElementsAre("aa", "a"));
}

TEST(SentencePiece, ASpaceStandsBeforeATextAndBehindASpecialToken) {
  TokenizerSpec spec = SpecOf({{"a", -9}, {kSpace, -9}, {std::string(kSpace) + "a", -1}});
  const std::string a = std::string(kSpace) + "a";
  EXPECT_THAT(EncodedPieces(spec, "a", {.add_special = true}), ElementsAre("<s>", a));
  EXPECT_THAT(EncodedPieces(spec, "a a</s>a"), ElementsAre(a, a, "</s>", a));
  EXPECT_THAT(EncodedPieces(spec, " a"), ElementsAre(kSpace, a));
  spec.add_space_prefix = false;
  EXPECT_THAT(EncodedPieces(spec, "a a</s>a"), ElementsAre("a", a, "</s>", "a"));
  EXPECT_TRUE(EncodedPieces(spec, "").empty());
}

TEST(SentencePiece, WhatIsNoTokenBecomesItsBytes) {
  TokenizerSpec spec = SpecOf({{"a", -9}});
  spec.add_space_prefix = false;
  EXPECT_THAT(EncodedPieces(spec, "aé\xFF"), ElementsAre("a", "<0xC3>", "<0xA9>", "<0xFF>"));
  // Without tokens for bytes it is the unknown one.
  for (int32_t& type : spec.token_types) type = type == 6 ? 5 : type;
  EXPECT_THAT(EncodedPieces(spec, "aé"), ElementsAre("a", "<unk>", "<unk>"));
}

TEST(SentencePiece, ASpaceWithoutATokenIsItsByte) {
  TokenizerSpec spec = SpecOf({{"a", -9}});
  spec.add_space_prefix = false;
  EXPECT_THAT(EncodedPieces(spec, "a \xFD"), ElementsAre("a", "<0x20>", "<0xFD>"));
}

TEST(SentencePiece, ATextComesBack) {
  TokenizerSpec spec =
      SpecOf({{"a", -9}, {"b", -8}, {"ab", -1}, {kSpace, -7}, {std::string(kSpace) + "ab", -0.5F}});
  std::mt19937 random(3);
  for (const bool prefix : {false, true}) {
    spec.add_space_prefix = prefix;
    const auto tokenizer = *Tokenizer::Create(spec);
    for (int i = 0; i < 300; ++i) {
      const std::string text = RandomBytes(&random, 30);
      if (text.empty()) continue;
      EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), (prefix ? " " : "") + text);
    }
  }
}

// The definition, as slow as it reads.
std::vector<std::string> NaivePieces(const TokenizerSpec& spec, std::string text) {
  std::map<std::string, float> scores;
  for (size_t id = 3 + 256; id < spec.tokens.size(); ++id) scores.emplace(spec.tokens[id], spec.scores[id]);
  std::vector<std::string> symbols;
  while (!text.empty()) {
    const size_t length = ScanUtf8(text).length;
    symbols.push_back(text.substr(0, length) == " " ? kSpace : text.substr(0, length));
    text.erase(0, length);
  }
  while (true) {
    size_t best = symbols.size();
    float best_score = -1e30F;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto it = scores.find(symbols[i] + symbols[i + 1]);
      if (it != scores.end() && it->second > best_score) best = i, best_score = it->second;
    }
    if (best == symbols.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(SentencePiece, MergesAsItsDefinitionDoes) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::pair<std::string, float>> tokens;
    for (const char* letter : {"a", "b", "é", kSpace}) tokens.emplace_back(letter, -20.0F);
    std::map<std::string, bool> known;
    for (int i = 0; i < 40; ++i) {  // of some that are there
      const std::string text =
          tokens[random() % tokens.size()].first + tokens[random() % tokens.size()].first;
      if (text.size() > 12 || !known.emplace(text, true).second) continue;
      tokens.emplace_back(text, -static_cast<float>(random() % 12));  // some are equal
    }
    TokenizerSpec spec = SpecOf(tokens);
    spec.add_space_prefix = false;
    for (int i = 0; i < 20; ++i) {
      std::string text;
      for (unsigned n = random() % 30; n > 0; --n)
        text += std::vector<std::string>{"a", "b", "é", " "}[random() % 4];
      ASSERT_EQ(EncodedPieces(spec, text), NaivePieces(spec, text)) << text;
    }
  }
}

TEST(SentencePiece, RefusesScoresThatCannotBe) {
  TokenizerSpec spec = SpecOf({{"a", -9}});
  spec.scores.pop_back();
  EXPECT_THAT(Tokenizer::Create(spec).status().message(), HasSubstr("259 scores for 260 tokens"));
  spec.scores.push_back(std::nanf(""));
  EXPECT_THAT(Tokenizer::Create(spec).status().message(), HasSubstr("a score is not a number"));
}

TEST(SentencePiece, LongTextsAreEncoded) {
  TokenizerSpec spec = SpecOf({{"a", -9}, {"aa", -1}, {"aaaa", -2}});
  const auto tokenizer = *Tokenizer::Create(spec);
  EXPECT_EQ(tokenizer->Encode(std::string(400'000, 'a')).size(), 1U + 100'000U);  // a space before the text
}

}  // namespace
}  // namespace longspec
