// SPDX-License-Identifier: Apache-2.0
//
// How much a query looks at each position: softmax over the stored keys, as attention has it, averaged over
// query heads. For choosing what a draft is to see (SpecExtend, arXiv 2505.20776); nothing is computed with
// it.
#pragma once

#include <span>
#include <vector>

#include "attention/attention.h"
#include "attention/kv_span.h"
#include "kernels/ops.h"

namespace longspec {

// `queries`: (n_head, head_dim) of one row, rotated. mass[p]: of committed position p; they sum to 1.
void AttentionMass(const kernels::KernelTable& kernels, const AttentionShape& shape, const KvSpan& span,
                   std::span<const float> queries, std::vector<float>* mass);

}  // namespace longspec
