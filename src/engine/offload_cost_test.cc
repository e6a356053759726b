// SPDX-License-Identifier: Apache-2.0
//
// Keys in a file are refused where reading them takes longer than is worth it.
#include "engine/offload_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/testing/files.h"

namespace longspec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kOffloadMiB = uint64_t{1} << 20;

// 1000 MiB of keys and values, 200 of them in memory, for which there are 600 MiB beside 100 MiB of weights.
MemoryPlan OffloadPlan() {
  MemoryPlan plan;
  plan.weights = 100 * kOffloadMiB;
  plan.kv_at_context = 200 * kOffloadMiB;
  plan.kv_in_file = 800 * kOffloadMiB;
  plan.available = 700 * kOffloadMiB;
  plan.ctx_size = 1000;
  return plan;
}

ReadSpeeds OfDisk(double mib_per_second) {
  return {.disk = mib_per_second * kOffloadMiB, .memory = 8000.0 * kOffloadMiB};
}

TEST(OffloadCost, WhatThePageCacheHoldsIsNotReadFromTheDisk) {
  MemoryPlan plan = OffloadPlan();
  EXPECT_EQ(KvFromDisk(plan), 400 * kOffloadMiB);
  plan.available = 1100 * kOffloadMiB;
  EXPECT_EQ(KvFromDisk(plan), 0U);
  plan.available = 50 * kOffloadMiB;
  EXPECT_EQ(KvFromDisk(plan), 800 * kOffloadMiB);
  plan.available = 0;  // unknown
  EXPECT_EQ(KvFromDisk(plan), 0U);
}

TEST(OffloadCost, RefusedWhereADisksReadsTakeLongerThanAllOfMemorys) {
  const MemoryPlan plan = OffloadPlan();
  const Status refused = CheckOffloadPays("/disk", plan, 531 * kOffloadMiB, OfDisk(200));
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  // 400 / 200 seconds, against 1000 / 8000.
  EXPECT_EQ(
      refused.message(),
      "--kv-offload /disk: of 1000.0 MiB of keys and values memory has no room for 400.0 MiB, which each "
      "step would read at 210 MB/s, in 2 s (all of them from memory: 0.12 s); -ctk q8_0 -ctv q8_0 instead "
      "needs 531.0 MiB of memory, which there are; --kv-offload-anyway goes on");
  // Where reading a part from the disk takes as long as reading all from memory, a step takes twice as long.
  EXPECT_FALSE(CheckOffloadPays("/disk", plan, 531 * kOffloadMiB, OfDisk(3199)).ok());
  EXPECT_TRUE(CheckOffloadPays("/disk", plan, 531 * kOffloadMiB, OfDisk(3200)).ok());
}

TEST(OffloadCost, AllowedWhereThereIsNoBetterChoice) {
  const MemoryPlan plan = OffloadPlan();
  EXPECT_TRUE(CheckOffloadPays("/disk", plan, 0, OfDisk(1)).ok());                   // no q8_0
  EXPECT_TRUE(CheckOffloadPays("/disk", plan, 601 * kOffloadMiB, OfDisk(1)).ok());   // it does not fit
  EXPECT_FALSE(CheckOffloadPays("/disk", plan, 600 * kOffloadMiB, OfDisk(1)).ok());  // it just does
  EXPECT_TRUE(CheckOffloadPays("/disk", plan, 531 * kOffloadMiB, {}).ok());          // speeds unknown
  MemoryPlan roomy = plan;
  roomy.available = 1100 * kOffloadMiB;  // the page cache holds the file
  EXPECT_TRUE(CheckOffloadPays("/disk", roomy, 531 * kOffloadMiB, OfDisk(1)).ok());
}

TEST(OffloadCost, Q8IsAChoiceWhereItIsSmaller) {
  KvLayout layout = {.k_type = CacheType::kF16, .v_type = CacheType::kF16, .n_kv_head = 3, .head_dim = 64};
  MemoryPlan plan;
  plan.kv_at_context = 4 * KvChunkBytes(layout, 2);
  plan.kv_in_file = 6 * KvChunkBytes(layout, 2);
  EXPECT_EQ(KvBytesAsQ8(layout, 2, plan) * 16, (plan.kv_at_context + plan.kv_in_file) * 17 / 2);
  layout.head_dim = 48;  // no multiple of 32
  EXPECT_EQ(KvBytesAsQ8(layout, 2, plan), 0U);
  layout = {.k_type = CacheType::kQ8_0, .v_type = CacheType::kQ4_0, .n_kv_head = 3, .head_dim = 64};
  EXPECT_EQ(KvBytesAsQ8(layout, 2, plan), 0U);
}

// What it measures is the machine's; that it measures, once, and leaves nothing behind, is ours.
TEST(OffloadCost, MeasuresTheFolder) {
  const testing::Folder parent;
  const std::string folder = parent.File("offload");
  std::filesystem::create_directory(folder);
  MemoryPlan plan = OffloadPlan();
  plan.kv_in_file = 1000;
  plan.available = 1;
  const ReadSpeeds first = MeasureOffload(folder, &plan);
  EXPECT_GT(first.disk, 0.0);
  EXPECT_GT(first.memory, 0.0);
  EXPECT_EQ(plan.disk_bytes_per_second, first.disk);
  EXPECT_EQ(plan.kv_from_disk, 1000U);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_EQ(MeasureOffload(folder, &plan).disk, first.disk);
  std::filesystem::remove(folder);
  EXPECT_EQ(MeasureOffload(folder, &plan).disk, 0.0);
  plan.kv_in_file = 0;
  EXPECT_EQ(MeasureOffload(parent.path(), &plan).disk, 0.0);
  EXPECT_THAT(MeasureReadSpeeds("/nowhere/at/all", 1).status().message(),
              AllOf(HasSubstr("/nowhere/at/all: no file can be made"), Not(HasSubstr("\n"))));
}

}  // namespace
}  // namespace longspec
