// SPDX-License-Identifier: Apache-2.0
//
// What this machine can do at most, measured now with a thread team: the roof that the other measurements are
// compared with.
#pragma once

#include <string_view>

#include "attention/kv_span.h"
#include "base/thread_team.h"
#include "kernels/ops.h"
#include "longspec/status.h"

namespace longspec {

struct MachineLimits {
  double read_gb_per_second = 0;  // of memory far larger than the caches, all threads
  double q8_gmac_per_second = 0;  // 10^9 multiply-adds of 8-bit integers, all threads; "i8" has these too
  double f32_gmac_per_second = 0;
  // Of bf16 numbers, in the arithmetics of these names; what f32 can do, where there is nothing faster.
  double bf16_gmac_per_second = 0;
  double bf16_amx_gmac_per_second = 0;
  double barrier_us = 0;  // one barrier of all threads while they are busy: the best mean of many in a row
};

// Takes about half a second and 256 MiB.
Result<MachineLimits> MeasureMachine(const kernels::KernelTable& kernels, ThreadTeam& team);

// What a step needs at least of each.
struct Work {
  double bytes = 0;
  double q8_macs = 0;
  double f32_macs = 0;
  double bf16_macs = 0;
  double bf16_amx_macs = 0;

  double macs() const { return q8_macs + f32_macs + bf16_macs + bf16_amx_macs; }
  void Add(std::string_view arithmetic, double macs);
  // Scores and weighted values of a cache: `macs` of each.
  void AddAttention(const KvLayout& layout, double macs);
};

// The least time in ms: reading may overlap computing, the kinds of computing share the units.
double LeastMs(const Work& work, const MachineLimits& limits);

}  // namespace longspec
