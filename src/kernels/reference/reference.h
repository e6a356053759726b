// SPDX-License-Identifier: Apache-2.0
//
// The naive loops that define every operation (docs/arithmetic.md). They stay for ever: every other table is
// tested against them with memcmp.
#pragma once

#include "kernels/ops.h"

namespace longspec::kernels::reference {

void QuantizeQ8(const float* x, int n, Q8Block* out);
void MatmulQ8(const MatmulQ8Args& a);
void QuantizeQ8K(const float* x, int n, Q8KBlock* out);
void MatmulQ8K(const MatmulQ8KArgs& a);
void MatmulFloat(const MatmulFloatArgs& a);
void RoundBf16(const float* x, int n, uint16_t* out);
void MatmulBf16(const MatmulBf16Args& a);

float ExpOf(float x);
void RmsNorm(const float* x, const float* w, int n, float eps, float* y);
void Rope(float* x, int n_rot, const float* cos_sin, RopePairing pairing);
void SwiGlu(const float* g, const float* u, int n, float* out);
void GeGlu(const float* g, const float* u, int n, float* out);
void Exp(const float* x, int n, float* out);
int Argmax(const float* x, int n);
void TopK(const float* x, int n, int k, float* values, int32_t* indices);
// The key of one token.
double GumbelKey(const GumbelArgs& a, int token);
int GumbelArgmax(const GumbelArgs& a);

void Scores(const ScoresArgs& a);
void ScoresI8(const ScoresArgs& a);  // of kI8, as the next two of these names
void SoftmaxChunk(float* scores, int n, float* state);
void Values(const ValuesArgs& a);
void ValuesI8(const ValuesArgs& a);
void GatheredValues(const GatheredValuesArgs& a);
void GatheredValuesI8(const GatheredValuesArgs& a);
void MergeState(float* state, const float* chunk, int head_dim);
void FinishState(const float* state, int head_dim, float* out);
void StoreKv(const StoreKvArgs& a);

}  // namespace longspec::kernels::reference
