// SPDX-License-Identifier: Apache-2.0
//
// The tables this machine can compare with the reference.
#pragma once

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/ops.h"
#include "kernels/testing/emulated_tile_sums.h"

namespace longspec::kernels::testing {

// Available() without the reference, the emulated AVX-512 and AMX tables where this build has them, and the
// bodies of a GPU's kernels on fibers.
std::vector<const KernelTable*> TablesUnderTest();

// None where the build has no SIMDe or the CPU lacks AVX2.
std::vector<const KernelTable*> EmulatedTables();

// What amx.h asks of a CPU before it trusts its tiles, asked of emulated ones. REQUIRES: EmulatedTables() has
// some
bool EmulatedTilesAreTrusted(TileSums sums);

// "avx512 (emulated)" as a test's name.
std::string TableTestName(const ::testing::TestParamInfo<const KernelTable*>& info);

class TableTest : public ::testing::TestWithParam<const KernelTable*> {
 protected:
  const KernelTable& table() const { return *GetParam(); }
};

}  // namespace longspec::kernels::testing

// Runs the tests of a fixture derived from TableTest on every table.
#define LONGSPEC_FOR_EVERY_TABLE(fixture)                                                        \
  GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(fixture);                                        \
  INSTANTIATE_TEST_SUITE_P(Tables, fixture,                                                      \
                           ::testing::ValuesIn(::longspec::kernels::testing::TablesUnderTest()), \
                           ::longspec::kernels::testing::TableTestName)
