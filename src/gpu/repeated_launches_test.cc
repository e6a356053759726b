// SPDX-License-Identifier: Apache-2.0
//
// A list of launches becomes a graph when it comes again, and a list that differs in anything is never
// mistaken for it: an emulated card's graph launches what it was made of, whatever is asked for today.
#include "gpu/repeated_launches.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "gpu/gpu_memory.h"
#include "gpu/testing/two_targets.h"
#include "kernels/gpu/bodies.h"
#include "kernels/testing/emulated_runtime.h"

namespace longspec::testing {
namespace {

namespace gpu = kernels::gpu;
using kernels::testing::EmulatedRuntime;

// Eight numbers in three places of a card.
class RepeatedLaunchesTest : public ::testing::Test {
 protected:
  static constexpr int kNumbers = 8;

  RepeatedLaunchesTest() {
    for (int i = 0; i < 3; ++i) {
      places_.emplace_back(*card_, kNumbers * sizeof(float));
      const std::vector<float> numbers(kNumbers, i == 0 ? 0.0F : i == 1 ? 1.0F : 100.0F);
      card_->Copy(numbers.data(), places_.back().data(), kNumbers * sizeof(float));
    }
  }

  // The first n of the first place += those of another place, twice.
  gpu::LaunchList AddTwice(int place, int n) const {
    gpu::LaunchList list;
    auto* const to = places_[0].as<float>();
    for (int i = 0; i < 2; ++i)
      list.Add<gpu::Each<gpu::Sum>>(
          {.of = {.x = to, .y = places_[static_cast<size_t>(place)].as<float>()}, .out = to, .n = n});
    return list;
  }
  // The first and the last of the first place.
  std::vector<float> Ends() const {
    std::vector<float> numbers(kNumbers);
    card_->Copy(places_[0].data(), numbers.data(), kNumbers * sizeof(float));
    return {numbers.front(), numbers.back()};
  }

  const std::shared_ptr<EmulatedRuntime> card_ = std::make_shared<EmulatedRuntime>();
  std::vector<GpuBuffer> places_;
  RepeatedLaunches repeated_{*card_};
};

using Floats = std::vector<float>;

TEST_F(RepeatedLaunchesTest, WhatComesAgainIsAGraph) {
  for (int i = 0; i < 3; ++i) repeated_.Launch(AddTwice(1, kNumbers));
  EXPECT_EQ(Ends(), (Floats{6, 6}));
  EXPECT_EQ(card_->n_graphs(), 1);
  EXPECT_EQ(card_->n_graph_launches(), 2);
}

TEST_F(RepeatedLaunchesTest, WhatDiffersInAnythingIsAnother) {
  for (int i = 0; i < 2; ++i) repeated_.Launch(AddTwice(1, kNumbers));
  gpu::LaunchList longer = AddTwice(1, kNumbers);
  longer.Add<gpu::Each<gpu::Sum>>({.of = {.x = places_[0].as<float>(), .y = places_[1].as<float>()},
                                   .out = places_[0].as<float>(),
                                   .n = 1});
  for (int i = 0; i < 2; ++i) {
    repeated_.Launch(AddTwice(2, kNumbers));  // an address
    repeated_.Launch(AddTwice(1, 7));         // a number
    repeated_.Launch(longer);
  }
  EXPECT_EQ(Ends(), (Floats{4 + 400 + 4 + 6, 4 + 400 + 4}));
  EXPECT_EQ(card_->n_graphs(), 4);
  repeated_.Launch(AddTwice(1, kNumbers));
  EXPECT_EQ(card_->n_graphs(), 4);
  EXPECT_EQ(card_->n_graph_launches(), 5);
}

TEST_F(RepeatedLaunchesTest, TheOneThatWasNotUsedForLongestIsForgotten) {
  for (int i = 0; i < 2; ++i) repeated_.Launch(AddTwice(1, 8));
  // As many others as there is room for.
  std::vector<GpuBuffer> others;
  for (size_t i = 0; i < RepeatedLaunches::kMost; ++i) {
    others.emplace_back(*card_, sizeof(float));
    gpu::LaunchList list;
    list.Add<gpu::Each<gpu::Sum>>({.of = {.x = places_[1].as<float>(), .y = places_[2].as<float>()},
                                   .out = others.back().as<float>(),
                                   .n = 1});
    repeated_.Launch(list);
    if (i == 0) repeated_.Launch(list);
  }
  EXPECT_EQ(card_->n_graphs(), 2);
  repeated_.Launch(AddTwice(1, 8));
  EXPECT_EQ(card_->n_graph_launches(), 2);
  repeated_.Launch(AddTwice(1, 8));
  EXPECT_EQ(card_->n_graphs(), 3);
  EXPECT_EQ(Ends(), (Floats{8, 8}));
}

TEST_F(RepeatedLaunchesTest, ACardThatMakesNoGraphsLaunchesOneByOne) {
  card_->LimitGraphs(0);
  for (int i = 0; i < 3; ++i) repeated_.Launch(AddTwice(1, kNumbers));
  EXPECT_EQ(Ends(), (Floats{6, 6}));
  EXPECT_EQ(card_->n_graph_launches(), 0);
}

TEST_F(RepeatedLaunchesTest, ACardThatIsGoneInAGraphSaysSo) {
  for (int i = 0; i < 2; ++i) repeated_.Launch(AddTwice(1, kNumbers));
  card_->DieAfter(1);
  repeated_.Launch(AddTwice(1, kNumbers));
  EXPECT_EQ(card_->Wait().message(), "cuda (emulated): the card is gone");
}

// A token at a time, over the ends of two chunks: another graph where a list has become longer alone.
TEST(PassesOnCard, OfFewRowsAreGraphs) {
  TwoTargets both({.n_layers = 1});
  auto& card = static_cast<EmulatedRuntime&>(*both.card);
  OnBoth on(both);
  const auto text = on.New();
  const Tokens tokens = RandomTokens(600);
  for (int at = 0; at < 240; at += 60)
    on.Pass({&text}, {{.tokens = Part(tokens, at, at + 60), .logits = LogitsFor::kNone}});
  EXPECT_EQ(card.n_graphs(), 0);
  const auto decode = [&](int begin, int end) {
    for (int at = begin; at < end; ++at) on.Pass({&text}, {{.tokens = Part(tokens, at, at + 1)}});
  };
  decode(240, 256);
  EXPECT_EQ(card.n_graphs(), 1);
  EXPECT_EQ(card.n_graph_launches(), 15);
  decode(256, 270);
  EXPECT_EQ(card.n_graphs(), 2);
  EXPECT_EQ(card.n_graph_launches(), 15 + 13);
  // A tree and a chain of three rows.
  const std::vector<int32_t> fan = {-1, 0, 0}, chain = {-1, 0, 1};
  for (int i = 0; i < 4; ++i)
    on.Pass({&text}, {{.tokens = Part(tokens, 300, 303), .parents = i % 2 == 0 ? fan : chain, .kept = {0}}});
  EXPECT_EQ(card.n_graphs(), 3);
  EXPECT_EQ(card.n_graph_launches(), 15 + 13 + 3);
}

}  // namespace
}  // namespace longspec::testing
