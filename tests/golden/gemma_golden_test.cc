// SPDX-License-Identifier: Apache-2.0
//
// The layers of a real Gemma 3, whose tokenizer is not there yet, against what llama.cpp computes with the
// same file: "The capital of France is", as tokens. Only where LONGSPEC_REAL asks for it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/gguf_tokenizer.h"
#include "golden_model.h"
#include "tokenizer/tokenizer.h"

namespace longspec {
namespace {

const std::vector<int32_t> kQuestion = {2, 818, 5279, 529, 7001, 563};  // "The capital of France is"

class GemmaGolden : public GoldenModel {
 protected:
  void SetUp() override {
    if (std::getenv("LONGSPEC_REAL") == nullptr) GTEST_SKIP() << "LONGSPEC_REAL does not ask for it";
    Load("gemma-3-270m-Q4_K_M.gguf");
  }
};

TEST_F(GemmaGolden, EveryLineHasTheTokensOfLlamaCpp) {
  auto spec = TokenizerSpecFromGguf(*file_);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  const auto tokenizer = Tokenizer::Create(std::move(spec).value());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const std::vector<nlohmann::json> texts = GoldenLines("tokens.jsonl"), lines = GoldenLines("gemma.jsonl");
  for (const auto& line : lines) {
    const std::string text = texts.at(line["line"].get<size_t>())["text"];
    const auto ids = line["tokens"].get<std::vector<int32_t>>();
    EXPECT_EQ((*tokenizer)->Encode(text), ids) << text;
    EXPECT_EQ((*tokenizer)->Decode(ids, true), text);
  }
  EXPECT_EQ(lines.size(), texts.size());
  EXPECT_EQ((*tokenizer)->Encode("The capital of France is", {.add_special = true}), kQuestion);
}

TEST_F(GemmaGolden, GoesOnAsLlamaCppDoes) {
  struct Step {
    const char* piece;
    double log_probability;
  };
  // llama.cpp multiplies in other arithmetics: 8-bit activations with other scales.
  constexpr double kCloseToLlamaCpp = 0.15;
  const auto pieces = file_->GetStrings("tokenizer.ggml.tokens");
  ASSERT_TRUE(pieces.ok()) << pieces.status().message();
  std::vector<int32_t> tokens = kQuestion;
  const auto cache = NewCache();
  size_t from = 0;
  for (const Step& step : {Step{"▁the", -1.594}, {"▁capital", -0.652}, {"▁of", -0.104}, {"▁the", -0.925}}) {
    const std::vector<float> logits = Feed(*cache, tokens, from, tokens.size(), LogitsFor::kLastRow);
    from = tokens.size();
    const int64_t best = Best(logits);
    EXPECT_EQ((*pieces)[static_cast<size_t>(best)], step.piece);
    EXPECT_NEAR(static_cast<double>(logits[static_cast<size_t>(best)]) - LogZ(logits), step.log_probability,
                kCloseToLlamaCpp);
    tokens.push_back(static_cast<int32_t>(best));
  }
}

// Beyond the window of 512 positions, and across chunks of keys.
TEST_F(GemmaGolden, RowsDoNotDependOnHowAPromptIsCut) {
  std::vector<int32_t> tokens = {2};
  for (int i = 1; i < 700; ++i) tokens.push_back(1000 + i * 7919 % 200000);
  std::vector<std::vector<float>> last;
  for (const size_t piece : {512, 93}) {
    const auto cache = NewCache();
    std::vector<float> logits;
    for (size_t at = 0; at < tokens.size(); at += piece) {
      logits = Feed(*cache, tokens, at, std::min(tokens.size(), at + piece), LogitsFor::kLastRow);
    }
    last.push_back(logits);
  }
  EXPECT_EQ(last[0], last[1]);
}

}  // namespace
}  // namespace longspec
