// SPDX-License-Identifier: Apache-2.0
//
// What every cache inherits: the life of a transaction.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "kv/kv_cache.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RecordingCache final : public KvCache {
 public:
  int length() const override { return length_; }
  int capacity() const override { return 10; }
  Exactness exactness() const override { return Exactness::kLossless; }
  size_t bytes() const override { return 0; }
  KvSpan Span(int) const override { return {}; }
  void Truncate(int length) override { length_ = length; }
  bool open() const { return transaction_open(); }

  Status reserve_status;
  int n_rollback = 0;
  std::vector<int32_t> committed_rows;

 protected:
  Status Reserve(int) override { return reserve_status; }
  void CommitRows(std::span<const int32_t> rows) override {
    committed_rows.assign(rows.begin(), rows.end());
    length_ += static_cast<int>(rows.size());
  }
  void Rollback() override { ++n_rollback; }

 private:
  int length_ = 0;
};

TEST(KvTransaction, CommitKeepsAPathAndEnds) {
  RecordingCache cache;
  cache.Truncate(3);
  {
    auto transaction = cache.Begin(5);
    ASSERT_TRUE(transaction.ok());
    EXPECT_TRUE(cache.open());
    EXPECT_EQ(&transaction->cache(), &cache);
    EXPECT_EQ(transaction->base(), 3);
    EXPECT_EQ(transaction->n_rows(), 5);
    transaction->Commit(std::vector<int32_t>{0, 2, 4});
    EXPECT_FALSE(cache.open());
  }
  EXPECT_THAT(cache.committed_rows, ElementsAre(0, 2, 4));
  EXPECT_EQ(cache.n_rollback, 0);
  EXPECT_EQ(cache.length(), 6);
}

TEST(KvTransaction, CommitAllKeepsEveryRow) {
  RecordingCache cache;
  cache.Begin(4)->CommitAll();
  EXPECT_THAT(cache.committed_rows, ElementsAre(0, 1, 2, 3));
}

TEST(KvTransaction, DestructionRollsBackOnceHoweverOftenItMoved) {
  RecordingCache cache;
  {
    auto begun = cache.Begin(2);
    ASSERT_TRUE(begun.ok());
    KvTransaction moved = std::move(begun).value();
    const KvTransaction again = std::move(moved);
    EXPECT_EQ(cache.n_rollback, 0);
    EXPECT_TRUE(cache.open());
  }
  EXPECT_EQ(cache.n_rollback, 1);
  EXPECT_FALSE(cache.open());
  EXPECT_THAT(cache.committed_rows, IsEmpty());
  EXPECT_TRUE(cache.Begin(1).ok());
}

TEST(KvTransaction, BeginSaysWhyThereIsNoRoom) {
  RecordingCache cache;
  cache.Truncate(8);
  EXPECT_TRUE(cache.Begin(2).ok());
  const auto full = cache.Begin(3);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(full.status().message(), HasSubstr("8 of 10 positions are used, 3 more are needed"));
  EXPECT_FALSE(cache.open());
  cache.reserve_status = ResourceExhausted("no memory");
  EXPECT_EQ(cache.Begin(1).status().message(), "no memory");
  EXPECT_FALSE(cache.open());
}

TEST(KvTransactionDeathTest, MisuseIsABug) {
  RecordingCache cache;
  EXPECT_DEATH(static_cast<void>(cache.Begin(0)), "n_rows");
  auto open = cache.Begin(3);
  ASSERT_TRUE(open.ok());
  EXPECT_DEATH(static_cast<void>(cache.Begin(1)), "transaction_open_");
  EXPECT_DEATH(open->Commit(std::vector<int32_t>{0, 3}), "n_rows_");
  EXPECT_DEATH(open->Commit(std::vector<int32_t>{1, 0}), "previous");
  open->CommitAll();
  EXPECT_DEATH(open->CommitAll(), "cache_");
}

}  // namespace
}  // namespace longspec
