// SPDX-License-Identifier: Apache-2.0
//
// The program `longspec`: finds the subcommand, parses its options, runs it.
#pragma once

#include <string>
#include <vector>

namespace longspec::cli {

// `args` without the program's name. Returns the exit status. Called once per process.
int RunProgram(std::vector<std::string> args);

}  // namespace longspec::cli
