// SPDX-License-Identifier: Apache-2.0
//
// Prompts with a hole in the form of each model, cut to what fits.
#include "tokenizer/infill_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tokenizer/tokenizer_test_util.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int32_t kInfillControl = 3;

// Bytes are tokens; places of control tokens are shown by their letters.
class InfillPrompts : public ::testing::Test {
 protected:
  void SetUp() override {
    spec_ = ByteLevelSpec();
    prefix_ = spec_.fim_prefix = AddToken(&spec_, "<P>", kInfillControl);
    suffix_ = spec_.fim_suffix = AddToken(&spec_, "<S>", kInfillControl);
    middle_ = spec_.fim_middle = AddToken(&spec_, "<M>", kInfillControl);
    spec_.fim_repository = AddToken(&spec_, "<R>", kInfillControl);
    spec_.fim_separator = AddToken(&spec_, "<F>", kInfillControl);
    spec_.bos = AddToken(&spec_, "<B>", kInfillControl);
  }

  std::string Shown(const InfillText& text, const InfillLayout& layout = {}) const {
    const auto tokenizer = Tokenizer::Create(spec_);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    const auto tokens = InfillPrompt(**tokenizer, text, layout);
    EXPECT_TRUE(tokens.ok()) << tokens.status().message();
    return (*tokenizer)->Decode(*tokens, true);
  }

  TokenizerSpec spec_;
  int32_t prefix_ = -1, suffix_ = -1, middle_ = -1;
};

constexpr const char* kHead = "<R>myproject\n<F>filename\n";

TEST_F(InfillPrompts, TheHoleIsBehindThePromptAndTheSuffix) {
  EXPECT_EQ(Shown({.prefix = "ab\n", .suffix = "\nyz", .prompt = "c"}),
            std::string(kHead) + "<P>ab\nc<S>\nyz<M>");
  EXPECT_EQ(Shown({}), std::string(kHead) + "<P><S><M>");
}

TEST_F(InfillPrompts, ChunksAreFilesOfARepository) {
  EXPECT_EQ(Shown({.prefix = "a", .chunks = {{"x.c", "one"}, {.text = "two\n"}, {"", ""}}}),
            "<R>myproject\n<F>x.c\none<F>tmp\ntwo\n<F>\n<F>filename\n<P>a<S><M>");
}

TEST_F(InfillPrompts, WithoutTheTokensOfARepositoryALineStandsBeforeEachChunk) {
  spec_.fim_separator = -1;
  const InfillText text = {.prefix = "a", .chunks = {{"x.c", "one"}, {"y.c", "two"}}};
  EXPECT_EQ(Shown(text), "<R>myproject\n\n\n--- snippet ---\n\none\n\n--- snippet ---\n\ntwo<P>a<S><M>");
  spec_.fim_repository = -1;
  EXPECT_EQ(Shown({.prefix = "a"}), "<P>a<S><M>");
  EXPECT_EQ(Shown(text), "\n\n--- snippet ---\n\none\n\n--- snippet ---\n\ntwo<P>a<S><M>");
}

TEST_F(InfillPrompts, ATextAloneHasNoRepository) {
  EXPECT_EQ(Shown({.prefix = "a", .suffix = "b", .chunks = {{"x.c", "one"}}}, {.repository = false}),
            "<P>a<S>b<M>");
}

TEST_F(InfillPrompts, TheBeginTokenStandsBehindTheChunks) {
  spec_.add_bos = true;
  EXPECT_EQ(Shown({.prefix = "a", .chunks = {{"x.c", "one"}}}),
            "<R>myproject\n<F>x.c\none<F>filename\n<B><P>a<S><M>");
}

TEST_F(InfillPrompts, OnlyThePromptHasControlTokens) {
  const auto tokenizer = Tokenizer::Create(spec_);
  const auto count = [&](const InfillText& text) {
    const auto tokens = InfillPrompt(**tokenizer, text, {.repository = false});
    return std::ranges::count(*tokens, middle_);
  };
  EXPECT_EQ(count({.prefix = "<M>", .suffix = "<M>", .chunks = {{"<M>", "<M>"}}}), 1);
  EXPECT_EQ(count({.prompt = "<M>"}), 2);
}

TEST_F(InfillPrompts, PiecesAreMadeTokensByThemselves) {
  spec_ = ByteLevelSpec({"a b"});
  spec_.fim_prefix = AddToken(&spec_, "<P>", kInfillControl);
  spec_.fim_suffix = AddToken(&spec_, "<S>", kInfillControl);
  spec_.fim_middle = AddToken(&spec_, "<M>", kInfillControl);
  const auto tokenizer = Tokenizer::Create(spec_);
  const auto tokens = InfillPrompt(**tokenizer, {.prefix = "ab a", .prompt = "b"}, {});
  EXPECT_THAT(*tokens, ::testing::ElementsAre(spec_.fim_prefix, 256, ' ', 'a', 'b', spec_.fim_suffix,
                                              spec_.fim_middle));
}

// A window of 16: at most 12 of the prefix, and 4 - 2 of the suffix, less the prompt's tokens.
TEST_F(InfillPrompts, AWindowCutsWhatIsFarFromTheHole) {
  const InfillText text = {.prefix = "0123456789abcdef", .suffix = "0123456789", .prompt = ""};
  EXPECT_EQ(Shown(text, {.repository = false, .window = 16}), "<P>456789abcdef<S>01<M>");
  EXPECT_EQ(Shown(text, {.repository = false, .window = 19}), "<P>456789abcdef<S>01<M>");
  EXPECT_EQ(Shown(text, {.repository = false, .window = 20}), "<P>123456789abcdef<S>012<M>");
  InfillText written = text;
  written.prompt = "x";
  EXPECT_EQ(Shown(written, {.repository = false, .window = 16}), "<P>456789abcdefx<S>0<M>");
  written.prompt = "xyz longer than the room that there is";
  EXPECT_EQ(Shown(written, {.repository = false, .window = 16}),
            "<P>456789abcdef" + written.prompt + "<S><M>");
  EXPECT_EQ(Shown(text, {.repository = false, .window = 3}), "<P><S><M>");
  EXPECT_EQ(Shown({.prefix = "ab", .suffix = "c"}, {.repository = false, .window = 16}), "<P>ab<S>c<M>");
}

TEST_F(InfillPrompts, TheSuffixMayHaveALimitOfItsOwn) {
  const InfillText text = {.prefix = "ab", .suffix = "0123456789"};
  EXPECT_EQ(Shown(text, {.repository = false, .suffix = 3}), "<P>ab<S>012<M>");
  EXPECT_EQ(Shown(text, {.repository = false, .suffix = 0}), "<P>ab<S><M>");
  EXPECT_EQ(Shown(text, {.repository = false, .window = 16, .suffix = 3}), "<P>ab<S>01<M>");
}

// Half of 12 tokens at least, and all at most.
TEST_F(InfillPrompts, AnAnchoredWindowBeginsWithALine) {
  const InfillLayout anchored = {.repository = false, .window = 16, .anchored = true};
  EXPECT_EQ(Shown({.prefix = "one\ntwo\n\n three\n"}, anchored), "<P>two\n\n three\n<S><M>");
  EXPECT_EQ(Shown({.prefix = "  x\n  twelve7\n"}, anchored), "<P>  twelve7\n<S><M>");
  // What is not indented comes before what is; all of a short text is there; a long line is cut where it is.
  EXPECT_EQ(Shown({.prefix = "a\n b\nc\n d\n e\n f\n"}, anchored), "<P>c\n d\n e\n f\n<S><M>");
  EXPECT_EQ(Shown({.prefix = "a\nb\n"}, anchored), "<P>a\nb\n<S><M>");
  EXPECT_EQ(Shown({.prefix = "a line of many letters"}, anchored), "<P>many letters<S><M>");
  EXPECT_EQ(Shown({}, anchored), "<P><S><M>");
}

TEST_F(InfillPrompts, AnAnchorStaysWhileTheTextGrows) {
  const auto tokenizer = Tokenizer::Create(spec_);
  std::string text;
  for (int i = 0; i < 400; ++i) {
    const std::string n = std::to_string(i * 7919 % 1000);
    text += i % 8 == 0 ? "int f" + n + "() {\n" : i % 8 == 7 ? "}\n" : "  call(" + n + ");\n";
  }
  const auto moves = [&](bool anchored) {
    int n = 0;
    std::string before;
    for (size_t end = text.size() / 2; end <= text.size(); end = text.find('\n', end) + 1) {
      const auto tokens = InfillPrompt(**tokenizer, {.prefix = text.substr(0, end)},
                                       {.repository = false, .window = 1024, .anchored = anchored});
      const std::string now = (*tokenizer)->Decode(*tokens);
      EXPECT_LE(now.size(), 768U);
      EXPECT_GE(now.size(), 384U);
      n += now.starts_with(before) ? 0 : 1;
      before = now;
      if (end == text.size()) break;
    }
    return n;
  };
  EXPECT_GE(moves(false), 190);
  EXPECT_LE(moves(true), 12);
}

// As many as are left of the context beside the window, and two: -2 * -1.
TEST_F(InfillPrompts, TheLastChunksAreThoseThatFit) {
  const InfillText text = {.prefix = "a", .chunks = {{"x.c", "one"}, {"y.c", "two"}}};
  const auto with = [&](int context, int n_predict = -1) {
    return Shown(text, {.window = 16, .context = context, .n_predict = n_predict});
  };
  const std::string all = "<R>myproject\n<F>x.c\none<F>y.c\ntwo<F>filename\n<P>a<S><M>";
  EXPECT_EQ(with(1000), all);
  EXPECT_EQ(with(14 + 10), "<F>filename\n<P>a<S><M>");
  EXPECT_EQ(with(14 + 11), "o<F>filename\n<P>a<S><M>");
  EXPECT_EQ(with(14), "<P>a<S><M>");
  EXPECT_EQ(with(1), "<P>a<S><M>");
  EXPECT_EQ(with(16 + 6 + 10, 3), "<F>filename\n<P>a<S><M>");
}

TEST_F(InfillPrompts, TheSuffixMayComeFirst) {
  spec_.add_bos = true;
  EXPECT_EQ(Shown({.prefix = "a", .suffix = "z", .prompt = "b"}, {.suffix_first = true}),
            std::string(kHead) + "<B><S>z<P>ab<M>");
}

TEST_F(InfillPrompts, WhatAVocabularyLacksIsNamed) {
  spec_ = ByteLevelSpec();
  spec_.fim_suffix = 's';
  const auto tokenizer = Tokenizer::Create(spec_);
  const auto tokens = InfillPrompt(**tokenizer, {}, {});
  EXPECT_EQ(tokens.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(tokens.status().message(), HasSubstr("no token for a prefix, a middle"));
  EXPECT_THAT(tokens.status().message(), Not(HasSubstr("suffix")));
}

}  // namespace
}  // namespace longspec
