// SPDX-License-Identifier: Apache-2.0
//
// Every byte has a printable character of its own, and comes back from it.
#include "tokenizer/bpe_alphabet.h"

#include <gtest/gtest.h>

#include <set>

#include "base/utf8.h"

namespace longspec {
namespace {

TEST(BpeAlphabet, EveryByteHasItsOwnPrintableCharacter) {
  std::set<std::string> seen;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string character = AlphabetCharacter(static_cast<uint8_t>(byte));
    EXPECT_TRUE(seen.insert(character).second) << byte;
    const Utf8Step step = ScanUtf8(character);
    EXPECT_EQ(step.kind, Utf8Kind::kCharacter) << byte;
    EXPECT_EQ(step.length, character.size()) << byte;
    EXPECT_EQ(BytesFromAlphabet(character), std::string(1, static_cast<char>(byte))) << byte;
  }
}

// The letters that GPT-2's vocabulary has for bytes that print and for those that do not, and back.
TEST(BpeAlphabet, KnownCharacters) {
  EXPECT_EQ(AlphabetCharacter('A'), "A");
  EXPECT_EQ(AlphabetCharacter(' '), "Ġ");
  EXPECT_EQ(AlphabetCharacter('\n'), "Ċ");
  EXPECT_EQ(AlphabetCharacter(0x00), "Ā");
  EXPECT_EQ(AlphabetCharacter(0x7F), "ġ");
  EXPECT_EQ(AlphabetCharacter(0xAD), "Ń");
  EXPECT_EQ(AlphabetCharacter(0xFF), "ÿ");
  EXPECT_EQ(BytesFromAlphabet("Ġworld"), " world");
  EXPECT_EQ(BytesFromAlphabet("Ã©"), "é");
}

TEST(BpeAlphabet, WhatIsOutsideStandsForItself) {
  EXPECT_EQ(BytesFromAlphabet("<a b>"), "<a b>");    // a space is not of the alphabet
  EXPECT_EQ(BytesFromAlphabet("a｜Ġ"), "a｜ ");      // three bytes of UTF-8
  EXPECT_EQ(BytesFromAlphabet("\u0144"), "\u0144");  // just past the alphabet
  EXPECT_EQ(BytesFromAlphabet("\xC4"), "\xC4");      // truncated
  EXPECT_EQ(BytesFromAlphabet("\xC4z"), "\xC4z");
  EXPECT_EQ(BytesFromAlphabet("\xFF\x80"), "\xFF\x80");
}

}  // namespace
}  // namespace longspec
