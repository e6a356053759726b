// SPDX-License-Identifier: Apache-2.0
//
// SmolLM2's tokenizer against transformers and llama.cpp, which agree on every line of
// tokens.jsonl.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/testing/source_path.h"
#include "engine/gguf_tokenizer.h"
#include "formats/gguf.h"
#include "tokenizer/tokenizer.h"

namespace longspec {
namespace {

const std::string kModel = testing::SourcePath("models/SmolLM2-135M-Instruct.Q4_1.gguf");
const std::string kGolden = testing::SourcePath("tests/golden/tokens.jsonl");

struct Line {
  std::string text;
  std::vector<int32_t> ids;
};

class TokenizerGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kModel)) GTEST_SKIP() << kModel << " is not there";
    const auto file = GgufFile::Open(kModel);
    ASSERT_TRUE(file.ok()) << file.status().message();
    auto spec = TokenizerSpecFromGguf(**file);
    ASSERT_TRUE(spec.ok()) << spec.status().message();
    auto tokenizer = Tokenizer::Create(std::move(spec).value());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = std::move(tokenizer).value();

    std::ifstream golden(kGolden);
    for (std::string line; std::getline(golden, line);) {
      const auto json = nlohmann::json::parse(line);
      lines_.push_back({json["text"], json["ids"]});
    }
    ASSERT_EQ(lines_.size(), 346u);
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<Line> lines_;
};

TEST_F(TokenizerGolden, EveryLineIsEqual) {
  for (const Line& line : lines_) EXPECT_EQ(tokenizer_->Encode(line.text), line.ids) << line.text;
}

TEST_F(TokenizerGolden, EveryLineDecodesToItself) {
  for (const Line& line : lines_) {
    EXPECT_EQ(tokenizer_->Decode(line.ids, true), line.text);
    StreamDecoder decoder(*tokenizer_, true);
    std::string streamed;
    for (const int32_t id : line.ids) streamed += decoder.Push(id);
    streamed += decoder.Finish();
    EXPECT_EQ(streamed, line.text);
  }
}

// The default model's tokens that are no text, and those of them that end an answer.
TEST_F(TokenizerGolden, SpecialTokens) {
  EXPECT_EQ(tokenizer_->vocab_size(), 49152);
  EXPECT_EQ(tokenizer_->TokenBytes(1), "<|im_start|>");
  EXPECT_TRUE(tokenizer_->IsControl(1));
  EXPECT_FALSE(tokenizer_->IsEndOfGeneration(1));
  EXPECT_TRUE(tokenizer_->IsEndOfGeneration(2));  // <|im_end|>
  EXPECT_TRUE(tokenizer_->IsEndOfGeneration(0));  // <|endoftext|>
  EXPECT_FALSE(tokenizer_->IsEndOfGeneration(100));
}

// The vocabulary has no token for a byte that UTF-8 never holds, and names <|endoftext|> as its unknown
// token, which must not turn up in the middle of a prompt.
TEST_F(TokenizerGolden, BytesWithoutATokenAreLeftOut) {
  EXPECT_EQ(tokenizer_->Encode("a\xFF"), tokenizer_->Encode("a"));
}

}  // namespace
}  // namespace longspec
