// SPDX-License-Identifier: Apache-2.0
#include "lab/lab.h"

#include "attention/attention_kind.h"
#include "decode/partial_verifier.h"
#include "draft_model/registry.h"
#include "lab/eager_attention.h"
#include "lab/replay_drafter.h"
#include "lab/specpv.h"

namespace longspec {
namespace {

constexpr AttentionEntry kEagerAttention = {
    .kind = AttentionKind::kEager,
    .name = "eager",
    .make = [](const kernels::KernelTable* kernels, const AttentionShape& shape, int n_threads)
        -> std::unique_ptr<Attention> { return std::make_unique<EagerAttention>(kernels, shape, n_threads); },
    .sequence_bytes = EagerAttention::CopyBytes,
};

}  // namespace

void AddLab() {
  if (FindAttention(AttentionKind::kEager) != nullptr) return;
  AddAttention(&kEagerAttention);
  SetOtherRefreshRule(&kPaperRefresh);
  AddDrafter(&kReplayDrafter, "ppm");
}

}  // namespace longspec
