// SPDX-License-Identifier: Apache-2.0
//
// What keeping keys and values in a file costs a step, and the rule when that is too much. Each step reads
// all of them, and those that memory has no room for from the disk. It is refused where these reads alone
// take longer than reading all of them from memory would, and memory would hold them all in q8_0. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/disk_speed.h"
#include "kv/chunk_pool.h"
#include "longspec/engine.h"
#include "longspec/status.h"

namespace longspec {

// Bytes of the file that the page cache has no room for, in the memory that the plan leaves: what a step at
// the whole context reads from the disk at least. 0 if nobody knows how much memory there is.
uint64_t KvFromDisk(const MemoryPlan& plan);

// For a plan that wants keys and values in a file in this folder: returns how fast its disk is read, and adds
// that to the plan. A process measures each disk once; one that cannot be measured has speeds of 0.
ReadSpeeds MeasureOffload(const std::string& folder, MemoryPlan* plan);

// Bytes of the plan's whole context in q8_0; 0 if its heads cannot be stored so, or that is not less.
uint64_t KvBytesAsQ8(const KvLayout& layout, int n_layer, const MemoryPlan& plan);

// kResourceExhausted, with the numbers, where the rule above refuses. `kv_as_q8`: bytes, 0: that is no
// choice.
Status CheckOffloadPays(const std::string& folder, const MemoryPlan& plan, uint64_t kv_as_q8,
                        const ReadSpeeds& speeds);

}  // namespace longspec
