// SPDX-License-Identifier: Apache-2.0
//
// Texts become tokens and come back, special tokens and bytes included.
#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <thread>

#include "tokenizer/tokenizer_test_util.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsEmpty;

std::shared_ptr<const Tokenizer> MustCreate(TokenizerSpec spec) {
  auto result = Tokenizer::Create(std::move(spec));
  EXPECT_TRUE(result.ok()) << result.status().message();
  return std::move(result).value();
}

TEST(Tokenizer, EncodesWordsAndDecodesThem) {
  // 256 Ġw, 257 or, 258 Ġwor, 259 ld, 260 Ġworld
  const auto tokenizer = MustCreate(ByteLevelSpec({"Ġ w", "o r", "Ġw or", "l d", "Ġwor ld"}));
  EXPECT_THAT(tokenizer->Encode("world"), ElementsAre('w', 257, 259));
  EXPECT_THAT(tokenizer->Encode("a world"), ElementsAre('a', 260));
  EXPECT_THAT(tokenizer->Encode(""), IsEmpty());
  EXPECT_EQ(tokenizer->Decode({'a', 260}), "a world");
  EXPECT_EQ(tokenizer->Decode({}), "");
  EXPECT_EQ(tokenizer->TokenBytes(260), " world");
  EXPECT_EQ(tokenizer->TokenBytes(0), std::string(1, '\0'));
  EXPECT_EQ(tokenizer->vocab_size(), 261);
  EXPECT_EQ(tokenizer->spec().merges.size(), 5u);
}

TEST(Tokenizer, MergesStayInsideAPiece) {
  const auto tokenizer = MustCreate(ByteLevelSpec({"a Ġ", "Ġ b"}));
  EXPECT_THAT(tokenizer->Encode("a b"), ElementsAre('a', 257));
}

TEST(Tokenizer, DecodeSkipsIdsOutOfRange) {
  const auto tokenizer = MustCreate(ByteLevelSpec());
  EXPECT_EQ(tokenizer->Decode({'a', -1, 256, 1 << 30, 'b'}), "ab");
  EXPECT_EQ(tokenizer->Decode({'a', -1, 256, 1 << 30, 'b'}, true), "ab");
}

class SpecialTokensInText : public ::testing::Test {
 protected:
  SpecialTokensInText() {
    TokenizerSpec spec = ByteLevelSpec();
    bos_ = spec.bos = AddToken(&spec, "<s>", 3);
    eos_ = spec.eos = AddToken(&spec, "<e>", 3);
    unk_ = spec.unk = AddToken(&spec, "<unk>", 2);
    user_ = AddToken(&spec, "<tool call>", 4);
    unused_ = AddToken(&spec, "<unused>", 5);
    newline_ = AddToken(&spec, "<0x0A>", 6);
    spec.add_bos = spec.add_eos = true;
    tokenizer_ = MustCreate(std::move(spec));
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  int32_t bos_, eos_, unk_, user_, unused_, newline_;
};

TEST_F(SpecialTokensInText, AreParsedByDefault) {
  EXPECT_THAT(tokenizer_->Encode("a<e><unk><tool call>b<s>"), ElementsAre('a', eos_, unk_, user_, 'b', bos_));
  EXPECT_THAT(tokenizer_->Encode("<e"), ElementsAre('<', 'e'));
}

TEST_F(SpecialTokensInText, OnlyUserDefinedOnesAreWithoutParsing) {
  EXPECT_THAT(tokenizer_->Encode("<e><tool call>", {false, false}), ElementsAre('<', 'e', '>', user_));
}

TEST_F(SpecialTokensInText, UnusedAndByteTokensAreText) {
  EXPECT_EQ(tokenizer_->Encode("<unused>").size(), 8u);
  EXPECT_EQ(tokenizer_->Encode("<0x0A>").size(), 6u);
}

TEST_F(SpecialTokensInText, BosAndEosAreAddedIfAskedFor) {
  EXPECT_THAT(tokenizer_->Encode("a", {true, true}), ElementsAre(bos_, 'a', eos_));
  EXPECT_THAT(tokenizer_->Encode("", {true, true}), ElementsAre(bos_, eos_));
  EXPECT_THAT(tokenizer_->Encode("a", {false, true}), ElementsAre('a'));
}

TEST_F(SpecialTokensInText, DecodeKeepsThemIfAskedFor) {
  const std::vector<int32_t> ids = {bos_, 'a', unk_, user_, newline_, unused_, eos_};
  EXPECT_EQ(tokenizer_->Decode(ids), "a<tool call>\n<unused>");
  EXPECT_EQ(tokenizer_->Decode(ids, true), "<s>a<unk><tool call>\n<unused><e>");
}

// Control and unknown tokens are no text, whatever their number; others, and numbers of no token, are not
// control.
TEST_F(SpecialTokensInText, IsControl) {
  EXPECT_TRUE(tokenizer_->IsControl(bos_));
  EXPECT_TRUE(tokenizer_->IsControl(unk_));
  EXPECT_FALSE(tokenizer_->IsControl(user_));
  EXPECT_FALSE(tokenizer_->IsControl('a'));
  EXPECT_FALSE(tokenizer_->IsControl(-1));
  EXPECT_FALSE(tokenizer_->IsControl(tokenizer_->vocab_size()));
}

TEST(Tokenizer, ModelsThatIgnoreMerges) {
  TokenizerSpec spec = ByteLevelSpec({"b c"});
  const int32_t abc = AddToken(&spec, "abc", 1);
  EXPECT_THAT(MustCreate(spec)->Encode("abc"), ElementsAre('a', 256));
  spec.pre = "llama-bpe";
  EXPECT_THAT(MustCreate(spec)->Encode("abc"), ElementsAre(abc));
}

TEST(Tokenizer, InvalidUtf8IsEncodedByteByByte) {
  // 256 is the two bytes of "é"; torn apart by an invalid byte they do not merge.
  const auto tokenizer = MustCreate(ByteLevelSpec({"Ã ©", "a a"}));
  EXPECT_THAT(tokenizer->Encode("é"), ElementsAre(256));
  EXPECT_THAT(tokenizer->Encode("\xC3"), ElementsAre(0xC3));
  EXPECT_THAT(tokenizer->Encode("\xC3\xC3\xA9"), ElementsAre(0xC3, 256));
  EXPECT_THAT(tokenizer->Encode("aa\xFF"
                                "aa"),
              ElementsAre(257, 0xFF, 257));
  EXPECT_THAT(tokenizer->Encode("\xED\xA0\x80"), ElementsAre(0xED, 0xA0, 0x80));
}

TEST(Tokenizer, AnyBytesSurviveTheRoundTrip) {
  std::mt19937 random(5);
  for (const std::string& pre : Tokenizer::KnownPretokenizers()) {
    TokenizerSpec spec = ByteLevelSpec({"a b", "Ġ Ġ", "â Ĥ", "âĤ ¬", "Ã ©", "Ġ ab", "ab ab"});
    AddToken(&spec, "<|x|>", 3);
    AddToken(&spec, "7\n", 4);
    spec.pre = pre;
    const auto tokenizer = MustCreate(spec);
    for (int round = 0; round < 150; ++round) {
      const std::string text = RandomBytes(&random, 30);
      ASSERT_EQ(tokenizer->Decode(tokenizer->Encode(text), true), text) << pre;
      ASSERT_EQ(tokenizer->Decode(tokenizer->Encode(text, {false, false})), text) << pre;
    }
  }
}

TEST(Tokenizer, MayBeSharedBetweenThreads) {
  const auto tokenizer = MustCreate(ByteLevelSpec({"a b", "Ġ ab", "Ġab ab"}));
  const std::string text = "ab abab 12 \xFF ab ab";
  const std::vector<int32_t> expected = tokenizer->Encode(text);
  std::vector<int> agreed(4, 0);
  std::vector<std::thread> threads;
  for (int& count : agreed) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) count += tokenizer->Encode(text) == expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(agreed, ::testing::Each(200));
}

struct BadSpec {
  const char* message;
  StatusCode code;
  std::function<void(TokenizerSpec*)> spoil;
};

TEST(Tokenizer, InconsistentSpecsAreErrors) {
  const std::vector<BadSpec> cases = {
      {"'bert'", StatusCode::kUnsupported, [](auto* spec) { spec->model = "bert"; }},
      {"known are: gpt2", StatusCode::kUnsupported, [](auto* spec) { spec->model.clear(); }},
      {"'nope'", StatusCode::kUnsupported, [](auto* spec) { spec->pre = "nope"; }},
      {"smollm", StatusCode::kUnsupported, [](auto* spec) { spec->pre.clear(); }},
      {"empty", StatusCode::kCorrupt, [](auto* spec) { spec->tokens.clear(); }},
      {"255 token types for 256", StatusCode::kCorrupt, [](auto* spec) { spec->token_types.pop_back(); }},
      {"merge 0 ('ab')", StatusCode::kCorrupt, [](auto* spec) { spec->merges = {"ab"}; }},
      {"BOS token's id is 256", StatusCode::kCorrupt, [](auto* spec) { spec->bos = 256; }},
      {"EOS token's id is -2", StatusCode::kCorrupt, [](auto* spec) { spec->eos = -2; }},
      {"EOT", StatusCode::kCorrupt, [](auto* spec) { spec->eot = 1 << 30; }},
      {"unknown", StatusCode::kCorrupt, [](auto* spec) { spec->unk = 999; }},
      {"padding", StatusCode::kCorrupt, [](auto* spec) { spec->pad = 999; }},
      {"add_bos", StatusCode::kCorrupt, [](auto* spec) { spec->add_bos = true; }},
      {"add_eos", StatusCode::kCorrupt, [](auto* spec) { spec->add_eos = true; }},
  };
  for (const BadSpec& bad : cases) {
    TokenizerSpec spec = ByteLevelSpec();
    bad.spoil(&spec);
    const auto result = Tokenizer::Create(std::move(spec));
    ASSERT_FALSE(result.ok()) << bad.message;
    EXPECT_THAT(result.status().message(), HasSubstr(bad.message));
    EXPECT_EQ(result.status().code(), bad.code) << bad.message;
    EXPECT_EQ(result.status().message().find('\n'), std::string::npos);
  }
}

TEST(Tokenizer, KindsAreKnownByTheirNames) {
  EXPECT_TRUE(Tokenizer::CheckKind("gpt2", "qwen2").ok());
  EXPECT_TRUE(Tokenizer::CheckKind("llama", "default").ok());
  EXPECT_THAT(
      Tokenizer::CheckKind("bert", "default").message(),
      HasSubstr("tokenizer model 'bert' (WordPiece) is not offered; known are: gpt2 (byte-level BPE), "
                "llama (SentencePiece)"));
  EXPECT_THAT(Tokenizer::CheckKind("gpt2", "nope").message(), HasSubstr("'nope'"));
}

TEST(Tokenizer, DefaultsByPretokenizer) {
  EXPECT_TRUE(Tokenizer::AddsBosByDefault("gpt2", "llama-bpe"));
  EXPECT_FALSE(Tokenizer::AddsBosByDefault("gpt2", "qwen2"));
  EXPECT_FALSE(Tokenizer::AddsBosByDefault("gpt2", "nope"));
  EXPECT_TRUE(Tokenizer::AddsBosByDefault("llama", "default"));
  EXPECT_THAT(Tokenizer::KnownPretokenizers(),
              testing::IsSupersetOf({"smollm", "gpt-2", "llama-bpe", "qwen2"}));
}

}  // namespace
}  // namespace longspec
