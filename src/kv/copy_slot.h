// SPDX-License-Identifier: Apache-2.0
//
// Keys and values of positions from one place to another, exact to the bit.
#pragma once

#include "attention/kv_span.h"

namespace longspec {

// Copies one layer's slot: of every KV head a column of the transposed keys and a row of the values.
// REQUIRES: equal layouts.
void CopySlot(const KvSpan& from, int from_slot, const KvWriter& to, int to_slot);

// Copies 16 slots of one layer and KV head from these on. REQUIRES: equal layouts; both are multiples of
// kKeyBlock.
void CopyBlock(const KvSpan& from, int from_slot, const KvWriter& to, int to_slot, int kv_head);

}  // namespace longspec
