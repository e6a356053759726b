// SPDX-License-Identifier: Apache-2.0
//
// Chunks hold their bytes in memory and in a file.
#include "kv/chunk_memory.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/testing/files.h"

namespace longspec {
namespace {

constexpr size_t kSmallChunk = 5000;

// Each chunk keeps what was written to it, also where others are given back and taken again.
void ExpectKeepsBytes(ChunkMemory& memory) {
  std::vector<std::byte*> chunks;
  const auto take = [&](int value) {
    const auto chunk = memory.Take();
    ASSERT_TRUE(chunk.ok()) << chunk.status().message();
    std::memset(*chunk, value, kSmallChunk);
    chunks.push_back(*chunk);
  };
  for (int i = 0; i < 5; ++i) take(i);
  for (int i = 5; i < 20; ++i) {
    memory.Return(chunks.front());
    chunks.erase(chunks.begin());
    take(i);
    memory.Prefetch(chunks[0] + 100, 200);
    for (size_t j = 0; j < chunks.size(); ++j) {
      const std::vector<std::byte> expected(kSmallChunk, std::byte(static_cast<size_t>(i) - 4 + j));
      ASSERT_EQ(std::memcmp(chunks[j], expected.data(), kSmallChunk), 0) << i << " " << j;
    }
  }
  for (std::byte* chunk : chunks) memory.Return(chunk);
}

TEST(ChunkMemory, KeepsBytesWhereverTheyLie) {
  HostMemory host(kSmallChunk);
  const testing::Folder folder;
  FileMemory file(folder.path(), kSmallChunk);
  ExpectKeepsBytes(host);
  ExpectKeepsBytes(file);
}

// Sequences that all stand at the end of a chunk take one each and give it back, round after round.
TEST(HostMemory, KeepsAChunkForEachOfManySequences) {
  constexpr size_t kSequences = 16;
  HostMemory memory(kSmallChunk);
  std::vector<std::byte*> held;
  for (size_t i = 0; i < 3 * kSequences; ++i) held.push_back(*memory.Take());
  const auto give_back = [&](size_t n) {
    for (size_t i = 0; i < n; ++i, held.pop_back()) memory.Return(held.back());
  };
  give_back(kSequences);
  EXPECT_EQ(memory.spare(), kSequences);
  give_back(held.size());
  EXPECT_LE(memory.spare(), kSequences);
}

// What waits is never more than what could be held at once.
TEST(HostMemory, SparesStayWithinTheLimit) {
  HostMemory memory(kSmallChunk, 5);
  std::vector<std::byte*> held;
  for (int i = 0; i < 5; ++i) held.push_back(*memory.Take());
  for (; !held.empty(); held.pop_back()) {
    memory.Return(held.back());
    EXPECT_LE(memory.spare() + held.size() - 1, 5U);
  }
  EXPECT_GT(memory.spare(), 0U);
}

// The flags of the mapping that holds this address, as /proc/self/smaps has them.
std::string FlagsOfMapping(const std::byte* address) {
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      const auto at = reinterpret_cast<uintptr_t>(address);
      here = at >= begin && at < end;
    }
    if (here && line.starts_with("VmFlags:")) return line + " ";
  }
  return {};
}

// Reading far ahead at each piece of a layer made steps sixteen times as long.
TEST(FileMemory, IsReadWhereItIsAskedForAndNowhereElse) {
  const testing::Folder folder;
  FileMemory file(folder.path(), 1 << 20);
  const auto chunk = file.Take();
  ASSERT_TRUE(chunk.ok()) << chunk.status().message();
  const std::string flags = FlagsOfMapping(*chunk);
  if (flags.empty()) GTEST_SKIP() << "the system does not show the flags of mappings";
  EXPECT_NE(flags.find(" rr "), std::string::npos) << flags;
}

}  // namespace
}  // namespace longspec
