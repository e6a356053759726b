// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx512.h"

namespace longspec::kernels {

namespace functions = LONGSPEC_AVX512_NAMESPACE;

extern const KernelTable LONGSPEC_AVX512_TABLE;

const KernelTable LONGSPEC_AVX512_TABLE = {
    .name = LONGSPEC_AVX512_NAME,
    .quantize_q8 = functions::QuantizeQ8,
    .matmul_q8 = functions::MatmulQ8,
    .quantize_q8k = functions::QuantizeQ8K,
    .matmul_q8k = functions::MatmulQ8K,
    .matmul_float = functions::MatmulFloat,
    .round_bf16 = functions::RoundBf16,
    .matmul_bf16 = functions::MatmulBf16,
    .rms_norm = functions::RmsNorm,
    .rope = functions::Rope,
    .swiglu = functions::SwiGlu,
    .geglu = functions::GeGlu,
    .exp = functions::Exp,
    .argmax = functions::Argmax,
    .top_k = functions::TopK,
    .gumbel_argmax = functions::GumbelArgmax,
    .scores = functions::Scores,
    .softmax_chunk = functions::SoftmaxChunk,
    .values = functions::Values,
    .gathered_values = functions::GatheredValues,
    .merge_state = functions::MergeState,
    .finish_state = functions::FinishState,
    .store_kv = functions::StoreKv,
};

}  // namespace longspec::kernels
