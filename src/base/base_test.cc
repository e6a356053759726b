// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/counter_rng.h"
#include "base/hash.h"
#include "base/mapped_file.h"
#include "base/thread_team.h"

namespace longspec {
namespace {

// The known answers published with Random123 for philox4x32-10.
TEST(CounterRng, MatchesPublishedKnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0}, {0, 0, 0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterRng, UniformIsInRangeAndKeyedByEverything) {
  const RngStream a{1, 0, RngPurpose::kTarget};
  double sum = 0;
  for (uint64_t p = 0; p < 20000; ++p) {
    const double u = a.Uniform(p);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / 20000, 0.5, 0.01);
  EXPECT_EQ(a.Uniform(7), (RngStream{1, 0, RngPurpose::kTarget}.Uniform(7)));
  EXPECT_NE(a.Uniform(7), (RngStream{2, 0, RngPurpose::kTarget}.Uniform(7)));
  EXPECT_NE(a.Uniform(7), (RngStream{1, 1, RngPurpose::kTarget}.Uniform(7)));
  EXPECT_NE(a.Uniform(7), (RngStream{1, 0, RngPurpose::kDraft}.Uniform(7)));
  EXPECT_NE(a.Uniform(7), a.Uniform(8));
  EXPECT_NE(a.Uniform(7), a.Uniform(7, 1));
}

class ThreadTeamTest : public ::testing::TestWithParam<int> {};

TEST_P(ThreadTeamTest, RunsOnEveryWorkerAndBarriersOrderPhases) {
  ThreadTeam team(GetParam());
  constexpr int kPhases = 300;
  std::vector<std::atomic<int>> reached(kPhases);
  std::atomic<bool> ordered{true};
  team.Run([&](ThreadTeam::Worker& w) {
    for (int p = 0; p < kPhases; ++p) {
      reached[static_cast<size_t>(p)].fetch_add(1);
      w.Barrier();
      if (reached[static_cast<size_t>(p)].load() != w.count()) ordered = false;
    }
  });
  EXPECT_TRUE(ordered);
}

TEST_P(ThreadTeamTest, ClaimsEachNumberOnceBetweenBarriers) {
  ThreadTeam team(GetParam());
  constexpr int kItems = 97;
  std::vector<std::atomic<int>> claims(kItems);
  for (int round = 0; round < 20; ++round) {
    team.Run([&](ThreadTeam::Worker& w) {
      for (int repeat = 0; repeat < 3; ++repeat) {
        for (int i = w.Claim(); i < kItems; i = w.Claim()) claims[static_cast<size_t>(i)].fetch_add(1);
        w.Barrier();
      }
    });
  }
  for (const auto& c : claims) EXPECT_EQ(c.load(), 60);
}

TEST_P(ThreadTeamTest, SharesCoverAllItemsOnce) {
  ThreadTeam team(GetParam());
  for (const int n : {0, 1, 2, 5, 64}) {
    std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
    team.Run([&](ThreadTeam::Worker& w) {
      const auto share = w.ShareOf(n);
      for (int i = share.begin; i < share.end; ++i) seen[static_cast<size_t>(i)].fetch_add(1);
    });
    for (const auto& s : seen) EXPECT_EQ(s.load(), 1);
  }
}

TEST_P(ThreadTeamTest, WakesAfterSleeping) {
  ThreadTeam team(GetParam());
  std::atomic<int> runs{0};
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));  // longer than the team spins
    team.Run([&](ThreadTeam::Worker&) { runs.fetch_add(1); });
  }
  EXPECT_EQ(runs.load(), 3 * GetParam());
}

// Workers move away from each other when they begin and when they wake, and may go anywhere afterwards.
TEST_P(ThreadTeamTest, WorkersMayRunWhereTheProcessMay) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  ThreadTeam team(GetParam());
  for (int round = 0; round < 2; ++round) {
    std::atomic<int> n_equal{0};
    team.Run([&](ThreadTeam::Worker&) {
      cpu_set_t own;
      if (sched_getaffinity(0, sizeof(own), &own) == 0 && CPU_EQUAL(&own, &allowed)) n_equal.fetch_add(1);
    });
    EXPECT_EQ(n_equal.load(), GetParam());
    std::this_thread::sleep_for(std::chrono::milliseconds(30));  // longer than the team spins
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadTeamTest, ::testing::Values(1, 2, 3, 5));

TEST(AlignedBuffer, IsAlignedZeroedAndMovable) {
  for (const size_t bytes : {size_t{1}, size_t{1000}, size_t{3} << 20}) {
    AlignedBuffer buffer(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0U);
    EXPECT_EQ(std::accumulate(buffer.as<uint8_t>(), buffer.as<uint8_t>() + bytes, 0), 0);
    buffer.as<uint8_t>()[bytes - 1] = 7;
    const AlignedBuffer moved = std::move(buffer);
    EXPECT_EQ(moved.as<uint8_t>()[bytes - 1], 7);
  }
  EXPECT_EQ(AlignedBuffer(0).data(), nullptr);
}

TEST(MappedFile, ReportsWhatIsWrong) {
  const auto missing = MappedFile::Open("/nonexistent/file");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_NE(missing.status().message().find("/nonexistent/file"), std::string::npos);
  const auto folder = MappedFile::Open("/tmp");
  ASSERT_FALSE(folder.ok());
  EXPECT_NE(folder.status().message().find("not a regular file"), std::string::npos);
}

TEST(CheckDeathTest, NamesTheCondition) { EXPECT_DEATH(LS_CHECK(1 + 1 == 3), "1 \\+ 1 == 3"); }

// The answer that xxHash's own programs give for no bytes.
TEST(Hash, MatchesKnownAnswers) {
  EXPECT_EQ(ToHex(HashOf({})), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(ToHex({.high = 0x12, .low = 0xabc}), "00000000000000120000000000000abc");
}

TEST(Hash, InPiecesItIsTheSameForEveryTeamAndNoticesEveryBit) {
  std::vector<std::byte> bytes(2 * kHashPiece + 100);
  for (size_t i = 0; i < bytes.size(); i += 4096) bytes[i] = static_cast<std::byte>(i >> 12);
  ThreadTeam one(1), three(3);
  std::vector<uint64_t> reports;
  const auto hash = HashInPieces(bytes, one, [&](uint64_t done) {
    reports.push_back(done);
    return true;
  });
  ASSERT_TRUE(hash.has_value());
  EXPECT_EQ(reports, (std::vector<uint64_t>{bytes.size()}));
  EXPECT_EQ(HashInPieces(bytes, three), hash);
  for (const size_t at : {kHashPiece - 1, kHashPiece, bytes.size() - 1}) {
    bytes[at] ^= std::byte{1};
    EXPECT_NE(HashInPieces(bytes, three), hash) << at;
    bytes[at] ^= std::byte{1};
  }
  EXPECT_NE(HashInPieces(std::span(bytes).first(bytes.size() - 1), three), hash);
  EXPECT_EQ(HashInPieces({}, one), HashInPieces({}, three));
  EXPECT_EQ(HashInPieces(bytes, one, [](uint64_t) { return false; }), std::nullopt);
}

}  // namespace
}  // namespace longspec
