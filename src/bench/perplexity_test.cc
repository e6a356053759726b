// SPDX-License-Identifier: Apache-2.0
//
// Perplexity is the same however a text is cut, and is that of the library's own probabilities.
#include "bench/perplexity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/testing/files.h"
#include "bench/loaded_model.h"
#include "formats/tiny_model.h"
#include "longspec/engine.h"
#include "model/testing/far_target.h"

namespace longspec {
namespace {

constexpr int kTextTokens = 2300, kTextContext = 2200;

class PerplexityTest : public ::testing::Test {
 protected:
  PerplexityTest() {
    TinyModelOptions tiny;
    tiny.context_length = 4096;
    tiny.n_layers = 1;
    EXPECT_TRUE(WriteTinyModel(tiny, path_).ok());
    for (int i = 0; i < kTextTokens; ++i) text_.push_back(3 + (i * i + i / 7) % 250);
  }

  ModelOptions Model(const RopeOptions& rope = {}) const {
    ModelOptions options;
    options.path = path_;
    options.threads = 1;
    options.rope = rope;
    return options;
  }
  Result<PerplexityResult> Run(PerplexityOptions options, const RopeOptions& rope = {}) {
    if (options.window == 0) options.window = kTextContext;
    const auto model = LoadForBench(Model(rope), nullptr, options.rows, options.window);
    EXPECT_TRUE(model.ok()) << model.status().message();
    const auto new_cache = [&] { return model->NewCache(options.window); };
    return MeasurePerplexity(*model->target, new_cache, text_, options, {});
  }
  // Of a target that lies where the host cannot read.
  Result<PerplexityResult> RunElsewhere(PerplexityOptions options) {
    options.window = kTextContext;
    const auto model = LoadForBench(Model(), nullptr, options.rows, options.window);
    EXPECT_TRUE(model.ok()) << model.status().message();
    testing::FarTarget far(model->target.get());
    const auto new_cache = [&] { return far.NewCache(model->layout, options.window); };
    return MeasurePerplexity(far, new_cache, text_, options, {});
  }

  const testing::Folder folder_;
  const std::string path_ = folder_.File("tiny.gguf");
  std::vector<int32_t> text_;
};

bool SameBits(double a, double b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

TEST_F(PerplexityTest, TheSameBitsHoweverTheTextIsCut) {
  const auto first = Run({.rows = 256});
  ASSERT_TRUE(first.ok()) << first.status().message();
  for (const int rows : {7, 64}) {
    const auto other = Run({.rows = rows});
    ASSERT_TRUE(other.ok());
    EXPECT_TRUE(SameBits(first->all.sum, other->all.sum)) << rows;
    EXPECT_TRUE(SameBits(first->all.sum_of_squares, other->all.sum_of_squares)) << rows;
    ASSERT_EQ(first->by_position.size(), other->by_position.size());
    for (size_t i = 0; i < first->by_position.size(); ++i) {
      EXPECT_TRUE(SameBits(first->by_position[i].tokens.sum, other->by_position[i].tokens.sum)) << rows;
    }
  }
  const auto elsewhere = RunElsewhere({.rows = 256});
  ASSERT_TRUE(elsewhere.ok());
  EXPECT_TRUE(SameBits(first->all.sum, elsewhere->all.sum));
}

TEST_F(PerplexityTest, BucketsHoldEveryTokenButTheFirstOfEachWindow) {
  const auto result = Run({.rows = 256});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->windows, 2);
  EXPECT_EQ(result->all.n, kTextTokens - 2);
  ASSERT_EQ(result->by_position.size(), 3U);
  const int n[] = {1023 + kTextTokens - kTextContext - 1, 1024, kTextContext - 2048};
  int from = 0;
  double sum = 0;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(result->by_position[i].from, from);
    EXPECT_EQ(result->by_position[i].tokens.n, n[i]);
    sum += result->by_position[i].tokens.sum;
    from = result->by_position[i].to;
  }
  EXPECT_EQ(from, 4096);
  EXPECT_NEAR(sum / result->all.sum, 1.0, 1e-12);

  EXPECT_EQ(Run({.most_windows = 1})->all.n, kTextContext - 1);
  const auto begun = Run({.window = 100, .most_windows = 3, .beginning = {1}});
  EXPECT_EQ(begun->windows, 3);
  EXPECT_EQ(begun->all.n, 3 * 99);  // with a beginning, a window's first token of the text is foretold
}

// The facade says the chance of each token that it chose; a text that it wrote has these chances.
TEST_F(PerplexityTest, IsTheMeanOfTheLogProbabilitiesOfTheLibrary) {
  const auto engine = Engine::Load(Model());
  ASSERT_TRUE(engine.ok());
  const auto session = (*engine)->NewSession();
  GenerationRequest request;
  request.tokens = {5};
  request.n_predict = 150;
  request.sampling.temperature = 1.0F;
  request.sampling.seed = 3;
  request.n_logprobs = 0;
  double sum = 0;
  request.on_token = [&sum](const GeneratedToken& token) { sum -= static_cast<double>(token.own.logprob); };
  const auto written = (*engine)->Generate(**session, request);
  ASSERT_TRUE(written.ok()) << written.status().message();
  ASSERT_GT(written->tokens.size(), 20U);
  text_ = {5};
  text_.insert(text_.end(), written->tokens.begin(), written->tokens.end());
  const auto result = Run({.rows = 32});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->all.n, static_cast<int64_t>(written->tokens.size()));
  EXPECT_TRUE(SameBits(result->all.sum, sum)) << result->all.sum << " " << sum;
  EXPECT_DOUBLE_EQ(result->all.Perplexity(), std::exp(sum / static_cast<double>(result->all.n)));
}

TEST_F(PerplexityTest, RopeOptionsChangeIt) {
  RopeOptions yarn;
  yarn.scaling = RopeOptions::Scaling::kYarn;
  yarn.scale = 4;
  yarn.yarn_orig_ctx = 512;
  EXPECT_NE(Run({.most_windows = 1})->all.sum, Run({.most_windows = 1}, yarn)->all.sum);
}

TEST_F(PerplexityTest, StandardErrorIsThatOfTheMeanTimesThePerplexity) {
  ForetoldTokens tokens;
  tokens.Add(1.0);
  EXPECT_EQ(tokens.StandardError(), 0.0);
  tokens.Add(2.0);
  tokens.Add(3.0);
  EXPECT_DOUBLE_EQ(tokens.Perplexity(), std::exp(2.0));
  EXPECT_NEAR(tokens.StandardError(), std::exp(2.0) * std::sqrt(2.0 / 3.0 / 2.0), 1e-12);
}

TEST_F(PerplexityTest, NothingToForetellIsAnError) {
  text_ = {5};
  EXPECT_THAT(Run({.window = 64}).status().message(), ::testing::HasSubstr("has none to foretell"));
  text_ = {5, 6, 7};
  EXPECT_THAT(Run({.window = 1}).status().message(), ::testing::HasSubstr("a context of 1"));
}

}  // namespace
}  // namespace longspec
