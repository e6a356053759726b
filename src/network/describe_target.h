// SPDX-License-Identifier: Apache-2.0
//
// What a file of features says of the model that it was made with. A pure function.
#pragma once

#include "formats/feature_shard.h"
#include "formats/gguf.h"
#include "network/model_sizes.h"

namespace longspec {

// `sizes`: of the file, with the scaling of positions that it is used with.
FeatureTarget DescribeTarget(const ModelSizes& sizes, const GgufFile& file);

}  // namespace longspec
