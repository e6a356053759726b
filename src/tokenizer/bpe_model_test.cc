// SPDX-License-Identifier: Apache-2.0
//
// Merges of byte pairs are those of the definition, in less time.
#include "tokenizer/bpe_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "tokenizer/tokenizer_test_util.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsEmpty;

std::vector<int32_t> EncodePiece(const TokenizerSpec& spec, std::string_view piece,
                                 bool ignore_merges = false) {
  const auto model = BpeModel::Create(spec, ignore_merges);
  EXPECT_TRUE(model.ok()) << model.status().message();
  BpeModel::Scratch scratch;
  std::vector<int32_t> tokens;
  model->EncodePiece(piece, &scratch, &tokens);
  return tokens;
}

// The definition, as slow as it reads: the best merge that applies anywhere, leftmost first, until none does.
std::vector<std::string> NaiveMerge(const TokenizerSpec& spec, const std::string& piece) {
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    const size_t space = spec.merges[i].find(' ');
    ranks.emplace(std::pair(spec.merges[i].substr(0, space), spec.merges[i].substr(space + 1)), i);
  }
  std::vector<std::string> symbols;
  for (const char c : piece) symbols.push_back(AlphabetCharacter(static_cast<uint8_t>(c)));
  while (true) {
    size_t best = spec.merges.size();
    size_t where = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto it = ranks.find({symbols[i], symbols[i + 1]});
      if (it == ranks.end() || it->second >= best) continue;
      best = it->second;
      where = i;
    }
    if (best == spec.merges.size()) return symbols;
    symbols[where] += symbols[where + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
}

TEST(BpeModel, RankDecidesNotPosition) {
  const TokenizerSpec bc_first =
      ByteLevelSpec({"b c", "a b", "ab c", "a bc"});  // 256 bc, 257 ab, 258 and 259 abc
  EXPECT_THAT(EncodePiece(bc_first, "abc"), ElementsAre(258));
  EXPECT_THAT(EncodePiece(ByteLevelSpec({"b c", "a b"}), "abc"), ElementsAre('a', 256));
  EXPECT_THAT(EncodePiece(ByteLevelSpec({"a b", "b c"}), "abc"), ElementsAre(256, 'c'));
}

TEST(BpeModel, EqualRanksMergeFromTheLeft) {
  const TokenizerSpec spec = ByteLevelSpec({"a a"});
  EXPECT_THAT(EncodePiece(spec, "aaa"), ElementsAre(256, 'a'));
  EXPECT_THAT(EncodePiece(spec, "aaaaa"), ElementsAre(256, 256, 'a'));
}

// Nothing, a single byte, and bytes that no merge joins.
TEST(BpeModel, TrivialPieces) {
  const TokenizerSpec spec = ByteLevelSpec({"a a"});
  EXPECT_THAT(EncodePiece(spec, ""), IsEmpty());
  EXPECT_THAT(EncodePiece(spec, "\xFF"), ElementsAre(0xFF));
  EXPECT_THAT(EncodePiece(ByteLevelSpec(), "ab"), ElementsAre('a', 'b'));
}

TEST(BpeModel, AgreesWithTheDefinition) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    TokenizerSpec spec = ByteLevelSpec();
    std::vector<std::string> symbols = {"a", "b", "c", "Ġ"};
    std::map<std::string, int32_t> ids;
    for (int i = 0; i < 40; ++i) {
      const std::string left = symbols[random() % symbols.size()];
      const std::string right = symbols[random() % symbols.size()];
      if (left.size() + right.size() > 12) continue;
      spec.merges.push_back(left + " " + right);
      const std::string merged = left + right;
      if (std::find(symbols.begin(), symbols.end(), merged) != symbols.end()) continue;
      symbols.push_back(merged);
      AddToken(&spec, merged, 1);
    }
    for (size_t id = 0; id < spec.tokens.size(); ++id) ids.emplace(spec.tokens[id], static_cast<int32_t>(id));
    for (int text = 0; text < 20; ++text) {
      std::string piece;
      for (size_t n = random() % 60; n > 0; --n) piece += "abc "[random() % 4];
      std::vector<int32_t> expected;
      for (const std::string& symbol : NaiveMerge(spec, piece)) expected.push_back(ids.at(symbol));
      ASSERT_EQ(EncodePiece(spec, piece), expected) << piece;
    }
  }
}

TEST(BpeModel, IntermediateResultsNeedNotBeTokens) {
  TokenizerSpec spec = ByteLevelSpec();
  spec.merges = {"a b", "ab c"};
  const int32_t abc = AddToken(&spec, "abc", 1);
  EXPECT_THAT(EncodePiece(spec, "abc"), ElementsAre(abc));
  // What stays behind without a token is written in bytes.
  EXPECT_THAT(EncodePiece(spec, "abd"), ElementsAre('a', 'b', 'd'));
}

// A byte without a token is its byte token, else the unknown token, else left out.
TEST(BpeModel, MissingBytes) {
  TokenizerSpec spec;
  spec.tokens = {"a", "<unk>", "<0x62>", "", "<0xZZ>"};
  spec.token_types = {1, 2, 6, 1, 6};
  EXPECT_THAT(EncodePiece(spec, "abca"), ElementsAre(0, 2, 0));  // b is a byte token; c is left out
  spec.unk = 1;
  EXPECT_THAT(EncodePiece(spec, "abca"), ElementsAre(0, 2, 1, 0));
  spec.token_types[1] = 3;  // a control token must not stand for text
  EXPECT_THAT(EncodePiece(spec, "abca"), ElementsAre(0, 2, 0));
}

TEST(BpeModel, OfTokensWrittenAlikeTheFirstIsUsed) {
  TokenizerSpec spec = ByteLevelSpec({"a b"});
  AddToken(&spec, "ab", 1);
  EXPECT_THAT(EncodePiece(spec, "ab"), ElementsAre(256));
}

TEST(BpeModel, OfMergesListedTwiceTheBetterRankHolds) {
  TokenizerSpec spec = ByteLevelSpec({"a b", "b c"});
  spec.merges.push_back("a b");
  EXPECT_THAT(EncodePiece(spec, "abc"), ElementsAre(256, 'c'));
}

TEST(BpeModel, WholePiecesComeFirstOnlyIfAskedFor) {
  TokenizerSpec spec = ByteLevelSpec({"b c"});
  const int32_t abc = AddToken(&spec, "Ġabc", 1);
  AddToken(&spec, "<x>", 3);
  AddToken(&spec, "", 1);
  EXPECT_THAT(EncodePiece(spec, " abc", true), ElementsAre(abc));
  EXPECT_THAT(EncodePiece(spec, " abc", false), ElementsAre(' ', 'a', 256));
  EXPECT_THAT(EncodePiece(spec, "<x>", true), ElementsAre('<', 'x', '>'));  // control tokens are not text
  EXPECT_THAT(EncodePiece(spec, "", true), IsEmpty());
}

TEST(BpeModel, MalformedMergesAreErrors) {
  for (const char* merge : {"", "ab", "a ", " a", " "}) {
    TokenizerSpec spec = ByteLevelSpec({"a b"});
    spec.merges.push_back(merge);
    const auto model = BpeModel::Create(spec, false);
    ASSERT_FALSE(model.ok()) << merge;
    EXPECT_EQ(model.status().code(), StatusCode::kCorrupt);
    EXPECT_THAT(model.status().message(), HasSubstr("merge 1"));
  }
}

TEST(BpeModel, LongPiecesDoNotTakeQuadraticTime) {
  std::vector<std::string> merges;
  std::string run = "a";
  for (int i = 0; i < 6; ++i, run += run) merges.push_back(run + " " + run);
  const TokenizerSpec spec = ByteLevelSpec(merges);
  const size_t length = size_t{1} << 18;
  const std::vector<int32_t> tokens = EncodePiece(spec, std::string(length, 'a'));
  EXPECT_EQ(tokens, std::vector<int32_t>(length / 64, 261));
}

}  // namespace
}  // namespace longspec
