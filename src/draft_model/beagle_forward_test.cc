// SPDX-License-Identifier: Apache-2.0
//
// Beagle's forward pass against its specification.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/size.h"
#include "draft_model/beagle.h"
#include "draft_model/testing/block_drafts.h"

namespace longspec::testing {
namespace {

// A model, and states of a target as random numbers.
struct BeagleRig {
  explicit BeagleRig(bool concat = true, bool state_norm = false) {
    tensors = RandomBeagle(tiny.spec, heads, 9, state_norm);
    const std::string path =
        WriteBlockDraft(folder, "beagle", tiny.spec, tensors, heads, {}, concat ? "" : ", \"concat\": false");
    const auto checkpoint = OpenDraftCheckpoint(path);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    auto loaded = BeagleModel::Load(*checkpoint, "f32", tiny.parts());
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    model = *loaded;
    EXPECT_EQ(model->concat, concat);
  }

  BeagleForward New() const {
    const KvLayout layout = {.k_type = CacheType::kF32,
                             .v_type = CacheType::kF32,
                             .n_kv_head = heads.n_kv_head,
                             .head_dim = heads.head_dim};
    return BeagleForward(model, std::make_shared<DraftKeys>(MakeHostPool(layout, 1), 0), 1000,
                         BeagleForward::MakeLane(*model, tiny.parts()));
  }

  // States of positions [first, first + n): a function of the position alone.
  std::vector<float> States(int first, int n) const {
    std::vector<float> states;
    for (int p = first; p < first + n; ++p) {
      const RngStream rng{.seed = Z(p) + 1, .purpose = RngPurpose::kTest};
      for (int i = 0; i < tiny.spec.n_embd; ++i) {
        states.push_back(static_cast<float>(4 * rng.Uniform(Z(i)) - 2));
      }
    }
    return states;
  }

  // Positions [first, first + n) of a text became committed.
  void Read(BeagleForward& forward, int first, int n) const {
    const std::vector<float> states = States(first, n);
    const std::vector<int32_t> text(Z(first + n + 1), 7);
    std::vector<int32_t> rows(Z(n));
    std::iota(rows.begin(), rows.end(), 0);
    const TargetOutput::Segment output = {
        .logits = {}, .hidden = {}, .final_hidden = {states.data(), n, tiny.spec.n_embd}, .queries = {}};
    const Status status = forward.Read(
        {.sequence = text, .n_new = 1, .first = first, .rows = rows, .output = &output, .n_output_rows = n});
    ASSERT_TRUE(status.ok()) << status.message();
  }

  // Logits of rows that are run in one call.
  std::vector<std::vector<float>> Logits(BeagleForward& forward, const std::vector<BeagleRow>& rows) const {
    std::vector<std::vector<TokenScore>> next;
    const Status status = forward.Run(rows, 4, next);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(next.size(), rows.size());
    std::vector<std::vector<float>> logits;
    const auto vocab = Z(tiny.spec.n_vocab);
    for (size_t i = 0; i < rows.size(); ++i) {
      const float* from = forward.block().lane().logits() + i * vocab;
      logits.emplace_back(from, from + vocab);
    }
    return logits;
  }

  BlockReference reference() const { return {tensors, heads, tiny.parts()}; }

  Folder folder;
  TinyTarget tiny;
  OwnHeads heads;
  DraftTensors tensors;
  std::shared_ptr<const BeagleModel> model;
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void ExpectNear(const std::vector<float>& actual, const Vec& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(static_cast<double>(actual[i]), expected[i], 1e-3) << i;
}

std::vector<Vec> Doubles(const std::vector<float>& states, size_t width) {
  std::vector<Vec> rows;
  for (size_t at = 0; at < states.size(); at += width) {
    rows.emplace_back(states.begin() + static_cast<std::ptrdiff_t>(at),
                      states.begin() + static_cast<std::ptrdiff_t>(at + width));
  }
  return rows;
}

// 3: two products of each state, whatever came with it.
TEST(BeagleForward, StatesReadInOneGoAreThoseReadOneByOne) {
  const BeagleRig rig;
  BeagleForward whole = rig.New(), pieces = rig.New();
  rig.Read(whole, 0, 300);
  for (int first = 0, n = 1; first < 300; first += n, n = 1 + (7 * first) % 50) {
    rig.Read(pieces, first, std::min(n, 300 - first));
  }
  ASSERT_EQ(whole.block().positions().size(), 300U);
  ASSERT_EQ(pieces.block().positions().size(), 300U);
  for (int slot = 0; slot < 300; ++slot) {
    for (int d = 0; d < rig.heads.head_dim; ++d) {
      ASSERT_EQ(whole.block().kept().KeyAt(slot, 0, d), pieces.block().kept().KeyAt(slot, 0, d)) << slot;
      ASSERT_EQ(whole.block().kept().ValueAt(slot, 0, d), pieces.block().kept().ValueAt(slot, 0, d)) << slot;
    }
  }
}

// 4, and 1: a root sees the states before it and no other.
TEST(BeagleForward, ARootIsWhatItsSpecificationSays) {
  for (const bool state_norm : {false, true}) {
    const BeagleRig rig(true, state_norm);
    BeagleForward forward = rig.New();
    for (const int n : {1, 5, 260}) {
      const auto n_read = static_cast<int>(forward.block().positions().size());
      rig.Read(forward, n_read, n - n_read);
      ASSERT_TRUE(forward.BeginTree().ok());
      const auto logits = rig.Logits(forward, {{.node = 0, .parent = -1, .token = 33, .position = n}});
      const std::vector<Vec> states = Doubles(rig.States(0, n), Z(rig.tiny.spec.n_embd));
      const BlockReference reference = rig.reference();
      ExpectNear(logits[0], reference.Head(reference.BeagleState(33, n, states)));
    }
  }
}

// 20: with no key, what attention adds is zero.
TEST(BeagleForward, ARootWithoutKeysIsItsToken) {
  const BeagleRig rig;
  BeagleForward forward = rig.New();
  ASSERT_TRUE(forward.BeginTree().ok());
  const auto logits = rig.Logits(forward, {{.node = 0, .parent = -1, .token = 33, .position = 0}});
  const BlockReference reference = rig.reference();
  ExpectNear(logits[0], reference.Head(reference.BeagleState(33, 0, {})));
  EXPECT_TRUE(std::ranges::all_of(logits[0], [](float x) { return std::isfinite(x); }));
}

// The nodes of a tree: node 0 is the root, siblings 1 and 2, then children of both and of those.
const std::vector<std::vector<BeagleRow>> kLevels = {{{.node = 0, .parent = -1, .token = 30, .position = 40}},
                                                     {{.node = 1, .parent = 0, .token = 31, .position = 41},
                                                      {.node = 2, .parent = 0, .token = 32, .position = 41}},
                                                     {{.node = 3, .parent = 1, .token = 33, .position = 42},
                                                      {.node = 4, .parent = 1, .token = 34, .position = 42},
                                                      {.node = 5, .parent = 2, .token = 33, .position = 42}},
                                                     {{.node = 6, .parent = 5, .token = 35, .position = 43}}};

std::vector<std::vector<float>> RunLevels(const BeagleRig& rig, BeagleForward& forward) {
  EXPECT_TRUE(forward.BeginTree().ok());
  std::vector<std::vector<float>> all;
  for (const auto& level : kLevels) {
    for (auto& logits : rig.Logits(forward, level)) all.push_back(std::move(logits));
  }
  return all;
}

// 5: siblings are not seen, so a path in a tree is that path alone, to the bit.
TEST(BeagleForward, ANodeOfATreeIsTheEndOfItsChain) {
  const BeagleRig rig;
  BeagleForward forward = rig.New();
  rig.Read(forward, 0, 40);
  const auto tree = RunLevels(rig, forward);
  for (const std::vector<int>& path : {std::vector{0, 1, 4}, {0, 2, 5, 6}}) {
    ASSERT_TRUE(forward.BeginTree().ok());
    std::vector<Vec> states = Doubles(rig.States(0, 40), Z(rig.tiny.spec.n_embd));
    const BlockReference reference = rig.reference();
    for (size_t i = 0; i < path.size(); ++i) {
      BeagleRow row;
      for (const auto& level : kLevels) {
        for (const BeagleRow& node : level) row = node.node == path[i] ? node : row;
      }
      row.node = static_cast<int>(i);
      row.parent = static_cast<int>(i) - 1;
      const auto logits = rig.Logits(forward, {row});
      EXPECT_TRUE(SameBits(logits[0], tree[Z(path[i])])) << path[i];
      const Vec state = reference.BeagleState(row.token, row.position, states);
      ExpectNear(logits[0], reference.Head(state));
      states.push_back(state);
    }
  }
}

// 7: states become keys when a child is run, once; those of the last level never do. 6: and then they go.
TEST(BeagleForward, StatesAreProjectedWhenAChildAsks) {
  const BeagleRig rig;
  BeagleForward forward = rig.New();
  rig.Read(forward, 0, 40);
  ASSERT_TRUE(forward.BeginTree().ok());
  std::vector<int> projected;
  for (const auto& level : kLevels) {
    rig.Logits(forward, level);
    projected.push_back(forward.n_projected());
  }
  EXPECT_EQ(projected, (std::vector<int>{0, 1, 3, 4}));  // nodes with a child: 0, then 1 and 2, then 5
  EXPECT_EQ(forward.block().positions().size(), 40U);
  const auto again = RunLevels(rig, forward);
  EXPECT_EQ(forward.n_projected(), 4);
  BeagleForward fresh = rig.New();
  rig.Read(fresh, 0, 40);
  const auto expected = RunLevels(rig, fresh);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(SameBits(again[i], expected[i])) << i;
}

// 8: a token at a position, and the target's states.
TEST(BeagleForward, WithoutConcatGuessesBeforeItAreNotSeen) {
  const BeagleRig rig(/*concat=*/false), with;
  BeagleForward forward = rig.New(), other = with.New();
  rig.Read(forward, 0, 40);
  with.Read(other, 0, 40);
  const auto apart = RunLevels(rig, forward), seen = RunLevels(with, other);
  EXPECT_EQ(forward.n_projected(), 0);
  EXPECT_TRUE(SameBits(apart[3], apart[5]));  // the same token below different ones
  EXPECT_FALSE(SameBits(seen[3], seen[5]));
  EXPECT_TRUE(SameBits(apart[0], seen[0]));
  const std::vector<Vec> states = Doubles(rig.States(0, 40), Z(rig.tiny.spec.n_embd));
  const BlockReference reference = rig.reference();
  ExpectNear(apart[6], reference.Head(reference.BeagleState(35, 43, states)));
}

}  // namespace
}  // namespace longspec::testing
