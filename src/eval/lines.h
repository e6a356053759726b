// SPDX-License-Identifier: Apache-2.0
//
// Files of lines that grow while an evaluation runs and may end in the middle of a line if it is killed.
#pragma once

#include <string>
#include <string_view>

#include "longspec/status.h"

namespace longspec {

// Appends `lines`, each with its line break. What an interruption has left without one stays a line of its
// own, which readers skip: nothing is glued to it.
Status AppendLines(const std::string& path, std::string_view lines);

}  // namespace longspec
