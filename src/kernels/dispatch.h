// SPDX-License-Identifier: Apache-2.0
//
// Which kernel table runs: the best this CPU has, or the one forced by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/ops.h"
#include "longspec/status.h"

namespace longspec::kernels {

// Tables this CPU can run, best first.
std::vector<const KernelTable*> Available();

// `forced`: a table's name; empty: $LONGSPEC_KERNELS if set, else the best. Forcing what this CPU or this
// build lacks is an error that lists what there is.
Result<const KernelTable*> Choose(std::string_view forced);

// For people: the CPU's name and the features kernels care about.
std::string CpuDescription();

}  // namespace longspec::kernels
