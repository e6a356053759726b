// SPDX-License-Identifier: Apache-2.0
//
// The cache that keeps every position: chunks of 256 positions for all layers, allocated as the sequence
// grows.
#pragma once

#include <memory>

#include "kv/kv_cache.h"

namespace longspec {

// Bytes of one chunk (256 positions, all layers).
size_t FullCacheChunkBytes(const KvLayout& layout, int n_layer);

// `capacity` positions at most; memory is taken chunk by chunk as it is needed.
std::unique_ptr<KvCache> MakeFullCache(const KvLayout& layout, int n_layer, int capacity);

}  // namespace longspec
