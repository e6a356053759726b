// SPDX-License-Identifier: Apache-2.0
//
// Drafts that are known before: what they are worth, and whether a text stays the same whatever is accepted.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "draft/drafter_entry.h"
#include "longspec/options.h"

namespace longspec {

struct ReplayOptions {
  std::vector<int32_t> tokens = {};  // to propose, by absolute output index
  // Less than 1: it plays a draft that is right with this chance at each token, as a chain that is as deep as
  // pays, and each token of a proposal takes so long.
  float accept = 1.0F;
  float step_ms = 0.0F;
  bool operator==(const ReplayOptions&) const = default;
};
// SpeculationOptions::added of type "replay".
inline AddedDraftOptions Replay(ReplayOptions options) { return AddedDraftOptions(std::move(options)); }

extern const DrafterEntry kReplayDrafter;

}  // namespace longspec
