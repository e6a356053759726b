// SPDX-License-Identifier: Apache-2.0
//
// Counter-based random numbers (Philox4x32-10, Salmon et al. 2011). A number is a pure function of its key
// and counter, so the draw for one position of one sequence does not depend on what else was drawn, in which
// order, by which thread, or in which batch. That is what makes sampled output equal with and without
// speculation.
#pragma once

#include <array>
#include <cstdint>

namespace longspec {

// Ten Philox rounds: 128 random bits for (key, counter).
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 2> key, std::array<uint32_t, 4> counter);

// What a number is for. Streams of different purposes never meet.
enum class RngPurpose : uint32_t { kTarget = 0, kDraft = 1, kPolicy = 2, kTest = 3 };

struct RngStream {
  uint64_t seed = 0;
  uint64_t sequence = 0;  // which sequence of a batch
  RngPurpose purpose = RngPurpose::kTarget;

  // What all numbers of the stream are drawn with.
  std::array<uint32_t, 2> Key() const;
  // Uniform in [0, 1) with 53 bits, for absolute token position `position` (and a sub-draw index).
  double Uniform(uint64_t position, uint32_t draw = 0) const;
};

}  // namespace longspec
