// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx2.h"
#include "kernels/tables.h"

namespace longspec::kernels {

const KernelTable kAvx2Table = {
    .name = "avx2",
    .quantize_q8 = avx2::QuantizeQ8,
    .matmul_q8 = avx2::MatmulQ8,
    .quantize_q8k = avx2::QuantizeQ8K,
    .matmul_q8k = avx2::MatmulQ8K,
    .matmul_float = avx2::MatmulFloat,
    .round_bf16 = avx2::RoundBf16,
    .matmul_bf16 = avx2::MatmulBf16,
    .rms_norm = avx2::RmsNorm,
    .rope = avx2::Rope,
    .swiglu = avx2::SwiGlu,
    .geglu = avx2::GeGlu,
    .exp = avx2::Exp,
    .argmax = avx2::Argmax,
    .top_k = avx2::TopK,
    .gumbel_argmax = avx2::GumbelArgmax,
    .scores = avx2::Scores,
    .softmax_chunk = avx2::SoftmaxChunk,
    .values = avx2::Values,
    .gathered_values = avx2::GatheredValues,
    .merge_state = avx2::MergeState,
    .finish_state = avx2::FinishState,
    .store_kv = avx2::StoreKv,
};

}  // namespace longspec::kernels
