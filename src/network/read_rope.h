// SPDX-License-Identifier: Apache-2.0
//
// Rotary positions of a target: what its file says under ARCH.rope., and the user's options, which win.
#pragma once

#include <string>

#include "formats/gguf.h"
#include "longspec/options.h"
#include "longspec/status.h"
#include "network/model_sizes.h"
#include "network/rope.h"

namespace longspec {

// Of `sizes` are used: head_dim, n_ctx_train. The pairing is the architecture's, not set here.
// kCorrupt, kInvalidArgument: a number that makes no sense, by the name of its key or option. kUnsupported: a
// key of ARCH.rope. that is not known: what it asks for would not be done.
Result<RopeConfig> ReadRope(const GgufFile& file, const std::string& architecture, const ModelSizes& sizes,
                            const RopeOptions& options);

}  // namespace longspec
