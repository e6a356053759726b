// SPDX-License-Identifier: Apache-2.0
//
// Cases of bodies that no table has a function for, on a card: names of those that differ from the reference.
#pragma once

#include <string>
#include <vector>

namespace longspec::cuda {

std::vector<std::string> WrongRows();
std::vector<std::string> WrongAttentionOfTypes();
std::vector<std::string> WrongAttentionOfRows();
std::vector<std::string> WrongAttentionOfSizes();

}  // namespace longspec::cuda
