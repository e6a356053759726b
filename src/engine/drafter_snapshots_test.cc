// SPDX-License-Identifier: Apache-2.0
//
// What drafters keep goes to session files and back: a drafter for the test, and one that is registered.
#include "engine/drafter_snapshots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/testing/files.h"
#include "draft_model/registry.h"
#include "formats/tiny_model.h"
#include "longspec/engine.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Keeps a number for each token of its sequence, as one that reads the target's hidden states would.
class StatefulDrafter final : public Drafter {
 public:
  explicit StatefulDrafter(std::string name = "stateful") : name_(std::move(name)) {}
  std::string_view name() const override { return name_; }
  Status Follow(std::span<const int32_t> committed) override {
    followed.assign(committed.begin(), committed.end());
    if (kept.size() > followed.size()) kept.resize(followed.size());
    return can_follow ? Status() : IoError("cannot follow");
  }
  Status Propose(const DraftBudget&, std::span<const int32_t>, TokenTree&) override { return {}; }
  Status Read(const CommittedRows&) override { return {}; }
  std::vector<DrafterSnapshot> Snapshots() const override {
    const auto bytes = std::as_bytes(std::span(kept));
    return {{.drafter = name_, .version = 2, .bytes = {bytes.begin(), bytes.end()}}};
  }
  Status Restore(const DrafterSnapshot& snapshot) override {
    if (snapshot.drafter != name_) return {};
    if (snapshot.version != 2)
      return Unsupported("its state is of version " + std::to_string(snapshot.version));
    if (snapshot.bytes.size() != followed.size() * sizeof(float))
      return Corrupt("its state is of another text");
    kept.resize(followed.size());
    std::memcpy(kept.data(), snapshot.bytes.data(), snapshot.bytes.size());
    return {};
  }
  std::vector<int32_t> followed;
  std::vector<float> kept;
  bool can_follow = true;

 private:
  std::string name_;
};

class DrafterSnapshots : public ::testing::Test {
 protected:
  // Saved, changed if `damage`, and read.
  std::vector<DrafterSnapshot> ThroughAFile(const std::vector<DrafterSnapshot>& snapshots,
                                            std::string* notice, bool damage = false) {
    const SessionContents contents{
        .belongs_to = {{"model", "x"}}, .tokens = tokens_, .chunks = {}, .sections = SectionsOf(snapshots)};
    EXPECT_TRUE(WriteSessionFile(path_, contents).ok());
    if (damage) {
      std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
      file.seekp(-1, std::ios::end);
      file.put('\x55');
    }
    const auto read = ReadSessionFile(path_);
    EXPECT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read->contents.tokens, tokens_);
    return SnapshotsOf(read->contents, notice);
  }

  const testing::Folder folder_;
  const std::string path_ = folder_.File("snapshots");
  const std::vector<int32_t> tokens_ = {4, 5, 6};
  std::string notice_;
};

TEST_F(DrafterSnapshots, ComesBackToANewDrafter) {
  StatefulDrafter before;
  before.kept = {0.5F, -1, 2};
  const auto snapshots = ThroughAFile(before.Snapshots(), &notice_);
  StatefulDrafter after;
  RestoreSnapshots(tokens_, snapshots, after, &notice_);
  EXPECT_THAT(after.followed, ElementsAre(4, 5, 6));
  EXPECT_THAT(after.kept, ElementsAre(0.5F, -1, 2));
  EXPECT_EQ(notice_, "");
  // Then the sequence goes on from what they have in common.
  ASSERT_TRUE(after.Follow(std::vector<int32_t>{4, 9}).ok());
  EXPECT_THAT(after.kept, ElementsAre(0.5F, -1));
  // Who keeps nothing gets nothing, and has nothing to say.
  auto none = MakeDrafter({.type = "ngram"});
  ASSERT_TRUE(none.ok());
  EXPECT_THAT((*none)->Snapshots(), IsEmpty());
  RestoreSnapshots(tokens_, snapshots, **none, &notice_);
  EXPECT_EQ(notice_, "");
}

TEST_F(DrafterSnapshots, WhatCannotBeUsedIsLeftOutWithANotice) {
  StatefulDrafter before("a"), other("b");
  before.kept = {1, 2, 3};
  other.kept = {4, 5, 6};
  std::vector<DrafterSnapshot> both = before.Snapshots();
  both.push_back(other.Snapshots()[0]);
  const auto snapshots = ThroughAFile(both, &notice_, true);  // the last byte is b's
  ASSERT_EQ(snapshots.size(), 1U);
  EXPECT_EQ(snapshots[0].drafter, "a");
  EXPECT_EQ(notice_, "the session file's state of b is damaged: it learns anew");

  both[0].version = 3;
  both[1].bytes.pop_back();
  StatefulDrafter a("a"), b("b");
  notice_.clear();
  RestoreSnapshots(tokens_, both, a, &notice_);
  RestoreSnapshots(tokens_, both, b, &notice_);
  EXPECT_EQ(notice_, "a learns anew: its state is of version 3; b learns anew: its state is of another text");
  EXPECT_THAT(a.kept, IsEmpty());

  StatefulDrafter stuck("a");
  stuck.can_follow = false;
  notice_.clear();
  RestoreSnapshots(tokens_, before.Snapshots(), stuck, &notice_);
  EXPECT_THAT(stuck.kept, IsEmpty());
}

// Token Recycling learns from logits, which tokens do not tell again. Alone and as a member.
TEST_F(DrafterSnapshots, RecyclingGoesOnWithWhatItLearned) {
  const std::string model = folder_.File("tiny.gguf"), saved = folder_.File("tiny.session");
  TinyModelOptions tiny;
  tiny.context_length = 1024;
  ASSERT_TRUE(WriteTinyModel(tiny, model).ok());
  for (const char* type : {"recycling", "ngram,recycling"}) {
    ModelOptions options{.path = model, .calibration_cache = false};
    const auto engine = Engine::Load(options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    GenerationRequest request;
    for (int i = 0; i < 40; ++i) request.tokens.push_back(30 + i % 3);
    request.n_predict = 60;
    request.ignore_eos = true;
    request.sampling.temperature = 0;
    request.speculation = {.type = type, .draft_n_max = 8, .policy = "fixed"};
    auto session = (*engine)->NewSession();
    const auto first = (*engine)->Generate(**session, request);
    ASSERT_TRUE(first.ok()) << first.status().message();
    ASSERT_TRUE((*engine)->SaveSession(**session, saved).ok());

    GenerationRequest next = request;
    next.tokens = (*session)->tokens();
    next.n_predict = 2;  // of which one can be drafted, by who knows what follows the last token
    const auto uninterrupted = (*engine)->Generate(**session, next);
    auto loaded = (*engine)->LoadSession(saved);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    const auto went_on = (*engine)->Generate(**loaded, next);
    ASSERT_TRUE(went_on.ok());
    EXPECT_EQ(went_on->tokens, uninterrupted->tokens);
    EXPECT_EQ(went_on->timings.draft_n, uninterrupted->timings.draft_n) << type;
    EXPECT_EQ(went_on->timings.draft_n_accepted, uninterrupted->timings.draft_n_accepted) << type;

    // A loaded session that is saved again before anything is generated keeps it; a damaged one says so.
    auto again = (*engine)->LoadSession(saved);
    ASSERT_TRUE((*engine)->SaveSession(**again, saved).ok());
    std::fstream file(saved, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-2, std::ios::end);
    file.put('\x55');
    file.close();
    auto damaged = (*engine)->LoadSession(saved);
    ASSERT_TRUE(damaged.ok()) << damaged.status().message();
    const auto anew = (*engine)->Generate(**damaged, next);
    EXPECT_EQ(anew->tokens, uninterrupted->tokens);
    if (std::string(type) == "recycling") {
      EXPECT_GT(uninterrupted->timings.draft_n, 0);
      EXPECT_EQ(anew->timings.draft_n, 0);
    }
    EXPECT_THAT(anew->speculative.notice, HasSubstr("state of recycling is damaged"));
    next.tokens = (*damaged)->tokens();
    next.tokens.push_back(30);
    EXPECT_EQ((*engine)->Generate(**damaged, next)->speculative.notice, "");  // once
  }
}

}  // namespace
}  // namespace longspec
