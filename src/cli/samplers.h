// SPDX-License-Identifier: Apache-2.0
//
// llama.cpp's --samplers: the list says which samplers run. Here they always run in one order.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "longspec/options.h"
#include "longspec/status.h"

namespace longspec::cli {

// All there are, in the order in which they run.
inline constexpr std::string_view kSamplers = "penalties;top_k;top_p;min_p;temperature";

// Turns off what `list` ("top_k;temperature") leaves out. Returns what the user should know: samplers of
// llama.cpp that do not exist here, an order that is not kept. Any other name is an error that lists the
// known ones.
Result<std::vector<std::string>> ApplySamplers(const std::string& list, SamplingOptions* options);

}  // namespace longspec::cli
