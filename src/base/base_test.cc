// SPDX-License-Identifier: Apache-2.0
//
// Random numbers, threads, files, hashes and other small things that all modules use.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/counter_rng.h"
#include "base/deep_stack.h"
#include "base/dice.h"
#include "base/elementary.h"
#include "base/hash.h"
#include "base/mapped_file.h"
#include "base/percent_decoding.h"
#include "base/thread_team.h"
#include "base/to_int.h"

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

TEST(ToInt, StaysInItsRange) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(ToInt(2.9, 0, 10), 2);
  EXPECT_EQ(ToInt(-2.9, -10, 10), -2);
  for (const double x : {-1.0, -1e300, -kInfinity, std::nan(""), -std::nan("")})
    EXPECT_EQ(ToInt(x, 0, 10), 0) << x;
  for (const double x : {10.0, 11.0, 1e300, kInfinity}) EXPECT_EQ(ToInt(x, 0, 10), 10) << x;
  constexpr int kMost = std::numeric_limits<int>::max(), kLeast = std::numeric_limits<int>::min();
  EXPECT_EQ(ToInt(1e10, kLeast, kMost), kMost);
  EXPECT_EQ(ToInt(-1e10, kLeast, kMost), kLeast);
}

// ---- Dice

TEST(GumbelOf, RisesFromEndToEnd) {
  EXPECT_NEAR(GumbelOf(0), -std::log(33 * std::log(2.0)), 1e-14);
  EXPECT_NEAR(GumbelOf(0xFFFFFFFF), 33 * std::log(2.0), 1e-9);
  double last = GumbelOf(0);
  for (uint64_t bits = 1; bits < uint64_t{1} << 32; bits += bits % 3 == 0 ? 1 : 20011) {
    const double g = GumbelOf(static_cast<uint32_t>(bits));
    ASSERT_GT(g, last) << bits;
    last = g;
  }
  // Neighbours, where the number is near an end or near 0.
  for (const uint32_t from : {0U, 0xFFFFFFFFU - 1000, 1580030168U - 500}) {
    for (uint32_t i = 0; i < 1000; ++i) ASSERT_LT(GumbelOf(from + i), GumbelOf(from + i + 1)) << from + i;
  }
}

// Written down so that numbers, and with them all text drawn with a seed, never change by accident.
TEST(Dice, HasKnownAnswers) {
  const auto dice = [](uint64_t seed, uint64_t position) { return Dice({.seed = seed}, position); };
  EXPECT_EQ(dice(1, 0).key(), (std::array<uint32_t, 2>{0xe4db5b78, 0x48b25c68}));
  EXPECT_EQ(DiceBits(dice(1, 0).key(), 0), 0x9df35244U);
  EXPECT_EQ(dice(1, 0).Gumbel(0), 0x1.74b667ce85431p-1);
  EXPECT_EQ(DiceBits(dice(42, 1000).key(), 49151), 0x8a38eae8U);
  EXPECT_EQ(dice(42, 1000).Gumbel(49151), 0x1.ef9d6226ef344p-2);
  EXPECT_EQ(DiceBits(dice(~uint64_t{0}, 0x123456789).key(), 77), 0xbad9afd6U);
  EXPECT_EQ(dice(~uint64_t{0}, 0x123456789).Gumbel(77), 0x1.27d536235b597p+0);
}

TEST(Dice, AreWhatTheHeaderSays) {
  const RngStream stream{11, 3, RngPurpose::kTarget};
  for (const uint64_t position : {uint64_t{0}, uint64_t{9}, uint64_t{1} << 40}) {
    const Dice dice(stream, position);
    for (int32_t token = 0; token < 400; ++token) {
      const auto counter = static_cast<uint32_t>((token / 64) * 16 + token % 16);
      const uint32_t bits = Philox4x32(dice.key(), {counter, 0, 0, 0})[static_cast<size_t>((token / 16) % 4)];
      EXPECT_EQ(DiceBits(dice.key(), token), bits);
      const double u = (bits + 0.5) / 4294967296.0;
      EXPECT_EQ(dice.Gumbel(token), -Log(-Log(u)));
      EXPECT_NEAR(dice.Gumbel(token), -std::log(-std::log(u)), 1e-14);
    }
  }
}

TEST(Dice, AreKeyedByEverything) {
  const RngStream a{1, 0, RngPurpose::kTarget};
  EXPECT_EQ(Dice(a, 7).Gumbel(3), Dice(a, 7).Gumbel(3));
  EXPECT_NE(Dice(a, 7).Gumbel(3), Dice(a, 7).Gumbel(4));
  EXPECT_NE(Dice(a, 7).key(), Dice(a, 8).key());
  EXPECT_NE(Dice(a, 7).key(), Dice(a, 7 + (uint64_t{1} << 32)).key());
  EXPECT_NE(Dice(a, 7).key(), Dice({2, 0, RngPurpose::kTarget}, 7).key());
  EXPECT_NE(Dice(a, 7).key(), Dice({1, 1, RngPurpose::kTarget}, 7).key());
  EXPECT_NE(Dice(a, 7).key(), Dice({1, 0, RngPurpose::kDraft}, 7).key());
  // No two of a position's tokens share a word.
  std::vector<uint64_t> places;
  for (uint32_t t = 0; t < 4096; ++t) places.push_back(uint64_t{t / 64 * 16 + t % 16} * 4 + t / 16 % 4);
  std::sort(places.begin(), places.end());
  for (uint64_t i = 0; i < places.size(); ++i) EXPECT_EQ(places[i], i);
}

TEST(Dice, HaveTheGumbelDistribution) {
  constexpr int kPositions = 100, kTokens = 2000;
  constexpr double kN = kPositions * kTokens;
  constexpr double kMean = 0.57721566490153286, kVariance = 1.6449340668482264;  // Euler's constant, pi^2 / 6
  double sum = 0, squares = 0, next_token = 0, next_position = 0, next_word = 0;
  std::vector<double> before(kTokens, kMean);
  for (int position = 0; position < kPositions; ++position) {
    const Dice dice({.seed = 3}, static_cast<uint64_t>(position));
    std::vector<double> g;
    for (int32_t token = 0; token < kTokens; ++token) g.push_back(dice.Gumbel(token));
    for (size_t i = 0; i < kTokens; ++i) {
      sum += g[i];
      squares += (g[i] - kMean) * (g[i] - kMean);
      next_position += (g[i] - kMean) * (before[i] - kMean);
      if (i >= 1) next_token += (g[i] - kMean) * (g[i - 1] - kMean);
      if (i >= 16) next_word += (g[i] - kMean) * (g[i - 16] - kMean);
    }
    before = g;
  }
  // Five standard deviations; that of the squares is larger, as the fourth moment is 5.4 variances squared.
  EXPECT_NEAR(sum / kN, kMean, 5 * std::sqrt(kVariance / kN));
  EXPECT_NEAR(squares / kN, kVariance, 5 * kVariance * std::sqrt(4.4 / kN));
  for (const double products : {next_token, next_position, next_word}) {
    EXPECT_NEAR(products / kN / kVariance, 0.0, 5 / std::sqrt(kN));
  }
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
  EXPECT_EQ(team.barriers(), 20U * (3 + 1));
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

TEST(SimulatedClock, GoesOnWithWhatIsSpentAndWithEachLook) {
  const SimulatedClock still;
  const double start = NowMs();
  SpendMs(2.5);
  EXPECT_EQ(NowMs() - start, 2.5);
  {
    const SimulatedClock looked_at(0.25);
    const double before = NowMs();
    SpendMs(1);
    EXPECT_EQ(NowMs() - before, 1.25);
  }
  EXPECT_EQ(NowMs() - start, 2.5);
}

// A worker that the system has stopped is waited for without using the core that it may need.
TEST(ThreadTeam, WhoWaitsLongSleeps) {
  const auto thread_ms = [] {
    timespec used{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) * 1e3 + static_cast<double>(used.tv_nsec) * 1e-6;
  };
  for (const int late : {0, 1}) {
    ThreadTeam team(2);
    double waiting_ms = 0;
    team.Run([&](ThreadTeam::Worker& worker) {
      if (worker.index() == late) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      const double began = thread_ms();
      worker.Barrier();
      if (worker.index() != late) waiting_ms = thread_ms() - began;
    });
    EXPECT_LT(waiting_ms, 100) << late;
  }
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

#if defined(__x86_64__)
// As a program is begun that was linked with -ffast-math.
TEST_P(ThreadTeamTest, KeepsSmallNumbersWhateverTheProgramDoes) {
  const unsigned before = _mm_getcsr(), flushing = before | 0x8040;
  _mm_setcsr(flushing);
  ThreadTeam team(GetParam());
  std::atomic<int> n_kept{0};
  for (int run = 0; run < 2; ++run) {
    team.Run([&](ThreadTeam::Worker&) {
      volatile float least = std::numeric_limits<float>::min();
      volatile const float half = least / 2;
      if (half > 0 && half * 2 == least) n_kept.fetch_add(1);
    });
  }
  EXPECT_EQ(_mm_getcsr() & 0xFFC0U, flushing & 0xFFC0U);
  _mm_setcsr(before);
  EXPECT_EQ(n_kept.load(), 2 * GetParam());
}
#endif

// Address space for a few stacks stands for a system that gives no more threads.
TEST(ThreadTeam, AThreadThatIsRefusedEndsThoseBefore) {
  uint64_t pages = 0;
  ASSERT_TRUE(std::ifstream("/proc/self/statm") >> pages);
  const uint64_t used = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (used > uint64_t{1} << 40) GTEST_SKIP() << "a sanitizer has mapped its shadow, and needs room for more";
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlimit little{used + (uint64_t{64} << 20), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &little), 0);
  const auto refused = ThreadTeam::Start(1000);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.status().message().find("--threads 1000: the system refuses one"), std::string::npos);
  std::atomic<int> runs{0};
  ThreadTeam(3).Run([&](ThreadTeam::Worker&) { runs.fetch_add(1); });
  EXPECT_EQ(runs.load(), 3);
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

// Each level holds a kilobyte until those below it are done.
int Deep(int levels) {
  std::array<volatile char, 1024> held{};
  held[0] = 1;
  const int below = levels == 0 ? 0 : Deep(levels - 1);
  return below + held[0];
}

TEST(DeepStack, HoldsWhatAnOrdinaryOneDoesNot) {
  int result = 0;
  ASSERT_TRUE(RunOnDeepStack(size_t{128} << 20, [&] { result = Deep(20'000); }).ok());
  EXPECT_EQ(result, 20'001);
  EXPECT_THROW((void)RunOnDeepStack(1 << 20, [] { throw std::runtime_error("no"); }), std::runtime_error);
  const Status refused = RunOnDeepStack(1, [&] { result = 0; });
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(result, 20'001);
}

TEST(PercentDecoding, DecodesWhatIsOneAndKeepsTheRest) {
  EXPECT_EQ(PercentDecoded("a%20b%2Fc%2f"), "a b/c/");
  EXPECT_EQ(PercentDecoded("%C3%A9"), "\xC3\xA9");
  EXPECT_EQ(PercentDecoded("%00").size(), 1U);
  for (const char* text : {"", "%", "%4", "100%", "%g1", "%1g", "%-1", "%+1", "% 1"})
    EXPECT_EQ(PercentDecoded(text), text);
  EXPECT_EQ(PercentDecoded("%%41"), "%A");
}

}  // namespace
}  // namespace longspec
