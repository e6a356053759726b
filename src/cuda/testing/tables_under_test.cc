// SPDX-License-Identifier: Apache-2.0
//
// kernels_cuda_test: the suites of kernels_test on a card.
#include "kernels/testing/tables_under_test.h"

#include <cstdio>

#include "cuda/cuda_table.h"

namespace longspec::kernels::testing {

std::vector<const KernelTable*> EmulatedTables() { return {}; }
bool EmulatedTilesAreTrusted(TileSums) { return false; }
std::vector<const KernelTable*> TablesUnderTest() { return {&cuda::CudaTable()}; }
std::string TableTestName(const ::testing::TestParamInfo<const KernelTable*>& info) {
  return info.param->name;
}

}  // namespace longspec::kernels::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (const std::string why = longspec::cuda::NoCard(); !why.empty()) {
    std::fprintf(stderr, "error: no kernels ran on a card: %s\n", why.c_str());
    return 2;
  }
  return RUN_ALL_TESTS();
}
