// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/neon.h"
#include "kernels/tables.h"

namespace longspec::kernels {

const KernelTable kNeonTable = {
    .name = "neon",
    .quantize_q8 = neon::QuantizeQ8,
    .matmul_q8 = neon::MatmulQ8,
    .quantize_q8k = neon::QuantizeQ8K,
    .matmul_q8k = neon::MatmulQ8K,
    .matmul_float = neon::MatmulFloat,
    .round_bf16 = neon::RoundBf16,
    .matmul_bf16 = neon::MatmulBf16,
    .rms_norm = neon::RmsNorm,
    .rope = neon::Rope,
    .swiglu = neon::SwiGlu,
    .geglu = neon::GeGlu,
    .exp = neon::Exp,
    .argmax = neon::Argmax,
    .top_k = neon::TopK,
    .gumbel_argmax = neon::GumbelArgmax,
    .scores = neon::Scores,
    .softmax_chunk = neon::SoftmaxChunk,
    .values = neon::Values,
    .gathered_values = neon::GatheredValues,
    .merge_state = neon::MergeState,
    .finish_state = neon::FinishState,
    .store_kv = neon::StoreKv,
};

}  // namespace longspec::kernels
