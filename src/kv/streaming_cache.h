// SPDX-License-Identifier: Apache-2.0
//
// The cache of StreamingLLM (arXiv 2309.17453; research: 3.1): the first `sink` positions and the last
// `window` ones; what lies between is forgotten. Constant memory, and an approximation: rows see the sinks,
// the window and their ancestors only. Keys keep the rotation of their original positions, so rows can be
// copied from a full cache. While nothing is forgotten, slots are positions and attention is that of a full
// cache, bit for bit.
//
// The window is a ring: a committed row takes the slot of the oldest one. Rows of one transaction see each
// other however many they are, so results depend on how rows are cut into transactions.
#pragma once

#include <memory>

#include "kv/working_set.h"

namespace longspec {

// REQUIRES: sink >= 0, window >= 1.
std::unique_ptr<WorkingSet> MakeStreamingCache(const KvLayout& layout, int n_layer, int sink, int window);

}  // namespace longspec
