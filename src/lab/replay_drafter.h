// SPDX-License-Identifier: Apache-2.0
//
// Drafts that are known before: what they are worth, and whether a text stays the same whatever is accepted.
#pragma once

#include "draft/drafter_entry.h"

namespace longspec {

extern const DrafterEntry kReplayDrafter;

}  // namespace longspec
