// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/amx.h"

namespace longspec::kernels {

namespace avx512_functions = LONGSPEC_AVX512_NAMESPACE;
namespace functions = LONGSPEC_AMX_NAMESPACE;

extern const KernelTable LONGSPEC_AMX_TABLE;

const KernelTable LONGSPEC_AMX_TABLE = {
    .name = LONGSPEC_AMX_NAME,
    .quantize_q8 = avx512_functions::QuantizeQ8,
    .matmul_q8 = avx512_functions::MatmulQ8,
    .quantize_q8k = avx512_functions::QuantizeQ8K,
    .matmul_q8k = avx512_functions::MatmulQ8K,
    .matmul_float = avx512_functions::MatmulFloat,
    .round_bf16 = functions::base::RoundBf16,
    .matmul_bf16 = functions::MatmulBf16,
    .rms_norm = avx512_functions::RmsNorm,
    .rope = avx512_functions::Rope,
    .swiglu = avx512_functions::SwiGlu,
    .geglu = avx512_functions::GeGlu,
    .exp = avx512_functions::Exp,
    .argmax = avx512_functions::Argmax,
    .top_k = avx512_functions::TopK,
    .gumbel_argmax = avx512_functions::GumbelArgmax,
    .scores = functions::Scores,
    .softmax_chunk = avx512_functions::SoftmaxChunk,
    .values = functions::Values,
    .gathered_values = functions::GatheredValues,
    .merge_state = avx512_functions::MergeState,
    .finish_state = avx512_functions::FinishState,
    .store_kv = avx512_functions::StoreKv,
};

}  // namespace longspec::kernels
