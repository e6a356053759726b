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

// Reads head_dim and n_ctx_train of `sizes`. Does not set the pairing, which is the architecture's. kCorrupt,
// kInvalidArgument: a number that makes no sense, by the name of its key or option. kUnsupported: a key of
// ARCH.rope. that is not known: what it asks for would not be done.
Result<RopeConfig> ReadRope(const GgufFile& file, const std::string& architecture, const ModelSizes& sizes,
                            const RopeOptions& options);

}  // namespace longspec
