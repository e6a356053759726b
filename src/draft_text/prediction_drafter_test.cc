// SPDX-License-Identifier: Apache-2.0
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
    auto drafter = MakeDrafter({.type = "prediction", .prediction = {.tokens = Letters(text)}});
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
  EXPECT_THAT(After("z"), IsEmpty());
}

TEST_F(PredictionDrafterTest, AnEmptyTextProposesNothing) {
  Predict("");
  EXPECT_THAT(After(""), IsEmpty());
  EXPECT_THAT(After("abc"), IsEmpty());
  EXPECT_THAT(After("abc", 0), IsEmpty());
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
