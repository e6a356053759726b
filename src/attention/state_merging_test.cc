// SPDX-License-Identifier: Apache-2.0
//
// Attention that is computed in parts and merged has the bits of one computation, however it was cut.
#include "attention/state_merging.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/tables.h"

namespace longspec {
namespace {

constexpr int kDim = 16, kFloats = kernels::kStateHeader + kDim;
const kernels::KernelTable& kTable = kernels::kReferenceTable;

std::vector<std::vector<float>> States(int n) {
  std::mt19937 rng(7);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> states;
  for (int i = 0; i < n; ++i) {
    std::vector<float>& state = states.emplace_back(kFloats);
    for (float& x : state) x = normal(rng);
    state[1] += 10.0F;  // a sum
  }
  return states;
}

// Of a row that sees chunks from `first` on, as many as there are states: stretches one by one, then all of
// them.
std::vector<float> InTwoLevels(const std::vector<std::vector<float>>& states, int first) {
  std::vector<std::vector<float>> stretches;
  for (size_t i = 0; i < states.size(); ++i) {
    if (i == 0 || (static_cast<size_t>(first) + i) % 16 == 0) {
      stretches.push_back(states[i]);
    } else {
      kTable.merge_state(stretches.back().data(), states[i].data(), kDim);
    }
  }
  for (size_t i = 1; i < stretches.size(); ++i)
    kTable.merge_state(stretches[0].data(), stretches[i].data(), kDim);
  std::vector<float> out(kDim);
  kTable.finish_state(stretches[0].data(), kDim, out.data());
  return out;
}

TEST(StateMerging, IsTheSameHoweverItIsCut) {
  for (const int first : {0, 3, 15, 16, 20}) {
    for (const int n : {1, 2, 12, 13, 16, 17, 33, 50}) {
      const std::vector<std::vector<float>> states = States(n);
      const std::vector<float> expected = InTwoLevels(states, first);
      for (const int wave : {1, 2, 7, 16, 100}) {
        std::vector<float> open(kFloats), before(kFloats), out(kDim);
        for (int next = 0; next < n; next += wave) {
          std::vector<std::vector<float>> memory = states;  // and this wave's alone
          StateMerging merged(kTable, kDim, first, first + next, open.data(), before.data());
          for (int i = next; i < n && i < next + wave; ++i) merged.Add(memory[static_cast<size_t>(i)].data());
          if (next + wave < n) {
            merged.Keep();
          } else {
            merged.Finish(out.data());
          }
        }
        EXPECT_EQ(out, expected) << first << " " << n << " " << wave;
      }
    }
  }
}

TEST(StateMerging, OfNothingIsZero) {
  std::vector<float> open(kFloats, 1.0F), before(kFloats, 1.0F), out(kDim, 1.0F);
  StateMerging(kTable, kDim, 5, 5, open.data(), before.data()).Finish(out.data());
  EXPECT_EQ(out, std::vector<float>(kDim));
}

}  // namespace
}  // namespace longspec
