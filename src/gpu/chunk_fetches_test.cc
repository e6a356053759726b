// SPDX-License-Identifier: Apache-2.0
//
// Which chunks of host memory passes fetch ahead, and that nobody reads them before they are there: an
// emulated card delivers them as late as it may, and does not let its memory be read until then.
#include "gpu/chunk_fetches.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "gpu/testing/two_targets.h"
#include "kernels/gpu/bodies.h"
#include "kernels/testing/emulated_runtime.h"

namespace longspec::testing {
namespace {

namespace gpu = kernels::gpu;
using kernels::testing::EmulatedRuntime;

// ---- An emulated card's fetches

// Two chunks of the host, of which two layers of three pages are fetched.
class FetchesTest : public ::testing::Test {
 protected:
  static constexpr size_t kChunks = 2, kLayer = 3 * 4096, kBegin = 256;

  FetchesTest() {
    std::vector<const std::byte*> list;
    for (size_t i = 0; i < kChunks; ++i) {
      chunks_.push_back(card_->AllocateOnHost(kBegin + kLayer));
      for (size_t at = 0; at < kBegin + kLayer; ++at) chunks_[i][at] = std::byte((at * (i + 3) / 7) & 255);
      list.push_back(chunks_[i]);
    }
    list.push_back(nullptr);
    card_->Copy(list.data(), list_.data(), list.size() * sizeof(list[0]));
  }
  ~FetchesTest() override {
    for (std::byte* const chunk : chunks_) card_->FreeOnHost(chunk);
  }

  gpu::FetchChunks::Args Both() const {
    return {.chunks = list_.as<const std::byte*>(),
            .n = kChunks + 1,
            .offset = kBegin,
            .bytes = kLayer,
            .to = there_.data()};
  }
  std::vector<std::byte> There(size_t bytes) const {
    std::vector<std::byte> read(bytes);
    card_->Copy(there_.data(), read.data(), bytes);
    return read;
  }

  const std::shared_ptr<EmulatedRuntime> card_ = std::make_shared<EmulatedRuntime>();
  std::vector<std::byte*> chunks_;
  GpuBuffer list_{*card_, (kChunks + 1) * sizeof(const std::byte*)};
  GpuBuffer there_{*card_, (kChunks + 1) * kLayer};
};

TEST_F(FetchesTest, BringALayerOfEachChunk) {
  const std::byte last{17};
  card_->Copy(&last, there_.data() + (kChunks + 1) * kLayer - 1, 1);
  card_->BeginFetch(1, Both());
  card_->AwaitFetch(1);
  EXPECT_TRUE(card_->Wait().ok());
  const std::vector<std::byte> read = There((kChunks + 1) * kLayer);
  for (size_t i = 0; i < kChunks; ++i)
    EXPECT_EQ(std::memcmp(read.data() + i * kLayer, chunks_[i] + kBegin, kLayer), 0) << i;
  EXPECT_EQ(read.back(), std::byte{0xFF});  // of the chunk that is not there nothing was copied
  EXPECT_EQ(card_->n_fetches(), 1);
}

using FetchesDeathTest = FetchesTest;

TEST_F(FetchesDeathTest, MustBeWaitedFor) {
  EXPECT_DEATH(card_->AwaitFetch(0), "was not begun");
  card_->BeginFetch(0, Both());
  EXPECT_DEATH(There(3 * kLayer), "");
  EXPECT_DEATH((void)card_->Wait(), "was not waited for");
  EXPECT_DEATH(card_->BeginFetch(0, Both()), "another one was not waited for");
  card_->AwaitFetch(0);
  EXPECT_EQ(There(3 * kLayer).size(), 3 * kLayer);
}

TEST_F(FetchesDeathTest, WhatIsFetchedMustNotBeWritten) {
  card_->BeginFetch(0, Both());
  chunks_[1][0] = std::byte{1};  // of another layer
  chunks_[1][kBegin + 5] ^= std::byte{1};
  EXPECT_DEATH(card_->AwaitFetch(0), "was written");
  chunks_[1][kBegin + 5] ^= std::byte{1};
  card_->AwaitFetch(0);
}

TEST_F(FetchesDeathTest, AGraphHasBothOfThem) {
  gpu::LaunchList list;
  list.BeginFetch(0, Both());
  EXPECT_DEATH(card_->MakeGraph(list), "ends with a fetch");
  list.BeginFetch(0, Both());
  EXPECT_DEATH(card_->MakeGraph(list), "does not wait");
  list.Clear();
  list.AwaitFetch(1);
  EXPECT_DEATH(card_->MakeGraph(list), "does not begin");
}

TEST_F(FetchesTest, ListsThatFetchOtherwiseAreOthers) {
  const auto list = [this](int place, int64_t offset) {
    gpu::FetchChunks::Args args = Both();
    args.offset = offset;
    gpu::LaunchList of;
    of.BeginFetch(place, args);
    of.AwaitFetch(place);
    return of;
  };
  EXPECT_TRUE(list(0, 256) == list(0, 256));
  EXPECT_FALSE(list(0, 256) == list(1, 256));
  EXPECT_FALSE(list(0, 256) == list(0, 512));
}

// ---- Those of passes

// Three layers and four chunks of one text: the first on the card, and the last is what passes write.
class FetchesOfPasses : public ::testing::Test {
 protected:
  OnBoth With(size_t room) {
    return OnBoth(both_, CacheType::kF16, {.memory_chunks = 1, .to_host = true, .fetched_chunks = room});
  }
  // What was fetched meanwhile.
  int64_t Pass(OnBoth& on, const OnBoth::Sequence& text, LogitsFor logits = LogitsFor::kAllRows) {
    const int64_t before = card().n_fetches();
    on.Pass({&text}, {{.tokens = Part(tokens_, n_, n_ + 1), .logits = logits}});
    ++n_;
    return card().n_fetches() - before;
  }
  EmulatedRuntime& card() const { return static_cast<EmulatedRuntime&>(*both_.card); }

  TwoTargets both_{{.n_layers = 3}};
  const Tokens tokens_ = RandomTokens(800);
  int n_ = 780;
};

TEST_F(FetchesOfPasses, AreWhatEachLayerReads) {
  OnBoth none = With(0);
  const auto text = none.Begun(Part(tokens_, 0, n_));
  EXPECT_EQ(Pass(none, text), 0);
  OnBoth one_by_one = With(1);
  const auto same = one_by_one.Begun(Part(tokens_, 0, n_));
  EXPECT_EQ(Pass(one_by_one, same), 2 * 3);
  EXPECT_EQ(Pass(one_by_one, same, LogitsFor::kNone), 2 * 2);  // nobody attends in the last layer
  OnBoth together = With(5);
  const auto other = together.Begun(Part(tokens_, 0, n_));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Pass(together, other), 3);
  EXPECT_GE(card().n_graph_launches(), 2);
}

TEST_F(FetchesOfPasses, DieWhereNobodyWaits) {
  OnBoth on = With(5);
  const auto text = on.Begun(Part(tokens_, 0, n_));
  card().ForgetWaits();
  const auto pass = [&] {
    testing::Pass(*both_.on_gpu, {{.cache = text.on_gpu.get(), .tokens = Part(tokens_, n_, n_ + 1)}});
  };
  EXPECT_DEATH(pass(), "");
}

}  // namespace
}  // namespace longspec::testing
