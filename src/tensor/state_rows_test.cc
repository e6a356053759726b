// SPDX-License-Identifier: Apache-2.0
//
// Rows of states are the same wherever they lie.
#include "tensor/state_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "tensor/testing/guarded_states.h"
#include "tensor/testing/values_of.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;
using testing::GuardedStates;
using testing::ValuesOf;

// Rows of two numbers: 0 1, 2 3, ...
StateBuffer Counted(int n, const StateMemory& memory) {
  std::vector<float> numbers(static_cast<size_t>(2 * n));
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  StateBuffer buffer(2, memory);
  float* const rows = buffer.Grow(n);
  if (const auto* guarded = dynamic_cast<const GuardedStates*>(&memory)) {
    guarded->Write(numbers.data(), numbers.size(), rows);
  } else {
    std::ranges::copy(numbers, rows);
  }
  return buffer;
}

TEST(StateRows, AreTheSameWhereverTheyLie) {
  const GuardedStates device;
  for (const StateMemory* memory : {&HostStates(), static_cast<const StateMemory*>(&device)}) {
    const StateBuffer buffer = Counted(4, *memory);
    const StateRows rows = buffer.rows();
    EXPECT_EQ(rows.size(), 4);
    EXPECT_EQ(rows.width(), 2);
    EXPECT_THAT(ValuesOf(rows), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
    EXPECT_THAT(ValuesOf(rows.From(1, 2)), ElementsAre(2, 3, 4, 5));
    EXPECT_TRUE(rows.From(4, 0).empty());
    std::vector<float> gathered(7, -1);
    rows.Gather(std::vector<int32_t>{3, 0}, gathered.data(), 4);
    EXPECT_THAT(gathered, ElementsAre(6, 7, -1, -1, 0, 1, -1));
    std::vector<float> room;
    const auto read = rows.From(2, 1).Read(&room);
    EXPECT_THAT(std::vector<float>(read.begin(), read.end()), ElementsAre(4, 5));
    EXPECT_EQ(room.empty(), memory == &HostStates());  // there nothing is copied
  }
}

TEST(StateRows, NoneAreNoRows) {
  const StateRows none;
  std::vector<float> room;
  EXPECT_TRUE(none.empty());
  EXPECT_TRUE(none.Read(&room).empty());
  EXPECT_TRUE(ValuesOf(none).empty());
  EXPECT_TRUE(none.From(0, 0).empty());
}

TEST(StateBuffer, KeepsWhatIsAppendedInEitherMemory) {
  const GuardedStates device;
  const StateBuffer far = Counted(5, device), near = Counted(5, HostStates());
  for (const StateBuffer* from : {&far, &near}) {
    StateBuffer kept(2);
    for (const auto& rows : std::vector<std::vector<int32_t>>{{4, 1}, {}, {2, 2, 0}}) {
      kept.Append(from->rows(), rows);
    }
    kept.Append(from->rows().From(3, 1));
    EXPECT_EQ(kept.size(), 6);
    EXPECT_THAT(ValuesOf(kept.rows()), ElementsAre(8, 9, 2, 3, 4, 5, 4, 5, 0, 1, 6, 7));
    kept.Truncate(9);
    EXPECT_EQ(kept.size(), 6);
    kept.Truncate(2);
    kept.Append(from->rows().From(0, 1));
    EXPECT_THAT(ValuesOf(kept.rows()), ElementsAre(8, 9, 2, 3, 0, 1));
    EXPECT_GE(kept.bytes(), 6 * 2 * sizeof(float));
    const StateBuffer moved = std::move(kept);
    EXPECT_THAT(ValuesOf(moved.rows()), ElementsAre(8, 9, 2, 3, 0, 1));
  }
  // What stays on the device passes no host memory.
  const int64_t copies = device.n_copies;
  StateBuffer kept(2, device);
  kept.Append(far.rows(), std::vector<int32_t>{1, 3});
  kept.Append(far.rows().From(0, 3));
  EXPECT_EQ(device.n_copies, copies + 2 + 1 + 1);  // two rows, two rows to a larger place, three rows
  EXPECT_THAT(ValuesOf(kept.rows()), ElementsAre(2, 3, 6, 7, 0, 1, 2, 3, 4, 5));
}

TEST(StateRowsDeathTest, MisuseIsNoticed) {
  const GuardedStates device;
  const StateBuffer far = Counted(3, device);
  const StateRows rows = far.rows();
  float out[4];
  EXPECT_DEATH(static_cast<void>(rows.From(2, 2)), "");
  EXPECT_DEATH(rows.Gather(std::vector<int32_t>{3}, out, 2), "");
  StateBuffer wide(3);
  EXPECT_DEATH(wide.Append(rows, std::vector<int32_t>{0}), "");
  StateBuffer far_row(2, device);
  EXPECT_DEATH(*far_row.Grow(1) = 1, "");  // nobody but a copy
}

}  // namespace
}  // namespace longspec
