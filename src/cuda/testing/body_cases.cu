// SPDX-License-Identifier: Apache-2.0
#include "cuda/table_device.h"
#include "cuda/testing/body_cases.h"
#include "kernels/testing/fused_attention_cases.h"
#include "kernels/testing/row_cases.h"

namespace longspec::cuda {

std::vector<std::string> WrongRows() { return kernels::testing::RowCases<TableDevice>::All(); }
std::vector<std::string> WrongAttentionOfTypes() {
  return kernels::testing::FusedAttentionCases<TableDevice>::OfTypes();
}
std::vector<std::string> WrongAttentionOfRows() {
  return kernels::testing::FusedAttentionCases<TableDevice>::OfRows();
}
std::vector<std::string> WrongAttentionOfSizes() {
  return kernels::testing::FusedAttentionCases<TableDevice>::OfSizes();
}

}  // namespace longspec::cuda
