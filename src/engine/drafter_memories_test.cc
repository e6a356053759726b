// SPDX-License-Identifier: Apache-2.0
//
// What was learned of drafts on disk: what was written comes back, anything else in the file is refused.
#include "engine/drafter_memories.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/testing/cache_folder.h"

namespace longspec {
namespace {

// After rounds in which asking added so many tokens.
AskingGain Taught(int added) {
  AskingGain gain;
  for (int i = 0; i < 40; ++i) gain.Learn(0.3, std::vector<int>{0, added}, 0.25);
  return gain;
}

class DrafterMemoriesTest : public ::testing::Test {
 protected:
  testing::CacheFolderOfOne folder_;
};

TEST_F(DrafterMemoriesTest, WhatIsWrittenComesBack) {
  EXPECT_EQ(ReadDrafterMemories(folder_.path(), "key").status().code(), StatusCode::kNotFound);
  DrafterMemories drafters;
  drafters["lm+ppm, draft /a b/c.gguf"].asking = Taught(1);
  drafters["eagle+ppm"].asking = Taught(0);
  drafters["ppm"];  // nothing was learned of it
  ASSERT_TRUE(WriteDrafterMemories(folder_.path(), "key", drafters).ok());
  const auto read = ReadDrafterMemories(folder_.path(), "key");
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->size(), 2U);
  for (const auto& [name, memory] : *read) {
    EXPECT_EQ(memory.asking.Beliefs(), drafters[name].asking.Beliefs()) << name;
  }
  EXPECT_EQ(ReadDrafterMemories(folder_.path(), "other key").status().code(), StatusCode::kNotFound);
}

TEST_F(DrafterMemoriesTest, OfManyThoseUsedLastAreKept) {
  DrafterMemories drafters;
  for (int i = 0; i < 40; ++i) {
    DrafterMemory& one = drafters[std::to_string(i)];
    one.asking = Taught(1);
    one.last_used = i;
  }
  ASSERT_TRUE(WriteDrafterMemories(folder_.path(), "key", drafters).ok());
  const auto read = ReadDrafterMemories(folder_.path(), "key");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->size(), 16U);
  for (const auto& drafter : *read) EXPECT_GE(std::stoi(drafter.first), 24);
}

TEST_F(DrafterMemoriesTest, HostileFilesAreRefused) {
  DrafterMemories drafters;
  drafters["lm"].asking = Taught(1);
  ASSERT_TRUE(WriteDrafterMemories(folder_.path(), "key", drafters).ok());
  const std::string good = folder_.Contents();
  for (size_t n = 0; n < good.size(); ++n) {
    folder_.Overwrite(good.substr(0, n));
    EXPECT_FALSE(ReadDrafterMemories(folder_.path(), "key").ok()) << n;
  }
  folder_.Overwrite(good);
  ASSERT_TRUE(ReadDrafterMemories(folder_.path(), "key").ok());
  const std::string head = "longspec learned 1\nkey\n", body = good.substr(head.size());
  const std::string one = body.substr(0, body.rfind("end"));
  std::string many = head;
  for (int i = 0; i < 17; ++i) many += "drafter " + std::to_string(i) + one.substr(one.find('\n'));
  for (const std::string& bad : {head + "drafter lm\nasking\nend\n", head + "drafter lm\nasking 1 2 3\nend\n",
                                 head + "drafter lm\nasking x\nend\n", head + one + "asking 1\nend\n",
                                 many + "end\n", head + std::string(70000, ' ')}) {
    folder_.Overwrite(bad);
    EXPECT_EQ(ReadDrafterMemories(folder_.path(), "key").status().code(), StatusCode::kCorrupt)
        << bad.substr(0, 60);
  }
}

TEST_F(DrafterMemoriesTest, FoldersThatCannotBeWrittenAreAnErrorAndNoMore) {
  EXPECT_FALSE(WriteDrafterMemories("", "key", {}).ok());
  EXPECT_FALSE(WriteDrafterMemories("/proc/nowhere/longspec", "key", {}).ok());
  EXPECT_FALSE(ReadDrafterMemories("", "key").ok());
}

}  // namespace
}  // namespace longspec
