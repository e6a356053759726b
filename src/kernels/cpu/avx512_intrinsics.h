// SPDX-License-Identifier: Apache-2.0
//
// Where avx512_*.cc get their intrinsics: the compiler's, or, in a test's second build of the same sources,
// an exact emulation for CPUs without AVX-512. Intrinsics may be macros there: an argument must have no comma
// outside parentheses.
#pragma once

#ifdef LONGSPEC_EMULATE_AVX512
#include "kernels/testing/avx512_emulation.h"
#else
#include <immintrin.h>
#endif
