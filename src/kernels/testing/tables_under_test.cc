// SPDX-License-Identifier: Apache-2.0
#include "kernels/testing/tables_under_test.h"

#include <cctype>

#include "kernels/dispatch.h"
#include "kernels/tables.h"

namespace longspec::kernels {
#ifdef LONGSPEC_HAVE_EMULATED_AVX512
extern const KernelTable kEmulatedAvx512Table;
#endif

namespace testing {

const KernelTable* EmulatedAvx512() {
#ifdef LONGSPEC_HAVE_EMULATED_AVX512
  for (const KernelTable* table : Available()) {
    if (table == &kAvx2Table) return &kEmulatedAvx512Table;
  }
#endif
  return nullptr;
}

std::vector<const KernelTable*> TablesUnderTest() {
  std::vector<const KernelTable*> tables;
  for (const KernelTable* table : Available()) {
    if (table != &kReferenceTable) tables.push_back(table);
  }
  if (const KernelTable* emulated = EmulatedAvx512()) tables.push_back(emulated);
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
