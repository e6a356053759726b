// SPDX-License-Identifier: Apache-2.0
//
// A drafter that knows the answer: each round it proposes a tree of random shape that holds a chosen number
// of the right tokens on one path, among decoys. Round after round it forces every accepted length from 0 to
// the longest.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "draft/drafter.h"

namespace longspec {

// `answer`: the tokens after the prompt. `vocab_size` bounds the decoys.
std::unique_ptr<Drafter> MakeForcedTreeDrafter(std::vector<int32_t> answer, int vocab_size, uint64_t seed);

}  // namespace longspec
