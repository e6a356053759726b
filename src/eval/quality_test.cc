// SPDX-License-Identifier: Apache-2.0
//
// Scores of answers against references.
#include "eval/quality.h"

#include <gtest/gtest.h>

#include <cmath>

namespace longspec {
namespace {

TEST(Rouge, CountsWordsAndTheirOrder) {
  EXPECT_DOUBLE_EQ(Rouge1("The cat sat.", "the CAT sat"), 1.0);
  EXPECT_DOUBLE_EQ(Rouge1("the cat", "a dog"), 0.0);
  // 3 of 4 words and 3 of 5: F1 = 2 * 3 / 9.
  EXPECT_DOUBLE_EQ(Rouge1("cat the sat down", "the cat sat on it"), 6.0 / 9.0);
  EXPECT_DOUBLE_EQ(RougeL("cat the sat down", "the cat sat on it"), 4.0 / 9.0);
  EXPECT_DOUBLE_EQ(Rouge1("the the the", "the"), 0.5);  // a word counts as often as in both
  for (const char* empty : {"", "...", "  "}) {
    EXPECT_EQ(Rouge1(empty, "the"), 0.0);
    EXPECT_EQ(RougeL("the", empty), 0.0);
  }
  EXPECT_DOUBLE_EQ(RougeL("größe zählt", "größe zählt"), 1.0);
}

TEST(Bleu, IsOneForTheSameAndFallsWithOrderAndLength) {
  const char* reference = "the quick brown fox jumps over the lazy dog";
  EXPECT_NEAR(Bleu(reference, reference), 1.0, 1e-12);
  EXPECT_EQ(Bleu("", reference), 0.0);
  EXPECT_EQ(Bleu("zebra", reference), 0.0);
  EXPECT_LT(Bleu("dog lazy the over jumps fox brown quick the", reference), 0.5);
  // All four of nine words, in order: precisions are 1, the brevity penalty is exp(1 - 9/4).
  EXPECT_NEAR(Bleu("the quick brown fox", reference), std::exp(1 - 9.0 / 4), 1e-12);
  // 1/2; (0+1)/(1+1); nothing longer, smoothed to 1: (1/2 * 1/2)^(1/4).
  EXPECT_NEAR(Bleu("a b", "a c"), std::pow(0.25, 0.25), 1e-12);
}

TEST(Answers, AreFoundAsWholeWords) {
  EXPECT_EQ(AnswersFound("It is 4711.", "4711"), 1.0);
  EXPECT_EQ(AnswersFound("It is 47110.", "4711"), 0.0);
  EXPECT_EQ(AnswersFound("first 12, then 13", "12, 14"), 0.5);
  EXPECT_EQ(AnswersFound("the Eiffel  tower", "Eiffel Tower"), 1.0);
  EXPECT_EQ(AnswersFound("anything", ""), 0.0);
}

TEST(FinalNumber, IsTheLastOfTheReference) {
  EXPECT_EQ(FinalNumberFound("so 42 in all", "7*6=42 minutes\n#### 42"), 1.0);
  EXPECT_EQ(FinalNumberFound("so 7 in all", "7*6=42 minutes\n#### 42"), 0.0);
  EXPECT_EQ(FinalNumberFound("1,200 dollars", "#### 1200"), 1.0);
  EXPECT_EQ(FinalNumberFound("1200 dollars", "#### 1,200"), 1.0);
  EXPECT_EQ(FinalNumberFound("5", "42"), 0.0);
  EXPECT_EQ(FinalNumberFound("42", "42"), 1.0);
  EXPECT_EQ(FinalNumberFound("42", "none"), 0.0);
}

TEST(EditSimilarity, ComparesWithAsMuchOfTheReference) {
  EXPECT_DOUBLE_EQ(EditSimilarity("abcd", "abcdefgh"), 1.0);
  EXPECT_DOUBLE_EQ(EditSimilarity("abXd", "abcdefgh"), 0.75);
  EXPECT_DOUBLE_EQ(EditSimilarity("bcd", "abc"), 1 - 2.0 / 3);
  EXPECT_DOUBLE_EQ(EditSimilarity("abcd", "ab"), 0.5);
  EXPECT_DOUBLE_EQ(EditSimilarity("", "ab"), 0.0);
}

TEST(MeasureQuality, FollowsTheFamily) {
  const auto first = [](const char* family) { return MeasureQuality(family, "42", "42").front().first; };
  EXPECT_EQ(first("needle"), "answer");
  EXPECT_EQ(first("multihop_qa"), "answer");
  EXPECT_EQ(first("gsm8k"), "answer");
  EXPECT_EQ(first("math_reasoning"), "answer");
  EXPECT_EQ(first("code_completion"), "edit_similarity");
  EXPECT_EQ(first("book_continuation"), "bleu");
  EXPECT_EQ(first("gov_report"), "rouge1");
  EXPECT_EQ(MeasureQuality("gov_report", "a", "a").size(), 2U);
}

}  // namespace
}  // namespace longspec
