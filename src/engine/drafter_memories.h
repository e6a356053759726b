// SPDX-License-Identifier: Apache-2.0
//
// What was learned of drafts that take time (policy/asking.h), kept on disk (engine/cache_file.h) under
// the key of measured costs: whether it is worth asking them on this machine. So a program that starts does
// not try again what the last one found useless. Everything here may fail without harm: what cannot be read
// is learned again.
#pragma once

#include <string>

#include "longspec/options.h"
#include "longspec/status.h"
#include "policy/policy.h"

namespace longspec {

// The name that a drafter's memory is kept under, one line: its AcceptanceKey and which draft model it is.
std::string DrafterMemoryKey(const Drafter& drafter, const SpeculationOptions& options, bool dice);

using DrafterMemories = decltype(AdaptiveMemory::drafters);

// kNotFound: nothing is known of this key; kCorrupt: the file is none of ours or damaged.
Result<DrafterMemories> ReadDrafterMemories(const std::string& folder, const std::string& key);
// Writes what is known of these drafters; if there are too many, of those that were used last.
Status WriteDrafterMemories(const std::string& folder, const std::string& key,
                            const DrafterMemories& drafters);

}  // namespace longspec
