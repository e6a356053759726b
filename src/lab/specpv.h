// SPDX-License-Identifier: Apache-2.0
//
// Partial verification as SpecPV has it (arXiv 2512.02337), to compare with the paper:
// by what each verification is done, as a function of lengths alone. How far a verification gets depends on
// the drafts, so the sequence does, too.
#pragma once

#include <cstdint>

#include "decode/partial_verifier.h"

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

// A refresh comes when the tokens that were accepted fill a buffer, verifies a tree by the whole cache, and
// chooses by the mean score of its queries, wrong drafts and all. So THE TEXT DEPENDS ON THE DRAFTS.
// `options.refresh` is not used.
std::unique_ptr<PartialVerifier> MakePaperVerifier(const RetrievalOptions& options, KvCache* whole,
                                                   const Target& target, const Sampler* sampler,
                                                   int n_prompt);
inline constexpr RefreshRule kPaperRefresh = {.most_accepted = kPartialMargin, .make = MakePaperVerifier};

}  // namespace longspec
