// SPDX-License-Identifier: Apache-2.0
//
// The bodies of kernels/gpu/ on a card, as a kernel table: each call copies its arguments there and its
// results back. That is the proof that a card has the reference's bits; nothing else should use it.
#pragma once

#include <string>

#include "kernels/ops.h"

namespace longspec::cuda {

const kernels::KernelTable& CudaTable();
// "" where a card can run it, else why not.
std::string NoCard();

}  // namespace longspec::cuda
