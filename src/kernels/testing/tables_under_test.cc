// SPDX-License-Identifier: Apache-2.0
#include "kernels/testing/tables_under_test.h"

#include <cctype>

#include "kernels/dispatch.h"
#include "kernels/tables.h"
#include "kernels/testing/emulated_gpu_table.h"

namespace longspec::kernels {
#ifdef LONGSPEC_EMULATE_AVX512
extern const KernelTable kEmulatedAvx512Table;
#endif
#ifdef LONGSPEC_EMULATE_AMX
extern const KernelTable kEmulatedAmxTable;
namespace emulated_amx {
bool TilesSumAsDocumented();
}
#endif

namespace testing {

std::vector<const KernelTable*> EmulatedTables() {
#if defined(LONGSPEC_EMULATE_AVX512)
  for (const KernelTable* table : Available()) {
    if (table == &kAvx2Table) return {&kEmulatedAvx512Table, &kEmulatedAmxTable};
  }
#elif defined(LONGSPEC_EMULATE_AMX)
  for (const KernelTable* table : Available()) {
    if (table == &kAvx512Table) return {&kEmulatedAmxTable};
  }
#endif
  return {};
}

bool EmulatedTilesAreTrusted([[maybe_unused]] TileSums sums) {
#ifdef LONGSPEC_EMULATE_AMX
  emulated_tile_sums = sums;
  const bool trusted = emulated_amx::TilesSumAsDocumented();
  emulated_tile_sums = TileSums::kDocumented;
  return trusted;
#else
  return false;
#endif
}

std::vector<const KernelTable*> TablesUnderTest() {
  std::vector<const KernelTable*> tables;
  for (const KernelTable* table : Available()) {
    if (table != &kReferenceTable) tables.push_back(table);
  }
  for (const KernelTable* table : EmulatedTables()) tables.push_back(table);
  tables.push_back(&kEmulatedGpuTable);
  return tables;
}

std::string TableTestName(const ::testing::TestParamInfo<const KernelTable*>& info) {
  std::string name;
  for (const char c : std::string(info.param->name)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
  }
  return name;
}

}  // namespace testing
}  // namespace longspec::kernels
