// SPDX-License-Identifier: Apache-2.0
//
// The naive loops that define every operation (docs/arithmetic.md). They stay for ever: every other table is
// tested against them with memcmp.
#pragma once

#include "kernels/ops.h"

namespace longspec::kernels::reference {

#include "kernels/functions.inc"

float ExpOf(float x);
// The key of one token.
double GumbelKey(const GumbelArgs& a, int token);

}  // namespace longspec::kernels::reference
