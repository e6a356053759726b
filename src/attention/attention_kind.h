// SPDX-License-Identifier: Apache-2.0
//
// The kinds of attention that a program has: the usual one and those that were added. All give the same bits.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "attention/attention.h"
#include "longspec/options.h"

namespace longspec {

struct AttentionEntry {
  AttentionKind kind = AttentionKind::kFlash;
  std::string_view name = {};  // of what is unusual; empty: nothing is
  std::unique_ptr<Attention> (*make)(const kernels::KernelTable* kernels, const AttentionShape& shape,
                                     int n_threads) = nullptr;
  // What a sequence of so many positions takes besides, at most, in bytes. `layout`: its cache's.
  size_t (*sequence_bytes)(const AttentionShape& shape, const KvLayout& layout, int n_positions) = nullptr;
};

// Null: this program does not have it.
const AttentionEntry* FindAttention(AttentionKind kind);
// `entry` stays for good. Before there is a model, from one thread.
void AddAttention(const AttentionEntry* entry);

}  // namespace longspec
