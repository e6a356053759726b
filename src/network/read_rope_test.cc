// SPDX-License-Identifier: Apache-2.0
//
// Rotary scaling from GGUF's keys and the user's options. The numbers of YaRN were computed by the formula of
// transformers' _compute_yarn_parameters in Python's doubles, printed to twelve digits.
#include "network/read_rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "formats/tiny_model.h"

namespace longspec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ScalingNumbers = std::vector<std::pair<std::string, float>>;

TinyModelOptions TinyYarn(ScalingNumbers numbers = {{"factor", 4.0F}}) {
  TinyModelOptions tiny;
  tiny.rope_scaling = "yarn";
  tiny.rope_original_context = 128;
  tiny.rope_scaling_numbers = std::move(numbers);
  return tiny;
}

Result<RopeConfig> RopeOf(const TinyModelOptions& tiny, const RopeOptions& options = {}) {
  const auto file = GgufFile::Parse(*TinyModelBytes(tiny), "tiny.gguf");
  if (!file.ok()) return file.status();
  auto config = ReadModelSpec(**file, options);
  if (!config.ok()) return config.status();
  return config->rope;
}

std::string Described(const TinyModelOptions& tiny, const RopeOptions& options = {}) {
  const auto rope = RopeOf(tiny, options);
  return rope.ok() ? rope->Describe() : rope.status().message();
}

TEST(ReadRope, YarnOfTheFileIsThatOfTransformers) {
  struct Case {
    float base;
    int head_dim, original;
    ScalingNumbers numbers;
    double magnitude;
    std::vector<std::pair<size_t, double>> frequencies;
  };
  const Case cases[] = {
      {100000.0F,
       64,
       8192,
       {{"factor", 8}},
       1.2079441541679836,
       {{0, 1.0},
        {6, 0.115478198469},
        {9, 0.0392418975848},
        {12, 0.0110015518153},
        {20, 9.37367761666e-05},
        {31, 1.7912657128e-06}}},
      {10000.0F,
       128,
       2048,
       {{"factor", 16}, {"yarn_beta_fast", 16}, {"yarn_beta_slow", 2}, {"yarn_ext_factor", 1}},
       1.2772588722239782,
       {{0, 1.0},
        {20, 0.056234132519},
        {24, 0.0242111883357},
        {30, 0.00552161218005},
        {36, 0.000351463328244},
        {63, 7.21738740431e-06}}},
      {1000000.0F,
       128,
       32768,
       {{"factor", 4}, {"yarn_log_multiplier", 0.5F}},
       1.0648216253695715,
       {{0, 1.0},
        {20, 0.0133352143216},
        {30, 0.00106436098125},
        {35, 0.000246258406909},
        {40, 4.4456985251e-05},
        {63, 3.10234440188e-07}}}};
  for (const Case& c : cases) {
    TinyModelOptions tiny = TinyYarn(c.numbers);
    tiny.head_dim = c.head_dim;
    tiny.rope_freq_base = c.base;
    tiny.rope_original_context = c.original;
    const auto rope = RopeOf(tiny);
    ASSERT_TRUE(rope.ok()) << rope.status().message();
    const RopeTable table(*rope);
    EXPECT_NEAR(table.magnitude(), c.magnitude, 1e-14) << c.base;
    for (const auto& [i, frequency] : c.frequencies) {
      EXPECT_NEAR(table.frequencies()[i] / frequency, 1.0, 1e-11) << c.base << " " << i;
    }
  }
}

// 0.1 ln(4) + 1 is 1.1386.
TEST(ReadRope, Magnitudes) {
  const auto magnitude = [](ScalingNumbers numbers, const RopeOptions& options = {}) {
    numbers.emplace_back("factor", 4.0F);
    const auto rope = RopeOf(TinyYarn(std::move(numbers)), options);
    EXPECT_TRUE(rope.ok()) << rope.status().message();
    return rope.ok() ? RopeTable(*rope).magnitude() : 0.0;
  };
  RopeOptions options;
  options.yarn_attn_factor = 0.5F;
  EXPECT_NEAR(magnitude({}), 1.1386294, 1e-6);
  EXPECT_NEAR(magnitude({{"attn_factor", 0.5F}}), 0.5 * 1.1386294, 1e-6);
  // transformers' attention_factor is the whole; llama.cpp's option is a factor, and wins.
  EXPECT_NEAR(magnitude({{"yarn_attn_factor", 1.25F}}), 1.25, 1e-6);
  EXPECT_NEAR(magnitude({{"yarn_attn_factor", 1.25F}}, options), 0.5 * 1.1386294, 1e-6);
  EXPECT_NEAR(magnitude({{"yarn_attn_factor", 1.25F}, {"yarn_ext_factor", 0}}), 1.25, 1e-6);
  EXPECT_NEAR(magnitude({{"attn_factor", 2}}, options), 1.1386294, 1e-6);
  EXPECT_NEAR(magnitude({{"yarn_log_multiplier", 1}}), 1.0, 1e-6);
  EXPECT_NEAR(magnitude({{"yarn_ext_factor", 0}}), 1.0, 1e-6);
  options = {};
  options.scale = 0.5F;
  EXPECT_NEAR(magnitude({}, options), 1.0, 1e-6);

  TinyModelOptions linear;
  linear.rope_scaling = "linear";
  linear.rope_scaling_numbers = {{"factor", 2}, {"attn_factor", 1.5F}};
  EXPECT_NEAR(RopeTable(*RopeOf(linear)).magnitude(), 1.5, 1e-6);
}

TEST(ReadRope, DescribesWhatIsNotUsual) {
  EXPECT_EQ(Described({}), "none");
  EXPECT_EQ(Described(TinyYarn()), "yarn x4 (original 128)");
  EXPECT_EQ(Described(TinyYarn({{"factor", 4}, {"yarn_beta_fast", 32}, {"yarn_beta_slow", 1}})),
            "yarn x4 (original 128)");
  EXPECT_EQ(Described(TinyYarn({{"factor", 2.3F},
                                {"yarn_beta_fast", 16},
                                {"yarn_beta_slow", 0.5F},
                                {"yarn_ext_factor", 0.25F},
                                {"yarn_attn_factor", 1.5F}})),
            "yarn x2.3 (original 128, beta 16 to 0.5, extrapolation 0.25, magnitude 1.5)");
  TinyModelOptions tiny;
  tiny.rope_scaling_numbers = {{"factor", 2}};
  EXPECT_EQ(Described(tiny), "linear x2");  // llama.cpp's rule for a file without a type
  tiny.rope_scaling_numbers = {{"factor", 2}, {"attn_factor", 1.5F}};
  EXPECT_EQ(Described(tiny), "linear x2 (magnitude 1.5)");
  tiny.rope_scaling = "none";
  EXPECT_EQ(Described(tiny), "none (magnitude 1.5)");
}

// What the command line says of scaling replaces what the file says, number by number.
TEST(ReadRope, OptionsWin) {
  const TinyModelOptions tiny =
      TinyYarn({{"factor", 4}, {"yarn_beta_fast", 16}, {"yarn_beta_slow", 2}, {"yarn_ext_factor", 0.5F}});
  RopeOptions options;
  EXPECT_EQ(Described(tiny, options), "yarn x4 (original 128, beta 16 to 2, extrapolation 0.5)");
  options.yarn_beta_fast = 8;
  EXPECT_EQ(Described(tiny, options), "yarn x4 (original 128, beta 8 to 2, extrapolation 0.5)");
  options.yarn_beta_slow = 3;
  options.yarn_ext_factor = 1;
  options.yarn_orig_ctx = 64;
  options.scale = 2;
  EXPECT_EQ(Described(tiny, options), "yarn x2 (original 64, beta 8 to 3)");
  options = {};
  options.scaling = RopeOptions::Scaling::kLinear;
  EXPECT_EQ(Described(tiny, options), "linear x4");
  options.scaling = RopeOptions::Scaling::kNone;
  EXPECT_EQ(Described(tiny, options), "none");
  options.scaling = RopeOptions::Scaling::kYarn;
  TinyModelOptions none = tiny;  // its numbers are there for who asks for YaRN
  none.rope_scaling = "none";
  EXPECT_EQ(Described(none), "none");
  EXPECT_EQ(Described(none, options), "yarn x4 (original 128, beta 16 to 2, extrapolation 0.5)");
  options = {};
  options.scale = 3;
  EXPECT_EQ(Described({}, options), "linear x3");
}

TEST(ReadRope, HostileNumbersOfTheFileAreRefusedByKey) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinite = std::numeric_limits<float>::infinity();
  const std::pair<const char*, std::vector<float>> wrong[] = {
      {"factor", {0, -1, nan, infinite}},
      {"attn_factor", {0, -1, nan, infinite}},
      {"yarn_attn_factor", {0, -1, nan, infinite}},
      {"yarn_beta_fast", {0, -1, nan, infinite, 0.5F}},
      {"yarn_beta_slow", {0, -1, nan, infinite, 33}},
      {"yarn_ext_factor", {-0.5F, 1.5F, nan}},
      {"yarn_log_multiplier", {-1, nan, infinite}}};
  for (const auto& [key, values] : wrong) {
    for (const float value : values) {
      const auto rope = RopeOf(TinyYarn({{key, value}}));
      ASSERT_FALSE(rope.ok()) << key << " " << value;
      EXPECT_EQ(rope.status().code(), StatusCode::kCorrupt);
      EXPECT_THAT(rope.status().message(),
                  AllOf(HasSubstr("tiny.gguf: llama.rope.scaling."),
                        HasSubstr(std::string(key).substr(key[0] == 'y' ? 5 : 0)), Not(HasSubstr("\n"))));
    }
  }
  EXPECT_EQ(Described(TinyYarn({{"yarn_beta_fast", nan}})),
            "tiny.gguf: llama.rope.scaling.yarn_beta_fast is nan, expected a positive number");
  EXPECT_EQ(
      Described(TinyYarn({{"yarn_beta_fast", 0.5F}})),
      "tiny.gguf: llama.rope.scaling.yarn_beta_fast 0.5 is below beta_slow 1; it counts the turns of faster "
      "rotations");
  TinyModelOptions tiny;
  tiny.rope_freq_base = 0.5F;
  EXPECT_THAT(Described(tiny),
              HasSubstr("tiny.gguf: llama.rope.freq_base is 0.5, expected a number above 1"));
}

TEST(ReadRope, AKeyThatIsNotKnownIsRefused) {
  EXPECT_THAT(Described(TinyYarn({{"factor", 4}, {"alpha", 1000}})),
              HasSubstr("tiny.gguf: llama.rope.scaling.alpha is not supported"));
  EXPECT_EQ(Described(TinyYarn({{"factor", 4}})), "yarn x4 (original 128)");
}

TEST(ReadRope, HostileOptionsAreRefusedByName) {
  using Member = float RopeOptions::*;
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinite = std::numeric_limits<float>::infinity();
  const struct {
    const char* name;
    Member member;
    std::vector<float> values;
  } wrong[] = {{"--rope-scale", &RopeOptions::scale, {-1, nan, infinite}},
               {"--rope-freq-base", &RopeOptions::freq_base, {-1, 1, nan, infinite}},
               {"--yarn-ext-factor", &RopeOptions::yarn_ext_factor, {1.5F, nan, infinite}},
               {"--yarn-attn-factor", &RopeOptions::yarn_attn_factor, {0, nan, infinite}},
               {"--yarn-beta-fast", &RopeOptions::yarn_beta_fast, {0, 0.5F, nan, infinite}},
               {"--yarn-beta-slow", &RopeOptions::yarn_beta_slow, {0, 33, nan, infinite}}};
  for (const auto& [name, member, values] : wrong) {
    for (const float value : values) {
      RopeOptions options;
      options.*member = value;
      const auto rope = RopeOf(TinyYarn(), options);
      ASSERT_FALSE(rope.ok()) << name << " " << value;
      EXPECT_EQ(rope.status().code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(rope.status().message(), ::testing::StartsWith(name));
    }
  }
}

// An option that nothing would come of.
TEST(ReadRope, OptionsThatWouldDoNothingAreRefused) {
  RopeOptions options;
  options.yarn_beta_fast = 16;
  EXPECT_EQ(Described({}, options), "--yarn-beta-fast needs --rope-scaling yarn");
  options = {};
  options.scale = 4;
  options.scaling = RopeOptions::Scaling::kNone;
  EXPECT_EQ(Described({}, options), "--rope-scale 4 needs --rope-scaling linear or yarn");
  options.scaling = RopeOptions::Scaling::kFromModel;
  TinyModelOptions none;
  none.rope_scaling = "none";
  EXPECT_THAT(Described(none, options), HasSubstr("tiny.gguf has llama.rope.scaling.type \"none\""));
}

}  // namespace
}  // namespace longspec
