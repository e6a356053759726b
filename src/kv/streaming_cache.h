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

#include "kv/kv_cache.h"

namespace longspec {

class StreamingCache : public KvCache {
 public:
  // Makes this cache hold what `source` holds of its first and last positions, and copies only rows that it
  // does not have from there yet. REQUIRES: `source` keeps every position, has the same layout and layers,
  // and has not changed a position since the last call other than by growing; after anything else,
  // Truncate(0) first.
  virtual Status Follow(const KvCache& source) = 0;
};

// REQUIRES: sink >= 0, window >= 1.
std::unique_ptr<StreamingCache> MakeStreamingCache(const KvLayout& layout, int n_layer, int sink, int window);

}  // namespace longspec
