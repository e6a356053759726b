// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/reference.h"
#include "kernels/tables.h"

namespace longspec::kernels {

const KernelTable kReferenceTable = {
    .name = "reference",
    .quantize_q8 = reference::QuantizeQ8,
    .matmul_q8 = reference::MatmulQ8,
    .quantize_q8k = reference::QuantizeQ8K,
    .matmul_q8k = reference::MatmulQ8K,
    .matmul_float = reference::MatmulFloat,
    .round_bf16 = reference::RoundBf16,
    .matmul_bf16 = reference::MatmulBf16,
    .rms_norm = reference::RmsNorm,
    .rope = reference::Rope,
    .swiglu = reference::SwiGlu,
    .geglu = reference::GeGlu,
    .exp = reference::Exp,
    .argmax = reference::Argmax,
    .top_k = reference::TopK,
    .gumbel_argmax = reference::GumbelArgmax,
    .scores = reference::Scores,
    .softmax_chunk = reference::SoftmaxChunk,
    .values = reference::Values,
    .gathered_values = reference::GatheredValues,
    .merge_state = reference::MergeState,
    .finish_state = reference::FinishState,
    .store_kv = reference::StoreKv,
};

}  // namespace longspec::kernels
