// SPDX-License-Identifier: Apache-2.0
//
// Ranges of sampling options. Messages name options as they are written on the command line.
#pragma once

#include "longspec/options.h"
#include "longspec/status.h"

namespace longspec {

Status CheckSamplingOptions(const SamplingOptions& options, int vocab_size);

}  // namespace longspec
