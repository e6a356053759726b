// SPDX-License-Identifier: Apache-2.0
//
// The target's embedding, which its drafts share.
#pragma once

#include <cstdint>

#include "longspec/status.h"
#include "model/shared_parts.h"

namespace longspec {

// Of one token, (n_embd). kInvalidArgument if the target does not have it.
Status EmbedToken(const SharedParts& target, int32_t token, float* x);

}  // namespace longspec
