// SPDX-License-Identifier: Apache-2.0
#include "bench/machine.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "base/aligned_buffer.h"
#include "base/clock.h"
#include "kernels/peak.h"

namespace longspec {
namespace {

constexpr size_t kBufferBytes = size_t{256} << 20;
constexpr int kRepetitions = 5;

// Eight sums, so that the adds never wait for each other.
uint64_t SumOf(const uint64_t* p, size_t n) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= n; i += 8) {
    for (size_t k = 0; k < 8; ++k) sums[k] += p[i + k];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

// Runs `work` on every thread kRepetitions times; returns the best time in ms.
template <typename F>
double BestMs(ThreadTeam& team, F work) {
  double best = 1e30;
  for (int i = 0; i < kRepetitions; ++i) {
    const double start = NowMs();
    team.Run(work);
    best = std::min(best, NowMs() - start);
  }
  return best;
}

double MeasureRead(ThreadTeam& team) {
  AlignedBuffer buffer(kBufferBytes);
  const auto n_word = static_cast<int>(kBufferBytes / sizeof(uint64_t) / 8);
  team.Run([&](ThreadTeam::Worker& worker) {
    const auto share = worker.ShareOf(n_word);
    std::memset(buffer.data() + static_cast<size_t>(share.begin) * 64, 1,
                static_cast<size_t>(share.end - share.begin) * 64);
  });
  std::atomic<uint64_t> sink{0};
  const double ms = BestMs(team, [&](ThreadTeam::Worker& worker) {
    const auto share = worker.ShareOf(n_word);
    sink += SumOf(buffer.as<uint64_t>() + static_cast<size_t>(share.begin) * 8,
                  static_cast<size_t>(share.end - share.begin) * 8);
  });
  return static_cast<double>(kBufferBytes) / ms * 1e-6;
}

double MeasurePeak(ThreadTeam& team, int64_t (*loop)(int64_t)) {
  // As many rounds as take about 10 ms.
  int64_t rounds = 1000;
  for (double ms = 0; ms < 5.0; rounds *= 2) {
    const double start = NowMs();
    loop(rounds);
    ms = NowMs() - start;
  }
  int64_t macs = 0;
  const double ms = BestMs(team, [&](ThreadTeam::Worker& worker) {
    const int64_t done = loop(rounds);
    if (worker.index() == 0) macs = done;
  });
  return static_cast<double>(macs) * team.size() / ms * 1e-6;
}

double MeasureBarrier(ThreadTeam& team) {
  constexpr int kBarriers = 5000;
  double best = 1e30;
  for (int i = 0; i < 4 * kRepetitions; ++i) {
    double ms = 0;
    team.Run([&](ThreadTeam::Worker& worker) {
      worker.Barrier();  // from here on all are awake
      const double start = NowMs();
      for (int k = 0; k < kBarriers; ++k) worker.Barrier();
      if (worker.index() == 0) ms = NowMs() - start;
    });
    best = std::min(best, ms);
  }
  return best * 1e3 / kBarriers;
}

}  // namespace

Result<MachineLimits> MeasureMachine(const kernels::KernelTable& kernels, ThreadTeam& team) {
  try {
    const kernels::PeakLoops loops = kernels::PeakLoopsOf(kernels);
    MachineLimits limits;
    limits.read_gb_per_second = MeasureRead(team);
    limits.q8_gmac_per_second = MeasurePeak(team, loops.q8);
    limits.f32_gmac_per_second = MeasurePeak(team, loops.f32);
    const auto peak_beside_f32 = [&](int64_t (*loop)(int64_t)) {
      return loop == loops.f32 ? limits.f32_gmac_per_second : MeasurePeak(team, loop);
    };
    limits.bf16_gmac_per_second = peak_beside_f32(loops.bf16);
    limits.bf16_amx_gmac_per_second = peak_beside_f32(loops.bf16_amx);
    limits.barrier_us = MeasureBarrier(team);
    return limits;
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory to measure the machine with");
  }
}

void Work::Add(std::string_view arithmetic, double macs) {
  const bool integer = arithmetic == "q8" || arithmetic == "q8k" || arithmetic == "i8";
  double& of_arithmetic = integer                ? q8_macs
                          : arithmetic == "bf16" ? bf16_macs
                          : arithmetic == "f32"  ? f32_macs
                                                 : bf16_amx_macs;
  of_arithmetic += macs;
}

void Work::AddAttention(const KvLayout& layout, double macs) {
  for (const CacheType type : {layout.k_type, layout.v_type}) {
    Add(AttentionArithmetic(type), macs);
  }
}

double LeastMs(const Work& work, const MachineLimits& limits) {
  const double reading = work.bytes / limits.read_gb_per_second * 1e-6;
  // Not every machine was asked for every arithmetic.
  const auto ms = [](double macs, double gmac_per_second) {
    return macs > 0 ? macs / gmac_per_second * 1e-6 : 0;
  };
  const double computing = ms(work.q8_macs, limits.q8_gmac_per_second) +
                           ms(work.f32_macs, limits.f32_gmac_per_second) +
                           ms(work.bf16_macs, limits.bf16_gmac_per_second) +
                           ms(work.bf16_amx_macs, limits.bf16_amx_gmac_per_second);
  return std::max(reading, computing);
}

}  // namespace longspec
