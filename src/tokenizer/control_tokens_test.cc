// SPDX-License-Identifier: Apache-2.0
//
// Which tokens end, think, call or have a place in prompts, by their ids and names.
#include "tokenizer/control_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tokenizer/special_tokens.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_test_util.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr int32_t kNormal = 1, kControl = 3, kUserDefined = 4;

// The texts of the tokens that end an answer.
std::set<std::string> EndsOf(TokenizerSpec spec) {
  const auto tokenizer = Tokenizer::Create(std::move(spec));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  std::set<std::string> ends;
  for (int32_t id = 0; id < (*tokenizer)->vocab_size(); ++id) {
    if ((*tokenizer)->IsEndOfGeneration(id))
      ends.insert((*tokenizer)->spec().tokens[static_cast<size_t>(id)]);
  }
  return ends;
}

std::set<std::string> EndsAmong(const std::vector<std::string>& control_tokens) {
  TokenizerSpec spec = ByteLevelSpec();
  for (const std::string& text : control_tokens) AddToken(&spec, text, kControl);
  return EndsOf(std::move(spec));
}

TEST(ControlTokens, EndsAreThoseOfTheIdsAndOfTheNames) {
  TokenizerSpec spec = ByteLevelSpec();
  spec.eos = 'e';
  spec.eot = 't';
  spec.eom = 'm';
  spec.fim_pad = 'p';
  spec.fim_repository = 'r';
  spec.fim_separator = 's';
  AddToken(&spec, "<|im_end|>", kControl);
  AddToken(&spec, "<|im_start|>", kControl);
  EXPECT_THAT(EndsOf(std::move(spec)), UnorderedElementsAre("e", "t", "m", "p", "r", "s", "<|im_end|>"));
}

TEST(ControlTokens, NamesOfEnds) {
  for (const char* name : {"<|eot_id|>",
                           "<|eom_id|>",
                           "<|end_of_text|>",
                           "<|endoftext|>",
                           "<end_of_turn>",
                           "<turn|>",
                           "<|tool_response>",
                           "<eos>",
                           "</s>",
                           "<|end|>",
                           "<|return|>",
                           "<|call|>",
                           "<|calls|>",
                           "<|flush|>",
                           "<EOT>",
                           "_<EOT>",
                           "[EOT]",
                           "[EOS]",
                           "[e~[",
                           "<end_of_utterance>",
                           "<｜end▁of▁sentence｜>",
                           "<|fim_pad|>",
                           "<fim_pad>",
                           "<PAD>",
                           "<|repo_name|>",
                           "<reponame>",
                           "<|file_sep|>"}) {
    EXPECT_THAT(EndsAmong({name}), ElementsAre(name));
  }
  EXPECT_THAT(EndsAmong({"<|im_start|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<think>"}),
              ElementsAre());
}

TEST(ControlTokens, TheEndOfAPartEndsNoTurn) {
  EXPECT_THAT(EndsAmong({"<|end|>", "<|return|>", "<|call|>"}),
              UnorderedElementsAre("<|return|>", "<|call|>"));
  EXPECT_THAT(EndsAmong({"<|end|>", "<|calls|>", "<|flush|>"}),
              UnorderedElementsAre("<|calls|>", "<|flush|>"));
  EXPECT_THAT(EndsAmong({"<|end|>", "<|call|>"}), UnorderedElementsAre("<|end|>", "<|call|>"));
  EXPECT_THAT(EndsAmong({"<|end|>", "<|return|>"}), UnorderedElementsAre("<|end|>", "<|return|>"));
  EXPECT_THAT(EndsAmong({"</s>", "<|tool_response>", "<turn|>"}),
              UnorderedElementsAre("<|tool_response>", "<turn|>"));
}

TEST(ControlTokens, ANameCountsWhateverTheFileSaysOfItsType) {
  TokenizerSpec spec = ByteLevelSpec();
  const int32_t normal = AddToken(&spec, "<|im_end|>", kNormal);
  const int32_t user_defined = AddToken(&spec, "<end_of_turn>", kUserDefined);
  const int32_t prefix = AddToken(&spec, "<|fim_prefix|>", kNormal);
  const int32_t other = AddToken(&spec, "<|other|>", kNormal);
  for (const bool typed : {true, false}) {
    if (!typed) spec.token_types.clear();
    const auto tokenizer = Tokenizer::Create(spec);
    ASSERT_TRUE(tokenizer.ok());
    for (const int32_t id : {normal, user_defined, prefix}) EXPECT_TRUE((*tokenizer)->IsControl(id)) << id;
    EXPECT_FALSE((*tokenizer)->IsControl(other));
    // One token in a prompt, letters in a user's text.
    EXPECT_THAT((*tokenizer)->Encode("a<|im_end|>"), ElementsAre('a', normal));
    EXPECT_EQ((*tokenizer)->Encode("a<|im_end|>", {.add_special = false, .parse_special = false}).size(),
              11U);
    EXPECT_EQ((*tokenizer)->Decode({'a', normal}), "a");
  }
}

// As text of its answers they are letters, in what users say, too.
TEST(ControlTokens, ThoseOfCallsArePartOfWhatAModelSays) {
  TokenizerSpec spec = ByteLevelSpec();
  const int32_t calls = AddToken(&spec, "[TOOL_CALLS]", kControl);
  const int32_t arguments = AddToken(&spec, "[ARGS]", kControl);
  const int32_t other = AddToken(&spec, "[INST]", kControl);
  const auto tokenizer = Tokenizer::Create(spec);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_FALSE((*tokenizer)->IsControl(calls));
  EXPECT_TRUE((*tokenizer)->IsControl(other));
  EXPECT_EQ((*tokenizer)->Decode({calls, 'f', arguments, other}), "[TOOL_CALLS]f[ARGS]");
  EXPECT_THAT((*tokenizer)->Encode("[TOOL_CALLS]f"), ElementsAre(calls, 'f'));
  EXPECT_EQ((*tokenizer)->Encode("[ARGS]", {.add_special = false, .parse_special = false}).size(), 6U);
}

TEST(ControlTokens, ThoseOfThoughtsArePartOfWhatAModelSays) {
  TokenizerSpec spec = ByteLevelSpec();
  const int32_t begin = AddToken(&spec, "[THINK]", kControl);
  const int32_t end = AddToken(&spec, "[/THINK]", kControl);
  const auto tokenizer = Tokenizer::Create(spec);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ((*tokenizer)->Decode({begin, 'a', end, 'b'}), "[THINK]a[/THINK]b");
}

// What ends the answer is none of them, and other models have some of these names for something else.
TEST(ControlTokens, ThoseOfChannelsArePartOfWhatAModelWithChannelsSays) {
  TokenizerSpec spec = ByteLevelSpec();
  std::vector<int32_t> marks;
  for (const char* name : {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>"})
    marks.push_back(AddToken(&spec, name, kControl));
  const auto without_ends = Tokenizer::Create(spec);
  ASSERT_TRUE(without_ends.ok());
  for (const int32_t mark : marks) EXPECT_TRUE((*without_ends)->IsControl(mark)) << mark;
  const std::vector<int32_t> ends = {AddToken(&spec, "<|return|>", kControl),
                                     AddToken(&spec, "<|call|>", kControl)};
  const auto tokenizer = Tokenizer::Create(spec);
  ASSERT_TRUE(tokenizer.ok());
  for (const int32_t mark : marks) {
    EXPECT_FALSE((*tokenizer)->IsControl(mark)) << mark;
    EXPECT_FALSE((*tokenizer)->IsEndOfGeneration(mark)) << mark;
  }
  for (const int32_t end : ends)
    EXPECT_TRUE((*tokenizer)->IsControl(end) && (*tokenizer)->IsEndOfGeneration(end));
}

TEST(ControlTokens, PlacesAreFoundByName) {
  TokenizerSpec spec = ByteLevelSpec();
  const int32_t other = AddToken(&spec, "<fim_prefix>", kControl);
  const int32_t first = AddToken(&spec, "<|fim_prefix|>", kControl);
  const int32_t hole = AddToken(&spec, "<｜fim▁hole｜>", kControl);
  TokenizerSpec settled = spec;
  SettleControlTokens(&settled);
  EXPECT_EQ(settled.fim_prefix, first);
  EXPECT_EQ(settled.fim_suffix, hole);
  EXPECT_EQ(settled.fim_middle, -1);
  EXPECT_EQ(settled.eom, -1);
  spec.fim_prefix = other;  // what the file says counts
  SettleControlTokens(&spec);
  EXPECT_EQ(spec.fim_prefix, other);
  SettleControlTokens(&settled);
  EXPECT_EQ(settled.fim_prefix, first);
}

TEST(ControlTokens, AVocabularyWithoutAnyStaysAsItIs) {
  TokenizerSpec spec = ByteLevelSpec();
  spec.token_types.clear();
  SettleControlTokens(&spec);
  EXPECT_TRUE(spec.token_types.empty());
  EXPECT_THAT(EndsOfGeneration(spec), ElementsAre());
}

}  // namespace
}  // namespace longspec
