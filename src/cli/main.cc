// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "cli/program.h"

int main(int argc, char** argv) {
  return longspec::cli::RunProgram(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
