// SPDX-License-Identifier: Apache-2.0
#include "openai/next_edit.h"

#include <gtest/gtest.h>

namespace longspec::openai {
namespace {

// As the plugins of editors write them.
TEST(NextEdit, TheRegionOfSweepsPrompts) {
  const std::string before =
      "<|file_sep|>b.txt\nB\n<|file_sep|>a.ts.diff\noriginal:\nold\nupdated:\nnew\n"
      "<|file_sep|>original/a.ts\none\n<|file_sep|>current/a.ts\n";
  EXPECT_EQ(UneditedRegion(before + "one\ntwo\n<|file_sep|>updated/a.ts\n"), "one\ntwo\n");
  EXPECT_EQ(UneditedRegion(before + "one\ntwo\n<|file_sep|>updated/a.ts"), "one\ntwo\n");
  EXPECT_EQ(UneditedRegion(before + "one\nt<|cursor|>wo\n<|file_sep|>updated/a.ts:1:2\n"), "one\ntwo\n");
  EXPECT_EQ(UneditedRegion(before + "one\n"), std::nullopt);
  EXPECT_EQ(UneditedRegion(before + "one\n<|file_sep|>updated/a.ts\nund"), std::nullopt);
  EXPECT_EQ(UneditedRegion(before + "<|file_sep|>updated/a.ts\n"), std::nullopt);
}

TEST(NextEdit, TheRegionOfZetasPrompts) {
  EXPECT_EQ(
      UneditedRegion("### User Excerpt:\n\n```a.rs\n<|start_of_file|>\nfn f() {}\n<|editable_region_start|>\n"
                     "fn <|user_cursor_is_here|>g() {}\n<|editable_region_end|>\n```\n\n### Response:\n"),
      "<|editable_region_start|>\nfn g() {}\n<|editable_region_end|>");
  EXPECT_EQ(UneditedRegion("<|file_sep|>a.rs\n<|fim_prefix|>\nfn f() {}\n<|fim_middle|>current\nfn "
                           "<|user_cursor|>g() {}\n<|fim_suffix|>\n}\n<|fim_middle|>updated\n"),
            "fn g() {}\n");
  EXPECT_EQ(UneditedRegion(
                "<|fim_prefix|>\na\n<|fim_suffix|>\nc\n<|fim_middle|>current\nb\n<|fim_middle|>updated\n"),
            "b\n");
  EXPECT_EQ(UneditedRegion("<[fim-suffix]>\nc\n<[fim-prefix]><filename>a.rs\na\n<<<<<<< CURRENT\n"
                           "b<|user_cursor|>b\n=======\n<[fim-middle]>"),
            "bb\n");
}

TEST(NextEdit, OtherPromptsHaveNone) {
  for (const char* prompt :
       {"", "one two", "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>", "<|fim_middle|>current\nb",
        "<|editable_region_start|>", "<|editable_region_start|> and <|editable_region_end|> are marks",
        "<<<<<<< CURRENT\na\n=======\nb\n>>>>>>> OTHER\n", "<|file_sep|>current/"})
    EXPECT_EQ(UneditedRegion(prompt), std::nullopt) << prompt;
}

}  // namespace
}  // namespace longspec::openai
