// SPDX-License-Identifier: Apache-2.0
//
// A text that the answer is likely to be is followed, left and found again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

#include "draft/drafter.h"
#include "draft_model/registry.h"
#include "draft_text/testing/letters.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using testing::Letters;
using Text = std::vector<int32_t>;

class PredictionDrafterTest : public ::testing::Test {
 protected:
  void Predict(std::string_view text) {
    auto drafter =
        MakeDrafter({.type = "prediction", .tree = "chain", .prediction = {.tokens = Letters(text)}});
    ASSERT_TRUE(drafter.ok()) << drafter.status().message();
    drafter_ = std::move(*drafter);
    ASSERT_TRUE(drafter_->Follow(prompt_).ok());
  }

  // The chain that is proposed after the answer so far.
  Text After(std::string_view answer, int max_nodes = 4) {
    Text committed = prompt_;
    const Text more = Letters(answer);
    committed.insert(committed.end(), more.begin(), more.end());
    TokenTree tree(committed.back());
    EXPECT_TRUE(drafter_->Propose({.max_nodes = max_nodes, .max_depth = max_nodes}, committed, tree).ok());
    EXPECT_LE(tree.size() - 1, max_nodes);
    EXPECT_TRUE(tree.is_chain());
    Text chain;
    for (const TreeNode& node : tree.nodes().subspan(1)) {
      chain.push_back(node.token);
      EXPECT_GT(node.score, 0.0F);
      EXPECT_LE(node.score, 1.0F);
    }
    return chain;
  }

  const Text prompt_ = Letters("qrs def");
  std::unique_ptr<Drafter> drafter_;
};

TEST_F(PredictionDrafterTest, BeginsWithTheTextAndFollowsIt) {
  Predict("abc def ghi");
  EXPECT_THAT(After(""), ElementsAreArray(Letters("abc ")));
  EXPECT_THAT(After("abc"), ElementsAreArray(Letters(" def")));
  EXPECT_THAT(After("abc def gh"), ElementsAre('i'));
  EXPECT_THAT(After("abc def ghi"), IsEmpty());
}

TEST_F(PredictionDrafterTest, FindsItsWayBack) {
  Predict("abc def ghi");
  EXPECT_THAT(After("xyz"), IsEmpty());
  EXPECT_THAT(After("xyz d"), ElementsAreArray(Letters("ef g")));
  EXPECT_THAT(After("abc ghi d"), ElementsAreArray(Letters("ef g")));
}

// What the prompt ends with says nothing of where the answer is.
TEST_F(PredictionDrafterTest, LooksAtTheAnswerAlone) {
  Predict("abc def ghi");
  EXPECT_THAT(After("", 1), ElementsAre('a'));
  EXPECT_THAT(After("zzz"), IsEmpty());
}

TEST_F(PredictionDrafterTest, AnEmptyTextProposesNothing) {
  Predict("");
  EXPECT_THAT(After(""), IsEmpty());
  EXPECT_THAT(After("abc"), IsEmpty());
  EXPECT_THAT(After("abc", 0), IsEmpty());
}

// Where several places are likely, each is in the tree.
TEST(PredictionDrafter, AWordThatIsAnotherIsAddedOrReplaced) {
  const auto drafter =
      MakeDrafter({.type = "prediction", .prediction = {.tokens = Letters("abcdefghijklmno")}});
  ASSERT_TRUE(drafter.ok());
  ASSERT_TRUE((*drafter)->Follow(Letters("?")).ok());
  TokenTree tree('X');
  ASSERT_TRUE((*drafter)->Propose({.max_nodes = 8, .max_depth = 8}, Letters("?abcdefX"), tree).ok());
  EXPECT_GT(tree.FindChild(0, 'h'), 0);
  EXPECT_GT(tree.FindChild(0, 'g'), 0);
}

TEST(PredictionDrafter, KnowsWhatTheAnswerMayBeginWith) {
  const auto drafter = MakeDrafter(
      {.type = "auto",
       .prediction = {.beginnings = {{.tokens = Letters("abc"), .chance = 0.5F}, {Letters("xyz"), 0.3F}}}});
  ASSERT_TRUE(drafter.ok());
  ASSERT_TRUE((*drafter)->Follow(Letters("?")).ok());
  TokenTree tree('?');
  ASSERT_TRUE((*drafter)->Propose({.max_nodes = 8, .max_depth = 8}, Letters("?"), tree).ok());
  EXPECT_GT(tree.FindChild(0, 'a'), 0);
  EXPECT_GT(tree.FindChild(0, 'x'), 0);
  TokenTree behind('x');
  ASSERT_TRUE((*drafter)->Propose({.max_nodes = 8, .max_depth = 8}, Letters("?x"), behind).ok());
  EXPECT_GT(behind.FindChild(0, 'y'), 0);
  EXPECT_LT(behind.FindChild(0, 'b'), 0);
}

// What is learned of the others counts with a prediction and without.
TEST(PredictionDrafter, IsTheLastOfAuto) {
  const auto with = MakeDrafter({.type = "auto", .prediction = {.tokens = {1}}}),
             without = MakeDrafter({.type = "auto"});
  ASSERT_TRUE(with.ok() && without.ok());
  std::vector<std::string_view> sources = (*without)->sources();
  sources.push_back("prediction");
  EXPECT_EQ((*with)->sources(), sources);
}

TEST(PredictionDrafter, IsOneOfAutoWhereThereIsAPrediction) {
  const auto with = MakeDrafter({.type = "auto", .prediction = {.tokens = {1, 2, 3}}});
  ASSERT_TRUE(with.ok());
  EXPECT_THAT((*with)->sources(), ::testing::Contains("prediction"));
  const auto without = MakeDrafter({.type = "auto"});
  ASSERT_TRUE(without.ok());
  EXPECT_THAT((*without)->sources(), ::testing::Not(::testing::Contains("prediction")));
  EXPECT_FALSE(CheckDrafter({.type = "prediction", .prediction = {.tokens = {-1}}}).ok());
  EXPECT_FALSE(CheckDrafter({.type = "prediction", .tree = "bush"}).ok());
}

}  // namespace
}  // namespace longspec
