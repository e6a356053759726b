// SPDX-License-Identifier: Apache-2.0
#include "base/testing/source_path.h"

namespace longspec::testing {

std::string SourcePath(const std::string& path) { return LONGSPEC_SOURCE_DIR "/" + path; }

}  // namespace longspec::testing
