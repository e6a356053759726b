// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx512.h"
#include "kernels/cpu/avx512_bf16.h"
#include "kernels/tables.h"

namespace longspec::kernels {

const KernelTable kAvx512Bf16Table = {
    .name = "avx512-bf16",
    .quantize_q8 = avx512::QuantizeQ8,
    .matmul_q8 = avx512::MatmulQ8,
    .quantize_q8k = avx512::QuantizeQ8K,
    .matmul_q8k = avx512::MatmulQ8K,
    .matmul_float = avx512::MatmulFloat,
    .round_bf16 = avx512_bf16::RoundBf16,
    .matmul_bf16 = avx512_bf16::MatmulBf16,
    .rms_norm = avx512::RmsNorm,
    .rope = avx512::Rope,
    .swiglu = avx512::SwiGlu,
    .geglu = avx512::GeGlu,
    .exp = avx512::Exp,
    .argmax = avx512::Argmax,
    .top_k = avx512::TopK,
    .gumbel_argmax = avx512::GumbelArgmax,
    .scores = avx512_bf16::Scores,
    .softmax_chunk = avx512::SoftmaxChunk,
    .values = avx512_bf16::Values,
    .gathered_values = avx512_bf16::GatheredValues,
    .merge_state = avx512::MergeState,
    .finish_state = avx512::FinishState,
    .store_kv = avx512::StoreKv,
};

}  // namespace longspec::kernels
