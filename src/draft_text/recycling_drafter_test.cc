// SPDX-License-Identifier: Apache-2.0
//
// Likely tokens of earlier rows are proposed again, in memory and from a file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "base/testing/files.h"
#include "draft/drafter.h"
#include "draft/testing/trees.h"
#include "draft_model/registry.h"
#include "draft_text/recycling.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kVocab = 20;

class VocabularyOnly final : public Target {
 public:
  explicit VocabularyOnly(int vocab = kVocab) : vocab_(vocab) {}
  int vocab_size() const override { return vocab_; }
  int context_length() const override { return 1000; }
  Result<TargetOutput> Forward(std::span<const ForwardSegment>) override {
    return Unsupported("no forward pass");
  }

 private:
  int vocab_;
};

// Logits whose order is favourite, favourite + 1, ... around the vocabulary.
std::vector<float> Favouring(int favourite) {
  std::vector<float> logits(kVocab);
  for (int i = 0; i < kVocab; ++i) {
    logits[static_cast<size_t>((favourite + i) % kVocab)] = static_cast<float>(-i);
  }
  return logits;
}

// A verification's output, one row for each node's favourite.
struct Rows {
  Rows(TokenTree verified, std::vector<int32_t> text, const std::vector<int>& favourites)
      : tree(std::move(verified)), sequence(std::move(text)) {
    for (const int f : favourites) {
      const auto row = Favouring(f);
      logits.insert(logits.end(), row.begin(), row.end());
    }
    output.logits = {logits.data(), static_cast<int>(favourites.size()), kVocab};
  }
  // Two rows of missing tokens, which have no logits, were before the tree's.
  CommittedRows Committed() const {
    return {.sequence = sequence,
            .n_new = 1,
            .output = &output,
            .n_output_rows = output.logits.size() + 2,
            .tree = &tree,
            .root_row = 2};
  }
  TokenTree tree;
  std::vector<int32_t> sequence;
  std::vector<float> logits;
  TargetOutput::Segment output;
};

class RecyclingTest : public ::testing::Test {
 protected:
  void SetUp() override { options_.type = "recycling"; }

  std::unique_ptr<Drafter> Make() {
    auto drafter = MakeDrafter(options_, {.target = &target_});
    EXPECT_TRUE(drafter.ok()) << drafter.status().message();
    return std::move(*drafter);
  }

  static TokenTree Propose(Drafter& drafter, const std::vector<int32_t>& text, DraftBudget budget) {
    TokenTree tree(text.back());
    EXPECT_TRUE(drafter.Propose(budget, text, tree).ok());
    EXPECT_LE(tree.size() - 1, budget.max_nodes);
    EXPECT_LE(tree.max_depth(), budget.max_depth);
    return tree;
  }

  // Teaches every token that its successor is the next one.
  static void TeachSuccessors(Drafter& drafter) {
    for (int32_t token = 0; token < kVocab; ++token) {
      const std::vector<int32_t> text = {token, (token + 1) % kVocab};
      ASSERT_TRUE(drafter.Read(Rows(TokenTree(token), text, {token + 1}).Committed()).ok());
    }
  }

  const testing::Folder folder_;
  const std::string path_ = folder_.File("learned");
  VocabularyOnly target_;
  SpeculationOptions options_;
};

TEST(RecyclingTree, HasThePapersLevels) {
  const auto& tree = RecyclingTree();
  ASSERT_EQ(tree.size(), 80U);
  std::map<int, int> levels;
  std::map<std::pair<int, int>, int> seen;
  for (size_t i = 0; i < tree.size(); ++i) {
    const RecyclingNode& node = tree[i];
    ++levels[node.depth];
    ASSERT_LT(node.parent, static_cast<int32_t>(i));
    const bool top = node.parent < 0;
    EXPECT_EQ(node.depth, top ? 1 : tree[static_cast<size_t>(node.parent)].depth + 1);
    EXPECT_LT(node.score, top ? 1.0F : tree[static_cast<size_t>(node.parent)].score);
    EXPECT_LE(node.score, i == 0 ? 1.0F : tree[i - 1].score);
    EXPECT_EQ(++seen[std::pair(node.parent, node.rank)], 1);
    if (node.rank > 0) {
      EXPECT_EQ((seen[std::pair(node.parent, node.rank - 1)]), 1);  // no rank without those before it
    }
  }
  EXPECT_THAT(levels, ElementsAre(std::pair(1, 8), std::pair(2, 21), std::pair(3, 25), std::pair(4, 15),
                                  std::pair(5, 8), std::pair(6, 3)));
}

TEST_F(RecyclingTest, NothingIsProposedAfterUnknownTokens) {
  const auto drafter = Make();
  EXPECT_EQ(Propose(*drafter, {1, 2, 3}, {80, 80}).size(), 1);
  EXPECT_TRUE(drafter->Read({.sequence = std::vector<int32_t>{1, 2, 3, 4}, .n_new = 1}).ok());
  EXPECT_EQ(Propose(*drafter, {1, 2, 3, 4}, {80, 80}).size(), 1);
}

TEST_F(RecyclingTest, EveryVerifiedRowTeaches) {
  const auto drafter = Make();
  // Root 3 was verified alone: its candidates are 5, 6, ... 12.
  ASSERT_TRUE(drafter->Read(Rows(TokenTree(3), {3, 5}, {5}).Committed()).ok());
  EXPECT_EQ(Propose(*drafter, {9, 5}, {80, 80}).size(), 1);
  const TokenTree first = Propose(*drafter, {9, 3}, {80, 80});
  ASSERT_EQ(first.size(), 9);
  for (int32_t rank = 0; rank < 8; ++rank) EXPECT_GE(first.FindChild(0, 5 + rank), 0);
  EXPECT_EQ(first.node(first.FindChild(0, 5)).score, RecyclingTree()[0].score);
  // Now that tree is verified, a row a node; only the root's own draw is accepted, and it was none of them.
  std::vector<int> favourites;
  for (int i = 0; i < first.size(); ++i) favourites.push_back(first.node(i).token + 7);
  ASSERT_TRUE(drafter->Read(Rows(first, {9, 3, 1}, favourites).Committed()).ok());
  for (int32_t token : {3, 5, 6, 12}) {
    const TokenTree next = Propose(*drafter, {token}, {8, 1});
    ASSERT_EQ(next.size(), 9) << token;
    EXPECT_EQ(next.node(1).token, (token + 7) % kVocab);
    for (int32_t rank = 0; rank < 8; ++rank) EXPECT_GE(next.FindChild(0, (token + 7 + rank) % kVocab), 0);
  }
  EXPECT_EQ(Propose(*drafter, {13}, {80, 80}).size(), 1);
}

TEST_F(RecyclingTest, OfEqualNodesTheLastRowStays) {
  const auto drafter = Make();
  TeachSuccessors(*drafter);
  const TokenTree tree = Propose(*drafter, {0}, {80, 80});
  ASSERT_EQ(tree.size(), 81);
  std::vector<int> favourites;
  std::map<int32_t, int> last;
  for (int i = 0; i < tree.size(); ++i) {
    favourites.push_back(i % kVocab);
    last[tree.node(i).token] = i % kVocab;
  }
  EXPECT_LT(last.size(), 81U);
  ASSERT_TRUE(drafter->Read(Rows(tree, {0, 1}, favourites).Committed()).ok());
  for (const auto& [token, favourite] : last) {
    EXPECT_EQ(Propose(*drafter, {token}, {1, 1}).node(1).token, favourite) << token;
  }
}

TEST_F(RecyclingTest, ATreeThatWasNotVerifiedTeachesItsRootOnly) {
  const auto drafter = Make();
  TeachSuccessors(*drafter);
  EXPECT_GT(Propose(*drafter, {0}, {8, 8}).size(), 2);
  ASSERT_TRUE(drafter->Read(Rows(TokenTree(0), {0, 9}, {9}).Committed()).ok());
  EXPECT_EQ(Propose(*drafter, {0}, {1, 1}).node(1).token, 9);
  EXPECT_EQ(Propose(*drafter, {1}, {1, 1}).node(1).token, 2);
  // A tree proposed in a round whose verdict never came is not taken for the next one's.
  EXPECT_GT(Propose(*drafter, {2}, {8, 8}).size(), 2);
  ASSERT_TRUE(drafter->Follow(std::vector<int32_t>{4}).ok());
  ASSERT_TRUE(drafter->Read(Rows(TokenTree(4), {4, 0}, {0}).Committed()).ok());
  EXPECT_EQ(Propose(*drafter, {4}, {1, 1}).node(1).token, 0);
}

TEST_F(RecyclingTest, BudgetsAndWidthsCutTheTree) {
  for (const auto& [tree, width] : {std::pair{"", 8}, {"chain", 1}, {"1", 1}, {"4", 4}, {"64", 8}}) {
    options_.tree = tree;
    const auto drafter = Make();
    TeachSuccessors(*drafter);
    int full = 0;
    for (const RecyclingNode& node : RecyclingTree()) full += node.rank < width ? 1 : 0;
    if (width == 1) {
      full = 6;
    }
    for (const int nodes : {0, 1, 8, 40, 200}) {
      for (const int depth : {0, 1, 3, 9}) {
        const TokenTree drafted = Propose(*drafter, {0}, {nodes, depth});
        if (depth == 9 && width == 8) {
          EXPECT_EQ(drafted.size() - 1, std::min(nodes, full));
        }
        if (depth == 9 && width == 1) {
          EXPECT_TRUE(drafted.is_chain());
          EXPECT_EQ(drafted.size() - 1, std::min(nodes, full));
        }
        std::map<int, int> children;
        for (int i = 1; i < drafted.size(); ++i) {
          EXPECT_LE(++children[drafted.node(i).parent], width);
        }
      }
    }
  }
}

TEST_F(RecyclingTest, WithDiceTheNumbersCount) {
  options_.tree = "8";
  const auto drafter = Make();
  TeachSuccessors(*drafter);
  const Sampler sampler = testing::UnfilteredSampler(kVocab);
  int changed = 0, inversions_elsewhere = 0;
  for (size_t length = 1; length <= 60; ++length) {
    const std::vector<int32_t> text(length, 0);
    for (const auto& [nodes, depth] : {std::pair{80, 9}, {12, 3}, {1, 1}, {3, 0}, {0, 3}}) {
      DraftBudget budget = {.max_nodes = nodes, .max_depth = depth};
      const TokenTree plain = Propose(*drafter, text, budget);
      budget.foresight = Foresight(&sampler, true);
      const TokenTree tree = Propose(*drafter, text, budget);
      ASSERT_NO_FATAL_FAILURE(testing::ExpectWellFormed(tree, budget));
      ASSERT_EQ(tree.size(), plain.size());
      const auto share = [&](int node) {
        const int32_t before = tree.node(tree.node(node).parent).token;
        return kRankShare[static_cast<size_t>((tree.node(node).token - before - 1 + kVocab) % kVocab)];
      };
      EXPECT_EQ(testing::DiceInversions(tree, length, sampler, share), 0);
      inversions_elsewhere += testing::DiceInversions(tree, length + 1, sampler, share);
      for (int i = 1; i < tree.size(); ++i) changed += tree.node(i).token != plain.node(i).token ? 1 : 0;
    }
  }
  EXPECT_GT(changed, 1000);
  EXPECT_GT(inversions_elsewhere, 100);  // the numbers of another position would be noticed
}

TEST_F(RecyclingTest, MemoryDependsOnTheVocabularyOnly) {
  const auto drafter = Make();
  EXPECT_EQ(drafter->bytes(), kVocab * 8 * sizeof(int32_t));
  TeachSuccessors(*drafter);
  EXPECT_EQ(drafter->bytes(), kVocab * 8 * sizeof(int32_t));
  EXPECT_EQ(RecyclingTable(49152).bytes(), 1572864U);
}

TEST_F(RecyclingTest, AFileWarmsTheNextRun) {
  options_.recycling.file = path_;
  {
    const auto drafter = Make();  // there is no such file yet
    TeachSuccessors(*drafter);
  }
  const auto warm = Make();
  EXPECT_EQ(Propose(*warm, {4}, {80, 80}).size(), 81);
  EXPECT_EQ(Propose(*warm, {4}, {1, 1}).node(1).token, 5);
}

TEST_F(RecyclingTest, AnUntaughtTableIsNotWritten) {
  options_.recycling.file = path_;
  Make();
  EXPECT_FALSE(std::filesystem::exists(path_));
  options_.recycling.file = "/nonexistent/table";
  const auto refused = MakeDrafter(options_, {.target = &target_});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("/nonexistent/table"));
}

TEST_F(RecyclingTest, RefusesFilesThatAreNotItsOwn) {
  RecyclingTable table(kVocab);
  table.Update(3, LogitRow(Favouring(4)));
  ASSERT_TRUE(table.Save(path_).ok());
  const std::string good = testing::ReadText(path_);
  const auto refusal = [&](const std::string& bytes) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
    const auto loaded = RecyclingTable::Load(path_, kVocab);
    EXPECT_FALSE(loaded.ok());
    EXPECT_THAT(loaded.status().message(), HasSubstr(path_));
    options_.recycling.file = path_;
    EXPECT_EQ(MakeDrafter(options_, {.target = &target_}).status().message(), loaded.status().message());
    return loaded.status();
  };
  for (size_t n = 0; n < good.size(); n += n < 30 ? 1 : 37) {
    EXPECT_EQ(refusal(good.substr(0, n)).code(), StatusCode::kCorrupt) << n;
  }
  EXPECT_EQ(refusal(good + "x").code(), StatusCode::kCorrupt);
  const auto with = [&](size_t at, uint32_t value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + at, &value, 4);
    return bytes;
  };
  EXPECT_EQ(refusal(with(0, 7)).code(), StatusCode::kCorrupt);
  EXPECT_EQ(refusal(with(8, 2)).code(), StatusCode::kUnsupported);
  EXPECT_EQ(refusal(with(12, 4)).code(), StatusCode::kUnsupported);
  EXPECT_THAT(refusal(with(16, 21)).message(),
              HasSubstr("made for a vocabulary of 21 tokens; this model has 20"));
  EXPECT_THAT(refusal(with(24, kVocab)).message(), HasSubstr("names token 20"));
  EXPECT_THAT(refusal(with(24, 0xFFFFFFFE)).message(), HasSubstr("names token -2"));
  std::ofstream(path_, std::ios::binary | std::ios::trunc) << good;
  const auto loaded = RecyclingTable::Load(path_, kVocab);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->Candidate(3, 0), 4);
  EXPECT_EQ(loaded->Candidate(3, 7), 11);
  EXPECT_EQ(loaded->Candidate(4, 0), -1);
}

TEST_F(RecyclingTest, NeedsATarget) {
  EXPECT_THAT(MakeDrafter(options_).status().message(), HasSubstr("--spec-type recycling"));
  options_.tree = "wide";
  EXPECT_THAT(CheckDrafter(options_).message(), HasSubstr("--spec-tree wide"));
}

}  // namespace
}  // namespace longspec
