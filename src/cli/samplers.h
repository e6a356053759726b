// SPDX-License-Identifier: Apache-2.0
//
// llama.cpp's --samplers: the list says which samplers run (api/sampling_fields.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/sampling_fields.h"
#include "longspec/options.h"
#include "longspec/status.h"

namespace longspec::cli {

using api::kAllSamplers;
using api::kSamplers;

// Turns off what `list` ("top_k;temperature") leaves out. Returns what the user should know: samplers of
// llama.cpp that do not exist here, an order that is not kept. Any other name is an error that lists the
// known ones.
Result<std::vector<std::string>> ApplySamplers(const std::string& list, SamplingOptions* options);

}  // namespace longspec::cli
