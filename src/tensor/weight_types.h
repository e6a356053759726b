// SPDX-License-Identifier: Apache-2.0
//
// The records of all types that weights may have. Each lies beside the code that knows the type's blocks.
#pragma once

#include "tensor/dtype.h"

namespace longspec {

extern const WeightTypeInfo kMXFP4Type, kQ4_0Type, kQ4_1Type, kQ5_0Type, kQ5_1Type, kQ8_0Type,
    kIQ4_NLType;                                                                      // blocks_of_32.cc
extern const WeightTypeInfo kQ3_KType, kIQ4_XSType, kQ4_KType, kQ5_KType, kQ6_KType;  // super_blocks.cc

}  // namespace longspec
