// SPDX-License-Identifier: Apache-2.0
//
// gpu_cuda_test: the suites of gpu_test, and drafts beside a model, on a card.
#include "kernels/testing/card_under_test.h"

#include <cstdio>

#include "gtest/gtest.h"

namespace longspec::kernels::testing {

std::shared_ptr<gpu::Runtime> CardUnderTest() { return *gpu::OpenCard(0); }

}  // namespace longspec::kernels::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (const auto card = longspec::kernels::gpu::OpenCard(0); !card.ok()) {
    std::fprintf(stderr, "error: no model ran on a card: %s\n", card.status().message().c_str());
    return 2;
  }
  return RUN_ALL_TESTS();
}
