// SPDX-License-Identifier: Apache-2.0
//
// -m, and which model is meant where it is left out.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Option.hpp>
#include <string>
#include <vector>

#include "longspec/status.h"

namespace longspec::cli {

// Where models lie that nobody names, the nearest first: models/ here, models/ beside the build that the
// program is of, the user's data folder.
std::vector<std::string> ModelFolders();

// The model of the first folder that has any: of those that `make model` fetches the best, else the only GGUF
// file. kInvalidArgument says what would be right.
Result<std::string> ChooseModel(const std::vector<std::string>& folders);

// Declares -m. Left out, it is chosen when all options are read, and a line on stderr says which it is.
CLI::Option* AddModelFile(CLI::App& app, std::string* path, const std::string& description);

}  // namespace longspec::cli
