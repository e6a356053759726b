// SPDX-License-Identifier: Apache-2.0
//
// The cache of StreamingLLM (arXiv 2309.17453; research: 3.1): the first `sink` positions and the last
// `window` ones; what lies between is forgotten. Constant memory, and an approximation: rows see the sinks,
// the window and their ancestors only. While nothing is forgotten, slots are positions and attention is that
// of a full cache, bit for bit.
//
// With a Rotary, positions are those inside the cache, as in StreamingLLM: the sinks stand right before the
// window, however long the text is. Rotation tells the distance of two positions only, so it is the sinks'
// keys that are turned, by as many positions as were forgotten, and all others stay as they are. Without one
// the sinks stay where they were.
//
// The window is a ring: a committed row takes the slot of the oldest one. Rows of one transaction see each
// other however many they are, so results depend on how rows are cut into transactions.
#pragma once

#include <memory>

#include "kv/chunk_pool.h"
#include "kv/rotary.h"
#include "kv/working_set.h"

namespace longspec {

// `pool`: a place of its own. REQUIRES: sink >= 0, window >= 1.
std::unique_ptr<WorkingSet> MakeStreamingCache(std::shared_ptr<ChunkPool> pool, int sink, int window,
                                               Rotary rotary = {});

}  // namespace longspec
