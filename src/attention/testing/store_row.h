// SPDX-License-Identifier: Apache-2.0
//
// A slot's key and value as a forward pass stores them.
#pragma once

#include "attention/kv_span.h"
#include "kernels/tables.h"

namespace longspec::testing {

// `k`, `v`: of one KV head, (head_dim), keys already turned. Types are those of the layout.
inline void StoreRow(const KvWriter& to, int slot, int head, const float* k, const float* v) {
  kernels::kReferenceTable.store_kv({.k = k,
                                     .v = v,
                                     .keys = to.keys(slot / kKvChunk, head),
                                     .values = to.values(slot / kKvChunk, head),
                                     .offset = slot % kKvChunk,
                                     .head_dim = to.layout.head_dim,
                                     .k_type = KernelType(to.layout.k_type),
                                     .v_type = KernelType(to.layout.v_type)});
}

}  // namespace longspec::testing
