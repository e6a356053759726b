// SPDX-License-Identifier: Apache-2.0
//
// Text that comes in tokens is whole characters at all times.
#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"
#include "tokenizer/tokenizer_test_util.h"

namespace longspec {
namespace {

constexpr char kBad[] = "\xEF\xBF\xBD";

class StreamDecoderTest : public ::testing::Test {
 protected:
  StreamDecoderTest() {
    TokenizerSpec spec = ByteLevelSpec();
    control_ = AddToken(&spec, "<|end|>", 3);
    user_ = AddToken(&spec, "<user é>", 4);
    auto result = Tokenizer::Create(std::move(spec));
    EXPECT_TRUE(result.ok()) << result.status().message();
    tokenizer_ = std::move(result).value();
  }

  // One byte a token: what comes out after each.
  std::vector<std::string> PushBytes(std::string_view bytes) {
    StreamDecoder decoder(*tokenizer_);
    std::vector<std::string> out;
    for (const char byte : bytes) out.push_back(decoder.Push(static_cast<uint8_t>(byte)));
    out.push_back(decoder.Finish());
    return out;
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  int32_t control_ = -1;
  int32_t user_ = -1;
};

using Outputs = std::vector<std::string>;

TEST_F(StreamDecoderTest, HoldsBackIncompleteCharacters) {
  EXPECT_EQ(PushBytes("aé"), (Outputs{"a", "", "é", ""}));
  EXPECT_EQ(PushBytes("€b"), (Outputs{"", "", "€", "b", ""}));
  EXPECT_EQ(PushBytes("😀"), (Outputs{"", "", "", "😀", ""}));
}

TEST_F(StreamDecoderTest, ReplacesWhatCanNeverBecomeACharacter) {
  EXPECT_EQ(PushBytes("\x80z"), (Outputs{kBad, "z", ""}));
  EXPECT_EQ(PushBytes("\xE2\x82z"), (Outputs{"", "", std::string(kBad) + "z", ""}));
  EXPECT_EQ(PushBytes("\xE2\xC3\xA9"), (Outputs{"", kBad, "é", ""}));
  // A surrogate: the first byte alone is one ill-formed subsequence, and so is each of the others.
  EXPECT_EQ(PushBytes("\xED\xA0\x80"), (Outputs{"", std::string(kBad) + kBad, kBad, ""}));
}

TEST_F(StreamDecoderTest, FinishReplacesAnIncompleteCharacterOnce) {
  EXPECT_EQ(PushBytes("a\xF0\x9F\x98"), (Outputs{"a", "", "", "", kBad}));
  StreamDecoder decoder(*tokenizer_);
  EXPECT_EQ(decoder.Finish(), "");
  decoder.Push(0xC3);
  EXPECT_EQ(decoder.Finish(), kBad);
  EXPECT_EQ(decoder.Finish(), "");
  EXPECT_EQ(decoder.Push('a'), "a");
}

TEST_F(StreamDecoderTest, ControlTokensAppearOnlyIfKept) {
  StreamDecoder plain(*tokenizer_);
  EXPECT_EQ(plain.Push(control_), "");
  EXPECT_EQ(plain.Push(user_), "<user é>");
  StreamDecoder keeping(*tokenizer_, true);
  EXPECT_EQ(keeping.Push(control_), "<|end|>");
}

TEST_F(StreamDecoderTest, ASkippedTokenDoesNotTearACharacterApart) {
  StreamDecoder decoder(*tokenizer_);
  EXPECT_EQ(decoder.Push(0xC3), "");
  EXPECT_EQ(decoder.Push(control_), "");
  EXPECT_EQ(decoder.Push(-1), "");
  EXPECT_EQ(decoder.Push(tokenizer_->vocab_size()), "");
  EXPECT_EQ(decoder.Push(0xA9), "é");
}

// However the bytes are cut into tokens, the text is that of all bytes at once.
TEST_F(StreamDecoderTest, AgreesWithReplacingInTheWholeText) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    const std::string bytes = RandomBytes(&random, 12);
    std::string expected;
    for (std::string_view rest = bytes; !rest.empty();) {
      const Utf8Step step = ScanUtf8(rest);
      expected += step.kind == Utf8Kind::kCharacter ? std::string(rest.substr(0, step.length)) : kBad;
      rest.remove_prefix(step.length);
    }
    std::string streamed;
    for (const std::string& text : PushBytes(bytes)) {
      EXPECT_EQ(ValidUtf8Prefix(text), text.size());
      streamed += text;
    }
    ASSERT_EQ(streamed, expected) << ::testing::PrintToString(bytes);
  }
}

}  // namespace
}  // namespace longspec
