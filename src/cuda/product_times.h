// SPDX-License-Identifier: Apache-2.0
//
// Bodies of products beside each other, over shapes of models and rows: what BestBody
// (kernels/gpu/matmul_table.h) chooses from.
#pragma once

#include <cstdio>

namespace longspec::cuda {

// A line for each shape, format and number of rows: microseconds of each body, and its bytes a second.
void PrintProductTimes(std::FILE* to);

}  // namespace longspec::cuda
