// SPDX-License-Identifier: Apache-2.0
#include "attention/attention_kind.h"

#include <algorithm>
#include <vector>

namespace longspec {
namespace {

constexpr AttentionEntry kFlashAttention = {
    .kind = AttentionKind::kFlash,
    .make = [](const kernels::KernelTable* kernels, const AttentionShape& shape, int n_threads)
        -> std::unique_ptr<Attention> { return std::make_unique<AttentionPlan>(kernels, shape, n_threads); },
    .sequence_bytes = [](const AttentionShape&, const KvLayout&, int) { return size_t{0}; },
};

std::vector<const AttentionEntry*>& Entries() {
  static std::vector<const AttentionEntry*> entries = {&kFlashAttention};
  return entries;
}

}  // namespace

const AttentionEntry* FindAttention(AttentionKind kind) {
  const auto found = std::ranges::find(Entries(), kind, &AttentionEntry::kind);
  return found == Entries().end() ? nullptr : *found;
}

void AddAttention(const AttentionEntry* entry) { Entries().push_back(entry); }

}  // namespace longspec
