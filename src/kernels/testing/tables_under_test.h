// SPDX-License-Identifier: Apache-2.0
//
// The tables this machine can compare with the reference.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/ops.h"
#include "kernels/testing/emulated_tile_sums.h"

namespace longspec::kernels::testing {

// Available() without the reference, EmulatedTables(), and the bodies of a GPU's kernels on fibers.
std::vector<const KernelTable*> TablesUnderTest();

// Emulated AMX, and before it emulated AVX-512 if the build was configured on a CPU without. None in
// sanitised builds, without SIMDe where that is needed, or where the CPU lacks AVX2.
std::vector<const KernelTable*> EmulatedTables();

// Of TablesUnderTest() those that have one of these functions (pointers to members of KernelTable) otherwise
// than each table before: of tables that share all of them, one is tested.
template <typename... Function>
std::vector<const KernelTable*> TablesThatDiffer(Function... functions) {
  std::vector<const KernelTable*> tables;
  for (const KernelTable* table : TablesUnderTest()) {
    const auto shares_all = [&](const KernelTable* other) {
      return ((table->*functions == other->*functions) && ...);
    };
    if (std::ranges::none_of(tables, shares_all)) tables.push_back(table);
  }
  return tables;
}

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

// Runs the tests of a fixture derived from TableTest on these tables.
#define LONGSPEC_FOR_TABLES(fixture, tables)                             \
  GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(fixture);                \
  INSTANTIATE_TEST_SUITE_P(Tables, fixture, ::testing::ValuesIn(tables), \
                           ::longspec::kernels::testing::TableTestName)
#define LONGSPEC_FOR_EVERY_TABLE(fixture) \
  LONGSPEC_FOR_TABLES(fixture, ::longspec::kernels::testing::TablesUnderTest())
