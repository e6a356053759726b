// SPDX-License-Identifier: Apache-2.0
//
// SpecPV's sequence of verifications (arXiv 2512.02337; research: specpv.md 3): by what each one is done, as
// a function of lengths alone. How far a verification gets depends on the drafts, so the sequence does, too.
#pragma once

#include <cstdint>

namespace longspec {

enum class PartialMode : uint8_t {
  kFull,     // by the whole cache: all of the text would fit into the working set
  kPartial,  // by the working set
  kRefresh,  // by the whole cache, which takes in what is missing; then a working set is chosen
};

// Tokens accepted since the last refresh, those of the refresh included, with which the working set is still
// used.
inline constexpr int kPartialMargin = 20;

// Of a verification with `n` committed tokens, the root of its tree not counted. `set_size`: positions that a
// working set holds right after it was chosen. `refreshed_at`: n of the last refresh; -1: there was none.
PartialMode PaperMode(int n, int set_size, int refreshed_at, int margin = kPartialMargin);

}  // namespace longspec
