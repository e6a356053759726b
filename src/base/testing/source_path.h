// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace longspec::testing {

// Where a file of the repository is; `path` is relative to its root. Only source_path.cc is compiled with the
// root in it, so that a compiler cache serves every copy of the repository.
std::string SourcePath(const std::string& path);

}  // namespace longspec::testing
